//! Settings by key, in Flink's names.

use std::time::Duration;

use super::values::{
    Fault, boolean, choice, compression, cores, duration, edit_distance, local_path, number, retention, size,
};
use super::{IdleStrategy, JobConfig, RestartConfig};

/// A key or its value is not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// No such key.
    #[error("unknown configuration key {key:?}{}", nearest.map(|name| format!("; did you mean {name:?}?")).unwrap_or_default())]
    UnknownKey {
        /// As given.
        key: String,
        /// The known key that looks most like it, if one does.
        nearest: Option<&'static str>,
    },
    /// The value does not fit the key.
    #[error("{key} is {value:?}: {expected} is expected")]
    Value {
        /// The key.
        key: String,
        /// As given.
        value: String,
        /// What would be valid.
        expected: &'static str,
    },
    /// The value lies in a file system that this build cannot reach.
    #[error(
        "{key} names the file system {scheme:?}, which is not built in: name a local one, as a path or as file:///path"
    )]
    Scheme {
        /// The key.
        key: String,
        /// Name of the file system, such as `hdfs`.
        scheme: String,
    },
    /// The key is known, but the engine cannot do what it asks for.
    #[error("{key} is not supported: {reason}")]
    Refused {
        /// The key.
        key: String,
        /// Why not.
        reason: &'static str,
    },
    /// The same setting stands in a file twice, perhaps once by an older name.
    #[error("{key} is set in line {first_line} already; keep one of them")]
    Repeated {
        /// The key, as given the second time.
        key: String,
        /// Where it is set first, counted from 1.
        first_line: u64,
    },
    /// Something is wrong in a line of a file.
    #[error("line {line}: {error}")]
    AtLine {
        /// The line, counted from 1.
        line: u64,
        /// What is wrong.
        error: Box<ConfigError>,
    },
    /// A file is not what it should be.
    #[error("not valid YAML: {message}")]
    NotYaml {
        /// What the reader says, with the place.
        message: String,
    },
}

/// A configuration key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConfigKey {
    /// Its name, as in Flink 2.x where Flink has it.
    pub name: &'static str,
    /// Its name in Flink 1.x, which is taken too, with a note.
    pub old_name: Option<&'static str>,
    /// The values that it takes.
    pub values: &'static str,
    /// What holds if it is not set.
    pub default: &'static str,
    /// What it sets.
    pub meaning: &'static str,
}

const fn key(
    name: &'static str,
    values: &'static str,
    default: &'static str,
    meaning: &'static str,
) -> ConfigKey {
    ConfigKey { name, old_name: None, values, default, meaning }
}

impl ConfigKey {
    const fn once(mut self, old_name: &'static str) -> Self {
        self.old_name = Some(old_name);
        self
    }
}

/// Every key that can be set.
pub const KEYS: &[ConfigKey] = &[
    key("parallelism.default", "number", "number of cores", "subtasks of operators that name no parallelism"),
    key(
        "pipeline.max-parallelism",
        "1 to 32768",
        "of the snapshot restored, else 128",
        "key groups; a job keeps the number that it began with",
    ),
    key("pipeline.name", "text", "name of the job in the command", "name of the job, for people"),
    key(
        "execution.checkpointing.interval",
        "duration",
        "no checkpoints",
        "time from one checkpoint to the next",
    ),
    key("execution.checkpointing.timeout", "duration", "10min", "a checkpoint that takes longer is aborted"),
    key("execution.checkpointing.min-pause", "duration", "0ms", "least time between two checkpoints"),
    key("execution.checkpointing.max-concurrent-checkpoints", "number", "1", "checkpoints under way at once"),
    key(
        "execution.checkpointing.tolerable-failed-checkpoints",
        "number",
        "0",
        "checkpoints that may fail in a row before the job does",
    ),
    key("execution.checkpointing.num-retained", "number", "1", "completed checkpoints that are kept")
        .once("state.checkpoints.num-retained"),
    key(
        "execution.checkpointing.mode",
        "EXACTLY_ONCE",
        "EXACTLY_ONCE",
        "what a record counts for after a failure",
    ),
    key(
        "execution.checkpointing.dir",
        "directory",
        "in memory",
        "directory under which each job has one for its checkpoints",
    )
    .once("state.checkpoints.dir"),
    key(
        "execution.checkpointing.savepoint-dir",
        "directory",
        "none",
        "directory for savepoints whose request names none; checked and kept, nothing reads it yet",
    )
    .once("state.savepoints.dir"),
    key(
        "execution.checkpointing.externalized-checkpoint-retention",
        "RETAIN_ON_CANCELLATION, DELETE_ON_CANCELLATION, NO_EXTERNALIZED_CHECKPOINTS",
        "kept on failure and suspension, removed otherwise",
        "what becomes of the checkpoints when the job ends",
    ),
    key(
        "execution.checkpointing.snapshot-compression",
        "zstd, lz4, none (true is zstd, false is none)",
        "zstd",
        "how state is compressed",
    ),
    key(
        "execution.checkpointing.data-inline-threshold",
        "size, at most 1mb",
        "20kb",
        "state of a subtask that has no more bytes stands in the checkpoint's metadata",
    )
    .once("state.storage.fs.memory-threshold"),
    key(
        "execution.checkpointing.incremental",
        "true, false",
        "false",
        "each checkpoint is full, also with true",
    )
    .once("state.backend.incremental"),
    key(
        "execution.checkpointing.checkpoints-after-tasks-finish",
        "true",
        "true",
        "subtasks that have read all of their input take part in checkpoints",
    ),
    key(
        "execution.state-recovery.path",
        "path",
        "none",
        "savepoint or retained checkpoint from which the job goes on: its directory or its `_metadata`",
    ),
    key(
        "execution.state-recovery.claim-mode",
        "NO_CLAIM",
        "NO_CLAIM",
        "the snapshot restored stays its owner's",
    ),
    key(
        "execution.state-recovery.allow-repeated-output",
        "true, false",
        "false",
        "the job may start although output that was published after the snapshot will be repeated",
    ),
    key(
        "state.backend.type",
        "hashmap, heap, filesystem, memory; rocksdb with a note",
        "hashmap",
        "where keyed state lives: on the heap, whichever of them is named",
    )
    .once("state.backend"),
    key("state.backend.async", "true, false", "true", "false: snapshots are written on the subtask's core"),
    key(
        "restart-strategy.type",
        "none, fixed-delay",
        "fixed-delay with checkpoints, else none",
        "what happens when the job fails",
    )
    .once("restart-strategy"),
    key(
        "restart-strategy.fixed-delay.attempts",
        "number",
        "4294967295",
        "restarts before the job stays failed",
    ),
    key("restart-strategy.fixed-delay.delay", "duration", "1s", "pause before a restart"),
    key(
        "taskmanager.cores",
        "number, or a list such as 0,2,3",
        "all that the process may use",
        "cores that workers are pinned to: how many, or which",
    ),
    key(
        "taskmanager.idle-strategy",
        "busy-spin, back-off, park",
        "back-off",
        "what a worker does without work",
    ),
    key("taskmanager.ring.capacity", "power of two from 2 to 1048576", "4096", "records that a ring holds"),
    key(
        "taskmanager.memory.parking.max-bytes",
        "size",
        "64mb",
        "bytes that the rings of parked channels may take beyond their capacity, in the whole job",
    ),
    key("taskmanager.snapshot.threads", "1 to 256", "1", "threads that write snapshots"),
];

/// Keys of Flink that have a place here later.
const LATER: &[&str] = &[
    "execution.state-recovery.ignore-unclaimed-state",
    "rest.port",
    "rest.bind-address",
    "rest.token",
    "taskmanager.snapshot.nice",
    "taskmanager.snapshot.max-bytes-per-second",
];

/// Keys that are known and refused.
const REFUSED: &[(&str, &str)] = &[
    (
        "pipeline.operator-chaining.enabled",
        "operators are fused when the job is compiled; start_new_chain() keeps one apart",
    ),
    ("pipeline.object-reuse", "records are moved, never copied, so there is nothing to reuse"),
    ("execution.checkpointing.unaligned.enabled", "barriers do not overtake records yet"),
    ("execution.checkpointing.aligned-checkpoint-timeout", "barriers do not overtake records yet"),
];

impl JobConfig {
    /// Sets one key.
    ///
    /// # Errors
    /// If there is no such key, its value is not valid, or it asks for something the engine cannot do.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), ConfigError> {
        if let Some((_, reason)) = REFUSED.iter().find(|(name, _)| *name == key) {
            // What is refused may be switched off: it is.
            return match value.trim() {
                "false" => Ok(()),
                _ => Err(ConfigError::Refused { key: key.to_owned(), reason }),
            };
        }
        if LATER.contains(&key) {
            return Err(ConfigError::Refused { key: key.to_owned(), reason: "it is not available yet" });
        }
        let known = KEYS.iter().find(|known| known.name == key || known.old_name == Some(key));
        let Some(known) = known else {
            return Err(ConfigError::UnknownKey { key: key.to_owned(), nearest: nearest(key) });
        };
        match self.set_known(known.name, key, value.trim()) {
            Ok(()) if known.name == key => Ok(()),
            Ok(()) => {
                self.note(format!("{key} is the 1.x name of {}", known.name));
                Ok(())
            }
            Err(Fault::Expected(expected)) => {
                Err(ConfigError::Value { key: key.to_owned(), value: value.to_owned(), expected })
            }
            Err(Fault::Scheme(scheme)) => Err(ConfigError::Scheme { key: key.to_owned(), scheme }),
            Err(Fault::Refused(reason)) => Err(ConfigError::Refused { key: key.to_owned(), reason }),
        }
    }

    fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// `given` is the name by which the key was called, for notes.
    fn set_known(&mut self, key: &'static str, given: &str, value: &str) -> Result<(), Fault> {
        let checkpoints = &mut self.checkpoints;
        match key {
            "parallelism.default" => self.parallelism = number(value)?,
            "pipeline.max-parallelism" => self.max_parallelism = Some(number(value)?),
            "pipeline.name" => value.clone_into(&mut self.name),
            "execution.checkpointing.interval" => checkpoints.interval = Some(duration(value)?),
            "execution.checkpointing.timeout" => checkpoints.timeout = duration(value)?,
            "execution.checkpointing.min-pause" => checkpoints.min_pause = duration(value)?,
            "execution.checkpointing.max-concurrent-checkpoints" => {
                checkpoints.max_concurrent = number(value)?
            }
            "execution.checkpointing.tolerable-failed-checkpoints" => {
                checkpoints.tolerable_failures = number(value)?;
            }
            "execution.checkpointing.num-retained" => checkpoints.num_retained = number(value)?,
            "execution.checkpointing.mode" => match choice(value).as_str() {
                "exactly-once" => {}
                _ => return Err("exactly-once (at-least-once is not available yet)".into()),
            },
            "execution.checkpointing.dir" => checkpoints.dir = Some(local_path(value)?),
            "execution.checkpointing.savepoint-dir" => checkpoints.savepoint_dir = Some(local_path(value)?),
            "execution.checkpointing.externalized-checkpoint-retention" => {
                checkpoints.retention = Some(retention(value)?);
            }
            "execution.checkpointing.snapshot-compression" => checkpoints.compression = compression(value)?,
            "execution.checkpointing.data-inline-threshold" => checkpoints.inline_threshold = size(value)?,
            "execution.checkpointing.incremental" => {
                if boolean(value)? {
                    self.note(format!("{given} is true, but each checkpoint is full"));
                }
            }
            "execution.checkpointing.checkpoints-after-tasks-finish" => {
                if !boolean(value)? {
                    return Err(Fault::Refused(
                        "a subtask that has read all of its input always takes part in checkpoints; without that, \
                         none could complete until the job ends",
                    ));
                }
            }
            "execution.state-recovery.path" => self.recovery.path = Some(local_path(value)?),
            "execution.state-recovery.claim-mode" => match choice(value).as_str() {
                "no-claim" => {}
                "claim" => return Err(Fault::Refused("CLAIM is not available yet; NO_CLAIM is")),
                _ => return Err("NO_CLAIM (CLAIM is not available yet)".into()),
            },
            "execution.state-recovery.allow-repeated-output" => {
                self.recovery.allows_repeated_output = boolean(value)?;
            }
            "state.backend.type" => match value {
                "hashmap" | "heap" | "filesystem" | "memory" => {}
                "rocksdb" => self.note(format!(
                    "{given} is rocksdb, which this build does not have: keyed state lives on the heap"
                )),
                _ => return Err("hashmap, heap or rocksdb".into()),
            },
            "state.backend.async" => self.async_snapshots = boolean(value)?,
            "restart-strategy.type" => {
                self.restart = Some(match value {
                    "none" | "off" | "disable" => RestartConfig::None,
                    "fixed-delay" | "fixeddelay" => self.fixed_delay(),
                    _ => return Err("none or fixed-delay".into()),
                });
            }
            "restart-strategy.fixed-delay.attempts" => {
                let RestartConfig::FixedDelay { delay, .. } = self.fixed_delay() else { unreachable!() };
                self.restart = Some(RestartConfig::FixedDelay { attempts: number(value)?, delay });
            }
            "restart-strategy.fixed-delay.delay" => {
                let RestartConfig::FixedDelay { attempts, .. } = self.fixed_delay() else { unreachable!() };
                self.restart = Some(RestartConfig::FixedDelay { attempts, delay: duration(value)? });
            }
            "taskmanager.cores" => self.cores = cores(value)?,
            "taskmanager.idle-strategy" => {
                self.idle_strategy = match value {
                    "busy-spin" => IdleStrategy::BusySpin,
                    "back-off" | "backoff" => IdleStrategy::BackOff,
                    "park" => IdleStrategy::Park,
                    _ => return Err("busy-spin, back-off or park".into()),
                };
            }
            "taskmanager.ring.capacity" => self.ring_capacity = number(value)?,
            "taskmanager.memory.parking.max-bytes" => self.parking_max_bytes = size(value)?,
            "taskmanager.snapshot.threads" => self.snapshot_threads = number(value)?,
            _ => unreachable!("every known key is handled"),
        }
        Ok(())
    }

    /// The fixed delay so far, or its defaults.
    fn fixed_delay(&self) -> RestartConfig {
        match self.restart {
            Some(fixed @ RestartConfig::FixedDelay { .. }) => fixed,
            _ => RestartConfig::FixedDelay { attempts: u32::MAX, delay: Duration::from_secs(1) },
        }
    }
}

/// The known key that looks most like this one, if one does.
fn nearest(key: &str) -> Option<&'static str> {
    let names = KEYS.iter().map(|known| (edit_distance(known.name, key), known.name));
    names.min().filter(|(distance, name)| *distance <= name.len() / 2).map(|(_, name)| name)
}

#[cfg(test)]
mod tests;
