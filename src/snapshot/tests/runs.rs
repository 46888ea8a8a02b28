//! Which process has which run, and how runs and snapshots are found.

use std::path::Path;
use std::sync::Arc;

use super::disk::Disk;
use super::fixture::{job, read_back, take};
use super::job_storage::{
    CANCELLED, NAME, ROOT, SUSPENDED, fresh, fresh_as, id, job_directory, opened, resume, resumed, runs,
};
use crate::base::id::JobId;
use crate::snapshot::*;

#[test]
fn a_second_process_is_kept_out_and_told_by_whom() {
    let disk = Disk::new();
    let storage = opened(&disk);
    let error = resume(&disk).unwrap_err().to_string();
    assert_eq!(error, format!("{}/.lock is held by the test", job_directory()));
    assert!(matches!(fresh_as(&disk, job(), 0), Err(SnapshotError::Exists { .. })));
    drop(storage);
    let first = resume(&disk).unwrap();
    assert!(matches!(resume(&disk), Err(SnapshotError::Held { .. })), "held before it is opened");
    first.conclude(SUSPENDED).unwrap();
    assert!(resume(&disk).is_ok());
}

#[test]
fn of_two_that_begin_the_same_run_one_does() {
    let disk = Disk::new();
    let (first, second) = (fresh(&disk), fresh(&disk));
    first.open().unwrap();
    assert!(matches!(second.open(), Err(SnapshotError::Held { .. })));
    second.conclude(CANCELLED).unwrap();
    take(&first, 1).unwrap();
    first.conclude(SUSPENDED).unwrap();
    let late = fresh_as(&disk, JobId::from_words(7, 7), 0).unwrap();
    late.open().unwrap();
    assert_eq!(resumed(&disk).newest().unwrap().unwrap().id, id(1));
}

#[test]
fn the_newest_run_is_the_one_that_began_last_whatever_the_clock_said() {
    let disk = Disk::new();
    let jobs = [3, 1, 2].map(|n| JobId::from_words(n, n));
    for (number, job) in jobs.into_iter().enumerate() {
        let storage = fresh_as(&disk, job, 1000 - number as u64).unwrap();
        storage.open().unwrap();
        assert_eq!(storage.record().unwrap().sequence, number as u64 + 1);
    }
    let newest = |name: &str| runs(&disk).newest_of(name).unwrap().map(|record| record.job);
    assert_eq!(newest(NAME), Some(jobs[2]));
    assert_eq!(newest("another"), None);
}

#[test]
fn a_root_that_is_missing_has_no_run_and_strangers_in_it_are_ignored() {
    let disk = Disk::new();
    assert_eq!(runs(&disk).newest_of(NAME).unwrap(), None);
    disk.create_directories(Path::new(&format!("{ROOT}/photos"))).unwrap();
    disk.create_directories(Path::new(&format!("{ROOT}/{}", JobId::from_words(9, 9)))).unwrap();
    disk.create(Path::new(&format!("{ROOT}/{}", JobId::from_words(8, 8)))).unwrap();
    assert_eq!(runs(&disk).newest_of(NAME).unwrap(), None);
    assert_eq!(runs(&disk).record_of(JobId::from_words(9, 9)).unwrap(), None);
    assert!(matches!(resume(&disk), Err(SnapshotError::NoRun { .. })));
}

#[test]
fn a_damaged_record_is_an_error_that_names_it() {
    let disk = Disk::new();
    drop(opened(&disk));
    let path = format!("{}/_job", job_directory());
    disk.tamper(&path, |bytes| bytes[30] ^= 4);
    let expected = format!("{path} is damaged: wrong checksum");
    assert!(runs(&disk).newest_of(NAME).unwrap_err().to_string().starts_with(&expected));
    assert!(resume(&disk).unwrap_err().to_string().starts_with(&expected));
    let other = fresh_as(&disk, JobId::from_words(5, 5), 0).unwrap();
    other.open().expect("the damage of another run does not keep a new one from starting");
}

#[test]
fn only_one_process_at_a_time_looks_for_a_run_of_a_name() {
    let disk = Disk::new();
    let lock = runs(&disk).lock_name(NAME, "me").unwrap();
    assert!(matches!(runs(&disk).lock_name(NAME, "you"), Err(SnapshotError::Held { .. })));
    runs(&disk).lock_name("another", "you").unwrap();
    drop(lock);
    runs(&disk).lock_name(NAME, "you").unwrap();
    assert_eq!(disk.tree(ROOT), [""; 0]);
}

#[test]
fn a_snapshot_opens_by_its_path_under_any_name() {
    let disk = Disk::new();
    let storage = opened(&disk);
    let taken = take(&storage, 7).unwrap();
    let in_root = |name: &str| format!("{ROOT}/{name}");
    let store = || Arc::new(disk.clone());
    let open = |path: &str| SnapshotDirectory::open(store(), Path::new(path));
    let error = open(&job_directory()).unwrap_err().to_string();
    assert_eq!(
        error,
        format!(
            "{} is not a snapshot: it is the directory of a run; name one of its checkpoints: chk-7",
            job_directory()
        )
    );
    for path in [format!("{}/chk-7", job_directory()), format!("{}/chk-7/_metadata", job_directory())] {
        let (checkpoint, files) = open(&path).unwrap();
        assert_eq!((checkpoint.id, checkpoint.job), (taken.id, taken.job));
        read_back(files.as_ref(), &checkpoint).unwrap();
    }
    disk.create_directories(Path::new(&in_root("elsewhere"))).unwrap();
    let error = open(&in_root("elsewhere")).unwrap_err().to_string();
    assert_eq!(error, format!("{ROOT}/elsewhere/_metadata: there is no such snapshot file"));
    let error = open(&in_root("nowhere")).unwrap_err().to_string();
    assert_eq!(error, format!("{ROOT}/nowhere is not a snapshot: there is nothing of that name"));
    let error = open(&format!("{}/_job", job_directory())).unwrap_err().to_string();
    assert!(error.contains("it is a file; name the directory"), "{error}");
    disk.remove_file(Path::new(&format!("{}/chk-7/2.0-0", job_directory()))).unwrap();
    let error = open(&format!("{}/chk-7", job_directory())).unwrap_err().to_string();
    assert_eq!(error, format!("{}/chk-7/2.0-0: there is no such snapshot file", job_directory()));
}
