//! What can go wrong with bytes at rest.

use std::io;
use std::path::Path;

use super::fields::FormatError;
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
        source: io::Error,
    },
    /// The storage failed.
    #[error("{file}: {source}")]
    Io {
        /// The file.
        file: String,
        /// What the system said.
        source: io::Error,
    },
    /// A file that describes a snapshot or a run is damaged.
    #[error("{file} is damaged: {source}")]
    Damaged {
        /// The file.
        file: String,
        /// What is wrong with it.
        source: FormatError,
    },
    /// A file, or a checkpoint, is whole, but it is not the one that must be at this place.
    #[error("{file} is damaged: it describes {found}, {expected} is expected")]
    Misplaced {
        /// The file.
        file: String,
        /// What should be there.
        expected: String,
        /// What is there.
        found: String,
    },
    /// A file that a snapshot names has not as many bytes as were written.
    #[error("{file} is damaged: it has {found} bytes, the snapshot's metadata says {expected}")]
    WrongLength {
        /// The file.
        file: String,
        /// Length in the metadata.
        expected: u64,
        /// Length of the file.
        found: u64,
    },
    /// A checkpoint that was completed is not there any more, nor is a newer one.
    #[error(
        "the checkpoints of this run are gone: {directory} has none from chk-{newest} on, which was completed"
    )]
    Gone {
        /// The directory of the run.
        directory: String,
        /// The newest checkpoint that is known to have been completed.
        newest: CheckpointId,
    },
    /// A description cannot be written.
    #[error("{file}: {source}")]
    Unwritable {
        /// The file.
        file: String,
        /// Why.
        source: FormatError,
    },
    /// The path does not lead to a snapshot.
    #[error("{path} is not a snapshot: {reason}")]
    NotASnapshot {
        /// The path.
        path: String,
        /// Why not.
        reason: String,
    },
    /// Another live process has it.
    #[error("{path} is held by {owner}")]
    Held {
        /// The lock.
        path: String,
        /// What that process says about itself.
        owner: String,
    },
    /// A fresh run finds its place taken.
    #[error("{path} exists already")]
    Exists {
        /// The path.
        path: String,
    },
    /// There is no such run.
    #[error("{path} is not the directory of a run")]
    NoRun {
        /// The path.
        path: String,
    },
    /// The run is finished or was cancelled, and does not go on.
    #[error("{path}: the run is over")]
    Over {
        /// The directory of the run.
        path: String,
    },
    /// The storage is not open: not yet, or no more.
    #[error("{path} is not open for writing")]
    NotOpen {
        /// The directory of the run.
        path: String,
    },
    /// The storage could not be told that the job is over; to other processes it is not.
    #[error("the end of the job cannot be recorded: {source}")]
    EndNotRecorded {
        /// Why not.
        source: Box<SnapshotError>,
    },
    /// A checkpoint whose commit failed may still be visible.
    #[error("{file} failed to be completed and cannot be withdrawn: {source}")]
    NotWithdrawn {
        /// Directory of the checkpoint.
        file: String,
        /// Why not.
        source: io::Error,
    },
    /// The checkpoint is complete; nothing more may be written for it.
    #[error("checkpoint {checkpoint} is complete already")]
    Completed {
        /// The checkpoint.
        checkpoint: CheckpointId,
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
        match self {
            Self::Io { .. } | Self::NotWithdrawn { .. } => true,
            Self::EndNotRecorded { source } => source.is_transient(),
            _ => false,
        }
    }

    /// The file system's refusal, with the name of the file.
    pub(super) fn io(path: &Path, source: io::Error) -> Self {
        Self::Io { file: path.display().to_string(), source }
    }
}
