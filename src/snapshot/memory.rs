//! Checkpoints in memory, for jobs that need not survive their process and for tests.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::error::SnapshotError;
use super::manifest::{CompletedCheckpoint, Location, SnapshotFile, StateHandle, Written};
use super::storage::{CheckpointStorage, StateFiles, StateWriter};
use crate::base::id::{CheckpointId, SubtaskId};

/// So many discarded ids are remembered, to refuse writers that come late.
const REMEMBERED_DISCARDS: usize = 1024;

/// Keeps checkpoints in memory; clones share the contents.
#[derive(Debug, Clone, Default)]
pub struct MemoryStorage {
    shared: Arc<Mutex<Contents>>,
}

#[derive(Debug, Default)]
struct Contents {
    files: BTreeMap<String, File>,
    completed: BTreeMap<CheckpointId, CompletedCheckpoint>,
    discarded: BTreeSet<CheckpointId>,
    /// Makes file names unique when a subtask writes more than one file.
    files_begun: u64,
}

#[derive(Debug)]
struct File {
    checkpoint: CheckpointId,
    /// `None` while the file is being written.
    bytes: Option<Vec<u8>>,
}

impl MemoryStorage {
    /// An empty storage.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of files, finished or not.
    #[must_use]
    pub fn files(&self) -> usize {
        self.contents().files.len()
    }

    /// Bytes in all finished files.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.contents().files.values().filter_map(|file| file.bytes.as_ref()).map(Vec::len).sum()
    }

    fn contents(&self) -> MutexGuard<'_, Contents> {
        // Every change is made in one step, so a panic elsewhere leaves nothing half done.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Contents {
    fn refuse_discarded(&self, checkpoint: CheckpointId) -> Result<(), SnapshotError> {
        if self.discarded.contains(&checkpoint) {
            Err(SnapshotError::Discarded { checkpoint })
        } else {
            Ok(())
        }
    }

    fn section<'a>(&'a self, handle: &'a StateHandle) -> Result<&'a [u8], SnapshotError> {
        let range = match &handle.location {
            Location::File(range) => range,
            Location::Inline(bytes) => return Ok(bytes),
        };
        let file = self.files.get(&range.file).and_then(|file| file.bytes.as_deref());
        let bytes = file.ok_or_else(|| SnapshotError::MissingFile { file: range.file.clone() })?;
        range.of(bytes).ok_or_else(|| range.outside(bytes.len() as u64, &range.file))
    }
}

impl StateFiles for MemoryStorage {
    fn read(&self, handle: &StateHandle) -> Result<Vec<u8>, SnapshotError> {
        self.contents().section(handle).map(<[u8]>::to_vec)
    }
}

impl CheckpointStorage for MemoryStorage {
    fn begin(
        &self,
        checkpoint: CheckpointId,
        subtask: SubtaskId,
    ) -> Result<Box<dyn StateWriter>, SnapshotError> {
        let mut contents = self.contents();
        contents.refuse_discarded(checkpoint)?;
        let file = format!("chk-{checkpoint}/{subtask}-{}", contents.files_begun);
        contents.files_begun += 1;
        contents.files.insert(file.clone(), File { checkpoint, bytes: None });
        Ok(Box::new(MemoryWriter { storage: self.clone(), checkpoint, file, bytes: Vec::new() }))
    }

    fn commit(&self, checkpoint: &CompletedCheckpoint) -> Result<(), SnapshotError> {
        let mut contents = self.contents();
        contents.refuse_discarded(checkpoint.id)?;
        for handle in checkpoint.handles() {
            contents.section(handle)?;
        }
        contents.completed.insert(checkpoint.id, checkpoint.clone());
        Ok(())
    }

    fn discard(&self, checkpoint: CheckpointId) -> Result<(), SnapshotError> {
        let mut contents = self.contents();
        contents.completed.remove(&checkpoint);
        contents.files.retain(|_, file| file.checkpoint != checkpoint);
        contents.discarded.insert(checkpoint);
        if contents.discarded.len() > REMEMBERED_DISCARDS {
            contents.discarded.pop_first();
        }
        Ok(())
    }

    fn newest(&self) -> Result<Option<CompletedCheckpoint>, SnapshotError> {
        Ok(self.contents().completed.values().next_back().cloned())
    }

    fn highest_id(&self) -> Result<Option<CheckpointId>, SnapshotError> {
        let contents = self.contents();
        let begun = contents.files.values().map(|file| file.checkpoint);
        let committed = contents.completed.keys().copied();
        Ok(begun.chain(committed).chain(contents.discarded.iter().copied()).max())
    }

    fn list(&self) -> Result<Vec<CheckpointId>, SnapshotError> {
        Ok(self.contents().completed.keys().copied().collect())
    }
}

/// Collects the bytes of one file and hands them over in one step.
struct MemoryWriter {
    storage: MemoryStorage,
    checkpoint: CheckpointId,
    file: String,
    bytes: Vec<u8>,
}

impl StateWriter for MemoryWriter {
    fn file(&self) -> &str {
        &self.file
    }

    fn append(&mut self, bytes: &[u8]) -> Result<u64, SnapshotError> {
        let offset = self.bytes.len() as u64;
        self.bytes.extend_from_slice(bytes);
        Ok(offset)
    }

    fn finish(mut self: Box<Self>) -> Result<Written, SnapshotError> {
        let mut contents = self.storage.contents();
        let discarded = SnapshotError::Discarded { checkpoint: self.checkpoint };
        let file = contents.files.get_mut(&self.file).ok_or(discarded)?;
        let length = self.bytes.len() as u64;
        file.bytes = Some(std::mem::take(&mut self.bytes));
        Ok(Written::File(SnapshotFile { file: self.file.clone(), length }))
    }
}

impl Drop for MemoryWriter {
    fn drop(&mut self) {
        let mut contents = self.storage.contents();
        if contents.files.get(&self.file).is_some_and(|file| file.bytes.is_none()) {
            contents.files.remove(&self.file);
        }
    }
}
