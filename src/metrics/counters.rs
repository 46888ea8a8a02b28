//! Counters of one subtask.

use std::sync::atomic::{AtomicU64, Ordering};

/// Numbers of one subtask that others may read at any time. Each is written by its subtask alone, once per step.
#[derive(Debug, Default)]
pub struct SubtaskCounters {
    /// Records that sources of the subtask have handed on, in this attempt.
    pub records_in: AtomicU64,
    /// Records that sinks of the subtask have taken, in this attempt.
    pub records_out: AtomicU64,
}

impl SubtaskCounters {
    /// Adds to a counter of the calling subtask. One writer: a plain load and store, no locked instruction.
    #[inline]
    pub fn add(counter: &AtomicU64, count: u64) {
        if count > 0 {
            counter.store(counter.load(Ordering::Relaxed) + count, Ordering::Relaxed);
        }
    }
}
