//! The file operations on which durability rests, and nothing else.
//!
//! Whatever must survive a crash (checkpoints, the record of a job, the files of a transactional sink) is written through a
//! [`Store`], so that the deterministic scheduler can put one in its place that shows what a crash at any moment leaves behind.
//!
//! What a crash may take back, as POSIX has it: bytes of a file since its last [`StoreFile::sync`], and names in a directory
//! (created, renamed, removed) since its last [`Store::sync_directory`]. A rename within one directory is atomic.

use std::fmt;
use std::io::{self, ErrorKind as E};
use std::path::Path;

/// A file system, as far as durability needs one. Calls block; no thread that processes records makes them.
///
/// Errors are those of the system, without the path: the caller knows it.
pub trait Store: Send + Sync + fmt::Debug {
    /// Creates the directory and those above it that are missing, and makes the new names durable. It may exist.
    ///
    /// # Errors
    /// If the system refuses.
    fn create_directories(&self, path: &Path) -> io::Result<()>;

    /// Creates a new file to be written from its beginning.
    ///
    /// # Errors
    /// [`AlreadyExists`](io::ErrorKind::AlreadyExists) if there is one of this name; otherwise if the system refuses.
    fn create(&self, path: &Path) -> io::Result<Box<dyn StoreFile>>;

    /// The whole file.
    ///
    /// # Errors
    /// If there is none, or it cannot be read.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;

    /// `length` bytes from `offset` on. No memory is taken before it is known that the file has them.
    ///
    /// # Errors
    /// [`UnexpectedEof`](io::ErrorKind::UnexpectedEof) if the file ends before; otherwise if it cannot be read.
    fn read_range(&self, path: &Path, offset: u64, length: u64) -> io::Result<Vec<u8>>;

    /// What the name stands for.
    ///
    /// # Errors
    /// [`NotFound`](io::ErrorKind::NotFound) if there is none; otherwise if the system refuses.
    fn entry(&self, path: &Path) -> io::Result<StoreEntry>;

    /// The names in a directory, in order.
    ///
    /// # Errors
    /// If there is no such directory, it cannot be read, or a name is not UTF-8.
    fn list(&self, directory: &Path) -> io::Result<Vec<(String, StoreEntry)>>;

    /// Gives a file or directory another name, in one step. A file of the new name is replaced.
    ///
    /// # Errors
    /// If the system refuses.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// If there is none, or the system refuses.
    fn remove_file(&self, path: &Path) -> io::Result<()>;

    /// Removes an empty directory.
    ///
    /// # Errors
    /// If there is none, it is not empty, or the system refuses.
    fn remove_directory(&self, path: &Path) -> io::Result<()>;

    /// Makes an existing file's bytes durable, whoever wrote them.
    ///
    /// # Errors
    /// If the system cannot promise it.
    fn sync_file(&self, path: &Path) -> io::Result<()>;

    /// Makes the names in the directory durable.
    ///
    /// # Errors
    /// If the system cannot promise it.
    fn sync_directory(&self, path: &Path) -> io::Result<()>;

    /// Takes an exclusive lock that ends with this process at the latest, and writes `owner` into the lock file for people.
    /// The file may be there already, left behind by a process that is gone.
    ///
    /// # Errors
    /// [`LockError::Held`] with the other owner's text if a live process has it.
    fn lock(&self, path: &Path, owner: &str) -> Result<Box<dyn StoreLock>, LockError>;
}

/// What a name in a directory stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreEntry {
    /// A file with so many bytes.
    File {
        /// Its length.
        length: u64,
    },
    /// A directory.
    Directory,
}

/// A file being written.
pub trait StoreFile: Send {
    /// Adds all of the bytes at the end.
    ///
    /// # Errors
    /// If the system refuses; some of the bytes may then be there.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Makes what was written durable.
    ///
    /// # Errors
    /// If the system cannot promise it. What was written since the last success may then be lost, even if a later call succeeds.
    fn sync(&mut self) -> io::Result<()>;
}

/// A lock that is held. Dropping it removes the lock file and ends the lock.
pub trait StoreLock: Send + Sync + fmt::Debug {}

/// A lock cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// A live process has it.
    #[error("in use by {owner}")]
    Held {
        /// What that process says about itself.
        owner: String,
    },
    /// The system refused.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Creates the directory and those above it that are missing, and makes all of their names durable. Also of those that are there: a process
/// may have created them and died before it had made that durable, and everything in them would go with them.
///
/// For the beginning of a job, not for every checkpoint: it waits for the disk once for each directory.
///
/// # Errors
/// If the system refuses.
pub fn create_durably(store: &dyn Store, path: &Path) -> io::Result<()> {
    store.create_directories(path)?;
    let above = path.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty());
    for directory in above {
        match store.sync_directory(directory) {
            // Then no process like this one can have created anything in there, or its file system knows no such promise.
            Err(error)
                if matches!(
                    error.kind(),
                    E::PermissionDenied | E::ReadOnlyFilesystem | E::InvalidInput | E::Unsupported
                ) => {}
            synced => synced?,
        }
    }
    Ok(())
}
