//! The attempt that runs: its subtasks, its next tick, and how far its end has come.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::base::clock::Nanos;
use crate::base::id::{Attempt, CheckpointId, SubtaskId};

/// A failed final checkpoint is repeated after the interval, but not later than this.
const FINAL_RETRY_MAX: Duration = Duration::from_secs(1);

/// The attempt that runs.
#[derive(Debug)]
pub(super) struct Execution {
    pub(super) attempt: Attempt,
    pub(super) subtasks: Arc<[SubtaskId]>,
    pub(super) sources: Arc<[SubtaskId]>,
    /// The subtasks that have not reported their end of input.
    pub(super) reading: BTreeSet<SubtaskId>,
    /// When the next periodic checkpoint is due; stays in the past while it has to wait.
    pub(super) next_tick: Option<Nanos>,
    pub(super) end: End,
}

/// How far the end of the job has come.
#[derive(Debug)]
pub(super) enum End {
    /// Some subtask still reads.
    NotYet,
    /// Checkpointing is off: only a checkpoint in storage is waited for.
    WithoutCheckpoint,
    /// The final checkpoint is under way or has to be begun, not earlier than this.
    FinalCheckpoint { not_before: Nanos },
    /// The final checkpoint is durable; these subtasks have not published everything.
    Publishing { checkpoint: CheckpointId, waiting: BTreeSet<SubtaskId> },
}

impl Execution {
    /// An attempt in which every subtask reads; `subtasks` says which of them are sources.
    pub(super) fn new(
        attempt: Attempt,
        subtasks: &[(SubtaskId, bool)],
        interval: Option<Duration>,
        now: Nanos,
    ) -> Self {
        assert!(!subtasks.is_empty(), "a job has subtasks");
        let sources = subtasks.iter().filter(|(_, is_source)| *is_source);
        Self {
            attempt,
            subtasks: subtasks.iter().map(|(subtask, _)| *subtask).collect(),
            sources: sources.map(|(subtask, _)| *subtask).collect(),
            reading: subtasks.iter().map(|(subtask, _)| *subtask).collect(),
            next_tick: interval.map(|interval| now.after(interval)),
            end: End::NotYet,
        }
    }

    pub(super) fn end_of_input(&mut self, subtask: SubtaskId, checkpointing: bool, now: Nanos) {
        if self.reading.remove(&subtask) && self.reading.is_empty() {
            self.end =
                if checkpointing { End::FinalCheckpoint { not_before: now } } else { End::WithoutCheckpoint };
        }
    }

    /// The final checkpoint failed.
    pub(super) fn repeat_final(&mut self, interval: Duration, now: Nanos) {
        self.end = End::FinalCheckpoint { not_before: now.after(interval.min(FINAL_RETRY_MAX)) };
    }

    /// The final checkpoint is durable.
    pub(super) fn publish(&mut self, checkpoint: CheckpointId) {
        self.end = End::Publishing { checkpoint, waiting: self.subtasks.iter().copied().collect() };
    }

    pub(super) fn notified(&mut self, subtask: SubtaskId, completed: CheckpointId) {
        if let End::Publishing { checkpoint, waiting } = &mut self.end
            && *checkpoint == completed
        {
            waiting.remove(&subtask);
        }
    }

    /// A periodic checkpoint begins now: the tick that was due and those that were missed are used up.
    pub(super) fn use_tick(&mut self, interval: Duration, now: Nanos) {
        self.next_tick = self.next_tick.map(|tick| following_tick(tick, interval, now));
    }
}

/// The first tick after `now` on the grid of `tick` and `interval`.
fn following_tick(tick: Nanos, interval: Duration, now: Nanos) -> Nanos {
    let interval_ns = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX);
    let passed = now.0.saturating_sub(tick.0) / interval_ns;
    Nanos(tick.0.saturating_add(interval_ns.saturating_mul(passed.saturating_add(1))))
}
