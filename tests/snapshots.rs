//! `stoplog inspect` and `stoplog verify` from outside: their output and exit status.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use serde_json::Value;
use stoplog::base::id::{CheckpointId, JobId, OperatorUid, SubtaskId, SubtaskIndex, VertexId};
use stoplog::base::key_group::{KeyGroup, KeyGroupRange};
use stoplog::codec::CodecError;
use stoplog::snapshot::{
    CheckpointStorage as _, CompletedCheckpoint, Compression, FrozenState, JobStorage, JobStorageSettings,
    ListStateSnapshot, LocalStore, OperatorSnapshot, StateDeclaration, StateKind, SubtaskSnapshot,
    write_state,
};

struct Counts(StateDeclaration);

impl FrozenState for Counts {
    fn declaration(&self) -> &StateDeclaration {
        &self.0
    }

    fn key_form(&self) -> String {
        "u64".to_owned()
    }

    fn key_groups(&self) -> KeyGroupRange {
        KeyGroupRange { start: 0, end: 4 }
    }

    fn encode_group(&self, group: KeyGroup, out: &mut Vec<u8>) -> Result<u64, CodecError> {
        out.extend_from_slice(&1u64.to_le_bytes());
        out.extend_from_slice(&[group.0 as u8, 7]);
        Ok(1)
    }
}

fn job() -> JobId {
    JobId::from_words(1, 2)
}

/// The directory of a run with the checkpoint 5.
fn run(root: &Path) -> PathBuf {
    let settings = JobStorageSettings { inline_threshold: 0, owner: "the test".to_owned(), began_from: None };
    let storage = JobStorage::fresh(Arc::new(LocalStore), root, job(), "counting", 1000, settings).unwrap();
    storage.open().unwrap();
    let subtask = SubtaskId { vertex: VertexId(1), index: SubtaskIndex(0) };
    let mut writer = storage.begin(CheckpointId(5), subtask).unwrap();
    let declaration = StateDeclaration {
        name: "count".to_owned(),
        kind: StateKind::Value,
        serializer: "postcard".to_owned(),
        serializer_version: 1,
    };
    let state = write_state(Box::new(Counts(declaration)), writer.as_mut(), Compression::None).unwrap();
    let bytes = state.bytes();
    let list = ListStateSnapshot { name: "splits".to_owned(), items: vec![vec![1, 2, 3]] };
    let uid = OperatorUid::new("counter");
    let operators = vec![OperatorSnapshot { uid, keyed: vec![state], list: vec![list], ended: false }];
    let mut snapshot = SubtaskSnapshot { subtask, parallelism: 1, operators, files: Vec::new(), bytes };
    snapshot.place(writer.finish().unwrap()).unwrap();
    let checkpoint = CompletedCheckpoint {
        id: CheckpointId(5),
        job: job(),
        max_parallelism: 4,
        triggered_at_ms: 1_700_000_000_000,
        completed_at_ms: 1_700_000_000_012,
        subtasks: vec![snapshot],
    };
    storage.commit(&checkpoint).unwrap();
    storage.job_directory().to_owned()
}

fn stoplog(command: &str, path: &Path, json: bool) -> Output {
    let mut process = Command::new(env!("CARGO_BIN_EXE_stoplog"));
    process.arg(command).arg(path);
    if json {
        process.arg("--json");
    }
    process.output().unwrap()
}

fn json(command: &str, path: &Path, status: i32) -> Value {
    let output = stoplog(command, path, true);
    assert_eq!(output.status.code(), Some(status), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn inspect_shows_a_snapshot_in_words_and_as_json() {
    let root = tempfile::tempdir().unwrap();
    let directory = run(root.path());
    let path = directory.join("chk-5");
    let output = stoplog("inspect", &path, false);
    assert_eq!(output.status.code(), Some(0));
    let expected = format!(
        "{}
checkpoint 5 of run {}, triggered 2023-11-14 22:13:20 UTC, took 12 ms
max parallelism 4, 167 bytes of state, 3 of them in the metadata, 1 files
operator  subtasks  state   kind   serializer  keys  holds               bytes
counter   1         count   value  postcard 1  u64   4 key groups (0-3)    164
                    splits  list   -           -     1 items                 3
",
        path.display(),
        job()
    );
    assert_eq!(text(&output), expected);
    let found = json("inspect", &path, 0);
    assert_eq!((&found["checkpoint_id"], &found["job_id"]), (&5.into(), &job().to_string().into()));
    let operator = &found["operators"][0];
    assert_eq!((&operator["uid"], &operator["source_positions"]), (&"counter".into(), &1.into()));
    assert_eq!(operator["keyed_states"][0]["key_groups"], 4);
    let all = json("inspect", &directory, 0);
    assert_eq!((&all["record"]["name"], &all["record"]["state"]), (&"counting".into(), &"RUNNING".into()));
    assert_eq!(all["checkpoints"][0], found);
    assert!(text(&stoplog("inspect", &directory, false)).contains("counting: RUNNING"));
}

#[test]
fn verify_tells_wholeness_by_its_status_and_damage_by_name() {
    let root = tempfile::tempdir().unwrap();
    let directory = run(root.path());
    let path = directory.join("chk-5");
    let file = path.join("1.0-0");
    let output = stoplog("verify", &path, false);
    assert_eq!(output.status.code(), Some(0));
    let whole = "whole (1 snapshots, 2 files, 4 sections, 164 bytes)";
    assert_eq!(text(&output), format!("{}: {whole}\n", path.display()));
    assert_eq!(json("verify", &directory, 0)["whole"], true);
    let mut bytes = fs::read(&file).unwrap();
    bytes[30] ^= 1;
    fs::write(&file, bytes).unwrap();
    for path in [&path, &directory] {
        let output = stoplog("verify", path, false);
        assert_eq!(output.status.code(), Some(1));
        let first = text(&output).lines().next().unwrap().to_owned();
        assert!(first.starts_with(&format!("{}: offset 0: damaged section", file.display())), "{first}");
        let found = json("verify", path, 1);
        assert_eq!(found["damage"][0]["file"], file.display().to_string());
    }
}

#[test]
fn damaged_or_missing_metadata_is_damage_and_nothing_at_all_is_a_mistake() {
    let root = tempfile::tempdir().unwrap();
    let directory = run(root.path());
    let path = directory.join("chk-5");
    let metadata = path.join("_metadata");
    let whole = fs::read(&metadata).unwrap();
    fs::write(&metadata, &whole[..whole.len() - 1]).unwrap();
    let spoilt = [false, true].map(|removed| {
        if removed {
            fs::remove_file(&metadata).unwrap();
        }
        for path in [&path, &metadata, &directory] {
            let found = json("verify", path, 1);
            assert_eq!(found["damage"][0]["file"], metadata.display().to_string());
            let output = stoplog("inspect", path, false);
            assert_eq!(output.status.code(), Some(2));
            let error = String::from_utf8(output.stderr).unwrap();
            assert!(error.contains(&metadata.display().to_string()), "{error}");
        }
    });
    assert_eq!(spoilt.len(), 2);
    for command in ["inspect", "verify"] {
        let output = stoplog(command, &root.path().join("nothing"), true);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0));
        assert!(String::from_utf8(output.stderr).unwrap().contains("there is nothing of that name"));
    }
}
