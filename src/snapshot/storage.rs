//! Where checkpoints are kept.
//!
//! Order of calls for one checkpoint: `begin`, any number of `append`s and one `finish` for each file, from any threads and
//! side by side; then one `commit`, once every file is finished, or one `discard`. After `discard` has returned nothing of
//! the checkpoint is left, and writers that come late are refused.

use std::fmt;

use super::error::SnapshotError;
use super::manifest::{CompletedCheckpoint, StateHandle};
use crate::base::id::{CheckpointId, SubtaskId};

/// Keeps the files and the metadata of checkpoints.
///
/// Called by pool threads and by the driver of the coordinator, never by a thread that processes records; may block.
pub trait CheckpointStorage: Send + Sync + fmt::Debug {
    /// Starts a new file for what the subtask contributes to the checkpoint.
    ///
    /// # Errors
    /// If the checkpoint has been discarded, or the storage fails.
    fn begin(
        &self,
        checkpoint: CheckpointId,
        subtask: SubtaskId,
    ) -> Result<Box<dyn StateWriter>, SnapshotError>;

    /// Makes the checkpoint durable: once this returns, [`newest`](Self::newest) finds it even after a crash.
    ///
    /// # Errors
    /// If a file that it refers to is missing, the checkpoint has been discarded, or the storage fails.
    fn commit(&self, checkpoint: &CompletedCheckpoint) -> Result<(), SnapshotError>;

    /// The bytes at the handle. Their checksum is *not* verified: [`read_section`](super::reader::read_section) does that.
    ///
    /// # Errors
    /// If the file is missing or too short, or the storage fails.
    fn read(&self, handle: &StateHandle) -> Result<Vec<u8>, SnapshotError>;

    /// Removes the checkpoint, whether it was committed or not, and all of its files. It need not exist.
    ///
    /// # Errors
    /// If the storage fails.
    fn discard(&self, checkpoint: CheckpointId) -> Result<(), SnapshotError>;

    /// The committed checkpoint with the highest id.
    ///
    /// # Errors
    /// If the storage fails or the metadata is damaged.
    fn newest(&self) -> Result<Option<CompletedCheckpoint>, SnapshotError>;

    /// The highest id of which the storage knows, whatever became of the checkpoint: a new life of the job counts on from here.
    ///
    /// # Errors
    /// If the storage fails.
    fn highest_id(&self) -> Result<Option<CheckpointId>, SnapshotError> {
        Ok(self.list()?.last().copied())
    }

    /// Ids of the committed checkpoints, in ascending order.
    ///
    /// # Errors
    /// If the storage fails.
    fn list(&self) -> Result<Vec<CheckpointId>, SnapshotError>;
}

/// Writes one file of a checkpoint. Dropped before `finish`, it leaves nothing that a checkpoint could refer to.
pub trait StateWriter: Send {
    /// Name of the file, relative to the storage; what handles refer to.
    fn file(&self) -> &str;

    /// Adds bytes at the end and answers the offset of the first.
    ///
    /// # Errors
    /// If the storage fails.
    fn append(&mut self, bytes: &[u8]) -> Result<u64, SnapshotError>;

    /// Makes the file durable and answers its name.
    ///
    /// # Errors
    /// If the checkpoint has been discarded meanwhile, or the storage fails.
    fn finish(self: Box<Self>) -> Result<String, SnapshotError>;
}

impl fmt::Debug for dyn StateWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StateWriter").field("file", &self.file()).finish_non_exhaustive()
    }
}
