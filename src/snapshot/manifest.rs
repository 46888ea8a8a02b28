//! What a snapshot consists of: plain data. [`super::metadata`] gives it its form on disk.

use std::fmt;

use super::error::SnapshotError;
use crate::base::id::{CheckpointId, JobId, OperatorUid, SubtaskId};
use crate::base::key_group::KeyGroup;

/// One section of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct StateHandle {
    /// Where its bytes are.
    pub location: Location,
    /// The checksum in the section's frame.
    pub checksum: u32,
}

/// Where the bytes of a section are.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Location {
    /// In a file of the storage.
    File(FileRange),
    /// Here: the state of the subtask is too small for a file of its own.
    Inline(Vec<u8>),
}

/// A piece of a file.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FileRange {
    /// The file, named relative to the storage.
    pub file: String,
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub length: u64,
}

impl StateHandle {
    /// Number of bytes of the section.
    #[must_use]
    pub fn length(&self) -> u64 {
        match &self.location {
            Location::File(range) => range.length,
            Location::Inline(bytes) => bytes.len() as u64,
        }
    }

    /// The piece of a file, if the section is not held inline.
    #[must_use]
    pub fn range(&self) -> Option<&FileRange> {
        match &self.location {
            Location::File(range) => Some(range),
            Location::Inline(_) => None,
        }
    }
}

impl FileRange {
    /// The piece of the file that consists of these bytes, if the file has it.
    pub(super) fn of<'a>(&self, file: &'a [u8]) -> Option<&'a [u8]> {
        let start = usize::try_from(self.offset).ok()?;
        let end = usize::try_from(self.offset.checked_add(self.length)?).ok()?;
        file.get(start..end)
    }

    /// The error of a piece that its file, of `size` bytes and this full name, does not have.
    pub(super) fn outside(&self, size: u64, name: &str) -> SnapshotError {
        SnapshotError::OutOfFile { file: name.to_owned(), offset: self.offset, length: self.length, size }
    }
}

/// One file of a snapshot, whole.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SnapshotFile {
    /// Its name relative to the storage.
    pub file: String,
    /// Number of bytes: a file with more or fewer is not the one that was written.
    pub length: u64,
}

/// Which kind of keyed state it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StateKind {
    /// One value for each key.
    Value,
    /// One value for each key, made of all that was added.
    Reducing,
}

impl fmt::Display for StateKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Value => "value",
            Self::Reducing => "reducing",
        })
    }
}

/// What a state is, as told by the job that wrote it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct StateDeclaration {
    /// Name, unique within its operator.
    pub name: String,
    /// Kind of state.
    pub kind: StateKind,
    /// Id of the serializer of the values.
    pub serializer: String,
    /// Version of that serializer.
    pub serializer_version: u32,
}

/// One keyed state of one subtask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyedStateSnapshot {
    /// What the state is.
    pub declaration: StateDeclaration,
    /// Canonical form of its keys, see [`StableHash::canonical_form`](crate::base::key_group::StableHash::canonical_form).
    pub key_form: String,
    /// The key groups that have entries, in ascending order, and where each one is.
    pub sections: Vec<(KeyGroup, StateHandle)>,
}

impl KeyedStateSnapshot {
    /// Number of bytes of all sections.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.sections.iter().map(|(_, handle)| handle.length()).sum()
    }

    /// Takes the sections out of the bytes of the file that was not made.
    ///
    /// # Errors
    /// If a section lies outside of them.
    pub fn place_inline(&mut self, written: &[u8]) -> Result<(), SnapshotError> {
        for (_, handle) in &mut self.sections {
            if let Location::File(range) = &handle.location {
                let section =
                    range.of(written).ok_or_else(|| range.outside(written.len() as u64, &range.file))?;
                handle.location = Location::Inline(section.to_vec());
            }
        }
        Ok(())
    }
}

/// One list state of one subtask; the items are few and live in the metadata.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListStateSnapshot {
    /// Name, unique within its operator.
    pub name: String,
    /// The items, each serialised on its own.
    pub items: Vec<Vec<u8>>,
}

/// All state of one operator in one subtask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperatorSnapshot {
    /// The operator.
    pub uid: OperatorUid,
    /// Its keyed states.
    pub keyed: Vec<KeyedStateSnapshot>,
    /// Its list states.
    pub list: Vec<ListStateSnapshot>,
    /// True if the operator had come to its end in this subtask.
    pub ended: bool,
}

/// What one subtask contributes to a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubtaskSnapshot {
    /// The subtask.
    pub subtask: SubtaskId,
    /// Number of subtasks of its chain.
    pub parallelism: u32,
    /// The operators of the chain, in the order in which records pass through them.
    pub operators: Vec<OperatorSnapshot>,
    /// The files to which its sections refer.
    pub files: Vec<SnapshotFile>,
    /// Bytes written for it, in files and inline.
    pub bytes: u64,
}

/// What became of the bytes that were given to a [`StateWriter`](super::storage::StateWriter).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Written {
    /// They are in this file, and durable.
    File(SnapshotFile),
    /// They are too few for a file; they belong into the metadata.
    Inline(Vec<u8>),
}

impl SubtaskSnapshot {
    /// Says where the sections of its keyed states have come to lie, after the file to which they were written is finished.
    ///
    /// # Errors
    /// If a section lies outside of what was written: the states are not those of this file.
    pub fn place(&mut self, written: Written) -> Result<(), SnapshotError> {
        match written {
            Written::File(file) => self.files.push(file),
            Written::Inline(bytes) => {
                for operator in &mut self.operators {
                    operator.keyed.iter_mut().try_for_each(|state| state.place_inline(&bytes))?;
                }
            }
        }
        Ok(())
    }
}

/// A checkpoint to which every subtask has contributed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompletedCheckpoint {
    /// Its number.
    pub id: CheckpointId,
    /// The job that wrote it.
    pub job: JobId,
    /// Number of key groups of the job; cannot change on restore.
    pub max_parallelism: u32,
    /// When it was triggered: milliseconds since 1970.
    pub triggered_at_ms: u64,
    /// When it was completed: milliseconds since 1970.
    pub completed_at_ms: u64,
    /// What each subtask contributed.
    pub subtasks: Vec<SubtaskSnapshot>,
}

impl CompletedCheckpoint {
    /// All sections of the checkpoint.
    pub fn handles(&self) -> impl Iterator<Item = &StateHandle> {
        let operators = self.subtasks.iter().flat_map(|subtask| &subtask.operators);
        let keyed = operators.flat_map(|operator| &operator.keyed);
        keyed.flat_map(|state| state.sections.iter().map(|(_, handle)| handle))
    }

    /// All files of the checkpoint.
    pub fn files(&self) -> impl Iterator<Item = &SnapshotFile> {
        self.subtasks.iter().flat_map(|subtask| &subtask.files)
    }
}
