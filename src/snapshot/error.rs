//! What can go wrong with bytes at rest.

use crate::base::id::CheckpointId;
use crate::base::key_group::KeyGroup;
use crate::codec::{CodecError, FrameError};

/// A snapshot cannot be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// A file that a snapshot names is not there.
    #[error("{file}: there is no such snapshot file")]
    MissingFile {
        /// The file.
        file: String,
    },
    /// A handle points outside its file.
    #[error("{file}: bytes {offset}..+{length} are expected, the file has {size} bytes")]
    OutOfFile {
        /// The file.
        file: String,
        /// First byte of the section.
        offset: u64,
        /// Length of the section.
        length: u64,
        /// Length of the file.
        size: u64,
    },
    /// The frame around a section is damaged.
    #[error("{file}, offset {offset}: damaged section: {source}")]
    Frame {
        /// The file.
        file: String,
        /// First byte of the section.
        offset: u64,
        /// What is wrong with the frame.
        source: FrameError,
    },
    /// A section is whole, but it is not the one that the handle speaks of.
    #[error("{file}, offset {offset}: checksum {found:08x}, the snapshot's metadata says {expected:08x}")]
    OtherSection {
        /// The file.
        file: String,
        /// First byte of the section.
        offset: u64,
        /// Checksum in the handle.
        expected: u32,
        /// Checksum of the section.
        found: u32,
    },
    /// The frame is whole, its contents are not as they must be.
    #[error("{file}, offset {offset}: invalid section: {reason}")]
    Content {
        /// The file.
        file: String,
        /// First byte of the section.
        offset: u64,
        /// What is wrong.
        reason: String,
    },
    /// State could not be turned into bytes.
    #[error("state {state:?}, key group {}: {source}", group.0)]
    Encode {
        /// Name of the state.
        state: String,
        /// The key group.
        group: KeyGroup,
        /// What the serializer said.
        source: CodecError,
    },
    /// The compressor failed.
    #[error("state {state:?}: compression failed: {source}")]
    Compress {
        /// Name of the state.
        state: String,
        /// What the compressor said.
        source: std::io::Error,
    },
    /// The storage failed.
    #[error("{file}: {source}")]
    Io {
        /// The file.
        file: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The checkpoint was discarded; nothing may be written for it any more.
    #[error("checkpoint {checkpoint} has been discarded")]
    Discarded {
        /// The checkpoint.
        checkpoint: CheckpointId,
    },
}

impl SnapshotError {
    /// True if the same call may succeed later: the storage failed, nothing is damaged.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Io { .. })
    }
}
