use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::*;
use crate::snapshot::tests::fixture::{job, read_back, subtask, take, write_subtask};
use crate::snapshot::{
    CheckpointStorage as _, Compression, JobStorage, JobStorageSettings, SnapshotDirectory, SnapshotError,
    layout,
};

/// A run with two checkpoints, on the real file system. One of two subtasks has its state inline.
struct Run {
    root: tempfile::TempDir,
    storage: JobStorage,
}

fn run(inline_threshold: usize) -> Run {
    let root = tempfile::tempdir().unwrap();
    let settings = JobStorageSettings { inline_threshold, owner: "the test".to_owned(), began_from: None };
    let storage =
        JobStorage::fresh(Arc::new(LocalStore), root.path(), job(), "my job", 1000, settings).unwrap();
    storage.open().unwrap();
    Run { root, storage }
}

impl Run {
    fn directory(&self) -> PathBuf {
        self.root.path().join(job().to_string())
    }

    fn checkpoint(&self, id: u64) -> PathBuf {
        self.directory().join(format!("chk-{id}"))
    }
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

fn verified(path: &Path) -> Verification {
    verify(Arc::new(LocalStore), path).unwrap()
}

fn damaged_files(path: &Path) -> Vec<String> {
    verified(path).damage.into_iter().map(|damage| damage.file).collect()
}

#[test]
fn the_names_are_those_that_sources_and_sinks_use() {
    assert_eq!(inspect::SOURCE_POSITIONS, crate::operator::source::SPLITS);
    assert_eq!(inspect::PENDING_TRANSACTIONS, crate::operator::recovery::TRANSACTIONS);
}

#[test]
fn a_description_tells_what_the_snapshot_consists_of() {
    let run = run(1000);
    let small = write_subtask(&run.storage, 7, subtask(0), vec![vec![1; 30]; 3], Compression::None).unwrap();
    let mut large =
        write_subtask(&run.storage, 7, subtask(1), vec![vec![2; 800]; 2], Compression::None).unwrap();
    large.operators[0].ended = true;
    let checkpoint = crate::snapshot::tests::fixture::checkpoint(7, vec![small, large]);
    run.storage.commit(&checkpoint).unwrap();
    let path = run.checkpoint(7);
    let Inspection::Snapshot(found) = inspect(Arc::new(LocalStore), &path).unwrap() else {
        panic!("one snapshot")
    };
    let keyed = KeyedStateDescription {
        name: "fixed".to_owned(),
        kind: "value".to_owned(),
        serializer: "raw".to_owned(),
        serializer_version: 1,
        key_form: "u64".to_owned(),
        bytes: 3 * 61 + 2 * 831,
        inline_bytes: 3 * 61,
        key_groups: 5,
        first_key_group: Some(0),
        last_key_group: Some(2),
    };
    let operator = OperatorDescription {
        uid: "op".to_owned(),
        parallelism: 2,
        ended_subtasks: 1,
        bytes: 3 * 61 + 2 * 831 + 6,
        source_positions: Some(4),
        pending_transactions: None,
        keyed_states: vec![keyed],
        list_states: vec![ListStateDescription { name: "splits".to_owned(), items: 4, bytes: 6 }],
    };
    let expected = SnapshotDescription {
        path: path.display().to_string(),
        checkpoint_id: 7,
        job_id: job().to_string(),
        max_parallelism: 128,
        triggered_at_ms: 1_700_000_000_007,
        completed_at_ms: 1_700_000_000_507,
        bytes: 3 * 61 + 2 * 831 + 6,
        inline_bytes: 3 * 61 + 6,
        files: vec![FileDescription { name: "2.1-0".to_owned(), bytes: 2 * 831 }],
        operators: vec![operator],
    };
    assert_eq!(found, expected);
    let by_metadata = inspect(Arc::new(LocalStore), &path.join(layout::METADATA)).unwrap();
    assert_eq!(by_metadata, Inspection::Snapshot(expected.clone()));
    match inspect(Arc::new(LocalStore), &run.directory()).unwrap() {
        Inspection::Run(found) => {
            let record = found.record.unwrap();
            assert_eq!((record.name.as_str(), record.state, record.lives), ("my job", "RUNNING", 1));
            assert_eq!(found.checkpoints, [expected]);
        }
        Inspection::Snapshot(_) => panic!("a run"),
    }
}

#[test]
fn an_undamaged_run_is_whole() {
    let run = run(1000);
    take(&run.storage, 1).unwrap();
    take(&run.storage, 2).unwrap();
    let one = verified(&run.checkpoint(1));
    assert!(one.whole && one.damage.is_empty());
    assert_eq!((one.snapshots, one.files, one.sections), (1, 3, 4));
    let all = verified(&run.directory());
    assert!(all.whole);
    assert_eq!((all.snapshots, all.files, all.sections, all.bytes), (2, 7, 8, 2 * one.bytes));
}

#[test]
fn what_is_no_snapshot_is_not_verified() {
    let run = run(0);
    for path in [run.root.path().join("nothing"), run.directory().join(layout::JOB_RECORD)] {
        let error = verify(Arc::new(LocalStore), &path).unwrap_err();
        assert!(matches!(error, SnapshotError::NotASnapshot { .. }), "{error}");
        assert!(error.to_string().starts_with(&path.display().to_string()));
    }
}

/// Every way to spoil each file of a checkpoint.
fn each_damage(file: &Path, check: impl Fn(&str)) {
    let whole = fs::read(file).unwrap();
    let spoil = |bytes: &[u8], what: String| {
        fs::write(file, bytes).unwrap();
        check(&what);
    };
    // Every byte of what is small; of the rest every byte of the first frame's header, and a sample.
    let positions = (0..whole.len()).filter(|at| *at < 100 || whole.len() < 1000 || at % 37 == 0);
    for at in positions.clone() {
        let mut flipped = whole.clone();
        flipped[at] ^= 1 << (at % 8);
        spoil(&flipped, format!("bit {} of byte {at} flipped", at % 8));
    }
    for length in positions {
        spoil(&whole[..length], format!("cut to {length} bytes"));
    }
    for at in [0, 4, 50, whole.len()] {
        let longer = [&whole[..at], b"x", &whole[at..]].concat();
        spoil(&longer, format!("a byte inserted at {at}"));
    }
    let twice = [&whole[..], &whole[..]].concat();
    spoil(&twice, "all of it twice".to_owned());
    spoil(&vec![0; whole.len()], "all zeros".to_owned());
    fs::remove_file(file).unwrap();
    check("removed");
    fs::create_dir(file).unwrap();
    check("a directory");
    fs::remove_dir(file).unwrap();
    fs::write(file, whole).unwrap();
}

#[test]
fn every_damage_to_any_file_is_told_with_the_name_of_that_file() {
    // All state in files, all inline.
    for inline_threshold in [0, 1 << 20] {
        let run = run(inline_threshold);
        take(&run.storage, 1).unwrap();
        take(&run.storage, 2).unwrap();
        let directory = run.checkpoint(2);
        let all = files(&directory);
        assert_eq!(all.len(), if inline_threshold == 0 { 3 } else { 1 });
        for file in all {
            let name = file.display().to_string();
            each_damage(&file, |what| {
                for path in [&directory, &run.directory(), &directory.join(layout::METADATA)] {
                    let damaged = damaged_files(path);
                    assert!(!damaged.is_empty(), "{what}: {name} passes");
                    assert!(
                        damaged.iter().all(|damaged| *damaged == name),
                        "{what}: {damaged:?}, not {name}"
                    );
                }
                let restored =
                    run.storage.newest().and_then(|newest| read_back(&run.storage, &newest.unwrap()));
                let error = restored.expect_err(what).to_string();
                assert!(error.contains(&name), "{what}: {error}, not {name}");
                let external = SnapshotDirectory::open(Arc::new(LocalStore), &directory)
                    .and_then(|(checkpoint, files)| read_back(files.as_ref(), &checkpoint));
                let error = external.expect_err(what).to_string();
                assert!(error.contains(&name), "{what}: {error}, not {name}");
            });
            assert!(verified(&directory).whole, "{name} is as it was");
        }
    }
}

#[test]
fn all_damage_is_told_not_only_the_first() {
    let run = run(0);
    take(&run.storage, 1).unwrap();
    take(&run.storage, 2).unwrap();
    let spoil = |path: PathBuf, at: usize| {
        let mut bytes = fs::read(&path).unwrap();
        bytes[at] ^= 1;
        fs::write(&path, bytes).unwrap();
        path.display().to_string()
    };
    let two_sections = run.checkpoint(1).join("2.0-0");
    spoil(two_sections.clone(), 25);
    let expected = [
        spoil(run.directory().join(layout::JOB_RECORD), 40),
        spoil(two_sections.clone(), 300),
        two_sections.display().to_string(),
        run.checkpoint(1).join("2.1-0").display().to_string(),
        spoil(run.checkpoint(2).join(layout::METADATA), 40),
    ];
    fs::remove_file(run.checkpoint(1).join("2.1-0")).unwrap();
    let mut damage = verified(&run.directory()).damage;
    damage.sort();
    let mut files: Vec<_> = damage.iter().map(|damage| damage.file.clone()).collect();
    let mut expected = expected.to_vec();
    files.sort();
    expected.sort();
    assert_eq!(files, expected);
    let reasons: Vec<_> = damage.iter().map(|damage| damage.reason.as_str()).collect();
    assert!(reasons.contains(&"there is no such snapshot file"), "{reasons:?}");
    assert!(reasons.iter().any(|reason| reason.starts_with("offset 0: damaged section: wrong checksum")));
    assert!(reasons.iter().all(|reason| !reason.contains('/')), "the file is named once: {reasons:?}");
}

#[test]
fn a_run_that_has_lost_its_record_or_its_checkpoints_is_damaged() {
    let run = run(0);
    take(&run.storage, 1).unwrap();
    let record = run.directory().join(layout::JOB_RECORD);
    let hidden = run.directory().join("elsewhere");
    fs::rename(&record, &hidden).unwrap();
    assert_eq!(damaged_files(&run.directory()), [record.display().to_string()]);
    fs::rename(&hidden, &record).unwrap();
    fs::rename(run.checkpoint(1), run.directory().join("moved")).unwrap();
    let damage = verified(&run.directory()).damage;
    assert!(damage[0].reason.contains("the checkpoints of this run are gone"), "{damage:?}");
    fs::rename(run.directory().join("moved"), run.checkpoint(9)).unwrap();
    let damage = verified(&run.directory()).damage;
    assert!(damage[0].reason.contains("it describes checkpoint 1, checkpoint 9 is expected"), "{damage:?}");
}

#[test]
fn a_snapshot_may_lie_anywhere_under_any_name() {
    let run = run(0);
    take(&run.storage, 1).unwrap();
    let elsewhere = run.root.path().join("my savepoint");
    fs::rename(run.checkpoint(1), &elsewhere).unwrap();
    assert!(verified(&elsewhere).whole);
    let (checkpoint, files) = SnapshotDirectory::open(Arc::new(LocalStore), &elsewhere).unwrap();
    read_back(files.as_ref(), &checkpoint).unwrap();
}
