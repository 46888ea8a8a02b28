//! Settings of a job, checked.

mod builder;
mod checkpoint;
mod keys;
mod values;
#[cfg(feature = "yaml")]
mod yaml;

use std::path::{Path, PathBuf};
use std::time::Duration;

pub use checkpoint::{
    CheckpointConfig, CheckpointRetention, INLINE_THRESHOLD_MAX, SettingsError, SnapshotCompression,
};
pub use keys::{ConfigError, ConfigKey, KEYS};

use crate::base::key_group::MAX_PARALLELISM_LIMIT;

/// What a worker does when none of its subtasks can do anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IdleStrategy {
    /// Never gives the core away: lowest latency, one core each at 100 %.
    BusySpin,
    /// Spins a little, then yields a little, then parks: low latency under load, close to no CPU when idle.
    #[default]
    BackOff,
    /// Parks at once.
    Park,
}

/// Cores to pin workers to. There are never more workers than subtasks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Cores {
    /// All that the process may use.
    #[default]
    All,
    /// The first so many of those; at least 1.
    Count(usize),
    /// These, by number.
    List(Vec<usize>),
}

/// What happens when a job fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestartConfig {
    /// The job stays failed.
    None,
    /// The job is restarted up to `attempts` times, each time after `delay`.
    FixedDelay {
        /// How many restarts; [`u32::MAX`] for no limit.
        attempts: u32,
        /// Pause before each.
        delay: Duration,
    },
}

/// From what a job goes on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RecoveryConfig {
    /// The savepoint or retained checkpoint from which the job goes on: its directory or its `_metadata`. Default: none.
    pub path: Option<PathBuf>,
    /// True if the job is to go on with its newest run, which knows all that a new one would have to be told. Set by `--resume`; it has
    /// no key. Default: false.
    pub resumes: bool,
    /// True if output that was published after that snapshot may be repeated; otherwise such a start is refused. Default: false.
    pub allows_repeated_output: bool,
}

/// Number of key groups of a job that names none and is not restored.
pub const DEFAULT_MAX_PARALLELISM: u32 = 128;

/// Settings of one job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobConfig {
    /// Name of the job, for people.
    pub name: String,
    /// Parallelism of operators that name none. Default: the number of cores.
    pub parallelism: u32,
    /// Number of key groups, 1 to 32768. `None` (the default): that of the snapshot from which the job goes on, else 128.
    pub max_parallelism: Option<u32>,
    /// Checkpoints.
    pub checkpoints: CheckpointConfig,
    /// From what the job goes on.
    pub recovery: RecoveryConfig,
    /// What happens on failure. `None` (the default): no restart while checkpoints are off; with them, restarts without a limit
    /// after one second.
    pub restart: Option<RestartConfig>,
    /// Cores to pin workers to. Default: all that the process may use.
    pub cores: Cores,
    /// What idle workers do.
    pub idle_strategy: IdleStrategy,
    /// Records that a ring holds; a power of two from 2 to 1048576. Default 4096.
    pub ring_capacity: usize,
    /// Bytes that the rings of parked channels may take beyond their capacity, in the whole job. Default 64 MiB.
    pub parking_max_bytes: usize,
    /// Threads that serialise snapshots. Default 1.
    pub snapshot_threads: usize,
    /// False writes snapshots on the subtask's own core, synchronously. Default true.
    pub async_snapshots: bool,
    /// What [`JobConfig::set`] took although it is not quite what was asked for, each a sentence that names the key: for whoever
    /// wrote the keys, and of no effect. Default: none.
    pub notes: Vec<String>,
}

impl Default for JobConfig {
    fn default() -> Self {
        Self {
            name: "job".to_owned(),
            parallelism: std::thread::available_parallelism()
                .map_or(1, |cores| u32::try_from(cores.get()).unwrap_or(u32::MAX)),
            max_parallelism: None,
            checkpoints: CheckpointConfig::default(),
            recovery: RecoveryConfig::default(),
            restart: None,
            cores: Cores::All,
            idle_strategy: IdleStrategy::default(),
            ring_capacity: 4096,
            parking_max_bytes: 64 << 20,
            snapshot_threads: 1,
            async_snapshots: true,
            notes: Vec::new(),
        }
    }
}

impl JobConfig {
    /// What happens on failure, the default filled in.
    #[must_use]
    pub fn restart(&self) -> RestartConfig {
        self.restart.unwrap_or(if self.checkpoints.interval.is_some() {
            RestartConfig::FixedDelay { attempts: u32::MAX, delay: Duration::from_secs(1) }
        } else {
            RestartConfig::None
        })
    }

    /// Number of key groups, the default filled in.
    #[must_use]
    pub fn max_parallelism(&self) -> u32 {
        self.max_parallelism.unwrap_or(DEFAULT_MAX_PARALLELISM)
    }

    /// Makes relative paths absolute: they are meant from this directory on.
    pub fn resolve_paths(&mut self, directory: &Path) {
        let paths = [&mut self.checkpoints.dir, &mut self.checkpoints.savepoint_dir, &mut self.recovery.path];
        for path in paths.into_iter().flatten() {
            *path = directory.join(&*path);
        }
    }

    /// All faults of the settings, each as a sentence that names the key.
    #[must_use]
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let mut check = |ok: bool, fault: String| {
            if !ok {
                faults.push(fault);
            }
        };
        check(
            (1..=MAX_PARALLELISM_LIMIT).contains(&self.max_parallelism()),
            format!(
                "pipeline.max-parallelism is {}; it must be from 1 to {MAX_PARALLELISM_LIMIT}",
                self.max_parallelism()
            ),
        );
        check(self.parallelism >= 1, "parallelism.default is 0; it must be at least 1".to_owned());
        check(
            self.ring_capacity.is_power_of_two() && (2..=1 << 20).contains(&self.ring_capacity),
            format!(
                "taskmanager.ring.capacity is {}; it must be a power of two from 2 to 1048576",
                self.ring_capacity
            ),
        );
        check(
            (1..=256).contains(&self.snapshot_threads),
            format!("taskmanager.snapshot.threads is {}; it must be from 1 to 256", self.snapshot_threads),
        );
        let cores = match &self.cores {
            Cores::All => Ok(()),
            Cores::Count(0) => Err("taskmanager.cores is 0; at least one core is needed".to_owned()),
            Cores::Count(_) => Ok(()),
            Cores::List(cores) if cores.is_empty() => Err("taskmanager.cores names no core".to_owned()),
            Cores::List(cores) => {
                match (1..cores.len()).find(|index| cores[..*index].contains(&cores[*index])) {
                    Some(index) => Err(format!("taskmanager.cores names core {} twice", cores[index])),
                    None => Ok(()),
                }
            }
        };
        faults.extend(cores.err());
        faults.extend(self.checkpoints.validate().err().into_iter().flatten().map(|fault| fault.to_string()));
        faults
    }
}
