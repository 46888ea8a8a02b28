//! How checkpoints are taken.

use std::path::PathBuf;
use std::time::Duration;

/// The greatest [`CheckpointConfig::inline_threshold`], in bytes: metadata is read whole, and by one thread.
pub const INLINE_THRESHOLD_MAX: usize = 1 << 20;

/// How checkpoints are taken. The default: none by themselves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointConfig {
    /// From one periodic checkpoint to the next; `None` switches checkpointing off. Checkpoints by hand are possible
    /// all the same.
    pub interval: Option<Duration>,
    /// A checkpoint for which acknowledgements are missing after this time is aborted. Default: 10 minutes.
    pub timeout: Duration,
    /// The least time between the completion of a checkpoint and the start of the next periodic one. Default: 0.
    pub min_pause: Duration,
    /// The most checkpoints under way at the same time, at least 1. Default: 1.
    pub max_concurrent: u32,
    /// How many checkpoints in a row may fail before the job fails. Default: 0.
    pub tolerable_failures: u32,
    /// How many completed checkpoints are kept, at least 1. Default: 1.
    pub num_retained: u32,
    /// The directory under which each job has one for its checkpoints. `None` (the default): checkpoints live in memory.
    pub dir: Option<PathBuf>,
    /// The directory for savepoints whose request names none. `None` (the default): a request must name one. Nothing reads it yet.
    pub savepoint_dir: Option<PathBuf>,
    /// What becomes of the checkpoints when the job ends. `None` (the default): they are kept if it failed or was suspended,
    /// and removed if it is finished or was cancelled.
    pub retention: Option<CheckpointRetention>,
    /// How state is compressed. Default: zstd.
    pub compression: SnapshotCompression,
    /// The state of a subtask is stored in the checkpoint's metadata if it has no more bytes than this, at most
    /// [`INLINE_THRESHOLD_MAX`]. Default: 20 KiB.
    pub inline_threshold: usize,
}

/// What becomes of the checkpoints when a job ends, in Flink's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckpointRetention {
    /// They are kept, however the job ends.
    RetainOnCancellation,
    /// They are kept only if the job failed.
    DeleteOnCancellation,
    /// They are removed, however the job ends.
    NoExternalizedCheckpoints,
}

/// How state is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SnapshotCompression {
    /// Not at all.
    None,
    /// With zstd at level 1.
    #[default]
    Zstd,
    /// With lz4.
    Lz4,
}

impl Default for CheckpointConfig {
    fn default() -> Self {
        Self {
            interval: None,
            timeout: Duration::from_secs(10 * 60),
            min_pause: Duration::ZERO,
            max_concurrent: 1,
            tolerable_failures: 0,
            num_retained: 1,
            dir: None,
            savepoint_dir: None,
            retention: None,
            compression: SnapshotCompression::default(),
            inline_threshold: 20 << 10,
        }
    }
}

impl CheckpointConfig {
    /// Checks the settings against each other.
    ///
    /// # Errors
    /// Every fault, in the order of the fields.
    pub fn validate(&self) -> Result<(), Vec<SettingsError>> {
        let faults = [
            (self.interval == Some(Duration::ZERO), SettingsError::ZeroInterval),
            (self.timeout.is_zero(), SettingsError::ZeroTimeout),
            (
                !self.min_pause.is_zero() && self.max_concurrent > 1,
                SettingsError::PauseWithConcurrency { max_concurrent: self.max_concurrent },
            ),
            (self.max_concurrent == 0, SettingsError::ZeroConcurrent),
            (self.num_retained == 0, SettingsError::ZeroRetained),
            (
                self.inline_threshold > INLINE_THRESHOLD_MAX,
                SettingsError::InlineThreshold { bytes: self.inline_threshold },
            ),
        ];
        let faults: Vec<_> =
            faults.into_iter().filter_map(|(present, fault)| present.then_some(fault)).collect();
        if faults.is_empty() { Ok(()) } else { Err(faults) }
    }
}

/// Settings that cannot be followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// The interval is zero.
    #[error("execution.checkpointing.interval must be above 0; leave it out to switch checkpointing off")]
    ZeroInterval,
    /// The timeout is zero.
    #[error("execution.checkpointing.timeout must be above 0")]
    ZeroTimeout,
    /// A pause between checkpoints and several at a time contradict each other.
    #[error(
        "execution.checkpointing.min-pause means one checkpoint at a time, but \
         execution.checkpointing.max-concurrent-checkpoints is {max_concurrent}: set it to 1 or the pause to 0"
    )]
    PauseWithConcurrency {
        /// The concurrency asked for.
        max_concurrent: u32,
    },
    /// No checkpoint may be under way.
    #[error("execution.checkpointing.max-concurrent-checkpoints must be at least 1")]
    ZeroConcurrent,
    /// No checkpoint is kept.
    #[error("execution.checkpointing.num-retained must be at least 1")]
    ZeroRetained,
    /// Too much state would stand in the metadata.
    #[error(
        "execution.checkpointing.data-inline-threshold is {bytes} bytes; it must be at most {INLINE_THRESHOLD_MAX} (1mb)"
    )]
    InlineThreshold {
        /// The threshold asked for.
        bytes: usize,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_valid_and_checkpointing_is_off() {
        let settings = CheckpointConfig::default();
        assert_eq!(settings.validate(), Ok(()));
        assert_eq!(settings.interval, None);
        assert_eq!(settings.timeout, Duration::from_secs(600));
    }

    #[test]
    fn a_pause_with_several_checkpoints_at_a_time_is_refused() {
        let pause = Duration::from_millis(1);
        let settings =
            CheckpointConfig { min_pause: pause, max_concurrent: 2, ..CheckpointConfig::default() };
        let fault = SettingsError::PauseWithConcurrency { max_concurrent: 2 };
        assert_eq!(settings.validate(), Err(vec![fault]));
        assert!(fault.to_string().contains("max-concurrent-checkpoints is 2"));
        assert_eq!(CheckpointConfig { max_concurrent: 1, ..settings }.validate(), Ok(()));
    }

    #[test]
    fn all_faults_are_told_together() {
        let settings = CheckpointConfig {
            interval: Some(Duration::ZERO),
            timeout: Duration::ZERO,
            min_pause: Duration::ZERO,
            max_concurrent: 0,
            num_retained: 0,
            inline_threshold: INLINE_THRESHOLD_MAX + 1,
            ..CheckpointConfig::default()
        };
        let faults = settings.validate().unwrap_err();
        assert_eq!(
            faults,
            [
                SettingsError::ZeroInterval,
                SettingsError::ZeroTimeout,
                SettingsError::ZeroConcurrent,
                SettingsError::ZeroRetained,
                SettingsError::InlineThreshold { bytes: INLINE_THRESHOLD_MAX + 1 },
            ]
        );
    }
}
