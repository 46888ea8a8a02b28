//! Why state cannot be restored.

use crate::base::key_group::KeyGroup;
use crate::codec::{CodecError, FrameError};
use crate::snapshot::{SnapshotError, StateKind};

/// Keyed state cannot be restored. The tables may then hold a part of it and are of no use.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// The snapshot cannot be read.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// The job declares another kind of state under the same name.
    #[error("state {state:?} is {declared} state in the job and {found} state in the snapshot")]
    Kind {
        /// Name of the state.
        state: String,
        /// Kind in the job.
        declared: StateKind,
        /// Kind in the snapshot.
        found: StateKind,
    },
    /// The state was stored under keys of another type: none of them would be found again.
    #[error("state {state:?} has keys of the form {declared} in the job and {found} in the snapshot")]
    Key {
        /// Name of the state.
        state: String,
        /// Canonical form of the keys in the job.
        declared: String,
        /// Canonical form of the keys in the snapshot.
        found: String,
    },
    /// The values were written in a format that the job's serializer does not read.
    #[error("state {state:?} is serialised by {declared} in the job and by {found} in the snapshot")]
    Serializer {
        /// Name of the state.
        state: String,
        /// Serializer and version in the job.
        declared: String,
        /// Serializer and version in the snapshot.
        found: String,
    },
    /// The entries of a key group cannot be read.
    #[error("state {state:?}, key group {}: {source}", group.0)]
    Entries {
        /// Name of the state.
        state: String,
        /// The key group.
        group: KeyGroup,
        /// What the serializer said.
        source: CodecError,
    },
    /// A key group has no number of entries.
    #[error("state {state:?}, key group {}: {source}", group.0)]
    Count {
        /// Name of the state.
        state: String,
        /// The key group.
        group: KeyGroup,
        /// What is wrong.
        source: FrameError,
    },
    /// A key came from a group to which it does not belong: the type of the key, or the number of key groups, is another
    /// one than when the snapshot was written.
    #[error(
        "state {state:?}: a key of group {} was stored in group {}; has the type of the key or the max parallelism changed?",
        belongs.0, group.0
    )]
    KeyMoved {
        /// Name of the state.
        state: String,
        /// The group that is being restored.
        group: KeyGroup,
        /// The group of the key.
        belongs: KeyGroup,
    },
    /// The snapshot holds state that the job does not declare.
    #[error("state {state:?} is in the snapshot but not declared by the job")]
    Unclaimed {
        /// Name of the state.
        state: String,
    },
    /// A key came twice.
    #[error("state {state:?}, key group {}: the same key is stored twice", group.0)]
    Duplicate {
        /// Name of the state.
        state: String,
        /// The key group.
        group: KeyGroup,
    },
    /// The subtask does not own the key group.
    #[error("state {state:?}: key group {} does not belong to this subtask", group.0)]
    ForeignGroup {
        /// Name of the state.
        state: String,
        /// The key group.
        group: KeyGroup,
    },
}

impl StateError {
    /// True if the same call may succeed later: the storage failed, nothing is damaged.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Snapshot(error) if error.is_transient())
    }
}
