//! Keys, their values and what they set.

use std::path::{Path, PathBuf};

use super::*;
use crate::config::{CheckpointConfig, CheckpointRetention, Cores, SnapshotCompression};

#[test]
fn every_key_and_alias_is_handled_and_bad_values_say_what_is_expected() {
    for key in KEYS {
        for name in [Some(key.name), key.old_name].into_iter().flatten() {
            if key.name != "pipeline.name" {
                // No path contains a zero byte either.
                let error = JobConfig::default().set(name, "nonsense\0").unwrap_err();
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
    assert_eq!(cores("3,").unwrap(), (Cores::List(vec![3]), vec![]));
    assert!(cores(",").is_err() && cores("1,,2").is_err());
    assert!(cores("0").is_err() && cores("0,x").is_err() && cores("").is_err());
}

#[test]
fn an_unknown_key_is_answered_with_the_nearest_one() {
    let error = JobConfig::default().set("execution.checkpoint.interval", "1s").unwrap_err();
    assert!(error.to_string().contains("\"execution.checkpointing.interval\""), "{error}");
    let error = JobConfig::default().set("foo", "1").unwrap_err();
    assert_eq!(error.to_string(), "unknown configuration key \"foo\"");
    let error = JobConfig::default().set("rest.port", "8081").unwrap_err();
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

type Typed = fn(JobConfig) -> JobConfig;

fn checkpoints(config: JobConfig, edit: impl FnOnce(CheckpointConfig) -> CheckpointConfig) -> JobConfig {
    let edited = edit(config.checkpoints.clone());
    config.with_checkpoints(edited)
}

/// Each key with a value, and the same by the typed settings. A key with one possible value has no field.
const SAME: &[(&str, &str, Typed)] = &[
    ("parallelism.default", "3", |c| c.with_parallelism(3)),
    ("pipeline.max-parallelism", "64", |c| c.with_max_parallelism(64)),
    ("pipeline.name", "totals", |c| JobConfig { name: JobConfig::named("totals").name, ..c }),
    ("execution.checkpointing.interval", "10s", |c| {
        c.with_checkpoints(CheckpointConfig::every(Duration::from_secs(10)))
    }),
    ("execution.checkpointing.timeout", "60000", |c| {
        checkpoints(c, |c| c.with_timeout(Duration::from_secs(60)))
    }),
    ("execution.checkpointing.min-pause", "1s", |c| {
        checkpoints(c, |c| c.with_min_pause(Duration::from_secs(1)))
    }),
    ("execution.checkpointing.max-concurrent-checkpoints", "2", |c| {
        checkpoints(c, |c| c.with_max_concurrent(2))
    }),
    ("execution.checkpointing.tolerable-failed-checkpoints", "5", |c| {
        checkpoints(c, |c| c.with_tolerable_failures(5))
    }),
    ("execution.checkpointing.num-retained", "3", |c| checkpoints(c, |c| c.with_num_retained(3))),
    ("execution.checkpointing.mode", "EXACTLY_ONCE", |c| c),
    ("execution.checkpointing.dir", "file:///chk", |c| checkpoints(c, |c| c.with_dir("/chk"))),
    ("execution.checkpointing.savepoint-dir", "/sav", |c| checkpoints(c, |c| c.with_savepoint_dir("/sav"))),
    ("execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION", |c| {
        checkpoints(c, |c| c.with_retention(CheckpointRetention::RetainOnCancellation))
    }),
    ("execution.checkpointing.snapshot-compression", "lz4", |c| {
        checkpoints(c, |c| c.with_compression(SnapshotCompression::Lz4))
    }),
    ("execution.checkpointing.data-inline-threshold", "64kb", |c| {
        checkpoints(c, |c| c.with_inline_threshold(65_536))
    }),
    ("execution.checkpointing.incremental", "false", |c| c),
    ("execution.checkpointing.checkpoints-after-tasks-finish", "true", |c| c),
    ("execution.state-recovery.path", "/chk/job/chk-3", |c| c.with_recovery_path("/chk/job/chk-3")),
    ("execution.state-recovery.claim-mode", "NO_CLAIM", |c| c),
    ("execution.state-recovery.allow-repeated-output", "true", |c| c.with_repeated_output_allowed(true)),
    ("state.backend.type", "hashmap", |c| c),
    ("state.backend.async", "false", |c| c.with_async_snapshots(false)),
    ("restart-strategy.type", "none", |c| c.with_restart(RestartConfig::None)),
    ("restart-strategy.fixed-delay.attempts", "3", |c| {
        c.with_restart(RestartConfig::FixedDelay { attempts: 3, delay: Duration::from_secs(1) })
    }),
    ("restart-strategy.fixed-delay.delay", "5ms", |c| {
        c.with_restart(RestartConfig::FixedDelay { attempts: u32::MAX, delay: Duration::from_millis(5) })
    }),
    ("taskmanager.cores", "0,2", |c| c.with_cores(Cores::List(vec![0, 2]))),
    ("taskmanager.idle-strategy", "park", |c| c.with_idle_strategy(IdleStrategy::Park)),
    ("taskmanager.ring.capacity", "512", |c| c.with_ring_capacity(512)),
    ("taskmanager.memory.parking.max-bytes", "1mb", |c| c.with_parking_max_bytes(1 << 20)),
    ("taskmanager.snapshot.threads", "2", |c| c.with_snapshot_threads(2)),
];

#[test]
fn every_key_means_the_same_as_its_typed_setting() {
    let named: Vec<_> = SAME.iter().map(|(name, ..)| *name).collect();
    assert_eq!(named, KEYS.iter().map(|key| key.name).collect::<Vec<_>>());
    for ((name, value, typed), key) in SAME.iter().zip(KEYS) {
        let expected = typed(JobConfig::default());
        let mut by_key = JobConfig::default();
        by_key.set(name, value).unwrap();
        assert_eq!(by_key, expected, "{name}");
        if let Some(old_name) = key.old_name {
            let mut by_old_name = JobConfig::default();
            by_old_name.set(old_name, value).unwrap();
            let notes = std::mem::take(&mut by_old_name.notes);
            assert_eq!(notes, [format!("{old_name} is the 1.x name of {name}")]);
            assert_eq!(by_old_name, expected, "{old_name}");
        }
    }
}

#[test]
fn the_default_of_each_key_is_the_one_that_is_told() {
    // These defaults are told in words, or make a restart strategy of nothing.
    const IN_WORDS: &[&str] = &[
        "parallelism.default",
        "pipeline.max-parallelism",
        "pipeline.name",
        "execution.checkpointing.interval",
        "execution.checkpointing.dir",
        "execution.checkpointing.savepoint-dir",
        "execution.checkpointing.externalized-checkpoint-retention",
        "execution.state-recovery.path",
        "restart-strategy.type",
        "taskmanager.cores",
    ];
    for key in KEYS.iter().filter(|key| !IN_WORDS.contains(&key.name)) {
        let mut config = JobConfig::default();
        config.set(key.name, key.default).unwrap_or_else(|error| panic!("{error}"));
        let restart = config.restart.take();
        assert!(restart.is_none_or(|restart| restart == JobConfig::default().fixed_delay()), "{}", key.name);
        assert_eq!(config, JobConfig::default(), "{}", key.name);
    }
}

#[test]
fn what_is_taken_but_not_as_asked_for_is_noted_once() {
    let mut config = JobConfig::default();
    for _ in 0..2 {
        config.set("state.backend.type", "rocksdb").unwrap();
        config.set("state.backend.incremental", "true").unwrap();
    }
    assert_eq!(
        config.notes,
        [
            "state.backend.type is rocksdb, which this build does not have: keyed state lives on the heap",
            "state.backend.incremental is true, but each checkpoint is full",
            "state.backend.incremental is the 1.x name of execution.checkpointing.incremental",
        ]
    );
}

#[test]
fn what_is_not_built_in_is_refused_with_what_is() {
    let refused = |key, value| JobConfig::default().set(key, value).unwrap_err().to_string();
    let error = refused("state.savepoints.dir", "s3://bucket/x");
    assert!(error.starts_with("state.savepoints.dir names the file system \"s3\""), "{error}");
    assert!(error.contains("file:///path"), "{error}");
    let error = refused("execution.state-recovery.claim-mode", "CLAIM");
    assert!(error.contains("not available yet"), "{error}");
    let error = refused("execution.checkpointing.checkpoints-after-tasks-finish", "false");
    assert!(error.contains("always takes part"), "{error}");
    let mut config = JobConfig::default();
    config.set("execution.checkpointing.data-inline-threshold", "2mb").unwrap();
    assert!(
        config.faults()[0].contains("2097152 bytes; it must be at most 1048576"),
        "{:?}",
        config.faults()
    );
}

#[test]
fn flink_s_words_for_compression_and_retention_are_known() {
    for (value, compression) in [
        ("true", SnapshotCompression::Zstd),
        ("zstd", SnapshotCompression::Zstd),
        ("false", SnapshotCompression::None),
        ("NONE", SnapshotCompression::None),
    ] {
        let mut config = JobConfig::default();
        config.set("execution.checkpointing.snapshot-compression", value).unwrap();
        assert_eq!(config.checkpoints.compression, compression, "{value}");
    }
    for (value, retention) in [
        ("DELETE_ON_CANCELLATION", CheckpointRetention::DeleteOnCancellation),
        ("no-externalized-checkpoints", CheckpointRetention::NoExternalizedCheckpoints),
    ] {
        let mut config = JobConfig::default();
        config.set("execution.checkpointing.externalized-checkpoint-retention", value).unwrap();
        assert_eq!(config.checkpoints.retention, Some(retention), "{value}");
    }
}

#[test]
fn relative_paths_are_meant_from_the_directory_that_is_named() {
    let mut config = JobConfig::default();
    config.set("execution.checkpointing.dir", "chk").unwrap();
    config.set("execution.state-recovery.path", "/abs/chk-1").unwrap();
    config.resolve_paths(Path::new("/work"));
    assert_eq!(config.checkpoints.dir, Some(PathBuf::from("/work/chk")));
    assert_eq!(config.recovery.path, Some(PathBuf::from("/abs/chk-1")));
    assert_eq!(config.checkpoints.savepoint_dir, None);
}

#[test]
fn the_page_of_keys_says_what_the_table_of_keys_says() {
    let page = include_str!("../../docs/configuration.md");
    let rows: Vec<_> = page.lines().filter(|line| line.starts_with("| `")).collect();
    let expected: Vec<_> = KEYS
        .iter()
        .map(|key| {
            let old_name = key.old_name.map(|name| format!("`{name}`")).unwrap_or_default();
            format!("| `{}` | {} | {} | {} | {old_name} |", key.name, key.values, key.default, key.meaning)
        })
        .collect();
    assert!(rows == expected, "the rows of src/docs/configuration.md should be:\n{}", expected.join("\n"));
    for (key, reason) in REFUSED {
        assert!(page.contains(&format!("`{key}`: {reason}")), "{key} is missing");
    }
    for key in LATER {
        assert!(page.contains(&format!("`{key}`")), "{key} is missing");
    }
}
