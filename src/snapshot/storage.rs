//! Where checkpoints are kept.
//!
//! Order of calls for a job: `open`, then those for checkpoints, then `conclude`. What only reads may be called before `open` too.
//! Order of calls for one checkpoint: `begin`, any number of `append`s and one `finish` for each file, from any threads and side by
//! side; then one `commit`, once every file is finished, or one `discard`. After `discard` has returned nothing of the checkpoint is
//! left, and writers that come late are refused.

use std::fmt;

use super::error::SnapshotError;
use super::manifest::{CompletedCheckpoint, StateHandle, Written};
use crate::base::id::{CheckpointId, SubtaskId};

/// Has the files that a snapshot names.
///
/// Called while subtasks are opened, before records flow; may block.
pub trait StateFiles: Send + Sync + fmt::Debug {
    /// The bytes at the handle. Their checksum is *not* verified: [`read_section`](super::reader::read_section) does that.
    ///
    /// # Errors
    /// If the file is missing or too short, or the storage fails.
    fn read(&self, handle: &StateHandle) -> Result<Vec<u8>, SnapshotError>;

    /// The full name of a file that a handle names, for people.
    fn full_name(&self, file: &str) -> String {
        file.to_owned()
    }
}

/// How a job ended, for its storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Conclusion {
    /// It was refused before a record flowed: nothing is changed or removed.
    Rejected,
    /// It is over in this process. Without its checkpoints it cannot go on in another one.
    Ended {
        /// False if its checkpoints are to be removed.
        keeps_checkpoints: bool,
    },
    /// All input was read and everything is published: the job is never run again.
    Finished {
        /// False if its checkpoints are to be removed.
        keeps_checkpoints: bool,
    },
}

/// Keeps the files and the metadata of checkpoints of one job.
///
/// Called by pool threads and by the driver of the coordinator, never by a thread that processes records; may block.
pub trait CheckpointStorage: StateFiles {
    /// The job begins or goes on: nothing is refused any more. Before this call nothing was written.
    ///
    /// # Errors
    /// If the storage fails.
    fn open(&self) -> Result<(), SnapshotError> {
        Ok(())
    }

    /// The job is over in this process. If it is finished, that is made durable before anything is removed. Nothing is left that no
    /// kept checkpoint names, and the storage is given up for others to use. Called at most once, with or without `open` before.
    ///
    /// # Errors
    /// If the storage fails. If it was not the end of the job that could not be made durable, the job's outcome stands all the same.
    fn conclude(&self, _conclusion: Conclusion) -> Result<(), SnapshotError> {
        Ok(())
    }

    /// Where the checkpoint is, for people and for [`restoring`](crate::snapshot) from it: a path, or `memory:chk-N`.
    fn path(&self, checkpoint: CheckpointId) -> String {
        format!("memory:chk-{checkpoint}")
    }

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

    /// Makes the file durable, or answers its bytes if they are too few for a file.
    /// [`SubtaskSnapshot::place`](super::manifest::SubtaskSnapshot::place) takes the answer.
    ///
    /// # Errors
    /// If the checkpoint has been discarded meanwhile, or the storage fails.
    fn finish(self: Box<Self>) -> Result<Written, SnapshotError>;
}

impl fmt::Debug for dyn StateWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StateWriter").field("file", &self.file()).finish_non_exhaustive()
    }
}
