//! What transactional sinks and the job owe each other around the executions of a job.

use std::fmt;

use super::later::{Later, LaterSender, later};
use crate::base::error::BoxError;
use crate::base::id::CheckpointId;

/// Name of the list state in which a transactional sink keeps its transactions.
pub const TRANSACTIONS: &str = "transactions";

/// The part of a transactional sink that does not belong to one subtask: it acts while none of them runs.
///
/// Order of calls: `claim` once; `settle` before the records of each execution flow, and once more when the job is over; then it is
/// dropped, which gives up what `claim` took. It may block.
pub trait SinkRecovery: Send {
    /// Takes the place where output goes for this job alone.
    ///
    /// # Errors
    /// If it is in use, or holds what must not be added to. The job is then refused.
    fn claim(&mut self, cx: &SinkClaim) -> Result<(), BoxError>;

    /// Brings the outside into line with a checkpoint: publishes what it promises and removes all that is not published.
    /// `transactions` are the items of [`TRANSACTIONS`] of all subtasks. May be repeated, also after it failed half way.
    ///
    /// # Errors
    /// If something that was promised cannot be published.
    fn settle(&mut self, transactions: &[Vec<u8>]) -> Result<(), BoxError>;
}

impl fmt::Debug for dyn SinkRecovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SinkRecovery").finish_non_exhaustive()
    }
}

/// How a job begins, for its sinks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SinkClaim {
    /// The checkpoint from which the job goes on.
    pub restored: Option<CheckpointId>,
    /// True if the job was begun by an earlier process: its own unpublished output may be there.
    pub resumes: bool,
    /// True if the job was finished by an earlier process: all of its output is there.
    pub is_finished: bool,
    /// True if output that was published after `restored` may be repeated.
    pub allows_repeated_output: bool,
    /// Who takes it, for whoever else wants it.
    pub owner: String,
}

/// What a sink is given when a checkpoint is taken.
#[derive(Debug)]
pub struct PreCommitContext {
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    pub(crate) later: Option<Later<Vec<Vec<u8>>>>,
}

impl PreCommitContext {
    /// For the checkpoint of this id.
    #[must_use]
    pub fn new(checkpoint: CheckpointId) -> Self {
        Self { checkpoint, later: None }
    }

    /// The subtask's part of the checkpoint waits for these items of [`TRANSACTIONS`]. An error, or to drop the sender, declines the
    /// checkpoint.
    pub fn transactions_later(&mut self) -> LaterSender<Vec<Vec<u8>>> {
        let (sender, receiver) = later();
        self.later = Some(receiver);
        sender
    }
}
