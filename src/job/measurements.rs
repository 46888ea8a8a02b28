//! What the checkpoints of a job took.

use std::collections::BTreeMap;
use std::time::Duration;

use super::result::CheckpointSummary;
use crate::base::id::CheckpointId;
use crate::checkpoint::LastCheckpoint;
use crate::metrics::{Durations, new_durations, record};

/// Histograms over all checkpoints, and a summary of each one under way.
#[derive(Debug)]
pub(super) struct Measurements {
    pub(super) alignment_us: Durations,
    pub(super) sync_pause_us: Durations,
    pub(super) checkpoint_duration_us: Durations,
    pub(super) last: Option<CheckpointSummary>,
    pub(super) worst_alignment: Duration,
    under_way: BTreeMap<CheckpointId, CheckpointSummary>,
    /// The newest checkpoint that is completed or aborted: what comes late for it or an older one is not kept.
    settled: CheckpointId,
}

impl Default for Measurements {
    fn default() -> Self {
        Self {
            alignment_us: new_durations(),
            sync_pause_us: new_durations(),
            checkpoint_duration_us: new_durations(),
            last: None,
            worst_alignment: Duration::ZERO,
            under_way: BTreeMap::new(),
            settled: CheckpointId(0),
        }
    }
}

impl Measurements {
    pub(super) fn forked(
        &mut self,
        checkpoint: CheckpointId,
        alignment: Option<Duration>,
        sync_pause: Duration,
    ) {
        record(&mut self.sync_pause_us, sync_pause);
        if let Some(alignment) = alignment {
            record(&mut self.alignment_us, alignment);
            self.worst_alignment = self.worst_alignment.max(alignment);
        }
        self.update(checkpoint, |summary| {
            summary.sync_max = summary.sync_max.max(sync_pause);
            summary.alignment_max = summary.alignment_max.max(alignment.unwrap_or_default());
        });
    }

    pub(super) fn written(&mut self, checkpoint: CheckpointId, duration: Duration) {
        self.update(checkpoint, |summary| summary.async_max = summary.async_max.max(duration));
    }

    pub(super) fn stored(&mut self, checkpoint: CheckpointId, bytes: u64) {
        self.update(checkpoint, |summary| summary.bytes = bytes);
    }

    pub(super) fn aborted(&mut self, checkpoint: CheckpointId) {
        self.under_way.remove(&checkpoint);
        self.settled = self.settled.max(checkpoint);
    }

    pub(super) fn completed(&mut self, completed: LastCheckpoint) -> CheckpointSummary {
        let summary = self.under_way.remove(&completed.id).unwrap_or_default();
        let summary = CheckpointSummary { id: completed.id, duration: completed.duration, ..summary };
        self.under_way.retain(|other, _| *other > completed.id);
        self.settled = self.settled.max(completed.id);
        record(&mut self.checkpoint_duration_us, completed.duration);
        self.last = Some(summary);
        summary
    }

    fn update(&mut self, checkpoint: CheckpointId, change: impl FnOnce(&mut CheckpointSummary)) {
        if checkpoint > self.settled || self.under_way.contains_key(&checkpoint) {
            change(self.under_way.entry(checkpoint).or_default());
        }
    }
}
