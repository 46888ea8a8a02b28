//! A store whose process dies, and whose calls go wrong although it lives, when it is told to.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::snapshot::{LockError, Store, StoreEntry, StoreFile, StoreLock};
use crate::testing::store::{CrashKind, VirtualStore};

/// What happens at an operation that was chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trouble {
    /// It fails and has done nothing.
    Refused,
    /// It was done, but the caller hears of an error.
    AnswerLost,
    /// The process dies in it.
    Dead,
}

/// The handle of the process that lives now. Files and locks of an earlier one are dead.
#[derive(Debug)]
pub(super) struct Troubled {
    disk: Mutex<VirtualStore>,
    plan: Arc<Mutex<Plan>>,
}

#[derive(Debug, Default)]
struct Plan {
    /// Operations so far that may change something.
    operations: u64,
    trouble: Option<(u64, Trouble)>,
}

impl Default for Troubled {
    fn default() -> Self {
        Self { disk: Mutex::new(VirtualStore::new(0)), plan: Arc::default() }
    }
}

impl Troubled {
    pub(super) fn disk(&self) -> VirtualStore {
        self.disk.lock().unwrap().clone()
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock().unwrap()
    }

    /// Operations so far that may change something.
    pub(super) fn operations(&self) -> u64 {
        self.plan().operations
    }

    /// The operation after so many more is in trouble.
    pub(super) fn trouble_after(&self, operations: u64, trouble: Trouble) {
        let mut plan = self.plan();
        plan.trouble = Some((plan.operations + operations, trouble));
    }

    pub(super) fn no_trouble(&self) {
        self.plan().trouble = None;
    }

    /// Whatever the process still does has no effect.
    pub(super) fn kill(&self) {
        self.disk().crash(CrashKind::Kill);
    }

    /// The next process. What was not durable may be lost if the power fails before, as this seed has it.
    pub(super) fn revive(&self, power_loss: Option<u64>) {
        self.no_trouble();
        self.kill();
        if let Some(seed) = power_loss {
            self.disk().crash(CrashKind::PowerLoss { seed });
        }
        let mut disk = self.disk.lock().unwrap();
        *disk = disk.reboot();
    }

    fn change<R>(&self, operation: impl FnOnce(&VirtualStore) -> io::Result<R>) -> io::Result<R> {
        let disk = self.disk();
        in_trouble(&self.plan, &disk, || operation(&disk))
    }
}

fn in_trouble<R>(
    plan: &Mutex<Plan>,
    disk: &VirtualStore,
    operation: impl FnOnce() -> io::Result<R>,
) -> io::Result<R> {
    let trouble = {
        let mut plan = plan.lock().unwrap();
        let number = plan.operations;
        plan.operations += 1;
        plan.trouble.filter(|(at, _)| *at == number).map(|(_, trouble)| trouble)
    };
    let injected = || io::Error::other("injected fault");
    match trouble {
        None => operation(),
        Some(Trouble::Refused) => Err(injected()),
        Some(Trouble::AnswerLost) => operation().and(Err(injected())),
        Some(Trouble::Dead) => {
            disk.crash_at(0, CrashKind::Kill);
            operation()
        }
    }
}

impl Store for Troubled {
    fn create_directories(&self, path: &Path) -> io::Result<()> {
        self.change(|disk| disk.create_directories(path))
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn StoreFile>> {
        let file = self.change(|disk| disk.create(path))?;
        Ok(Box::new(TroubledFile { file, disk: self.disk(), plan: Arc::clone(&self.plan) }))
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.disk().read(path)
    }

    fn read_range(&self, path: &Path, offset: u64, length: u64) -> io::Result<Vec<u8>> {
        self.disk().read_range(path, offset, length)
    }

    fn entry(&self, path: &Path) -> io::Result<StoreEntry> {
        self.disk().entry(path)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<(String, StoreEntry)>> {
        self.disk().list(directory)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        assert!(self.entry(to).is_err(), "{} is replaced", to.display());
        self.change(|disk| disk.rename(from, to))
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.change(|disk| disk.remove_file(path))
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        self.change(|disk| disk.remove_directory(path))
    }

    fn sync_file(&self, path: &Path) -> io::Result<()> {
        self.change(|disk| disk.sync_file(path))
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        self.change(|disk| disk.sync_directory(path))
    }

    fn lock(&self, path: &Path, owner: &str) -> Result<Box<dyn StoreLock>, LockError> {
        let mut held = None;
        let lock = self.change(|disk| match disk.lock(path, owner) {
            Err(LockError::Io(error)) => Err(error),
            Err(error) => {
                held = Some(error);
                Err(io::Error::other("held"))
            }
            Ok(lock) => Ok(lock),
        });
        lock.map_err(|error| held.unwrap_or(LockError::Io(error)))
    }
}

struct TroubledFile {
    file: Box<dyn StoreFile>,
    disk: VirtualStore,
    plan: Arc<Mutex<Plan>>,
}

impl StoreFile for TroubledFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        in_trouble(&self.plan, &self.disk, || self.file.append(bytes))
    }

    fn sync(&mut self) -> io::Result<()> {
        in_trouble(&self.plan, &self.disk, || self.file.sync())
    }
}
