//! Who may write to a directory.

use std::fs;

use super::*;
use crate::connectors::file::output::published_with;
use crate::snapshot::LocalStore;

fn refusal(prototype: &Sunk, claim: &SinkClaim) -> String {
    let error = recovery(prototype).claim(claim).unwrap_err();
    assert_eq!(recovery_of(&error), Some(Recovery::RejectJob), "{error}");
    error.to_string()
}

fn names(directory: &Path) -> Vec<String> {
    LocalStore.list(directory).unwrap().into_iter().map(|(name, _)| name).collect()
}

#[test]
fn a_directory_belongs_to_one_job_until_it_is_over() {
    let scratch = tempfile::tempdir().unwrap();
    let directory = scratch.path().join("made").join("on demand");
    let prototype = sink_to(&directory);
    let mut first = recovery(&prototype);
    first.claim(&fresh()).unwrap();
    for claim in [fresh(), resuming(None), resuming(Some(3))] {
        let refused = refusal(&sink_to(&directory), &claim);
        assert!(refused.contains("on demand is in use by job 7 (process 42)"), "{refused}");
    }
    assert_eq!(names(&directory), [".lock"]);
    drop(first);
    assert!(names(&directory).is_empty());
    recovery(&prototype).claim(&fresh()).unwrap();
}

#[test]
fn a_job_that_begins_from_nothing_needs_an_empty_directory() {
    for name in ["part-0", "part-0-3", ".part-0-left-behind", "notes.txt"] {
        let scratch = tempfile::tempdir().unwrap();
        fs::write(scratch.path().join(name), "of another run").unwrap();
        let refused = refusal(&sink_to(scratch.path()), &fresh());
        assert!(refused.contains("is not empty; name another one or empty it"), "{refused}");
        assert_eq!(names(scratch.path()), [name], "a refusal changes nothing");
    }
    let scratch = tempfile::tempdir().unwrap();
    // Of a process that was killed.
    fs::write(scratch.path().join(".lock"), "job 6").unwrap();
    recovery(&sink_to(scratch.path())).claim(&fresh()).unwrap();
}

#[test]
fn output_that_no_checkpoint_accounts_for_is_not_added_to() {
    let scratch = tempfile::tempdir().unwrap();
    fs::write(scratch.path().join(".part-0-left-behind"), "of this job").unwrap();
    recovery(&sink_to(scratch.path())).claim(&resuming(None)).unwrap();
    fs::write(scratch.path().join("part-3-1"), "of whom?").unwrap();
    let refused = refusal(&sink_to(scratch.path()), &resuming(None));
    assert!(refused.contains("part-3-1") && refused.contains("checkpoints accounts for"), "{refused}");
    assert_eq!(names(scratch.path()), [".part-0-left-behind", "part-3-1"]);
}

/// Going back behind output that was seen would write its lines a second time.
#[test]
fn a_job_does_not_go_back_behind_what_it_has_published() {
    for (file, is_later) in [
        ("part-0-4", false),
        ("part-17-5", false),
        ("part-0-5.2", false),
        ("part-x-9", false),
        ("part-0-6", true),
        ("part-0-6.2", true),
        ("part-0", true),
    ] {
        let scratch = tempfile::tempdir().unwrap();
        fs::write(scratch.path().join(file), "seen").unwrap();
        let prototype = sink_to(scratch.path());
        // Both for a job of an earlier process and for a new one that goes on from a savepoint.
        for resumes in [true, false] {
            let claim = SinkClaim { resumes, ..resuming(Some(5)) };
            if is_later {
                let refused = refusal(&prototype, &claim);
                for word in [file, "checkpoint 5", "execution.state-recovery.allow-repeated-output"] {
                    assert!(refused.contains(word), "{word} in {refused}");
                }
                let allowed = SinkClaim { allows_repeated_output: true, ..claim.clone() };
                recovery(&prototype).claim(&allowed).unwrap();
            } else {
                recovery(&prototype).claim(&claim).unwrap();
            }
            let finished = SinkClaim { is_finished: true, ..claim };
            recovery(&prototype).claim(&finished).unwrap();
            assert_eq!(names(scratch.path()), [file]);
        }
    }
}

#[test]
fn a_finished_job_does_not_miss_a_directory_that_was_taken_away() {
    let scratch = tempfile::tempdir().unwrap();
    let directory = scratch.path().join("gone");
    let mut recovery = recovery(&sink_to(&directory));
    recovery.claim(&SinkClaim { is_finished: true, ..resuming(Some(5)) }).unwrap();
    recovery.settle(&[]).unwrap();
    assert!(!directory.exists());
}

#[test]
fn what_is_no_directory_is_named() {
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("file");
    fs::write(&file, "no directory").unwrap();
    for path in [file.clone(), file.join("below")] {
        let refused = refusal(&sink_to(&path), &fresh());
        assert!(refused.contains(path.to_str().unwrap()) && refused.contains("irectory"), "{refused}");
    }
    assert_eq!(fs::read_to_string(file).unwrap(), "no directory");
}

#[test]
fn a_name_says_with_which_checkpoint_a_file_was_published() {
    let with = |id| Some(Some(CheckpointId(id)));
    for (name, expected) in [
        ("part-0", Some(None)),
        ("part-12-345", with(345)),
        ("part-0-1.2", with(1)),
        ("part-0.2", Some(None)),
        ("part-", None),
        ("part-0-", None),
        ("part-a", None),
        ("part-0-1-2", None),
        ("part-0-1.x", None),
        (".part-0-1", None),
        ("other", None),
    ] {
        assert_eq!(published_with(name), expected, "{name}");
    }
}
