//! What the coordinator is told and what it wants done.

use std::sync::Arc;
use std::time::Duration;

use super::protocol::{AbortReason, Report, RequestId};
use crate::base::id::{Attempt, CheckpointId, SubtaskId};

/// What the coordinator is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event<S> {
    /// All subtasks of this attempt are running. The first periodic checkpoint follows one interval later.
    Started {
        /// The attempt.
        attempt: Attempt,
        /// Every subtask, and whether it is a source.
        subtasks: Vec<(SubtaskId, bool)>,
    },
    /// Time has passed.
    Timer,
    /// Somebody asks for a checkpoint. It is answered once, by [`Action::Answer`]; between two attempts it waits.
    TriggerRequested(RequestId),
    /// A subtask reports.
    Report(Report<S>),
    /// The checkpoint is durable.
    Stored {
        /// The checkpoint.
        checkpoint: CheckpointId,
    },
    /// The checkpoint could not be made durable and can never come to light: whoever reports this has made sure that
    /// nothing at its place will be taken for a completed checkpoint. The parts handed out with [`Action::Store`] are
    /// the reporter's to remove.
    StoreFailed {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// What the storage said.
        reason: String,
    },
    /// The attempt is over without result.
    AttemptFailed {
        /// The attempt.
        attempt: Attempt,
    },
    /// The job is cancelled, suspended or given up: no checkpoint begins any more.
    Shutdown,
}

/// What the coordinator wants done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action<S> {
    /// Ask these subtasks, the sources, for a barrier.
    Trigger {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// The sources, in order.
        sources: Arc<[SubtaskId]>,
    },
    /// Make the checkpoint durable and answer.
    Store {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// The parts of all subtasks, in order.
        snapshots: Vec<(SubtaskId, S)>,
    },
    /// Tell all subtasks of the running attempt that the checkpoint is durable.
    NotifyComplete {
        /// The checkpoint.
        checkpoint: CheckpointId,
    },
    /// Tell all subtasks that are still there that the checkpoint will not be completed.
    NotifyAborted {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// Why, for the log.
        reason: AbortReason,
    },
    /// Remove files that nothing needs.
    Discard {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// What is to be removed.
        cause: DiscardCause,
        /// Parts whose files belong to nothing else; empty for [`DiscardCause::Retired`].
        snapshots: Vec<S>,
    },
    /// Answer a request: with a completed checkpoint that was begun after the request or, if the request came while the
    /// final checkpoint was under way, with that one.
    Answer {
        /// The request.
        request: RequestId,
        /// The outcome.
        result: Result<CheckpointId, AbortReason>,
    },
    /// Too many checkpoints failed in a row: end this attempt. All that were under way have been aborted.
    FailJob {
        /// The last failure.
        reason: AbortReason,
    },
    /// Everything is done: the subtasks may end, the job is finished.
    Finish,
}

/// What is to be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiscardCause {
    /// A completed checkpoint that is no longer retained.
    Retired,
    /// What there is of an aborted checkpoint.
    Aborted,
    /// One more part of a checkpoint that was aborted before; it must not remove what a retained checkpoint refers to.
    Late,
}

/// How many checkpoints there were. `triggered` is the sum of the other three and of those under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CheckpointCounts {
    /// Begun.
    pub triggered: u64,
    /// Completed.
    pub completed: u64,
    /// Aborted for any reason but the next one.
    pub failed: u64,
    /// Aborted since a newer one completed.
    pub subsumed: u64,
    /// The last one that completed.
    pub last: Option<LastCheckpoint>,
}

/// A completed checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastCheckpoint {
    /// Its number.
    pub id: CheckpointId,
    /// From its trigger until it was durable.
    pub duration: Duration,
}
