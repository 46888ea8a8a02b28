//! What subtasks and coordinator say to each other.
//!
//! Every message names the attempt it belongs to; one of another attempt is dropped on both sides. Both directions keep
//! the order in which messages were sent.

use crate::base::id::{Attempt, CheckpointId, SubtaskId};

/// From the coordinator to a subtask.
///
/// `Complete` and `Abort` may reach a subtask before the barrier of the checkpoint does, after it, or for a checkpoint
/// that it never hears of otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// To sources only: put the barrier into all outputs between two records and take the snapshot.
    Trigger(CheckpointId),
    /// The checkpoint is durable: publish what was prepared for it or for an earlier one, then answer
    /// [`Message::Notified`].
    Complete(CheckpointId),
    /// The checkpoint will not be completed.
    ///
    /// This never undoes what a sink prepared: the records before the barrier stay processed, so their output belongs to
    /// the next checkpoint that completes.
    Abort(CheckpointId),
}

/// From a subtask to the coordinator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report<S> {
    /// The attempt of the sender.
    pub attempt: Attempt,
    /// The sender.
    pub subtask: SubtaskId,
    /// What it says.
    pub message: Message<S>,
}

/// What a subtask says; `S` stands for its part of a snapshot, into which the coordinator never looks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message<S> {
    /// The subtask's part of the checkpoint is written. Sent at most once per checkpoint.
    Acknowledge {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// The part.
        snapshot: S,
    },
    /// The subtask cannot take part in the checkpoint.
    Decline {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// Why not, for people.
        reason: String,
    },
    /// The subtask has read all of its input and handed everything on. It goes on taking part in checkpoints.
    EndOfInput,
    /// The subtask has published everything that the completed checkpoint lets it publish.
    Notified {
        /// The checkpoint.
        checkpoint: CheckpointId,
    },
}

/// A request for a checkpoint by hand; the caller picks the number and finds its answer by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(pub u64);

/// Why a checkpoint did not complete, or was not even begun.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AbortReason {
    /// A subtask declined.
    #[error("a subtask declined: {reason}")]
    Declined {
        /// The subtask.
        subtask: SubtaskId,
        /// What it said.
        reason: String,
    },
    /// Acknowledgements were missing at the timeout.
    #[error("{missing} acknowledgements were missing at execution.checkpointing.timeout")]
    TimedOut {
        /// How many.
        missing: usize,
    },
    /// It could not be made durable.
    #[error("it could not be made durable: {reason}")]
    StoreFailed {
        /// What the storage said.
        reason: String,
    },
    /// A newer checkpoint completed first.
    #[error("checkpoint {by} completed first")]
    Subsumed {
        /// The newer one.
        by: CheckpointId,
    },
    /// The execution to which it belonged ended.
    #[error("the execution failed while it was under way")]
    AttemptFailed,
    /// The job has read all of its input and will take no further checkpoint.
    #[error("the job has read all of its input")]
    JobFinished,
    /// The job is being stopped.
    #[error("the job is being stopped")]
    ShuttingDown,
}
