use std::path::Path;
use std::sync::Arc;

use super::disk::Disk;
use super::fixture::{SUBTASK, checkpoint, groups, job, read_back, subtask, take, write_subtask};
use crate::base::id::{CheckpointId, JobId};
use crate::snapshot::*;

pub(super) const ROOT: &str = "/root/checkpoints";
pub(super) const NAME: &str = "my job";

pub(super) const SUSPENDED: Conclusion = Conclusion::Ended { keeps_checkpoints: true };
pub(super) const CANCELLED: Conclusion = Conclusion::Ended { keeps_checkpoints: false };
pub(super) const FINISHED: Conclusion = Conclusion::Finished { keeps_checkpoints: false };
const FINISHED_AND_KEPT: Conclusion = Conclusion::Finished { keeps_checkpoints: true };

pub(super) fn settings() -> JobStorageSettings {
    JobStorageSettings { inline_threshold: 0, owner: "the test".to_owned(), began_from: None }
}

pub(super) fn fresh_as(disk: &Disk, job: JobId, now_ms: u64) -> Result<JobStorage, SnapshotError> {
    JobStorage::fresh(Arc::new(disk.clone()), Path::new(ROOT), job, NAME, now_ms, settings())
}

pub(super) fn fresh(disk: &Disk) -> JobStorage {
    fresh_as(disk, job(), 1000).unwrap()
}

pub(super) fn resume(disk: &Disk) -> Result<JobStorage, SnapshotError> {
    JobStorage::resume(Arc::new(disk.clone()), Path::new(ROOT), job(), settings())
}

pub(super) fn runs(disk: &Disk) -> Runs {
    Runs::new(Arc::new(disk.clone()), Path::new(ROOT))
}

pub(super) fn opened(disk: &Disk) -> JobStorage {
    let storage = fresh(disk);
    storage.open().unwrap();
    storage
}

pub(super) fn resumed(disk: &Disk) -> JobStorage {
    let storage = resume(disk).unwrap();
    storage.open().unwrap();
    storage
}

pub(super) fn job_directory() -> String {
    format!("{ROOT}/{}", job())
}

pub(super) fn names(disk: &Disk) -> Vec<String> {
    disk.tree(&job_directory())
}

pub(super) fn id(id: u64) -> CheckpointId {
    CheckpointId(id)
}

#[test]
fn nothing_is_written_before_the_storage_is_opened() {
    let disk = Disk::new();
    let storage = fresh(&disk);
    assert_eq!(storage.list().unwrap(), []);
    assert_eq!(storage.newest().unwrap(), None);
    assert_eq!(storage.highest_id().unwrap(), None);
    assert_eq!(storage.record(), None);
    assert!(matches!(storage.begin(id(1), SUBTASK).map(|_| ()), Err(SnapshotError::NotOpen { .. })));
    assert!(matches!(storage.commit(&checkpoint(1, vec![])), Err(SnapshotError::NotOpen { .. })));
    assert!(matches!(storage.discard(id(1)), Err(SnapshotError::NotOpen { .. })));
    storage.conclude(FINISHED).unwrap();
    assert_eq!(disk.tree("/"), [""; 0]);
}

#[test]
fn a_checkpoint_is_durable_once_it_is_committed_and_reads_back_in_the_next_life() {
    let disk = Disk::new();
    let storage = opened(&disk);
    let taken = take(&storage, 1).unwrap();
    assert_eq!(storage.path(id(1)), format!("{}/chk-1", job_directory()));
    for seed in 0..50 {
        let disk = disk.powered_off(&mut crate::base::rng::Rng::new(seed));
        let storage = resume(&disk).unwrap();
        assert_eq!(storage.newest().unwrap().as_ref(), Some(&taken));
        assert_eq!(storage.list().unwrap(), [id(1)]);
        assert_eq!(storage.highest_id().unwrap(), Some(id(1)));
        read_back(&storage, &taken).unwrap();
    }
}

#[test]
fn a_checkpoint_under_way_is_invisible() {
    let disk = Disk::new();
    let storage = opened(&disk);
    write_subtask(&storage, 1, SUBTASK, vec![vec![1; 10]], Compression::None).unwrap();
    assert_eq!(names(&disk), [".chk-1/2.1-0", ".chk-1", "_job"]);
    assert_eq!(storage.newest().unwrap(), None);
    assert_eq!(storage.list().unwrap(), []);
}

#[test]
fn small_state_goes_into_the_metadata_and_large_state_into_a_file() {
    let disk = Disk::new();
    let settings = JobStorageSettings { inline_threshold: 200, ..settings() };
    let storage =
        JobStorage::fresh(Arc::new(disk.clone()), Path::new(ROOT), job(), NAME, 0, settings).unwrap();
    storage.open().unwrap();
    let small = write_subtask(&storage, 1, subtask(0), vec![vec![1; 30]; 3], Compression::None).unwrap();
    let large = write_subtask(&storage, 1, subtask(1), vec![vec![2; 40]; 3], Compression::None).unwrap();
    assert_eq!((small.bytes, large.bytes), (3 * 61, 3 * 71));
    assert!(small.files.is_empty());
    assert_eq!(large.files, [SnapshotFile { file: "chk-1/2.1-0".to_owned(), length: 213 }]);
    let checkpoint = checkpoint(1, vec![small, large]);
    storage.commit(&checkpoint).unwrap();
    assert_eq!(names(&disk), ["_job", "chk-1/2.1-0", "chk-1/_metadata", "chk-1"]);
    let read = storage.newest().unwrap().unwrap();
    assert_eq!(read, checkpoint);
    for (group, handle) in &read.subtasks[0].operators[0].keyed[0].sections {
        assert!(handle.range().is_none());
        assert_eq!(read_section(&storage, *group, handle).unwrap(), [1; 30]);
    }
}

/// Without keyed state there is not even a file to begin.
#[test]
fn a_checkpoint_without_files_is_a_checkpoint() {
    let disk = Disk::new();
    let storage = opened(&disk);
    let checkpoint = checkpoint(1, vec![]);
    storage.commit(&checkpoint).unwrap();
    assert_eq!(names(&disk), ["_job", "chk-1/_metadata", "chk-1"]);
    assert_eq!(storage.newest().unwrap(), Some(checkpoint));
}

#[test]
fn a_commit_that_names_what_is_not_there_is_refused() {
    let disk = Disk::new();
    let storage = opened(&disk);
    let finished = write_subtask(&storage, 1, subtask(0), vec![vec![1; 10]], Compression::None).unwrap();
    let mut open = storage.begin(id(1), SUBTASK).unwrap();
    open.append(b"open").unwrap();
    let mut unfinished = finished.clone();
    (unfinished.subtask, unfinished.operators) = (SUBTASK, vec![]);
    unfinished.files[0] = SnapshotFile { file: open.file().to_owned(), length: 4 };
    let refused = |subtasks| storage.commit(&checkpoint(1, subtasks)).unwrap_err().to_string();
    let error = refused(vec![finished.clone(), unfinished]);
    assert_eq!(error, format!("{}/chk-1/2.1-0: there is no such snapshot file", job_directory()));
    let mut longer = finished.clone();
    longer.files[0].length += 1;
    assert!(refused(vec![longer]).ends_with("chk-1/2.0-0: there is no such snapshot file"));
    let mut elsewhere = finished.clone();
    elsewhere.files[0].file = "chk-2/2.0-0".to_owned();
    assert!(refused(vec![elsewhere]).ends_with("chk-2/2.0-0: there is no such snapshot file"));
    let mut other_job = checkpoint(1, vec![finished.clone()]);
    other_job.job = JobId::from_words(3, 4);
    assert!(storage.commit(&other_job).unwrap_err().to_string().contains("cannot be written"));
    assert_eq!(storage.newest().unwrap(), None);
    storage.commit(&checkpoint(1, vec![finished])).unwrap();
    assert_eq!(
        names(&disk),
        ["_job", "chk-1/2.0-0", "chk-1/_metadata", "chk-1"],
        "nothing that nobody names"
    );
}

#[test]
fn an_aborted_checkpoint_leaves_nothing_and_late_writers_are_refused() {
    let disk = Disk::new();
    let storage = opened(&disk);
    let finished = write_subtask(&storage, 1, SUBTASK, vec![vec![1; 10]], Compression::None).unwrap();
    let mut writing = storage.begin(id(1), SUBTASK).unwrap();
    writing.append(b"partial").unwrap();
    let begun = storage.begin(id(1), SUBTASK).unwrap();
    let mut inline = storage.begin(id(1), SUBTASK).unwrap();
    storage.discard(id(1)).unwrap();
    assert_eq!(names(&disk), ["_job"]);
    let is_discarded = |error| matches!(error, SnapshotError::Discarded { checkpoint: CheckpointId(1) });
    assert!(is_discarded(inline.append(b"late").unwrap_err()));
    assert!(is_discarded(begun.finish().unwrap_err()), "even without any bytes");
    let _ = writing.append(b"late");
    assert!(is_discarded(writing.finish().unwrap_err()));
    assert!(is_discarded(storage.begin(id(1), SUBTASK).map(|_| ()).unwrap_err()));
    assert!(is_discarded(storage.commit(&checkpoint(1, vec![finished])).unwrap_err()));
    drop(inline);
    storage.discard(id(1)).unwrap();
    assert_eq!(names(&disk), ["_job"]);
    assert_eq!(storage.newest().unwrap(), None);
}

/// The last moment at which a writer can come late.
#[test]
fn a_checkpoint_discarded_while_a_file_is_made_durable_does_not_get_it() {
    let disk = Disk::new();
    let storage = Arc::new(opened(&disk));
    let mut writer = storage.begin(id(1), SUBTASK).unwrap();
    writer.append(b"bytes").unwrap();
    let discarding = Arc::clone(&storage);
    disk.before_sync(move || discarding.discard(id(1)).unwrap());
    assert!(matches!(writer.finish(), Err(SnapshotError::Discarded { .. })));
    assert_eq!(names(&disk), ["_job"]);
}

/// Ids grow, so it cannot be one of this run's; whatever it is, it is not replaced and not withdrawn.
#[test]
fn a_commit_never_touches_what_is_visible_already() {
    let disk = Disk::new();
    let storage = opened(&disk);
    take(&storage, 5).unwrap();
    drop(storage);
    let storage = resumed(&disk);
    assert!(matches!(take(&storage, 5), Err(SnapshotError::Exists { .. })));
    let newest = storage.newest().unwrap().unwrap();
    read_back(&storage, &newest).unwrap();
}

#[test]
fn writers_of_long_forgotten_checkpoints_are_refused_too() {
    let disk = Disk::new();
    let storage = opened(&disk);
    for number in 1..=1100 {
        storage.discard(id(number)).unwrap();
    }
    for number in [1, 70, 80, 1100] {
        assert!(matches!(
            storage.begin(id(number), SUBTASK).map(|_| ()),
            Err(SnapshotError::Discarded { .. })
        ));
    }
    take(&storage, 1101).unwrap();
    assert_eq!(names(&disk).len(), 5);
}

#[test]
fn a_writer_that_is_dropped_removes_its_file() {
    let disk = Disk::new();
    let storage = opened(&disk);
    let mut writer = storage.begin(id(1), SUBTASK).unwrap();
    writer.append(b"partial").unwrap();
    assert_eq!(names(&disk), [".chk-1/2.1-0", ".chk-1", "_job"]);
    drop(writer);
    assert_eq!(names(&disk), [".chk-1", "_job"]);
}

#[test]
fn a_completed_checkpoint_takes_nothing_more_and_is_not_completed_twice() {
    let disk = Disk::new();
    let storage = opened(&disk);
    let taken = take(&storage, 1).unwrap();
    assert!(matches!(storage.begin(id(1), SUBTASK).map(|_| ()), Err(SnapshotError::Completed { .. })));
    assert!(storage.commit(&taken).is_err());
    assert_eq!(storage.newest().unwrap(), Some(taken));
}

#[test]
fn ids_grow_over_all_lives_even_those_that_only_aborted() {
    let disk = Disk::new();
    let storage = opened(&disk);
    take(&storage, 1).unwrap();
    storage.discard(id(2)).unwrap();
    assert_eq!(names(&disk).iter().filter(|name| name.contains("chk-2")).count(), 0);
    let disk = disk.killed();
    let storage = resumed(&disk);
    assert_eq!(storage.highest_id().unwrap(), Some(id(2)));
    // Begun only, the process dies: its hidden directory is the trace, and the record once that is swept.
    drop(storage.begin(id(3), SUBTASK).unwrap());
    for _ in 0..2 {
        let disk = disk.killed();
        let storage = resumed(&disk);
        assert_eq!(storage.highest_id().unwrap(), Some(id(3)));
        let hidden = || names(&disk).iter().filter(|name| name.starts_with(".chk")).count();
        assert_eq!(hidden(), 1, "nothing is removed before this life has completed a checkpoint or ends");
        storage.conclude(SUSPENDED).unwrap();
        assert_eq!(hidden(), 0, "swept");
        assert_eq!(resumed(&disk).highest_id().unwrap(), Some(id(3)));
    }
    // Suspended with a checkpoint under way.
    storage.conclude(SUSPENDED).unwrap();
    assert_eq!(resume(&disk).unwrap().highest_id().unwrap(), Some(id(3)));
    assert_eq!(resumed(&disk).record().unwrap().lives, 3);
}

#[test]
fn the_first_checkpoint_of_a_life_removes_the_leftovers_of_earlier_ones() {
    let disk = Disk::new();
    let storage = opened(&disk);
    take(&storage, 1).unwrap();
    drop(storage.begin(id(2), SUBTASK).unwrap());
    let disk = disk.killed();
    let storage = resumed(&disk);
    let hidden = || names(&disk).iter().filter(|name| name.starts_with(".chk")).count();
    assert_eq!(hidden(), 1);
    take(&storage, 3).unwrap();
    assert_eq!(hidden(), 0);
}

/// The record is not part of the cost of a checkpoint.
#[test]
fn the_record_is_rewritten_for_the_first_completion_of_a_life_only() {
    let disk = Disk::new();
    let storage = opened(&disk);
    let recorded = || runs(&disk).record_of(job()).unwrap().unwrap();
    assert_eq!(recorded().newest_completed, None);
    take(&storage, 1).unwrap();
    assert_eq!(recorded().newest_completed, Some(id(1)));
    take(&storage, 2).unwrap();
    storage.discard(id(1)).unwrap();
    assert_eq!(recorded().newest_completed, Some(id(1)));
    assert_eq!(recorded().next_checkpoint_id, id(1));
    drop(storage);
    let storage = resumed(&disk);
    assert_eq!(recorded().next_checkpoint_id, id(3));
    take(&storage, 3).unwrap();
    assert_eq!(recorded().newest_completed, Some(id(3)));
}

/// Its record and its lock are gone: nobody would find it again, and others might lead it too.
#[test]
fn a_run_whose_directory_is_taken_away_takes_no_more_checkpoints() {
    for completed in 0..2 {
        let disk = Disk::new();
        let storage = opened(&disk);
        (1..=completed).for_each(|id| drop(take(&storage, id).unwrap()));
        disk.rename(Path::new(&job_directory()), &Path::new(ROOT).join("elsewhere")).unwrap();
        let error = take(&storage, 5).unwrap_err().to_string();
        assert!(error.starts_with(&format!("{}/_job: ", job_directory())), "{error}");
        let error = storage.newest().unwrap_err();
        assert!(error.to_string().contains(&job_directory()) && !error.is_transient(), "{error}");
        assert_eq!(disk.tree(&job_directory()), [""; 0], "it is not begun anew");
    }
}

#[test]
fn a_run_whose_checkpoints_are_gone_does_not_begin_anew() {
    let disk = Disk::new();
    let storage = opened(&disk);
    take(&storage, 1).unwrap();
    take(&storage, 2).unwrap();
    let in_job = |name: &str| std::path::PathBuf::from(format!("{}/{name}", job_directory()));
    disk.rename(&in_job("chk-2"), &in_job("moved")).unwrap();
    let error = storage.newest().unwrap_err().to_string();
    let gone = |id| {
        format!(
            "the checkpoints of this run are gone: {} has none from chk-{id} on, which was completed",
            job_directory()
        )
    };
    assert_eq!(error, gone(2), "known to the process that completed it");
    disk.rename(&in_job("chk-1"), &in_job("moved too")).unwrap();
    let disk = disk.killed();
    let resumed = resume(&disk).unwrap();
    let error = resumed.newest().unwrap_err();
    assert_eq!(error.to_string(), gone(1));
    assert!(!error.is_transient());
}

#[test]
fn damage_is_told_by_name_and_never_leads_to_an_older_checkpoint() {
    type Change = fn(&mut Vec<u8>);
    let changes: [(&str, Change, &str); 7] = [
        ("_metadata", |bytes| bytes[30] ^= 1, "is damaged: wrong checksum"),
        ("_metadata", |bytes| bytes.truncate(40), "is damaged: cut short"),
        ("_metadata", Vec::clear, "is damaged: cut short"),
        ("_metadata", |bytes| bytes.push(0), "is damaged: 1 bytes follow the frame"),
        ("2.1-0", |bytes| bytes.push(0), "is damaged: it has"),
        ("2.1-0", |bytes| bytes.truncate(bytes.len() - 1), "is damaged: it has"),
        ("2.1-0", Vec::clear, "is damaged: it has 0 bytes, the snapshot's metadata says"),
    ];
    for (name, change, reason) in changes {
        let disk = Disk::new();
        let storage = opened(&disk);
        take(&storage, 1).unwrap();
        take(&storage, 2).unwrap();
        let path = format!("{}/chk-2/{name}", job_directory());
        disk.tamper(&path, change);
        let error = storage.newest().unwrap_err();
        assert!(error.to_string().starts_with(&format!("{path} {reason}")), "{error}");
        assert!(!error.is_transient());
        disk.remove_file(Path::new(&path)).unwrap();
        let error = storage.newest().unwrap_err();
        assert_eq!(error.to_string(), format!("{path}: there is no such snapshot file"));
    }
}

#[test]
fn damage_within_a_file_is_told_when_the_state_is_read() {
    let disk = Disk::new();
    let storage = opened(&disk);
    take(&storage, 1).unwrap();
    let path = format!("{}/chk-1/2.1-0", job_directory());
    disk.tamper(&path, |bytes| bytes[100] ^= 1);
    let checkpoint = storage.newest().unwrap().unwrap();
    let error = read_back(&storage, &checkpoint).unwrap_err().to_string();
    assert!(error.starts_with(&format!("{path}, offset 41: damaged section: wrong checksum")), "{error}");
}

#[test]
fn a_checkpoint_of_another_run_or_number_is_not_taken_for_ones_own() {
    let disk = Disk::new();
    let storage = opened(&disk);
    take(&storage, 1).unwrap();
    let in_job = |name: &str| format!("{}/{name}", job_directory());
    disk.rename(Path::new(&in_job("chk-1")), Path::new(&in_job("chk-9"))).unwrap();
    let error = storage.newest().unwrap_err().to_string();
    assert!(error.contains("chk-9/_metadata is damaged: it describes checkpoint 1 of run"), "{error}");
}

#[test]
fn a_finished_run_keeps_its_record_alone_and_is_not_run_again() {
    let disk = Disk::new();
    let storage = opened(&disk);
    take(&storage, 1).unwrap();
    drop(storage.begin(id(2), SUBTASK).unwrap());
    let late = storage.begin(id(2), SUBTASK).unwrap();
    storage.conclude(FINISHED).unwrap();
    assert_eq!(names(&disk), ["_job"]);
    assert!(late.finish().is_err());
    assert!(storage.begin(id(3), SUBTASK).is_err());
    assert!(storage.open().is_err());
    let newest = runs(&disk).newest_of(NAME).unwrap().unwrap();
    assert_eq!((newest.job, newest.state), (job(), RunState::Finished));
    let storage = resume(&disk).unwrap();
    assert!(storage.is_finished());
    assert_eq!(storage.newest().unwrap(), None);
    assert!(matches!(storage.open(), Err(SnapshotError::Over { .. })));
    storage.conclude(FINISHED).unwrap();
    assert_eq!(names(&disk), ["_job"]);
    assert!(resume(&disk).is_ok(), "the lock was given up");
}

#[test]
fn checkpoints_of_a_finished_run_are_kept_on_request() {
    let disk = Disk::new();
    let storage = opened(&disk);
    take(&storage, 1).unwrap();
    storage.conclude(FINISHED_AND_KEPT).unwrap();
    assert_eq!(names(&disk), ["_job", "chk-1/2.0-0", "chk-1/2.1-0", "chk-1/_metadata", "chk-1"]);
    assert!(resume(&disk).unwrap().is_finished());
}

#[test]
fn a_cancelled_run_disappears() {
    let disk = Disk::new();
    let storage = opened(&disk);
    take(&storage, 1).unwrap();
    storage.conclude(CANCELLED).unwrap();
    assert_eq!(disk.tree(ROOT), [""; 0]);
    assert_eq!(runs(&disk).newest_of(NAME).unwrap(), None);
    assert!(matches!(resume(&disk), Err(SnapshotError::NoRun { .. })));
    fresh(&disk).open().unwrap();
}

/// The process died between the two halves of the cancellation.
#[test]
fn what_is_left_of_a_cancelled_run_is_not_resumed() {
    let disk = Disk::new();
    let storage = opened(&disk);
    take(&storage, 1).unwrap();
    disk.refuse(Some("remove_directory"));
    storage.conclude(CANCELLED).unwrap_err();
    disk.refuse(None);
    assert_eq!(runs(&disk).newest_of(NAME).unwrap(), None);
    assert!(matches!(resume(&disk), Err(SnapshotError::Over { .. })));
}

#[test]
fn what_somebody_else_put_into_the_directory_stays() {
    let disk = Disk::new();
    let storage = opened(&disk);
    disk.create(Path::new(&format!("{}/notes.txt", job_directory()))).unwrap();
    storage.conclude(CANCELLED).unwrap();
    assert_eq!(names(&disk), ["notes.txt"]);
}

/// It may be a link to something dear.
#[cfg(unix)]
#[test]
fn removing_a_checkpoint_never_leads_into_another_directory() {
    let root = tempfile::tempdir().unwrap();
    let storage = JobStorage::fresh(Arc::new(LocalStore), root.path(), job(), NAME, 0, settings()).unwrap();
    storage.open().unwrap();
    take(&storage, 1).unwrap();
    let dear = root.path().join("dear");
    std::fs::create_dir(&dear).unwrap();
    std::fs::write(dear.join("file"), "dear").unwrap();
    let link = Path::new(&storage.path(id(1))).join("link");
    std::os::unix::fs::symlink(&dear, link).unwrap();
    let error = storage.discard(id(1)).unwrap_err().to_string();
    assert!(error.contains(".chk-1.removed: Directory not empty"), "{error}");
    assert!(dear.join("file").exists());
}

#[test]
fn checkpoints_that_could_not_be_discarded_go_with_the_conclusion() {
    let disk = Disk::new();
    let storage = opened(&disk);
    take(&storage, 1).unwrap();
    take(&storage, 2).unwrap();
    disk.refuse(Some("rename"));
    assert!(storage.discard(id(1)).unwrap_err().is_transient());
    disk.refuse(None);
    storage.conclude(SUSPENDED).unwrap();
    let storage = resumed(&disk);
    assert_eq!(storage.list().unwrap(), [id(2)]);
}

#[test]
fn the_end_of_a_job_that_cannot_be_recorded_removes_nothing() {
    for conclusion in [FINISHED, CANCELLED] {
        let disk = Disk::new();
        let storage = opened(&disk);
        take(&storage, 1).unwrap();
        disk.refuse(Some("create"));
        let error = storage.conclude(conclusion).unwrap_err();
        assert!(matches!(error, SnapshotError::EndNotRecorded { .. }), "{error}");
        assert!(error.to_string().contains("/._job: create failed"), "{error}");
        disk.refuse(None);
        let storage = resumed(&disk);
        assert_eq!(storage.newest().unwrap().unwrap().id, id(1));
    }
}

#[test]
fn handles_never_lead_out_of_the_directory() {
    let disk = Disk::new();
    let storage = opened(&disk);
    for file in ["_job", "../x", "/etc/passwd", "chk-1/../_job", "chk-1/_metadata"] {
        let range = FileRange { file: file.to_owned(), offset: 0, length: 1 };
        let handle = StateHandle { location: Location::File(range), checksum: 0 };
        assert!(matches!(storage.read(&handle), Err(SnapshotError::MissingFile { .. })));
    }
}

/// Real threads, real files: writers of several checkpoints side by side with commits and discards.
#[test]
fn writers_commits_and_discards_run_side_by_side() {
    let root = tempfile::tempdir().unwrap();
    let storage = JobStorage::fresh(Arc::new(LocalStore), root.path(), job(), NAME, 0, settings()).unwrap();
    storage.open().unwrap();
    std::thread::scope(|scope| {
        for thread in 0..3u64 {
            let storage = &storage;
            scope.spawn(move || {
                for round in 0..8 {
                    let number = 1 + round * 3 + thread;
                    let write = |index| {
                        let groups = groups(number, subtask(index));
                        write_subtask(storage, number, subtask(index), groups, Compression::default())
                    };
                    match number % 4 {
                        0 => {
                            let late = storage.begin(id(number), SUBTASK).unwrap();
                            write(0).unwrap();
                            storage.discard(id(number)).unwrap();
                            assert!(late.finish().is_err());
                        }
                        _ => {
                            let taken = checkpoint(number, vec![write(0).unwrap(), write(1).unwrap()]);
                            storage.commit(&taken).unwrap();
                        }
                    }
                }
            });
        }
    });
    let kept = storage.list().unwrap();
    assert_eq!(kept, (1..=24).filter(|number| number % 4 != 0).map(id).collect::<Vec<_>>());
    let newest = storage.newest().unwrap().unwrap();
    read_back(&storage, &newest).unwrap();
    storage.conclude(SUSPENDED).unwrap();
    let left = std::fs::read_dir(storage.job_directory()).unwrap().count();
    assert_eq!(left, kept.len() + 1, "the checkpoints and the record");
}

#[test]
fn what_a_run_has_left_that_never_began_is_removed_and_nothing_else() {
    let disk = Disk::new();
    let storage = opened(&disk);
    take(&storage, 1).unwrap();
    let directory = |n: u64| Path::new(ROOT).join(JobId::from_words(9, n).to_string());
    for n in 0..4 {
        disk.create_directories(&directory(n)).unwrap();
    }
    for (n, name) in [(1, ".lock"), (1, "._job"), (2, "notes.txt")] {
        drop(disk.create(&directory(n).join(name)).unwrap());
    }
    let held = disk.lock(&directory(3).join(".lock"), "somebody who begins").unwrap();
    runs(&disk).remove_abandoned().unwrap();
    let left = |n| disk.entry(&directory(n)).is_ok();
    assert_eq!([0, 1, 2, 3].map(left), [false, false, true, true]);
    assert_eq!(storage.newest().unwrap().unwrap().id, id(1), "a run that is led stays as it is");
    drop(held);
    runs(&disk).remove_abandoned().unwrap();
    assert!(!left(3));
}
