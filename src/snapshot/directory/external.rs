//! A snapshot that is named by its path.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::super::error::SnapshotError;
use super::super::layout::{self, JobEntry};
use super::super::manifest::{CompletedCheckpoint, Location, StateHandle};
use super::super::storage::StateFiles;
use super::super::store::{Store, StoreEntry};
use super::{at, check_files, if_found, read_metadata, read_range};
use crate::base::id::CheckpointId;

/// What a path to something on the disk leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SnapshotPath {
    /// The directory of a snapshot, whether it is whole or not.
    Snapshot(PathBuf),
    /// The directory of a run.
    Run {
        /// The directory.
        directory: PathBuf,
        /// Its completed checkpoints, oldest first.
        checkpoints: Vec<CheckpointId>,
    },
}

impl SnapshotPath {
    /// Looks what is there. A directory is that of a snapshot unless it has the record of a run or checkpoints in it.
    ///
    /// # Errors
    /// [`SnapshotError::NotASnapshot`] if there is nothing, or a file other than `_metadata`; otherwise if the storage fails.
    pub fn find(store: &dyn Store, path: &Path) -> Result<Self, SnapshotError> {
        let path = layout::absolute(path);
        let is_not = |reason: &str| {
            Err(SnapshotError::NotASnapshot { path: path.display().to_string(), reason: reason.to_owned() })
        };
        // Whatever is there of that name: a file that is missing is damage like any other, once its directory is known.
        if let Some(directory) = path.parent().filter(|_| path.ends_with(layout::METADATA))
            && at(directory, if_found(store.entry(directory)))? == Some(StoreEntry::Directory)
        {
            return Ok(Self::Snapshot(directory.to_owned()));
        }
        match at(&path, if_found(store.entry(&path)))? {
            None => is_not("there is nothing of that name"),
            Some(StoreEntry::File { .. }) => {
                is_not("it is a file; name the directory of a checkpoint, or the _metadata in it")
            }
            Some(StoreEntry::Directory) => {
                let entries = at(&path, store.list(&path))?;
                let has = |name: &str| entries.iter().any(|(entry, _)| entry == name);
                let checkpoints = visible_checkpoints(&entries);
                let is_run = !has(layout::METADATA) && (has(layout::JOB_RECORD) || !checkpoints.is_empty());
                Ok(if is_run { Self::Run { directory: path, checkpoints } } else { Self::Snapshot(path) })
            }
        }
    }
}

/// The checkpoints among the names in the directory of a run, oldest first.
pub(super) fn visible_checkpoints(entries: &[(String, StoreEntry)]) -> Vec<CheckpointId> {
    // Whatever it is: a file in the place of a checkpoint is damage, and is told when it is read.
    let id = |name: &str| match JobEntry::of(name) {
        JobEntry::Checkpoint(id) => Some(id),
        _ => None,
    };
    let mut found: Vec<_> = entries.iter().filter_map(|(name, _)| id(name)).collect();
    found.sort_unstable();
    found
}

/// Reads a snapshot in a directory of any name, wherever it lies.
#[derive(Debug)]
pub struct SnapshotDirectory {
    store: Arc<dyn Store>,
    directory: PathBuf,
}

impl SnapshotDirectory {
    /// The snapshot at the path, the directory of a checkpoint or the `_metadata` in it, and its files. Each of them is there and has
    /// the length that it must have; their contents are checked as they are read.
    ///
    /// # Errors
    /// If there is none, or it is damaged. For the directory of a run the error lists its checkpoints.
    pub fn open(
        store: Arc<dyn Store>,
        path: &Path,
    ) -> Result<(CompletedCheckpoint, Arc<dyn StateFiles>), SnapshotError> {
        let directory = match SnapshotPath::find(store.as_ref(), path)? {
            SnapshotPath::Snapshot(directory) => directory,
            SnapshotPath::Run { directory, checkpoints } => return Err(several(&directory, &checkpoints)),
        };
        let checkpoint = read_metadata(store.as_ref(), &directory, "")?;
        check_files(store.as_ref(), &directory, &checkpoint)?;
        Ok((checkpoint, Arc::new(Self { store, directory })))
    }

    /// The snapshot's metadata, and its files whether they are there or not.
    ///
    /// # Errors
    /// If the metadata is missing or damaged, or the storage fails.
    pub fn open_unchecked(
        store: Arc<dyn Store>,
        directory: &Path,
    ) -> Result<(CompletedCheckpoint, Self), SnapshotError> {
        let checkpoint = read_metadata(store.as_ref(), directory, "")?;
        Ok((checkpoint, Self { store, directory: directory.to_owned() }))
    }

    /// Checks that the file is there and has this length.
    ///
    /// # Errors
    /// If it is not.
    pub fn check_file(&self, file: &str, length: u64) -> Result<(), SnapshotError> {
        super::check_file(self.store.as_ref(), &self.directory.join(file), length)
    }
}

fn several(directory: &Path, checkpoints: &[CheckpointId]) -> SnapshotError {
    let names: Vec<_> = checkpoints.iter().map(|id| layout::checkpoint(*id)).collect();
    let reason = if names.is_empty() {
        "it is the directory of a run without checkpoints".to_owned()
    } else {
        format!("it is the directory of a run; name one of its checkpoints: {}", names.join(", "))
    };
    SnapshotError::NotASnapshot { path: directory.display().to_string(), reason }
}

impl StateFiles for SnapshotDirectory {
    fn read(&self, handle: &StateHandle) -> Result<Vec<u8>, SnapshotError> {
        match &handle.location {
            Location::Inline(bytes) => Ok(bytes.clone()),
            Location::File(range) => read_range(self.store.as_ref(), &self.directory, range),
        }
    }

    fn full_name(&self, file: &str) -> String {
        self.directory.join(file).display().to_string()
    }
}
