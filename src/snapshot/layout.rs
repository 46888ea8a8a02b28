//! The names of files and directories.
//!
//! ```text
//! <root>/.lock-<name>-<hash>        lock of a job's name, while a run of that name is looked for
//! <root>/<job id>/_job              record of the run
//! <root>/<job id>/._job             the record while it is written anew
//! <root>/<job id>/.lock             lock of the run, while a process has it
//! <root>/<job id>/chk-7/            a completed checkpoint
//! <root>/<job id>/chk-7/_metadata   what it consists of
//! <root>/<job id>/chk-7/2.1-0       state of subtask 1 of vertex 2, its first file
//! <root>/<job id>/.chk-7/           a checkpoint under way
//! <root>/<job id>/.chk-7.removed/   a checkpoint that is being removed
//! ```
//!
//! A name that begins with a dot means nothing to a reader, at whatever moment the process may die.

use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::xxh3_64;

use crate::base::id::{CheckpointId, JobId, SubtaskId};

/// The description of a checkpoint, in its directory.
pub const METADATA: &str = "_metadata";

/// The record of a run, in its directory.
pub const JOB_RECORD: &str = "_job";

/// The record while it is written.
pub(super) const NEW_JOB_RECORD: &str = "._job";

/// The lock of a run, in its directory.
pub(super) const JOB_LOCK: &str = ".lock";

/// The longest name that file systems take, in bytes.
const NAME_BYTES_MAX: usize = 255;

/// So many bytes of a job's name are shown in the name of its lock.
const LOCK_NAME_BYTES: usize = 48;

/// What a name in the directory of a job stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum JobEntry {
    /// A completed checkpoint.
    Checkpoint(CheckpointId),
    /// A checkpoint under way, or one that is being removed.
    Hidden(CheckpointId),
    /// Another hidden name of ours.
    Temporary,
    /// Anything else.
    Other,
}

impl JobEntry {
    pub(super) fn of(name: &str) -> Self {
        if name == NEW_JOB_RECORD {
            return Self::Temporary;
        }
        let (hidden, visible) = match name.strip_prefix('.') {
            Some(rest) => (true, rest),
            None => (false, name),
        };
        let Some(number) = visible.strip_prefix("chk-") else { return Self::Other };
        if hidden {
            // Whatever follows the number: a later version may have more reasons to hide a checkpoint.
            let digits = number.split_once('.').map_or(number, |(digits, _)| digits);
            parse_id(digits).map_or(Self::Other, Self::Hidden)
        } else {
            parse_id(number).map_or(Self::Other, Self::Checkpoint)
        }
    }
}

/// Only what `Display` writes: no sign and no zero in front, so that one checkpoint has one name. And no id after which there is none.
fn parse_id(digits: &str) -> Option<CheckpointId> {
    let id = CheckpointId(digits.parse().ok()?);
    (id.to_string() == digits && id.0 < u64::MAX).then_some(id)
}

/// Name of a completed checkpoint's directory, in that of its job.
#[must_use]
pub fn checkpoint(id: CheckpointId) -> String {
    format!("chk-{id}")
}

pub(super) fn under_way(id: CheckpointId) -> String {
    format!(".chk-{id}")
}

pub(super) fn removed(id: CheckpointId) -> String {
    format!(".chk-{id}.removed")
}

/// Name of a file with state, in the directory of its checkpoint. `number` tells several files of one subtask apart.
pub(super) fn state_file(subtask: SubtaskId, number: u64) -> String {
    format!("{subtask}-{number}")
}

/// Name of the lock that is held while a run of this name is looked for, in the root.
pub(super) fn name_lock(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' || c == '_' { c } else { '_' };
    let shown: String = name.chars().map(plain).take(LOCK_NAME_BYTES).collect();
    // Two names that look the same here must not wait for each other.
    format!(".lock-{shown}-{:016x}", xxh3_64(name.as_bytes()))
}

/// True for a name that stands for a file of a checkpoint in its own directory, and for nothing else: one normal component, not hidden.
pub(super) fn is_state_file(name: &str) -> bool {
    let is_plain = !name.is_empty() && name.len() <= NAME_BYTES_MAX && !name.starts_with('.');
    is_plain && name != METADATA && !name.contains(['/', '\\', '\0', ':'])
}

/// Splits the name of a file as handles have it, `chk-7/<name>`.
pub(super) fn split_state_file(file: &str) -> Option<(CheckpointId, &str)> {
    let (directory, name) = file.split_once('/')?;
    match JobEntry::of(directory) {
        JobEntry::Checkpoint(id) if is_state_file(name) => Some((id, name)),
        _ => None,
    }
}

/// The paths of one run.
#[derive(Debug, Clone)]
pub(super) struct JobPaths {
    pub(super) root: PathBuf,
    pub(super) directory: PathBuf,
}

impl JobPaths {
    pub(super) fn new(root: &Path, job: JobId) -> Self {
        Self { root: root.to_owned(), directory: root.join(job.to_string()) }
    }

    pub(super) fn record(&self) -> PathBuf {
        self.directory.join(JOB_RECORD)
    }

    pub(super) fn new_record(&self) -> PathBuf {
        self.directory.join(NEW_JOB_RECORD)
    }

    pub(super) fn lock(&self) -> PathBuf {
        self.directory.join(JOB_LOCK)
    }

    pub(super) fn checkpoint(&self, id: CheckpointId) -> PathBuf {
        self.directory.join(checkpoint(id))
    }

    pub(super) fn under_way(&self, id: CheckpointId) -> PathBuf {
        self.directory.join(under_way(id))
    }

    pub(super) fn removed(&self, id: CheckpointId) -> PathBuf {
        self.directory.join(removed(id))
    }
}

/// The path from the root of the file system on, so that it means the same whatever the working directory becomes.
pub(super) fn absolute(path: &Path) -> PathBuf {
    // Fails only for an empty path and without a working directory: then the file operations tell.
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::{SubtaskIndex, VertexId};

    #[test]
    fn each_checkpoint_has_one_visible_name() {
        for id in [0, 7, u64::MAX - 1].map(CheckpointId) {
            assert_eq!(JobEntry::of(&checkpoint(id)), JobEntry::Checkpoint(id));
            assert_eq!(JobEntry::of(&under_way(id)), JobEntry::Hidden(id));
            assert_eq!(JobEntry::of(&removed(id)), JobEntry::Hidden(id));
        }
        for name in [
            "chk-",
            "chk-07",
            "chk-+7",
            "chk-7 ",
            "chk-7.removed",
            "chk-18446744073709551615",
            "_job",
            "..",
            "",
        ] {
            assert_eq!(JobEntry::of(name), JobEntry::Other, "{name:?}");
        }
        assert_eq!(JobEntry::of(NEW_JOB_RECORD), JobEntry::Temporary);
    }

    #[test]
    fn a_state_file_never_leads_out_of_its_directory() {
        let subtask = SubtaskId { vertex: VertexId(2), index: SubtaskIndex(1) };
        assert!(is_state_file(&state_file(subtask, 0)));
        let long = "x".repeat(256);
        let outside = ["", ".", "..", "a/b", "/a", "a\\b", "c:a", "a\0", ".hidden", METADATA, &long];
        assert!(outside.iter().all(|name| !is_state_file(name)));
        assert_eq!(split_state_file("chk-7/2.1-0"), Some((CheckpointId(7), "2.1-0")));
        for file in ["2.1-0", "chk-7", "chk-7/", "chk-7/../x", ".chk-7/2.1-0", "x/2.1-0", "/chk-7/2.1-0"] {
            assert_eq!(split_state_file(file), None, "{file:?}");
        }
    }

    #[test]
    fn locks_of_different_names_differ_and_stay_in_the_root() {
        let names = ["a b", "a_b", "../x", "", &"long".repeat(100)];
        let locks: std::collections::BTreeSet<_> = names.iter().map(|name| name_lock(name)).collect();
        assert_eq!(locks.len(), names.len());
        assert!(
            locks.iter().all(|lock| lock.starts_with(".lock-") && !lock.contains('/') && lock.len() < 100)
        );
    }
}
