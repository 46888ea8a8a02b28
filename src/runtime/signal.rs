//! What the runtime tells the job.

use std::collections::BTreeMap;
use std::time::Duration;

use crossbeam::channel::Sender;

use crate::base::error::Error;
use crate::base::id::{Attempt, CheckpointId, SubtaskId};
use crate::checkpoint::protocol::Report;
use crate::snapshot::SubtaskSnapshot;

/// One message from a subtask, a helper or a snapshot task.
#[derive(Debug)]
pub enum Signal {
    /// The subtask is open, its state restored; it waits for the start.
    Opened {
        /// Attempt of the sender.
        attempt: Attempt,
        /// The sender.
        subtask: SubtaskId,
    },
    /// Something for the checkpoint coordinator.
    Report(Report<SubtaskSnapshot>),
    /// A subtask has forked its state for a checkpoint.
    Forked {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// First barrier to last; `None` for sources, which have nothing to align.
        alignment: Option<Duration>,
        /// Last barrier taken to next record that may be processed.
        sync_pause: Duration,
    },
    /// A snapshot is written.
    Written {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// From the fork until all bytes were written.
        duration: Duration,
    },
    /// The subtask or one of its helpers failed.
    Failed {
        /// Attempt of the sender.
        attempt: Attempt,
        /// What happened, with operator and subtask.
        error: Error,
    },
    /// The subtask has closed its operators: all is done.
    Finished {
        /// Attempt of the sender.
        attempt: Attempt,
        /// The sender.
        subtask: SubtaskId,
        /// What its operators accumulated.
        accumulators: BTreeMap<String, u64>,
    },
}

/// Takes signals, from any thread. The job may have gone already: nobody minds.
pub trait SignalSink: Send + Sync + std::fmt::Debug {
    /// Hands over one signal. Never blocks.
    fn send(&self, signal: Signal);
}

impl<T: From<Signal> + Send + std::fmt::Debug> SignalSink for Sender<T> {
    fn send(&self, signal: Signal) {
        let _ = Sender::send(self, signal.into());
    }
}
