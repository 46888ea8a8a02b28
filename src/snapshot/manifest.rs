//! What a snapshot consists of: plain data, stored as such.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::base::id::{CheckpointId, JobId, OperatorUid, SubtaskId};
use crate::base::key_group::KeyGroup;

/// Where some bytes of a snapshot are.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StateHandle {
    /// The file, named relative to the storage.
    pub file: String,
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub length: u64,
    /// The checksum in the section's frame.
    pub checksum: u32,
}

/// Which kind of keyed state it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
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
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyedStateSnapshot {
    /// What the state is.
    pub declaration: StateDeclaration,
    /// Canonical form of its keys, see [`StableHash::canonical_form`](crate::base::key_group::StableHash::canonical_form).
    pub key_form: String,
    /// The key groups that have entries, in ascending order, and where each one is.
    pub sections: Vec<(KeyGroup, StateHandle)>,
}

/// One list state of one subtask; the items are few and live in the metadata.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListStateSnapshot {
    /// Name, unique within its operator.
    pub name: String,
    /// The items, each serialised on its own.
    pub items: Vec<Vec<u8>>,
}

/// All state of one operator in one subtask.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubtaskSnapshot {
    /// The subtask.
    pub subtask: SubtaskId,
    /// Number of subtasks of its chain.
    pub parallelism: u32,
    /// The operators of the chain, in the order in which records pass through them.
    pub operators: Vec<OperatorSnapshot>,
    /// Bytes written for it.
    pub bytes: u64,
}

/// A checkpoint to which every subtask has contributed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
    /// All pieces of files that the checkpoint refers to.
    pub fn handles(&self) -> impl Iterator<Item = &StateHandle> {
        let operators = self.subtasks.iter().flat_map(|subtask| &subtask.operators);
        let keyed = operators.flat_map(|operator| &operator.keyed);
        keyed.flat_map(|state| state.sections.iter().map(|(_, handle)| handle))
    }
}
