//! Settings by key, in Flink's names.

use std::time::Duration;

use super::{Cores, IdleStrategy, JobConfig, RestartConfig};

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
    /// The key is known, but the engine cannot do what it asks for.
    #[error("{key} is not supported: {reason}")]
    Refused {
        /// The key.
        key: String,
        /// Why not.
        reason: &'static str,
    },
}

/// Every key, its older name if it has one, and its meaning.
pub const KEYS: &[(&str, Option<&str>, &str)] = &[
    ("parallelism.default", None, "subtasks of operators that name no parallelism"),
    ("pipeline.max-parallelism", None, "key groups, 1 to 32768"),
    ("pipeline.name", None, "name of the job"),
    ("execution.checkpointing.interval", None, "time between checkpoints; unset: none"),
    ("execution.checkpointing.timeout", None, "a checkpoint that takes longer is abandoned"),
    ("execution.checkpointing.min-pause", None, "least time between two checkpoints"),
    ("execution.checkpointing.max-concurrent-checkpoints", None, "checkpoints in flight at once"),
    (
        "execution.checkpointing.tolerable-failed-checkpoints",
        None,
        "checkpoints that may fail in a row before the job does",
    ),
    (
        "execution.checkpointing.num-retained",
        Some("state.checkpoints.num-retained"),
        "completed checkpoints kept",
    ),
    ("execution.checkpointing.mode", None, "EXACTLY_ONCE"),
    ("state.backend.type", Some("state.backend"), "hashmap"),
    ("state.backend.async", None, "false: snapshots are written on the subtask's core"),
    ("restart-strategy.type", Some("restart-strategy"), "none or fixed-delay"),
    ("restart-strategy.fixed-delay.attempts", None, "restarts before the job stays failed"),
    ("restart-strategy.fixed-delay.delay", None, "pause before a restart"),
    ("taskmanager.cores", None, "cores to pin to: a count, or a list such as 0,2,3"),
    ("taskmanager.idle-strategy", None, "busy-spin, back-off or park"),
    ("taskmanager.ring.capacity", None, "records a ring holds, a power of two"),
    (
        "taskmanager.memory.parking.max-bytes",
        None,
        "bytes for rings of parked channels beyond their capacity",
    ),
    ("taskmanager.snapshot.threads", None, "threads that write snapshots"),
];

/// Keys of Flink that have a place here later.
const LATER: &[&str] = &[
    "execution.checkpointing.dir",
    "state.checkpoints.dir",
    "execution.checkpointing.savepoint-dir",
    "state.savepoints.dir",
    "execution.checkpointing.incremental",
    "state.backend.incremental",
    "execution.checkpointing.snapshot-compression",
    "execution.checkpointing.checkpoints-after-tasks-finish",
    "execution.checkpointing.externalized-checkpoint-retention",
    "execution.state-recovery.path",
    "execution.state-recovery.claim-mode",
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
        let known = KEYS.iter().find(|(name, alias, _)| *name == key || *alias == Some(key));
        let Some((name, alias, _)) = known else {
            let names = KEYS.iter().map(|(name, ..)| *name);
            let nearest = names.map(|name| (edit_distance(name, key), name)).min();
            let nearest =
                nearest.filter(|(distance, name)| *distance <= name.len() / 2).map(|(_, name)| name);
            return Err(ConfigError::UnknownKey { key: key.to_owned(), nearest });
        };
        if *alias == Some(key) {
            tracing::warn!(target: "stoplog::config", "{key} is an old name of {name}");
        }
        let expected = self.set_known(name, value.trim());
        expected.map_err(|expected| ConfigError::Value {
            key: key.to_owned(),
            value: value.to_owned(),
            expected,
        })
    }

    /// Answers what would have been valid if the value is not.
    fn set_known(&mut self, key: &'static str, value: &str) -> Result<(), &'static str> {
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
            "execution.checkpointing.mode" => match value.to_ascii_lowercase().replace('_', "-").as_str() {
                "exactly-once" => {}
                _ => return Err("exactly-once (at-least-once is not available yet)"),
            },
            "state.backend.type" => match value {
                "hashmap" | "heap" | "filesystem" | "memory" => {}
                _ => return Err("hashmap or heap (rocksdb is not available yet)"),
            },
            "state.backend.async" => self.async_snapshots = boolean(value)?,
            "restart-strategy.type" => {
                self.restart = Some(match value {
                    "none" | "off" | "disable" => RestartConfig::None,
                    "fixed-delay" | "fixeddelay" => self.fixed_delay(),
                    _ => return Err("none or fixed-delay"),
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
                    _ => return Err("busy-spin, back-off or park"),
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

fn number<N: std::str::FromStr>(value: &str) -> Result<N, &'static str> {
    value.parse().map_err(|_| "a whole number")
}

fn boolean(value: &str) -> Result<bool, &'static str> {
    value.parse().map_err(|_| "true or false")
}

fn cores(value: &str) -> Result<Cores, &'static str> {
    const EXPECTED: &str = "a count of at least 1, or a list of cores such as 0,2,3";
    if value.contains(',') {
        let cores: Result<_, _> =
            value.split(',').map(|core| core.trim().parse().map_err(|_| EXPECTED)).collect();
        return cores.map(Cores::List);
    }
    match value.parse() {
        Ok(0) | Err(_) => Err(EXPECTED),
        Ok(count) => Ok(Cores::Count(count)),
    }
}

/// A number and its unit.
fn split_unit(value: &str) -> Option<(u64, &str)> {
    let end = value.find(|c: char| !c.is_ascii_digit()).unwrap_or(value.len());
    let number = value.get(..end)?.parse().ok()?;
    Some((number, value.get(end..)?.trim()))
}

/// Reads a duration: `250ms`, `10s`, `5min`, `1h`, `2d`; a bare number is milliseconds.
///
/// # Errors
/// What would have been valid.
pub(crate) fn duration(value: &str) -> Result<Duration, &'static str> {
    const EXPECTED: &str = "a duration such as 250ms, 10s or 5min";
    let (number, unit) = split_unit(value).ok_or(EXPECTED)?;
    let nanos_per_unit: u64 = match unit {
        "ns" => 1,
        "us" | "µs" => 1_000,
        "ms" | "milli" | "millis" | "" => 1_000_000,
        "s" | "sec" | "second" | "seconds" => 1_000_000_000,
        "m" | "min" | "minute" | "minutes" => 60_000_000_000,
        "h" | "hour" | "hours" => 3_600_000_000_000,
        "d" | "day" | "days" => 86_400_000_000_000,
        _ => return Err(EXPECTED),
    };
    number.checked_mul(nanos_per_unit).map(Duration::from_nanos).ok_or(EXPECTED)
}

/// Reads a size in bytes: `64kb`, `1gb`; a bare number is bytes, units are powers of 1024 as in Flink.
///
/// # Errors
/// What would have been valid.
pub(crate) fn size(value: &str) -> Result<usize, &'static str> {
    const EXPECTED: &str = "a size such as 64kb, 16mb or 1gb";
    let (number, unit) = split_unit(value).ok_or(EXPECTED)?;
    let shift = match unit.to_ascii_lowercase().as_str() {
        "b" | "bytes" | "" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return Err(EXPECTED),
    };
    number.checked_mul(1 << shift).and_then(|bytes| usize::try_from(bytes).ok()).ok_or(EXPECTED)
}

/// Levenshtein's distance, for suggestions.
fn edit_distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.chars().count()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, to) in b.chars().enumerate() {
            let replaced = diagonal + usize::from(from != to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_sizes_are_read_as_flink_writes_them() {
        assert_eq!(duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(duration("60000"), Ok(Duration::from_secs(60)));
        assert_eq!(duration("5min"), Ok(Duration::from_secs(300)));
        assert_eq!(duration("10 s"), Ok(Duration::from_secs(10)));
        for wrong in ["", "s", "-1s", "1.5s", "5 parsecs", "99999999999999999999", "9999999999999d"] {
            assert!(duration(wrong).is_err(), "{wrong:?}");
        }
        assert_eq!(size("64kb"), Ok(65_536));
        assert_eq!(size("1gb"), Ok(1 << 30));
        assert!(size("99999999999tb").is_err());
    }

    #[test]
    fn every_key_and_alias_is_handled_and_bad_values_say_what_is_expected() {
        for (key, alias, _) in KEYS {
            for name in [Some(*key), *alias].into_iter().flatten() {
                if *key != "pipeline.name" {
                    let error = JobConfig::default().set(name, "nonsense").unwrap_err();
                    assert!(error.to_string().contains("is expected"), "{error}");
                }
            }
        }
    }

    #[test]
    fn cores_are_a_count_or_a_list_without_repeats() {
        let cores = |value: &str| {
            let mut config = JobConfig::default();
            config.set("taskmanager.cores", value).map(|()| (config.cores.clone(), config.faults()))
        };
        assert_eq!(cores("2").unwrap(), (Cores::Count(2), vec![]));
        assert_eq!(cores("0, 3").unwrap(), (Cores::List(vec![0, 3]), vec![]));
        assert!(cores("1,1").unwrap().1[0].contains("core 1 twice"));
        assert!(cores("0").is_err() && cores("0,x").is_err() && cores("").is_err());
    }

    #[test]
    fn an_unknown_key_is_answered_with_the_nearest_one() {
        let error = JobConfig::default().set("execution.checkpoint.interval", "1s").unwrap_err();
        assert!(error.to_string().contains("\"execution.checkpointing.interval\""), "{error}");
        let error = JobConfig::default().set("foo", "1").unwrap_err();
        assert_eq!(error.to_string(), "unknown configuration key \"foo\"");
        let error = JobConfig::default().set("state.checkpoints.dir", "/x").unwrap_err();
        assert!(error.to_string().contains("not available yet"), "{error}");
        assert!(JobConfig::default().set("execution.checkpointing.unaligned.enabled", "false").is_ok());
        let error = JobConfig::default().set("pipeline.object-reuse", "true").unwrap_err();
        assert!(error.to_string().contains("nothing to reuse"), "{error}");
    }

    #[test]
    fn the_parts_of_the_restart_strategy_come_in_any_order() {
        let expected = Some(RestartConfig::FixedDelay { attempts: 3, delay: Duration::from_millis(5) });
        let settings = [
            ("restart-strategy.fixed-delay.attempts", "3"),
            ("restart-strategy.type", "fixed-delay"),
            ("restart-strategy.fixed-delay.delay", "5ms"),
        ];
        for first in 0..3 {
            let mut config = JobConfig::default();
            for offset in 0..3 {
                let (key, value) = settings[(first + offset) % 3];
                config.set(key, value).unwrap();
            }
            assert_eq!(config.restart, expected);
        }
    }

    #[test]
    fn faults_name_the_keys_that_contradict_each_other() {
        let mut config = JobConfig::default();
        config.set("execution.checkpointing.min-pause", "1s").unwrap();
        config.set("execution.checkpointing.max-concurrent-checkpoints", "2").unwrap();
        let faults = config.faults().join("\n");
        assert!(faults.contains("min-pause") && faults.contains("max-concurrent"), "{faults}");
    }
}
