//! The file system of this machine, with somebody who is asked before each operation.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use stoplog::snapshot::{LocalStore, LockError, Store, StoreEntry, StoreFile, StoreLock};

/// What is about to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Operation {
    CreateDirectories,
    Create,
    Append,
    Sync,
    Read,
    ReadRange,
    Entry,
    List,
    Rename,
    RemoveFile,
    RemoveDirectory,
    SyncFile,
    SyncDirectory,
    Lock,
    Unlock,
}

/// Who is asked.
pub(crate) trait Hook: Send + Sync + fmt::Debug {
    /// May refuse, though not [`Operation::Unlock`]. Of [`Operation::Append`] it is not asked here.
    fn before(&self, operation: Operation, path: &Path) -> io::Result<()>;

    /// Adds the bytes, or some of them, or none.
    fn append(&self, path: &Path, file: &mut dyn StoreFile, bytes: &[u8]) -> io::Result<()>;
}

#[derive(Debug)]
pub(crate) struct HookedStore(pub(crate) Arc<dyn Hook>);

impl HookedStore {
    pub(crate) fn shared(hook: Arc<dyn Hook>) -> Arc<dyn Store> {
        Arc::new(Self(hook))
    }
}

impl Store for HookedStore {
    fn create_directories(&self, path: &Path) -> io::Result<()> {
        self.0.before(Operation::CreateDirectories, path)?;
        LocalStore.create_directories(path)
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn StoreFile>> {
        self.0.before(Operation::Create, path)?;
        let file = LocalStore.create(path)?;
        Ok(Box::new(HookedFile { hook: Arc::clone(&self.0), path: path.to_owned(), file }))
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.0.before(Operation::Read, path)?;
        LocalStore.read(path)
    }

    fn read_range(&self, path: &Path, offset: u64, length: u64) -> io::Result<Vec<u8>> {
        self.0.before(Operation::ReadRange, path)?;
        LocalStore.read_range(path, offset, length)
    }

    fn entry(&self, path: &Path) -> io::Result<StoreEntry> {
        self.0.before(Operation::Entry, path)?;
        LocalStore.entry(path)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<(String, StoreEntry)>> {
        self.0.before(Operation::List, directory)?;
        LocalStore.list(directory)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.before(Operation::Rename, to)?;
        LocalStore.rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.0.before(Operation::RemoveFile, path)?;
        LocalStore.remove_file(path)
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        self.0.before(Operation::RemoveDirectory, path)?;
        LocalStore.remove_directory(path)
    }

    fn sync_file(&self, path: &Path) -> io::Result<()> {
        self.0.before(Operation::SyncFile, path)?;
        LocalStore.sync_file(path)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        self.0.before(Operation::SyncDirectory, path)?;
        LocalStore.sync_directory(path)
    }

    fn lock(&self, path: &Path, owner: &str) -> Result<Box<dyn StoreLock>, LockError> {
        self.0.before(Operation::Lock, path)?;
        let lock = LocalStore.lock(path, owner)?;
        Ok(Box::new(HookedLock { hook: Arc::clone(&self.0), path: path.to_owned(), _lock: lock }))
    }
}

struct HookedFile {
    hook: Arc<dyn Hook>,
    path: PathBuf,
    file: Box<dyn StoreFile>,
}

impl StoreFile for HookedFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.hook.append(&self.path, self.file.as_mut(), bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.hook.before(Operation::Sync, &self.path)?;
        self.file.sync()
    }
}

#[derive(Debug)]
struct HookedLock {
    hook: Arc<dyn Hook>,
    path: PathBuf,
    _lock: Box<dyn StoreLock>,
}

impl StoreLock for HookedLock {}

impl Drop for HookedLock {
    fn drop(&mut self) {
        let _ = self.hook.before(Operation::Unlock, &self.path);
    }
}
