//! YAML documents as settings.

use std::path::PathBuf;
use std::time::Duration;

use super::*;
use crate::config::{CheckpointConfig, Cores};

fn loaded(text: &str) -> JobConfig {
    let mut config = JobConfig::default();
    config.load_yaml(text).unwrap_or_else(|faults| panic!("{text}: {faults:?}"));
    config
}

fn faults(text: &str) -> Vec<String> {
    let faults = JobConfig::default().load_yaml(text).unwrap_err();
    faults.iter().map(ToString::to_string).collect()
}

/// A configuration of Flink 1.x, as users have it.
const FLINK: &str = "\
state.backend: rocksdb
state.checkpoints.dir: hdfs:///flink/checkpoints
state.savepoints.dir: hdfs:///flink/savepoints
execution.checkpointing.interval: 60000
execution.checkpointing.timeout: 600000
execution.checkpointing.max-concurrent-checkpoints: 2
state.backend.incremental: true
";

#[test]
fn a_configuration_of_flink_lacks_only_its_file_system() {
    let expected = [
        "line 2: state.checkpoints.dir names the file system \"hdfs\", which is not built in: name a local one, as a path or as \
         file:///path",
        "line 3: state.savepoints.dir names the file system \"hdfs\", which is not built in: name a local one, as a path or as \
         file:///path",
    ];
    assert_eq!(faults(FLINK), expected);
    let mut config = loaded(&FLINK.replace("hdfs:///flink/checkpoints", "/chk").replace("hdfs:", "file:"));
    let notes = [
        "state.backend is rocksdb, which this build does not have: keyed state lives on the heap",
        "state.backend is the 1.x name of state.backend.type",
        "state.checkpoints.dir is the 1.x name of execution.checkpointing.dir",
        "state.savepoints.dir is the 1.x name of execution.checkpointing.savepoint-dir",
        "state.backend.incremental is true, but each checkpoint is full",
        "state.backend.incremental is the 1.x name of execution.checkpointing.incremental",
    ];
    assert_eq!(std::mem::take(&mut config.notes), notes);
    let checkpoints = CheckpointConfig::every(Duration::from_secs(60))
        .with_timeout(Duration::from_secs(600))
        .with_max_concurrent(2)
        .with_dir("/chk")
        .with_savepoint_dir("/flink/savepoints");
    assert_eq!(config, JobConfig::default().with_checkpoints(checkpoints));
    assert!(config.faults().is_empty());
}

#[test]
fn flat_and_nested_keys_mean_the_same_in_any_mixture() {
    let nested = "\
execution:
  checkpointing.interval: 10s   # a comment
  checkpointing:
    dir: '/a dir'
    min-pause: \"250ms\"
restart-strategy: { type: fixed-delay, fixed-delay: { attempts: 3 } }
restart-strategy.fixed-delay.delay: 5ms
taskmanager:
  cores: [0, 2]
  ring: {capacity: 512}
";
    let flat = "\
execution.checkpointing.interval: 10s
execution.checkpointing.dir: /a dir
execution.checkpointing.min-pause: 250ms
restart-strategy.type: fixed-delay
restart-strategy.fixed-delay.attempts: 3
restart-strategy.fixed-delay.delay: 5ms
taskmanager.cores: 0,2
taskmanager.ring.capacity: 512
";
    assert_eq!(loaded(nested), loaded(flat));
    assert_eq!(loaded(flat).checkpoints.dir, Some(PathBuf::from("/a dir")));
}

#[test]
fn a_document_without_settings_changes_nothing() {
    for text in ["", "\n", "# nothing\n", "---\n", "{}"] {
        assert_eq!(loaded(text), JobConfig::default(), "{text:?}");
    }
}

#[test]
fn values_are_taken_as_they_are_written() {
    for (written, name) in [
        ("1.10", "1.10"),
        ("007", "007"),
        ("0x10", "0x10"),
        ("1e3", "1e3"),
        ("true", "true"),
        ("yes", "yes"),
        ("-5", "-5"),
        ("9999999999999999999999", "9999999999999999999999"),
        ("'~'", "~"),
        ("two words  # and a comment", "two words"),
        ("\"\\u00f6\"", "ö"),
        ("&name 1.10", "1.10"),
    ] {
        assert_eq!(loaded(&format!("# ö\npipeline.name: {written}\n")).name, name, "{written}");
    }
    let aliased = loaded("taskmanager.snapshot.threads: &n 2\nparallelism.default: *n\n");
    assert_eq!((aliased.snapshot_threads, aliased.parallelism), (2, 2));
}

#[test]
fn cores_are_a_count_or_a_list_in_every_form_of_yaml() {
    for (value, cores) in [
        ("2", Cores::Count(2)),
        ("[2]", Cores::List(vec![2])),
        ("[0, 3]", Cores::List(vec![0, 3])),
        ("\n- 0\n- 3", Cores::List(vec![0, 3])),
        ("0,3", Cores::List(vec![0, 3])),
    ] {
        assert_eq!(loaded(&format!("taskmanager.cores: {value}")).cores, cores, "{value}");
    }
    for wrong in ["[]", "[a]", "[[1]]", "[{a: 1}]", "[~]"] {
        assert!(
            faults(&format!("taskmanager.cores: {wrong}"))[0].contains("taskmanager.cores is"),
            "{wrong}"
        );
    }
}

#[test]
fn every_fault_is_told_with_its_key_and_line() {
    let text = "\
execution.checkpoint.interval: 1s
parallelism.default: many
execution.checkpointing:
  timeout:
  min-pause: [1s]
pipeline.name: kept
pipeline:
  name: again
state.backend: heap
state.backend.type: heap
";
    assert_eq!(
        faults(text),
        [
            "line 1: unknown configuration key \"execution.checkpoint.interval\"; did you mean \
             \"execution.checkpointing.interval\"?",
            "line 2: parallelism.default is \"many\": a whole number is expected",
            "line 4: execution.checkpointing.timeout is \"\": a value is expected",
            "line 5: execution.checkpointing.min-pause is \"a list\": one value is expected",
            "line 8: pipeline.name is set in line 6 already; keep one of them",
            "line 10: state.backend.type is set in line 9 already; keep one of them",
        ]
    );
    assert!(faults("parallelism.default: 1\nparallelism.default: 2\n")[0].starts_with("line 2: "));
}

#[test]
fn a_text_that_is_no_map_in_yaml_is_refused_with_the_place() {
    for (text, word) in [
        ("a: [1\nb: 2", "line 2"),
        ("a: 1\n---\nb: 2\n", "line 3"),
        ("just text", "not a map"),
        ("- a\n- b", "not a map"),
        ("a: *nowhere", "line 1"),
        ("? {a: 1}\n: 2", "line 1"),
        ("a: .inf", "line 1"),
    ] {
        let faults = faults(text);
        assert!(faults.len() == 1 && faults[0].starts_with("not valid YAML: "), "{faults:?}");
        assert!(faults[0].contains(word), "{faults:?}");
    }
}
