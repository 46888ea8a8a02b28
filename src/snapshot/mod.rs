//! Snapshots at rest: what they consist of, where they are kept, how keyed state is written and read back.
//!
//! Nothing here runs on a thread that processes records. [`writer::write_state`] runs on any pool thread; the storage is
//! called by pool threads and by the driver of the coordinator.
#![deny(clippy::unwrap_used, clippy::indexing_slicing)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking"))]

pub mod compression;
pub mod directory;
pub mod error;
pub mod fields;
pub mod frozen;
pub mod layout;
pub mod local;
pub mod manifest;
pub mod memory;
pub mod metadata;
pub mod reader;
pub mod storage;
pub mod store;
pub mod writer;

#[cfg(test)]
pub(crate) mod tests;

pub use compression::Compression;
pub use directory::{
    JobRecord, JobStorage, JobStorageSettings, RunState, Runs, SnapshotDirectory, SnapshotPath,
};
pub use error::SnapshotError;
pub use fields::FormatError;
pub use frozen::FrozenState;
pub use local::LocalStore;
pub use manifest::{
    CompletedCheckpoint, FileRange, KeyedStateSnapshot, ListStateSnapshot, Location, OperatorSnapshot,
    SnapshotFile, StateDeclaration, StateHandle, StateKind, SubtaskSnapshot, Written,
};
pub use memory::MemoryStorage;
pub use reader::{check_section, read_section, read_state};
pub use storage::{CheckpointStorage, Conclusion, StateFiles, StateWriter};
pub use store::{LockError, Store, StoreEntry, StoreFile, StoreLock, create_durably};
pub use writer::write_state;
