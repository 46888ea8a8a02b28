//! The directory in which output appears: names, and who may write there.
//! `docs/formats.md` lists the names.

use std::io;
use std::path::{Path, PathBuf};

use super::FileError;
use crate::base::id::{CheckpointId, SubtaskIndex};
use crate::operator::SinkClaim;
use crate::snapshot::{LockError, Store, StoreEntry, StoreLock, create_durably};

pub(super) const LOCK: &str = ".lock";
pub(super) const HIDDEN: &str = ".part-";

/// The name under which output is seen. `repeat` is 1 unless what has that name may be repeated.
pub(super) fn visible_name(subtask: SubtaskIndex, checkpoint: Option<CheckpointId>, repeat: u32) -> String {
    let checkpoint = checkpoint.map(|checkpoint| format!("-{checkpoint}")).unwrap_or_default();
    let repeat = if repeat > 1 { format!(".{repeat}") } else { String::new() };
    format!("part-{subtask}{checkpoint}{repeat}")
}

/// With which checkpoint a file was published; the outer `None` says that the name is no output's.
pub(super) fn published_with(name: &str) -> Option<Option<CheckpointId>> {
    let numbers = name.strip_prefix("part-")?;
    let (numbers, repeat) = numbers.split_once('.').unwrap_or((numbers, "1"));
    let (subtask, checkpoint) =
        numbers.split_once('-').map_or((numbers, None), |(subtask, checkpoint)| (subtask, Some(checkpoint)));
    repeat.parse::<u32>().ok()?;
    subtask.parse::<u32>().ok()?;
    checkpoint.map(|checkpoint| checkpoint.parse().map(CheckpointId)).transpose().ok()
}

/// Makes the directory this job's own. Nothing is created if that is refused.
///
/// # Errors
/// If another job has it, or there is output that must not be added to.
pub(super) fn claim(
    store: &dyn Store,
    directory: &Path,
    claim: &SinkClaim,
) -> Result<Option<Box<dyn StoreLock>>, FileError> {
    if directory.to_str().is_none() {
        return Err(FileError::Name { path: directory.to_owned() });
    }
    let names = match names_in(store, directory) {
        Err(error) if is_missing(&error) && claim.is_finished => return Ok(None),
        Err(error) if is_missing(&error) => Vec::new(),
        names => names?,
    };
    // A job that has the directory is named first, whatever else is wrong.
    let lock = names.iter().any(|name| name == LOCK).then(|| lock(store, directory, claim)).transpose()?;
    check(directory, &names, claim)?;
    if let Some(lock) = lock {
        return Ok(Some(lock));
    }
    create_durably(store, directory).map_err(FileError::io("create the directory", directory))?;
    let lock = self::lock(store, directory, claim)?;
    // Another job may have come and gone between the look and the lock.
    check(directory, &names_in(store, directory)?, claim)?;
    Ok(Some(lock))
}

fn names_in(store: &dyn Store, directory: &Path) -> Result<Vec<String>, FileError> {
    let listed = store.list(directory).map_err(FileError::io("use the output directory", directory))?;
    Ok(listed.into_iter().map(|(name, _)| name).collect())
}

pub(super) fn is_missing(error: &FileError) -> bool {
    matches!(error, FileError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
}

fn lock(store: &dyn Store, directory: &Path, claim: &SinkClaim) -> Result<Box<dyn StoreLock>, FileError> {
    store.lock(&directory.join(LOCK), &claim.owner).map_err(|error| match error {
        LockError::Held { owner } => FileError::InUse { path: directory.to_owned(), owner },
        LockError::Io(source) => FileError::io("lock", &directory.join(LOCK))(source),
    })
}

/// Whether the job may add to what is there.
fn check(directory: &Path, names: &[String], claim: &SinkClaim) -> Result<(), FileError> {
    let path = directory.to_owned();
    if claim.is_finished {
        return Ok(());
    }
    let mut published =
        names.iter().filter_map(|name| published_with(name).map(|checkpoint| (name, checkpoint)));
    match claim.restored {
        Some(restored) => {
            let is_later = |checkpoint: Option<CheckpointId>| checkpoint.is_none_or(|id| id > restored);
            match published.find(|(_, checkpoint)| is_later(*checkpoint)) {
                Some((file, _)) if !claim.allows_repeated_output => {
                    Err(FileError::PublishedLater { path, file: file.clone(), restored })
                }
                _ => Ok(()),
            }
        }
        None if claim.resumes => match published.next() {
            Some((file, _)) => Err(FileError::Unaccounted { path, file: file.clone() }),
            None => Ok(()),
        },
        None if names.iter().any(|name| name != LOCK) => Err(FileError::NotEmpty { path }),
        None => Ok(()),
    }
}

/// Removes all output of the directory that was not published.
///
/// # Errors
/// If some of it might still be there after a crash.
pub(super) fn remove_hidden(store: &dyn Store, directory: &Path) -> Result<(), FileError> {
    let listed = store.list(directory).map_err(FileError::io("use the output directory", directory))?;
    let is_hidden = |(name, entry): &(String, StoreEntry)| {
        name.starts_with(HIDDEN) && matches!(entry, StoreEntry::File { .. })
    };
    for (name, _) in listed.into_iter().filter(is_hidden) {
        remove(store, &directory.join(&name))?;
        tracing::debug!(
            target: "stoplog::connectors::file",
            "removed {name} in {}, which was not to be seen", directory.display()
        );
    }
    // Also if there is none any more: an earlier attempt may have removed it and come no further.
    sync_directory(store, directory)
}

/// Removes a file that may be gone already.
pub(super) fn remove(store: &dyn Store, path: &Path) -> Result<(), FileError> {
    match store.remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(FileError::io("remove", path)(error)),
        _ => Ok(()),
    }
}

pub(super) fn sync_directory(store: &dyn Store, directory: &Path) -> Result<(), FileError> {
    store.sync_directory(directory).map_err(FileError::io("make durable the directory", directory))
}

/// The length of a file, if there is one.
pub(super) fn length(store: &dyn Store, path: &Path) -> Result<Option<u64>, FileError> {
    match store.entry(path) {
        Ok(StoreEntry::File { length }) => Ok(Some(length)),
        Ok(StoreEntry::Directory) => Err(FileError::NotRegular { path: path.to_owned() }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(FileError::io("read", path)(error)),
    }
}

/// The path seen from the root, whatever becomes of the process' current directory.
pub(super) fn absolute(path: PathBuf) -> PathBuf {
    std::path::absolute(&path).unwrap_or(path)
}
