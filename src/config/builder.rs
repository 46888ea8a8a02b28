//! Settings as one expression: a method for each field.

use std::path::PathBuf;
use std::time::Duration;

use super::{
    CheckpointConfig, CheckpointRetention, Cores, IdleStrategy, JobConfig, RestartConfig, SnapshotCompression,
};

impl CheckpointConfig {
    /// A checkpoint each time this has passed; everything else by default.
    ///
    /// ```
    /// use std::time::Duration;
    /// use stoplog::prelude::*;
    ///
    /// let config = JobConfig::named("totals").with_parallelism(4).with_checkpoints(
    ///     CheckpointConfig::every(Duration::from_secs(10)).with_dir("/var/lib/totals").with_num_retained(3),
    /// );
    /// assert!(config.faults().is_empty());
    /// ```
    #[must_use]
    pub fn every(interval: Duration) -> Self {
        Self { interval: Some(interval), ..Self::default() }
    }

    /// Sets [`timeout`](Self::timeout).
    #[must_use]
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Sets [`min_pause`](Self::min_pause).
    #[must_use]
    pub fn with_min_pause(self, min_pause: Duration) -> Self {
        Self { min_pause, ..self }
    }

    /// Sets [`max_concurrent`](Self::max_concurrent).
    #[must_use]
    pub fn with_max_concurrent(self, max_concurrent: u32) -> Self {
        Self { max_concurrent, ..self }
    }

    /// Sets [`tolerable_failures`](Self::tolerable_failures).
    #[must_use]
    pub fn with_tolerable_failures(self, tolerable_failures: u32) -> Self {
        Self { tolerable_failures, ..self }
    }

    /// Sets [`num_retained`](Self::num_retained).
    #[must_use]
    pub fn with_num_retained(self, num_retained: u32) -> Self {
        Self { num_retained, ..self }
    }

    /// Sets [`dir`](Self::dir).
    #[must_use]
    pub fn with_dir(self, dir: impl Into<PathBuf>) -> Self {
        Self { dir: Some(dir.into()), ..self }
    }

    /// Sets [`savepoint_dir`](Self::savepoint_dir).
    #[must_use]
    pub fn with_savepoint_dir(self, dir: impl Into<PathBuf>) -> Self {
        Self { savepoint_dir: Some(dir.into()), ..self }
    }

    /// Sets [`retention`](Self::retention).
    #[must_use]
    pub fn with_retention(self, retention: CheckpointRetention) -> Self {
        Self { retention: Some(retention), ..self }
    }

    /// Sets [`compression`](Self::compression).
    #[must_use]
    pub fn with_compression(self, compression: SnapshotCompression) -> Self {
        Self { compression, ..self }
    }

    /// Sets [`inline_threshold`](Self::inline_threshold), in bytes.
    #[must_use]
    pub fn with_inline_threshold(self, bytes: usize) -> Self {
        Self { inline_threshold: bytes, ..self }
    }
}

impl JobConfig {
    /// A job of this name; everything else by default.
    #[must_use]
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// Sets [`parallelism`](Self::parallelism).
    #[must_use]
    pub fn with_parallelism(self, parallelism: u32) -> Self {
        Self { parallelism, ..self }
    }

    /// Sets [`max_parallelism`](field@Self::max_parallelism).
    #[must_use]
    pub fn with_max_parallelism(self, key_groups: u32) -> Self {
        Self { max_parallelism: Some(key_groups), ..self }
    }

    /// Sets [`checkpoints`](Self::checkpoints).
    #[must_use]
    pub fn with_checkpoints(self, checkpoints: CheckpointConfig) -> Self {
        Self { checkpoints, ..self }
    }

    /// The job goes on from this snapshot: see [`RecoveryConfig::path`](super::RecoveryConfig::path).
    #[must_use]
    pub fn with_recovery_path(mut self, path: impl Into<PathBuf>) -> Self {
        self.recovery.path = Some(path.into());
        self
    }

    /// Sets [`RecoveryConfig::allows_repeated_output`](super::RecoveryConfig::allows_repeated_output).
    #[must_use]
    pub fn with_repeated_output_allowed(mut self, allowed: bool) -> Self {
        self.recovery.allows_repeated_output = allowed;
        self
    }

    /// Sets [`restart`](field@Self::restart).
    #[must_use]
    pub fn with_restart(self, restart: RestartConfig) -> Self {
        Self { restart: Some(restart), ..self }
    }

    /// Sets [`cores`](Self::cores).
    #[must_use]
    pub fn with_cores(self, cores: Cores) -> Self {
        Self { cores, ..self }
    }

    /// Sets [`idle_strategy`](Self::idle_strategy).
    #[must_use]
    pub fn with_idle_strategy(self, idle_strategy: IdleStrategy) -> Self {
        Self { idle_strategy, ..self }
    }

    /// Sets [`ring_capacity`](Self::ring_capacity), in records.
    #[must_use]
    pub fn with_ring_capacity(self, records: usize) -> Self {
        Self { ring_capacity: records, ..self }
    }

    /// Sets [`parking_max_bytes`](Self::parking_max_bytes).
    #[must_use]
    pub fn with_parking_max_bytes(self, bytes: usize) -> Self {
        Self { parking_max_bytes: bytes, ..self }
    }

    /// Sets [`snapshot_threads`](Self::snapshot_threads).
    #[must_use]
    pub fn with_snapshot_threads(self, threads: usize) -> Self {
        Self { snapshot_threads: threads, ..self }
    }

    /// Sets [`async_snapshots`](Self::async_snapshots).
    #[must_use]
    pub fn with_async_snapshots(self, is_async: bool) -> Self {
        Self { async_snapshots: is_async, ..self }
    }
}
