//! Each file operation goes wrong once, in each way. What was promised is kept, what failed stays failed, and the storage goes on.

use std::path::Path;
use std::sync::Arc;

use super::disk::{Disk, Fault};
use super::fixture::{SUBTASK, groups, job, read_back, take, write_subtask};
use super::job_storage::{
    CANCELLED, FINISHED, NAME, SUSPENDED, fresh, fresh_as, job_directory, resume, runs,
};
use crate::base::id::{CheckpointId, JobId};
use crate::base::rng::Rng;
use crate::snapshot::*;

const FAULTS: [Fault; 4] = [Fault::Refused, Fault::Lied, Fault::Died, Fault::Unsynced];

fn id(id: u64) -> CheckpointId {
    CheckpointId(id)
}

/// What may be there after a loss of power at this moment.
fn images(disk: &Disk) -> impl Iterator<Item = Disk> + '_ {
    std::iter::once(disk.killed()).chain((0..12).map(|seed| disk.powered_off(&mut Rng::new(seed))))
}

/// Does the same with each operation going wrong in each way. `check` is called after the fault is over, if it has struck.
fn with_each_fault<T>(
    set_up: impl Fn() -> (Disk, JobStorage),
    act: impl Fn(&JobStorage) -> T,
    check: impl Fn(Fault, &Disk, JobStorage, T),
) {
    for fault in FAULTS {
        for operation in 0.. {
            let (disk, storage) = set_up();
            disk.fail_at(operation, fault);
            let outcome = act(&storage);
            if disk.is_dead() {
                // Whatever follows before the disk works again fails and changes nothing.
                for retry in [storage.newest().map(|_| ()), storage.list().map(|_| ())] {
                    assert!(retry.is_err_and(|error| error.is_transient()));
                }
            }
            if !disk.heal() {
                assert!(operation > 3, "there were operations to fail");
                break;
            }
            check(fault, &disk, storage, outcome);
        }
    }
}

/// A run with a completed checkpoint 1.
fn with_one() -> (Disk, JobStorage) {
    let disk = Disk::new();
    let storage = fresh(&disk);
    storage.open().unwrap();
    take(&storage, 1).unwrap();
    (disk, storage)
}

fn with_two() -> (Disk, JobStorage) {
    let (disk, storage) = with_one();
    take(&storage, 2).unwrap();
    (disk, storage)
}

/// The newest checkpoint that a new process finds; all of it can be read.
fn newest_of(disk: &Disk) -> Option<u64> {
    let storage = resume(disk).unwrap();
    let newest = storage.newest().unwrap()?;
    read_back(&storage, &newest).unwrap();
    Some(newest.id.0)
}

fn goes_on(disk: &Disk, storage: &JobStorage, next: u64) {
    take(storage, next).unwrap();
    assert_eq!(storage.newest().unwrap().unwrap().id, id(next));
    for older in storage.list().unwrap().into_iter().filter(|older| *older < id(next)) {
        storage.discard(older).unwrap();
    }
    storage.conclude(SUSPENDED).unwrap();
    let left = disk.tree(&job_directory());
    let expected = ["_job", "2.0-0", "2.1-0", "_metadata", ""].map(|name| match name {
        "_job" => "_job".to_owned(),
        "" => format!("chk-{next}"),
        name => format!("chk-{next}/{name}"),
    });
    assert_eq!(left, expected);
    images(disk).for_each(|image| assert_eq!(newest_of(&image), Some(next)));
}

#[test]
fn a_commit_is_durable_or_failed_for_ever() {
    with_each_fault(
        with_one,
        |storage| take(storage, 2).is_ok(),
        |fault, disk, storage, committed| {
            let newest = if committed { 2 } else { 1 };
            if matches!(fault, Fault::Refused | Fault::Lied) {
                images(disk).for_each(|image| assert_eq!(newest_of(&image), Some(newest), "{fault:?}"));
            } else if !committed {
                // Nobody was told anything, and nobody could withdraw it: all of it or nothing.
                images(disk).for_each(|image| assert!(matches!(newest_of(&image), Some(1 | 2))));
            }
            assert_eq!(storage.newest().unwrap().unwrap().id, id(newest));
            assert_eq!(storage.list().unwrap().last(), Some(&id(newest)));
            images(disk).for_each(|image| assert_eq!(newest_of(&image), Some(newest), "withdrawn for good"));
            if !committed {
                storage.discard(id(2)).unwrap();
                images(disk).for_each(|image| assert_eq!(newest_of(&image), Some(1)));
                let highest = |image: Disk| resume(&image).unwrap().highest_id().unwrap();
                images(disk).for_each(|image| assert!(highest(image) >= Some(id(2)), "2 was given away"));
            }
            goes_on(disk, &storage, 3);
        },
    );
}

/// The disk fails for a while from the renaming on: what cannot be withdrawn at once blocks all that would build upon it.
#[test]
fn a_checkpoint_that_cannot_be_withdrawn_blocks_everything_until_it_is() {
    let mut blocked = 0;
    with_each_fault(
        with_one,
        |storage| {
            let committed = take(storage, 2);
            (committed.is_err(), storage.newest(), storage.list(), take(storage, 3))
        },
        |fault, disk, storage, (failed, newest, list, next)| {
            if fault == Fault::Died && failed {
                assert!(newest.unwrap_err().is_transient() && list.is_err() && next.is_err());
                assert_eq!(storage.list().unwrap(), [id(1)]);
                images(disk).for_each(|image| assert_eq!(newest_of(&image), Some(1)));
            }
        },
    );
    // The moment that matters is among them.
    for operation in 0..40 {
        let (disk, storage) = with_one();
        disk.fail_at(operation, Fault::Died);
        let _ = take(&storage, 2);
        blocked += u32::from(matches!(storage.newest(), Err(SnapshotError::NotWithdrawn { .. })));
    }
    assert!(blocked >= 2, "the renaming and what makes it durable: {blocked}");
}

/// Not only what reads or commits next may have to bring a withdrawal to its end.
#[test]
fn a_checkpoint_that_is_discarded_before_it_was_withdrawn_stays_away() {
    with_each_fault(
        with_one,
        |storage| take(storage, 2).is_ok(),
        |_, disk, storage, committed| {
            if !committed {
                storage.discard(id(2)).unwrap();
                images(disk).for_each(|image| assert_eq!(newest_of(&image), Some(1)));
                goes_on(disk, &storage, 3);
            }
        },
    );
}

/// The process was killed when the new name was there, but not durable yet. Whoever goes on from there must not lose it later.
#[test]
fn what_a_new_process_found_is_there_after_a_loss_of_power_too() {
    with_each_fault(
        with_one,
        |storage| take(storage, 2).is_ok(),
        |_, disk, _, _| {
            let killed = disk.killed();
            let newest = newest_of(&killed);
            images(&killed).for_each(|image| assert_eq!(newest_of(&image), newest));
        },
    );
}

#[test]
fn a_discard_that_fails_can_be_repeated_and_leaves_no_damage() {
    with_each_fault(
        with_two,
        |storage| storage.discard(id(1)),
        |_, disk, storage, discarded| {
            let all_is_well = |image: Disk| {
                assert_eq!(newest_of(&image), Some(2));
                let storage = resume(&image).unwrap();
                storage.open().unwrap();
                if storage.list().unwrap().contains(&id(1)) {
                    let path = storage.path(id(1));
                    let (older, files) = SnapshotDirectory::open(Arc::new(image), Path::new(&path)).unwrap();
                    read_back(files.as_ref(), &older).unwrap();
                }
            };
            images(disk).for_each(all_is_well);
            if discarded.is_err() {
                storage.discard(id(1)).unwrap();
            }
            assert_eq!(storage.list().unwrap(), [id(2)]);
            goes_on(disk, &storage, 3);
        },
    );
}

#[test]
fn the_id_of_an_aborted_checkpoint_is_never_given_again() {
    with_each_fault(
        || {
            let (disk, storage) = with_one();
            write_subtask(&storage, 2, SUBTASK, groups(2, SUBTASK), Compression::None).unwrap();
            (disk, storage)
        },
        |storage| storage.discard(id(2)),
        |_, disk, storage, discarded| {
            let highest = |image: Disk| resume(&image).unwrap().highest_id().unwrap();
            images(disk).for_each(|image| assert_eq!(highest(image), Some(id(2))));
            if discarded.is_err() {
                storage.discard(id(2)).unwrap();
            }
            images(disk).for_each(|image| assert_eq!(highest(image), Some(id(2))));
            goes_on(disk, &storage, 3);
        },
    );
}

#[test]
fn a_fresh_run_can_be_opened_again_or_given_up() {
    for gives_up in [false, true] {
        with_each_fault(
            || {
                let disk = Disk::new();
                let earlier = fresh_as(&disk, JobId::from_words(9, 9), 0).unwrap();
                earlier.open().unwrap();
                let storage = fresh(&disk);
                (disk, storage)
            },
            CheckpointStorage::open,
            |_, disk, storage, opened| {
                for image in images(disk) {
                    let record = runs(&image).newest_of(NAME).unwrap().unwrap();
                    if record.job == job() {
                        assert_eq!((record.sequence, newest_of(&image)), (2, None));
                    }
                }
                if gives_up && opened.is_err() {
                    storage.conclude(SUSPENDED).unwrap();
                    assert_eq!(runs(disk).newest_of(NAME).unwrap().unwrap().sequence, 1);
                    return;
                }
                storage.open().unwrap();
                assert_eq!(storage.record().unwrap().sequence, 2);
                goes_on(disk, &storage, 1);
            },
        );
    }
}

#[test]
fn a_resumed_run_can_be_opened_again_and_counts_one_life() {
    with_each_fault(
        || {
            let (disk, storage) = with_one();
            let _ = storage.begin(id(2), SUBTASK).unwrap();
            let disk = disk.killed();
            let storage = resume(&disk).unwrap();
            (disk, storage)
        },
        CheckpointStorage::open,
        |_, disk, storage, _| {
            for image in images(disk) {
                assert_eq!(newest_of(&image), Some(1));
                assert_eq!(resume(&image).unwrap().highest_id().unwrap(), Some(id(2)));
            }
            storage.open().unwrap();
            let record = runs(disk).record_of(job()).unwrap().unwrap();
            assert_eq!((record.lives, record.next_checkpoint_id), (2, id(3)));
            goes_on(disk, &storage, 3);
        },
    );
}

#[test]
fn the_end_of_a_run_is_recorded_before_anything_of_it_is_removed() {
    for conclusion in [FINISHED, CANCELLED, SUSPENDED] {
        with_each_fault(
            || {
                let (disk, storage) = with_two();
                let _ = storage.begin(id(3), SUBTASK).unwrap();
                (disk, storage)
            },
            |storage| storage.conclude(conclusion),
            |_, disk, _, concluded| {
                for image in images(disk) {
                    let record = runs(&image).newest_of(NAME).unwrap();
                    match record.map(|record| record.state) {
                        Some(RunState::Running) => {
                            assert!(conclusion == SUSPENDED || concluded.is_err());
                            assert_eq!(newest_of(&image), Some(2));
                            assert_eq!(resume(&image).unwrap().highest_id().unwrap(), Some(id(3)));
                        }
                        Some(RunState::Finished | RunState::FinishedAndKept) => {
                            assert_eq!(conclusion, FINISHED)
                        }
                        None => assert_eq!(conclusion, CANCELLED),
                        Some(RunState::Cancelled) => unreachable!("it is not told of"),
                    }
                }
                assert!(resume(disk).is_ok() || conclusion == CANCELLED, "it was given up");
            },
        );
    }
}

#[test]
fn what_is_read_can_fail_and_be_read_again() {
    with_each_fault(
        with_two,
        |storage| storage.newest(),
        |_, disk, storage, read| {
            if let Err(error) = &read {
                assert!(error.is_transient() && error.to_string().contains("/root/checkpoints"), "{error}");
            }
            assert_eq!(storage.newest().unwrap().unwrap().id, id(2));
            goes_on(disk, &storage, 3);
        },
    );
}
