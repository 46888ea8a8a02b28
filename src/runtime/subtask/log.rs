//! What a subtask says in the log: something per execution and per checkpoint, nothing per record.

use std::time::Duration;

use super::Subtask;
use crate::align::CancelCause;
use crate::base::id::{CheckpointId, JobId, OperatorUid, SubtaskId};
use crate::operator::context::Restored;

/// Who speaks: the fields of every line.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) job: JobId,
    pub(super) chain: OperatorUid,
    pub(super) subtask: SubtaskId,
}

/// A line in the name of a subtask.
macro_rules! say {
    ($place:expr, $($fields:tt)*) => {
        tracing::debug!(
            target: "stoplog::runtime::subtask",
            job = %$place.job, operator = %$place.chain, subtask = %$place.subtask, $($fields)*
        )
    };
}
pub(super) use say;

/// Milliseconds, to the microsecond.
pub(super) fn millis(duration: Duration) -> f64 {
    duration.as_micros() as f64 / 1000.0
}

impl Subtask {
    /// What surrounds lines of the operators' own. Its level is the highest, so that it is there whatever the lines' level is.
    pub(super) fn span(&self) -> tracing::Span {
        tracing::error_span!(
            target: "stoplog::runtime::subtask", "subtask",
            job = %self.place.job, operator = %self.place.chain, subtask = %self.place.subtask
        )
    }

    pub(super) fn log_opened(&self, restored: Option<&Restored>, duration: Duration) {
        match restored {
            None => say!(self.place, "started from nothing"),
            Some(restored) => say!(
                self.place,
                checkpoint = %restored.checkpoint,
                bytes = self.restored_bytes(restored),
                restore_ms = millis(duration),
                "restored"
            ),
        }
    }

    fn restored_bytes(&self, restored: &Restored) -> u64 {
        let range = self.key_groups.range(self.id.index);
        let bytes = restored.operators.values().map(|operator| {
            let lists = operator.list.values().flatten().map(|item| item.len() as u64).sum::<u64>();
            lists + operator.keyed.as_ref().map_or(0, |keyed| keyed.bytes(range))
        });
        bytes.sum()
    }

    /// An alignment lasts from the first barrier to the last; that of a source is zero.
    pub(super) fn log_snapshot(&self, checkpoint: CheckpointId, sync_pause: Duration, alignment: Duration) {
        say!(
            self.place, %checkpoint,
            sync_ms = millis(sync_pause), alignment_ms = millis(alignment), "snapshot taken"
        );
    }

    pub(super) fn log_cancelled(&self, checkpoint: CheckpointId, cause: CancelCause) {
        say!(self.place, %checkpoint, %cause, "checkpoint cancelled");
    }
}
