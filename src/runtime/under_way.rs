//! Which checkpoints are under way, for those who write snapshots.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use crate::base::id::CheckpointId;

/// The checkpoints that have been triggered and are neither completed nor aborted.
///
/// A snapshot may wait for its turn in the pool longer than its checkpoint lives. Without a look here it would be written for
/// nobody, delay the next one past its timeout too, and keep its fork of the state in memory until then.
#[derive(Debug, Default)]
pub struct CheckpointsUnderWay {
    ids: Mutex<BTreeSet<CheckpointId>>,
}

impl CheckpointsUnderWay {
    /// The checkpoint was triggered.
    pub fn begin(&self, checkpoint: CheckpointId) {
        self.with(|ids| ids.insert(checkpoint));
    }

    /// The checkpoint is completed or aborted.
    pub fn end(&self, checkpoint: CheckpointId) {
        self.with(|ids| ids.remove(&checkpoint));
    }

    /// True between the two.
    #[must_use]
    pub fn contains(&self, checkpoint: CheckpointId) -> bool {
        self.with(|ids| ids.contains(&checkpoint))
    }

    fn with<R>(&self, use_them: impl FnOnce(&mut BTreeSet<CheckpointId>) -> R) -> R {
        use_them(&mut self.ids.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
