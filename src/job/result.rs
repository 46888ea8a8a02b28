//! What became of a job, and what can be seen while it runs.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::lifecycle::JobState;
use crate::base::error::Error;
use crate::base::id::{CheckpointId, JobId};
use crate::checkpoint::CheckpointCounts;
use crate::metrics::{Durations, SubtaskCounters};

/// The last completed checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CheckpointSummary {
    /// Its id.
    pub id: CheckpointId,
    /// Trigger to durable completion.
    pub duration: Duration,
    /// Longest synchronous part of a subtask.
    pub sync_max: Duration,
    /// Longest asynchronous part of a subtask.
    pub async_max: Duration,
    /// Longest alignment of a subtask.
    pub alignment_max: Duration,
    /// Bytes written.
    pub bytes: u64,
}

/// What became of a job.
#[derive(Debug, Clone)]
pub struct JobResult {
    /// Identity of the job.
    pub job_id: JobId,
    /// Name of the job.
    pub name: String,
    /// A terminal state.
    pub state: JobState,
    /// Records that sources handed on, replayed ones included.
    pub records_in: u64,
    /// Records that sinks took, repeated ones included.
    pub records_out: u64,
    /// From the start of the first execution, when all of its subtasks were open, to the end of the last.
    pub duration: Duration,
    /// Time that the last execution took to open its subtasks and to restore their state.
    pub restore: Duration,
    /// How often the job was restarted.
    pub restarts: u32,
    /// Where the snapshot is that the last execution was restored from: a path, or `memory:chk-N`.
    pub restored_from: Option<String>,
    /// How many checkpoints there were.
    pub checkpoints: CheckpointCounts,
    /// The last one that completed.
    pub last_checkpoint: Option<CheckpointSummary>,
    /// Where it is, or was before it was removed.
    pub last_checkpoint_path: Option<String>,
    /// First to last barrier of each alignment, per subtask and checkpoint, in microseconds.
    pub alignment_us: Durations,
    /// Synchronous part of each snapshot, per subtask and checkpoint, in microseconds.
    pub sync_pause_us: Durations,
    /// Trigger to completion of each checkpoint, in microseconds.
    pub checkpoint_duration_us: Durations,
    /// What operators accumulated when the job was finished.
    pub accumulators: BTreeMap<String, u64>,
    /// Why the job failed, if it did.
    pub error: Option<Error>,
}

/// What can be seen of a job while it runs. Cheap to read, from any thread.
#[derive(Debug)]
pub struct JobStatus {
    shared: Mutex<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: JobState,
    counters: Vec<Arc<SubtaskCounters>>,
    /// Of the executions before this one.
    earlier_in: u64,
    earlier_out: u64,
    checkpoints: CheckpointCounts,
    in_flight: Option<CheckpointId>,
    last: Option<CheckpointSummary>,
    worst_alignment: Duration,
    restarts: u32,
}

/// A moment in the life of a job.
#[derive(Debug, Clone, Copy)]
pub struct JobProgress {
    /// The state.
    pub state: JobState,
    /// See [`JobResult::records_in`].
    pub records_in: u64,
    /// See [`JobResult::records_out`].
    pub records_out: u64,
    /// How many checkpoints there were.
    pub checkpoints: CheckpointCounts,
    /// The oldest checkpoint under way.
    pub in_flight: Option<CheckpointId>,
    /// The last one that completed.
    pub last_checkpoint: Option<CheckpointSummary>,
    /// The longest alignment so far.
    pub worst_alignment: Duration,
    /// How often the job was restarted.
    pub restarts: u32,
}

impl Default for JobStatus {
    fn default() -> Self {
        Self {
            shared: Mutex::new(Shared {
                state: JobState::Created,
                counters: Vec::new(),
                earlier_in: 0,
                earlier_out: 0,
                checkpoints: CheckpointCounts::default(),
                in_flight: None,
                last: None,
                worst_alignment: Duration::ZERO,
                restarts: 0,
            }),
        }
    }
}

impl Shared {
    fn records(&self) -> (u64, u64) {
        self.counters.iter().fold(
            (self.earlier_in, self.earlier_out),
            |(records_in, records_out), counters| {
                (
                    records_in + counters.records_in.load(Ordering::Relaxed),
                    records_out + counters.records_out.load(Ordering::Relaxed),
                )
            },
        )
    }
}

impl JobStatus {
    fn with<R>(&self, use_it: impl FnOnce(&mut Shared) -> R) -> R {
        use_it(&mut self.shared.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// How the job is doing now.
    #[must_use]
    pub fn progress(&self) -> JobProgress {
        self.with(|shared| {
            let (records_in, records_out) = shared.records();
            JobProgress {
                state: shared.state,
                records_in,
                records_out,
                checkpoints: shared.checkpoints,
                in_flight: shared.in_flight,
                last_checkpoint: shared.last,
                worst_alignment: shared.worst_alignment,
                restarts: shared.restarts,
            }
        })
    }

    pub(super) fn set_state(&self, state: JobState) {
        self.with(|shared| shared.state = state);
    }

    /// A new execution with these counters begins.
    pub(super) fn set_counters(&self, counters: Vec<Arc<SubtaskCounters>>) {
        self.with(|shared| {
            (shared.earlier_in, shared.earlier_out) = shared.records();
            shared.counters = counters;
        });
    }

    pub(super) fn set_restarts(&self, restarts: u32) {
        self.with(|shared| shared.restarts = restarts);
    }

    pub(super) fn set_checkpoints(
        &self,
        counts: CheckpointCounts,
        in_flight: Option<CheckpointId>,
        last: Option<CheckpointSummary>,
        worst_alignment: Duration,
    ) {
        self.with(|shared| {
            shared.checkpoints = counts;
            shared.in_flight = in_flight;
            shared.last = last;
            shared.worst_alignment = worst_alignment;
        });
    }
}
