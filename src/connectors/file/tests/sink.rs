//! Lines in directories: what is seen when, and what becomes of it when something fails.

use std::fs;
use std::path::PathBuf;

use super::store::{Trouble, Troubled};
use super::*;
use crate::operator::context::HelperStatus;
use crate::snapshot::LocalStore;

#[test]
fn lines_are_seen_when_their_checkpoint_is_complete_and_not_before() {
    let scratch = tempfile::tempdir().unwrap();
    let directory = scratch.path().join("out");
    let (mut sink, mut helpers, _) = written(&sink_to(&directory), &[(1, 1), (2, 2)]);
    let _ = sink.write(3).unwrap();
    sink.flush().unwrap();
    helpers.catch_up();
    assert!(visible(&LocalStore, &directory).is_empty());
    assert_eq!(hidden(&LocalStore, &directory).len(), 3);
    sink.notify_complete(CheckpointId(1)).unwrap();
    helpers.catch_up();
    assert_eq!(visible(&LocalStore, &directory), map([("part-0-1", 1)]));
    sink.notify_complete(CheckpointId(2)).unwrap();
    helpers.catch_up();
    assert_eq!(sink.published().unwrap(), Flow::Continue);
    assert_eq!(visible(&LocalStore, &directory), map([("part-0-1", 1), ("part-0-2", 2)]));
    // The execution ends: what no checkpoint covers goes.
    drop(sink);
    drop(helpers);
    assert_eq!(visible(&LocalStore, &directory), map([("part-0-1", 1), ("part-0-2", 2)]));
    assert!(hidden(&LocalStore, &directory).is_empty());
}

#[test]
fn without_checkpoints_lines_are_seen_when_the_job_is_finished() {
    let scratch = tempfile::tempdir().unwrap();
    let opening = Opening { subtask: 3, parallelism: 4, checkpointing: false };
    let (mut sink, mut helpers) = open(&sink_to(scratch.path()), opening);
    let _ = sink.write(1).unwrap();
    let _ = Promise::of(&mut sink, 1);
    let _ = sink.write(2).unwrap();
    let _ = sink.end_input().unwrap();
    helpers.catch_up();
    assert!(visible(&LocalStore, scratch.path()).is_empty());
    sink.close().unwrap();
    assert_eq!(sink.published().unwrap(), Flow::Blocked);
    helpers.catch_up();
    assert_eq!(sink.published().unwrap(), Flow::Continue);
    assert_eq!(visible(&LocalStore, scratch.path()), map([("part-3-1", 1), ("part-3", 2)]));
}

/// A directory may be there with files of others, even hidden ones; a sink removes nothing but its own.
#[test]
fn only_hidden_output_is_removed() {
    let scratch = tempfile::tempdir().unwrap();
    for name in [".part-9-x-0", ".part-0-1", ".keep", "part-0-1", "notes"] {
        fs::write(scratch.path().join(name), "").unwrap();
    }
    fs::create_dir(scratch.path().join(".part-directory")).unwrap();
    recovery(&sink_to(scratch.path())).settle(&[]).unwrap();
    let names: Vec<_> = LocalStore.list(scratch.path()).unwrap().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, [".keep", ".part-directory", "notes", "part-0-1"]);
}

/// B73: the notice of a completed checkpoint was lost and the process died; its file stayed hidden for ever, or was removed.
#[test]
fn lines_of_a_completed_checkpoint_whose_notice_was_lost_are_published_once() {
    let scratch = tempfile::tempdir().unwrap();
    let prototype = sink_to(scratch.path());
    let (mut sink, mut helpers, promised) = written(&prototype, &[(1, 3)]);
    // Not covered by checkpoint 3.
    let _ = sink.write(2).unwrap();
    let _ = Promise::of(&mut sink, 4);
    helpers.catch_up();
    let _ = sink.write(3).unwrap();
    sink.flush().unwrap();
    helpers.catch_up();
    // As after a kill: nothing is dropped, and another process goes on.
    std::mem::forget((sink, helpers));
    assert_eq!(hidden(&LocalStore, scratch.path()).len(), 3);
    for _ in 0..3 {
        let mut recovery = recovery(&sink_to(scratch.path()));
        recovery.claim(&resuming(Some(3))).unwrap();
        recovery.settle(&promised).unwrap();
        assert_eq!(visible(&LocalStore, scratch.path()), map([("part-0-3", 1)]));
        assert_eq!(hidden(&LocalStore, scratch.path()), [".lock"]);
    }
}

/// B75: the rename was done, its answer lost, and a new job went on from the savepoint: the lines were published again.
#[test]
fn a_commit_whose_answer_was_lost_is_not_done_twice_even_by_another_job() {
    let store = Arc::new(Troubled::default());
    let directory = Path::new("/out");
    let (mut sink, mut helpers, promised) = written(&on(&store, directory), &[(1, 1)]);
    store.trouble_after(0, Trouble::AnswerLost);
    sink.notify_complete(CheckpointId(1)).unwrap();
    helpers.catch_up();
    let error = sink.published().unwrap_err();
    assert_eq!(recovery_of(&error), Some(Recovery::Restart));
    assert!(error.to_string().contains("cannot publish /out/part-0-1: injected fault"), "{error}");
    drop((sink, helpers));
    // Another job, with another output directory, goes on from it: the file is where it was promised, and nowhere else.
    let elsewhere = Path::new("/elsewhere");
    let mut recovery = recovery(&on(&store, elsewhere));
    recovery.claim(&SinkClaim { resumes: false, ..resuming(Some(1)) }).unwrap();
    recovery.settle(&promised).unwrap();
    assert_eq!(visible(store.as_ref(), directory), map([("part-0-1", 1)]));
    assert!(visible(store.as_ref(), elsewhere).is_empty());
}

/// B76: what is found for a transaction of the snapshot was counted as success, or as failure, without looking closely.
#[test]
fn a_transaction_is_done_if_the_visible_file_is_there_alone() {
    let scratch = tempfile::tempdir().unwrap();
    let prototype = sink_to(scratch.path());
    let (mut sink, mut helpers, promised) = written(&prototype, &[(1, 1)]);
    sink.notify_complete(CheckpointId(1)).unwrap();
    helpers.catch_up();
    recovery(&prototype).settle(&promised).unwrap();
    assert_eq!(visible(&LocalStore, scratch.path()), map([("part-0-1", 1)]));
    // A file that was cut off is not the promised one.
    fs::write(scratch.path().join("part-0-1"), "0000").unwrap();
    let error = recovery(&prototype).settle(&promised).unwrap_err();
    assert_eq!(recovery_of(&error), Some(Recovery::GiveUp));
    assert!(
        error.to_string().contains("part-0-1") && error.to_string().contains("it has 4 bytes"),
        "{error}"
    );
    recovery(&prototype.clone().accept_missing(true)).settle(&promised).unwrap();
}

#[test]
fn a_transaction_whose_file_is_nowhere_is_an_error_that_names_it() {
    let scratch = tempfile::tempdir().unwrap();
    let prototype = sink_to(scratch.path());
    let (sink, helpers, promised) = written(&prototype, &[(1, 1)]);
    let name = hidden(&LocalStore, scratch.path()).remove(0);
    fs::rename(scratch.path().join(&name), scratch.path().join("moved away")).unwrap();
    for _ in 0..2 {
        let error = recovery(&prototype).settle(&promised).unwrap_err();
        assert_eq!(recovery_of(&error), Some(Recovery::GiveUp));
        for word in ["part-0-1", name.as_str(), "accept_missing"] {
            assert!(error.to_string().contains(word), "{word} in {error}");
        }
    }
    recovery(&sink_to(scratch.path()).accept_missing(true)).settle(&promised).unwrap();
    fs::rename(scratch.path().join("moved away"), scratch.path().join("part-0-1")).unwrap();
    recovery(&prototype).settle(&promised).unwrap();
    drop((sink, helpers));
}

#[test]
fn a_transaction_with_both_files_is_done_if_they_are_the_same() {
    let scratch = tempfile::tempdir().unwrap();
    let prototype = sink_to(scratch.path());
    let (_sink, _helpers, promised) = written(&prototype, &[(1, 1)]);
    let name = scratch.path().join(hidden(&LocalStore, scratch.path()).remove(0));
    let part = scratch.path().join("part-0-1");
    for (other, difference) in [("0000000002\n", "checksum"), ("longer than that\n", "17 bytes")] {
        fs::write(&part, other).unwrap();
        let error = recovery(&prototype).settle(&promised).unwrap_err();
        assert_eq!(recovery_of(&error), Some(Recovery::GiveUp));
        assert!(error.to_string().contains("part-0-1") && error.to_string().contains(difference), "{error}");
        assert!(name.exists(), "nothing is removed while it is not clear what is right");
        assert_eq!(fs::read_to_string(&part).unwrap(), other);
    }
    fs::copy(&name, &part).unwrap();
    recovery(&prototype).settle(&promised).unwrap();
    assert!(!name.exists());
    assert_eq!(visible(&LocalStore, scratch.path()), map([("part-0-1", 1)]));
}

#[test]
fn a_hidden_file_that_lost_its_end_is_not_published() {
    let scratch = tempfile::tempdir().unwrap();
    let prototype = sink_to(scratch.path());
    let (_sink, _helpers, promised) = written(&prototype, &[(1, 1)]);
    fs::write(scratch.path().join(hidden(&LocalStore, scratch.path()).remove(0)), "0000").unwrap();
    let error = recovery(&prototype).settle(&promised).unwrap_err();
    assert!(error.to_string().contains("it has 4 bytes, 11 were written"), "{error}");
    assert!(visible(&LocalStore, scratch.path()).is_empty());
}

/// B85: a recovery that was interrupted half way could not be repeated.
#[test]
fn a_recovery_that_is_interrupted_anywhere_any_number_of_times_ends_with_the_same_files() {
    for power_loss in [None, Some(1), Some(2), Some(3)] {
        for trouble in [Trouble::Refused, Trouble::AnswerLost, Trouble::Dead] {
            let mut after = 0;
            loop {
                let store = Arc::new(Troubled::default());
                let directory = Path::new("/out");
                let (mut sink, mut helpers, _) = written(&on(&store, directory), &[(1, 1), (2, 2)]);
                let _ = sink.write(3).unwrap();
                let promise = Promise::of(&mut sink, 3);
                let _ = sink.write(4).unwrap();
                helpers.catch_up();
                store.kill();
                drop((sink, helpers));
                store.revive(power_loss);
                let mut was_interrupted = false;
                for _ in 0..3 {
                    let mut recovery = recovery(&on(&store, directory));
                    store.trouble_after(after, trouble);
                    let settled =
                        recovery.claim(&resuming(Some(3))).and_then(|()| recovery.settle(&promise.kept()));
                    was_interrupted |= settled.is_err();
                    drop(recovery);
                    store.revive(power_loss);
                }
                let mut recovery = recovery(&on(&store, directory));
                recovery.claim(&resuming(Some(3))).unwrap();
                recovery.settle(&promise.kept()).unwrap();
                // What was recovered stays, even if the power fails right now.
                store.kill();
                drop(recovery);
                store.revive(Some(after));
                let expected = map([("part-0-1", 1), ("part-0-2", 2), ("part-0-3", 3)]);
                assert_eq!(visible(store.as_ref(), directory), expected, "{trouble:?} after {after}");
                let left = hidden(store.as_ref(), directory);
                assert!(left.iter().all(|name| name == ".lock"), "{left:?}: {trouble:?} after {after}");
                if !was_interrupted {
                    break;
                }
                after += 1;
            }
            assert!(after > 5, "{after}");
        }
    }
}

#[test]
fn what_was_said_to_be_published_stays_even_if_the_power_fails() {
    let store = Arc::new(Troubled::default());
    let directory = Path::new("/out");
    let (mut sink, mut helpers, _) = written(&on(&store, directory), &[(1, 1)]);
    sink.notify_complete(CheckpointId(1)).unwrap();
    helpers.catch_up();
    assert_eq!(sink.published().unwrap(), Flow::Continue);
    drop((sink, helpers));
    let promised = store.disk().promised_files();
    assert_eq!(promised.keys().collect::<Vec<_>>(), ["/out/part-0-1"]);
}

/// B86: a sink that truncated its files when it was opened lost what earlier executions had published.
#[test]
fn a_restarted_sink_leaves_published_files_alone() {
    let scratch = tempfile::tempdir().unwrap();
    let prototype = sink_to(scratch.path());
    let (mut sink, mut helpers, promised) = written(&prototype, &[(1, 1)]);
    sink.notify_complete(CheckpointId(1)).unwrap();
    helpers.catch_up();
    drop((sink, helpers));
    recovery(&prototype).settle(&promised).unwrap();
    let (mut sink, mut helpers, _) = written(&prototype, &[(2, 2)]);
    assert_eq!(visible(&LocalStore, scratch.path()), map([("part-0-1", 1)]));
    sink.notify_complete(CheckpointId(2)).unwrap();
    helpers.catch_up();
    assert_eq!(visible(&LocalStore, scratch.path()), map([("part-0-1", 1), ("part-0-2", 2)]));
}

#[test]
fn a_visible_file_is_never_replaced() {
    let scratch = tempfile::tempdir().unwrap();
    let prototype = sink_to(scratch.path());
    fs::write(scratch.path().join("part-0-1"), line_of(7)).unwrap();
    let (mut sink, mut helpers) = open(&prototype, Opening::default());
    let _ = sink.write(1).unwrap();
    let promise = Promise::of(&mut sink, 1);
    helpers.catch_up();
    assert!(promise.get().expect("decided").unwrap_err().contains("part-0-1 is there already"));
    assert_eq!(recovery_of(&sink.resume().unwrap_err()), Some(Recovery::GiveUp));
    drop((sink, helpers));
    // A job that was allowed to repeat output finds another name.
    let mut recovery = recovery(&prototype);
    recovery.claim(&SinkClaim { allows_repeated_output: true, ..resuming(Some(0)) }).unwrap();
    for (number, name) in [(1, "part-0-1.2"), (2, "part-0-1.3")] {
        let (mut sink, mut helpers, _) = written(&prototype, &[(number, 1)]);
        sink.notify_complete(CheckpointId(1)).unwrap();
        helpers.catch_up();
        assert_eq!(visible(&LocalStore, scratch.path())[name], line_of(number));
    }
    assert_eq!(visible(&LocalStore, scratch.path())["part-0-1"], line_of(7));
}

/// Whatever operation fails, and however: once the job has gone on from its newest checkpoint, what that promises is published, and
/// nothing else is there.
#[test]
fn after_any_failure_exactly_the_promised_lines_are_published() {
    for trouble in [Trouble::Refused, Trouble::AnswerLost, Trouble::Dead] {
        for power_loss in [None, Some(1), Some(2), Some(3)] {
            let mut after = 0;
            loop {
                let store = Arc::new(Troubled::default());
                let directory = Path::new("/out");
                let prototype = on(&store, directory);
                let mut job = recovery(&prototype);
                job.claim(&fresh()).unwrap();
                let began = store.operations();
                store.trouble_after(after, trouble);
                let (promised, complete) = run(&prototype);
                let is_over = store.operations() - began <= after;
                if trouble == Trouble::Dead || power_loss.is_some() {
                    store.kill();
                    drop(job);
                    store.revive(power_loss);
                    job = recovery(&prototype);
                    let restored = Some(complete).filter(|complete| *complete > 0);
                    job.claim(&resuming(restored)).unwrap();
                }
                store.no_trouble();
                job.settle(&promised).unwrap();
                let expected = (1..=complete).map(|n| (format!("part-0-{n}"), line_of(n))).collect();
                assert_eq!(visible(store.as_ref(), directory), expected, "{trouble:?} after {after}");
                assert_eq!(hidden(store.as_ref(), directory), [".lock"], "{trouble:?} after {after}");
                drop(job);
                assert!(hidden(store.as_ref(), directory).is_empty());
                // Nothing comes back either.
                store.revive(Some(after));
                let left = hidden(store.as_ref(), directory);
                assert!(left.iter().all(|name| name == ".lock"), "{left:?}: {trouble:?} after {after}");
                if is_over {
                    assert_eq!(complete, 4, "nothing was in the way");
                    break;
                }
                after += 1;
            }
            assert!(after > 15, "{after}");
        }
    }
}

/// One execution until it fails or four checkpoints are complete: what the newest of them promises, and which it is.
fn run(prototype: &Sunk) -> (Vec<Vec<u8>>, u64) {
    let (mut sink, mut helpers) = open(prototype, Opening::default());
    let mut newest = (Vec::new(), 0);
    for n in 1..=4 {
        let _ = sink.write(n).unwrap();
        let promise = Promise::of(&mut sink, n);
        helpers.catch_up();
        // Checkpoint 2 is only complete together with the next one.
        let Some(Ok(items)) = promise.get() else { break };
        if n != 2 {
            newest = (items, n);
            if sink.notify_complete(CheckpointId(n)).is_err() {
                break;
            }
            helpers.catch_up();
        }
        if sink.published().is_err() {
            break;
        }
    }
    drop(sink);
    newest
}

#[test]
fn a_directory_that_vanishes_fails_the_execution_instead_of_hiding_the_loss() {
    let scratch = tempfile::tempdir().unwrap();
    let directory = scratch.path().join("out");
    let prototype = sink_to(&directory);
    let mut job = recovery(&prototype);
    job.claim(&fresh()).unwrap();
    let (mut sink, mut helpers, promised) = written(&prototype, &[(1, 1)]);
    sink.notify_complete(CheckpointId(1)).unwrap();
    helpers.catch_up();
    fs::remove_dir_all(&directory).unwrap();
    let _ = sink.write(2).unwrap();
    sink.flush().unwrap();
    helpers.catch_up();
    let error = sink.resume().unwrap_err();
    assert_eq!(recovery_of(&error), Some(Recovery::Restart));
    let text = error.to_string();
    assert!(text.contains("cannot create the file") && text.contains(directory.to_str().unwrap()), "{text}");
    assert!(text.contains("No such file"), "{text}");
    drop((sink, helpers));
    assert_eq!(recovery_of(&job.settle(&promised).unwrap_err()), Some(Recovery::GiveUp));
    assert!(job.settle(&[]).unwrap_err().to_string().contains(directory.to_str().unwrap()));
    assert!(!directory.exists());
}

#[test]
fn a_sink_blocks_when_its_helper_is_behind_and_goes_on_when_it_has_caught_up() {
    let scratch = tempfile::tempdir().unwrap();
    let (mut sink, mut helpers) = open(&sink_to(scratch.path()), Opening::default());
    let mut written = 0;
    while sink.write(written).unwrap() == Flow::Continue {
        written += 1;
        assert!(written < 1_000_000, "nothing is written, yet the sink is never blocked");
    }
    let promise = Promise::of(&mut sink, 1);
    assert_eq!(sink.resume().unwrap(), Flow::Blocked);
    while sink.resume().unwrap() == Flow::Blocked {
        assert_eq!(helpers.0[0].step().unwrap(), HelperStatus::Worked);
    }
    assert_eq!(sink.write(written + 1).unwrap(), Flow::Continue);
    helpers.catch_up();
    assert_eq!(promise.kept().len(), 1);
    sink.notify_complete(CheckpointId(1)).unwrap();
    helpers.catch_up();
    let expected: String = (0..=written).map(line_of).collect();
    assert_eq!(visible(&LocalStore, scratch.path())["part-0-1"], expected);
}

/// The process may change its directory, and a snapshot may be read by a process in another one.
#[test]
fn a_directory_is_remembered_from_the_root() {
    let relative = LineSink::directory("some/where", |n: &u64, line: &mut Vec<u8>| line.push(*n as u8));
    let shown = format!("{relative:?}");
    let expected: PathBuf = std::env::current_dir().unwrap().join("some/where");
    assert!(shown.contains(expected.to_str().unwrap()), "{shown}");
}

/// Snapshots of earlier versions must be understood: these bytes stand in `docs/formats.md`.
#[test]
fn a_transaction_has_the_documented_bytes() {
    let store = Arc::new(Troubled::default());
    let (_sink, _helpers, promised) = written(&on(&store, Path::new("/out")), &[(300, 7)]);
    let hidden = hidden(store.as_ref(), Path::new("/out")).remove(0);
    let mut expected = vec![0, 4];
    expected.extend(b"/out");
    expected.push(hidden.len() as u8);
    expected.extend(hidden.bytes());
    expected.push(8);
    expected.extend(b"part-0-7");
    expected.push(11);
    let mut crc32c = crc32c::crc32c(line_of(300).as_bytes());
    while crc32c >= 0x80 {
        expected.push(crc32c as u8 | 0x80);
        crc32c >>= 7;
    }
    expected.push(crc32c as u8);
    assert_eq!(promised, [expected]);
    assert_eq!(hidden, ".part-0-18bcfe56800-7-0-0");
}
