//! Checkpoints in directories of a [`Store`].
//!
//! What is written for a checkpoint lies in a hidden directory, `.chk-7`. Only when all of it is durable does the directory get its visible
//! name, in one step. So a visible checkpoint is always whole, and whatever is missing in one is damage, never "not there". A checkpoint
//! that is removed first loses its visible name. `src/docs/formats.md` has the names and the reasons.

mod external;
mod job_storage;
mod record;
mod runs;
mod writer;

use std::io;
use std::path::Path;

use super::error::SnapshotError;
use super::layout;
use super::manifest::{CompletedCheckpoint, FileRange};
use super::metadata;
use super::store::{Store, StoreEntry};

pub use external::{SnapshotDirectory, SnapshotPath};
pub use job_storage::{JobStorage, JobStorageSettings};
pub use record::{JOB_RECORD_VERSION, JobRecord, RunState};
pub use runs::Runs;

/// Names the path in the error.
fn at<T>(path: &Path, result: io::Result<T>) -> Result<T, SnapshotError> {
    result.map_err(|error| SnapshotError::io(path, error))
}

/// `None` for what is not there.
fn if_found<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Reads the metadata in a checkpoint's directory. The checkpoint's files get `prefix` in front of their names.
fn read_metadata(
    store: &dyn Store,
    directory: &Path,
    prefix: &str,
) -> Result<CompletedCheckpoint, SnapshotError> {
    let path = directory.join(layout::METADATA);
    let file = || path.display().to_string();
    let bytes = match if_found(store.read(&path)) {
        Err(error) if error.kind() == io::ErrorKind::IsADirectory => None,
        other => at(&path, other)?,
    };
    let bytes = bytes.ok_or_else(|| SnapshotError::MissingFile { file: file() })?;
    metadata::decode(&bytes, prefix).map_err(|source| SnapshotError::Damaged { file: file(), source })
}

/// Checks that each file of the checkpoint is there with the length that it must have. `base` is the directory to which the names of
/// the files are relative.
fn check_files(
    store: &dyn Store,
    base: &Path,
    checkpoint: &CompletedCheckpoint,
) -> Result<(), SnapshotError> {
    checkpoint.files().try_for_each(|file| check_file(store, &base.join(&file.file), file.length))
}

pub(super) fn check_file(store: &dyn Store, path: &Path, expected: u64) -> Result<(), SnapshotError> {
    let file = path.display().to_string();
    match at(path, if_found(store.entry(path)))? {
        Some(StoreEntry::File { length }) if length == expected => Ok(()),
        Some(StoreEntry::File { length: found }) => Err(SnapshotError::WrongLength { file, expected, found }),
        Some(StoreEntry::Directory) | None => Err(SnapshotError::MissingFile { file }),
    }
}

/// The bytes of a piece of a file.
fn read_range(store: &dyn Store, base: &Path, range: &FileRange) -> Result<Vec<u8>, SnapshotError> {
    let path = base.join(&range.file);
    let name = || path.display().to_string();
    match store.read_range(&path, range.offset, range.length) {
        Ok(bytes) => Ok(bytes),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(SnapshotError::MissingFile { file: name() })
        }
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => match at(&path, store.entry(&path))? {
            StoreEntry::File { length } => Err(range.outside(length, &name())),
            StoreEntry::Directory => Err(SnapshotError::MissingFile { file: name() }),
        },
        Err(error) => Err(SnapshotError::io(&path, error)),
    }
}

/// Removes a directory of ours with its files. It need not exist. A directory in it is not ours, or a link that leads elsewhere: it
/// stays, and is an error.
fn remove_with_files(store: &dyn Store, directory: &Path) -> Result<(), SnapshotError> {
    let Some(entries) = at(directory, if_found(store.list(directory)))? else { return Ok(()) };
    for (name, _) in entries.iter().filter(|(_, entry)| *entry != StoreEntry::Directory) {
        remove_file(store, &directory.join(name))?;
    }
    at(directory, if_found(store.remove_directory(directory)))?;
    Ok(())
}

/// Removes a file. It need not exist.
fn remove_file(store: &dyn Store, path: &Path) -> Result<(), SnapshotError> {
    at(path, if_found(store.remove_file(path)))?;
    Ok(())
}
