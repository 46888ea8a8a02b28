//! Results for the embedding process, exactly once.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::base::error::BoxError;
use crate::base::id::{CheckpointId, SubtaskIndex};
use crate::base::progress::Flow;
use crate::operator::{OpenContext, PreCommitContext, Sink};

/// Keeps records until they are taken. With checkpoints on, a record can be taken once its checkpoint is complete, so that a
/// restart neither repeats nor loses it; with checkpoints off, once the job is finished.
///
/// All clones share what was collected.
pub struct CollectSink<T> {
    collected: Arc<Mutex<Collected<T>>>,
    subtask: SubtaskIndex,
    checkpointing: bool,
    /// Written since the last barrier.
    current: Vec<T>,
}

struct Collected<T> {
    committed: Vec<T>,
    /// Pre-committed, by checkpoint and subtask.
    pending: BTreeMap<(CheckpointId, SubtaskIndex), Vec<T>>,
}

impl<T> CollectSink<T> {
    /// A sink that has collected nothing.
    #[must_use]
    pub fn new() -> Self {
        let collected = Collected { committed: Vec::new(), pending: BTreeMap::new() };
        Self {
            collected: Arc::new(Mutex::new(collected)),
            subtask: SubtaskIndex(0),
            checkpointing: false,
            current: Vec::new(),
        }
    }

    /// Takes out what can be taken. Records of one subtask are in order; between subtasks there is none.
    #[must_use]
    pub fn take(&self) -> Vec<T> {
        std::mem::take(&mut self.lock().committed)
    }

    fn lock(&self) -> MutexGuard<'_, Collected<T>> {
        self.collected.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Default for CollectSink<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Clone for CollectSink<T> {
    fn clone(&self) -> Self {
        Self {
            collected: Arc::clone(&self.collected),
            subtask: self.subtask,
            checkpointing: self.checkpointing,
            current: Vec::new(),
        }
    }
}

impl<T> fmt::Debug for CollectSink<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CollectSink").field("committed", &self.lock().committed.len()).finish_non_exhaustive()
    }
}

impl<T> Collected<T> {
    /// Moves the pending records up to the checkpoint to the committed ones: those of one subtask, or of all.
    fn commit(&mut self, checkpoint: CheckpointId, subtask: Option<SubtaskIndex>) {
        let due = |(id, index): &(CheckpointId, SubtaskIndex)| {
            *id <= checkpoint && subtask.is_none_or(|subtask| subtask == *index)
        };
        let keys: Vec<_> = self.pending.keys().copied().filter(due).collect();
        for key in keys {
            self.committed.extend(self.pending.remove(&key).unwrap_or_default());
        }
    }
}

impl<T: Send + 'static> Sink<T> for CollectSink<T> {
    fn open(&mut self, cx: &mut OpenContext<'_>) -> Result<(), BoxError> {
        self.subtask = cx.subtask;
        self.checkpointing = cx.checkpointing;
        let restored = cx.restored.map(|restored| restored.checkpoint);
        let mut collected = self.lock();
        // What belongs to the checkpoint was promised by it, whether or not word of its completion got here; the rest will
        // be written again. Another parallelism leaves parts of subtasks that are gone: the first subtask sees to all.
        if let Some(checkpoint) = restored {
            collected.commit(checkpoint, None);
        }
        collected.pending.clear();
        Ok(())
    }

    #[inline]
    fn write(&mut self, record: T) -> Result<Flow, BoxError> {
        self.current.push(record);
        Ok(Flow::Continue)
    }

    fn pre_commit(&mut self, cx: &mut PreCommitContext) -> Result<(), BoxError> {
        let checkpoint = cx.checkpoint;
        let records = std::mem::take(&mut self.current);
        let subtask = self.subtask;
        // Two sinks of a job may share one collection: neither replaces what the other has promised.
        self.lock().pending.entry((checkpoint, subtask)).or_default().extend(records);
        Ok(())
    }

    fn notify_complete(&mut self, checkpoint: CheckpointId) -> Result<(), BoxError> {
        self.lock().commit(checkpoint, Some(self.subtask));
        Ok(())
    }

    fn close(&mut self) -> Result<(), BoxError> {
        // With checkpoints the final one has committed everything. Without, a checkpoint by hand may have been abandoned.
        if !self.checkpointing {
            let (records, subtask) = (std::mem::take(&mut self.current), self.subtask);
            let mut collected = self.lock();
            collected.commit(CheckpointId(u64::MAX), Some(subtask));
            collected.committed.extend(records);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records that were promised to a checkpoint by hand were lost if it was abandoned and periodic ones were off.
    #[test]
    fn without_checkpoints_an_abandoned_one_by_hand_loses_nothing() {
        let mut sink = CollectSink::new();
        for n in 1..=2 {
            assert_eq!(sink.write(n).unwrap(), Flow::Continue);
            sink.pre_commit(&mut PreCommitContext::new(CheckpointId(n))).unwrap();
            sink.notify_aborted(CheckpointId(n)).unwrap();
        }
        assert_eq!(sink.write(3).unwrap(), Flow::Continue);
        assert!(sink.take().is_empty());
        sink.close().unwrap();
        assert_eq!(sink.take(), [1, 2, 3]);
    }
}
