//! A disk in memory that shows what a crash leaves behind.

mod calls;
mod crash;
mod disk;
mod faults;
mod history;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::base::rng::{Rng, splitmix64};

use crash::{Fate, power_loss};
use disk::{Disk, NodeId, ROOT, text};
pub use faults::StoreFault;
use faults::StorePlan;
use history::History;
pub use history::{VisibleChange, VisibleFile};

/// What every operation of a process that has died is answered.
pub const GONE: &str = "the store is gone";

/// How a process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CrashKind {
    /// The process is killed. The system lives on: everything the process has done stays, as durable or not as it was.
    Kill,
    /// Power is lost, and with it whatever was not durable, or a part of it.
    PowerLoss {
        /// Decides what is lost.
        seed: u64,
    },
}

/// A [`Store`](crate::snapshot::Store) in memory whose process can die at any operation. Clones are handles of the same process.
///
/// # What survives
///
/// There is what the running process sees, and what is promised to survive a loss of power:
///
/// * The bytes of a file up to its last sync ([`StoreFile::sync`](crate::snapshot::StoreFile::sync), [`sync_file`](crate::snapshot::Store::sync_file)), whoever called it.
/// * The names in a directory as they were at its last [`sync_directory`](crate::snapshot::Store::sync_directory), and those that
///   [`create_directories`](crate::snapshot::Store::create_directories) has created. Nothing else makes a name durable; in particular neither the sync of the file nor
///   calling `create_directories` for a directory that exists already. A directory whose own name is lost takes along all that is
///   in it.
///
/// [`CrashKind::Kill`] loses neither. Locks end, lock files stay, and what was not durable still is not.
///
/// [`CrashKind::PowerLoss`] draws from its seed what becomes of the rest; afterwards all that is left is durable.
///
/// * Each change of names since (created, renamed, removed, directory made) is kept or lost *by itself*, whatever the order. A
///   rename within a directory is atomic: the file is there under one of the two names. If its creation was lost, it may
///   still appear under the new name. A kept change needs room: where the name is still borne by a file that the program has
///   not removed or replaced but renamed, and the rename was lost, the change is lost too. So nothing durable ever vanishes.
/// * A file moved to another directory is seen there, or in the old one, or in both. `sync_directory` of the new
///   directory promises only the new name; of the old one, both. A *directory* moved to another is durable at once, which is more
///   than a file system promises.
/// * Of a file's bytes since its last sync all are kept, or none, or a prefix of any length; or the file has any length up to what
///   was written, and a range at the end (or further inside) reads as zeros or as garbage. All this is independent of what
///   becomes of its name.
/// * Bytes that a failed sync was to make durable are in doubt for ever: a later sync succeeds, but each range may still turn
///   into zeros or garbage. Until power is lost they read as written. A failed sync of a directory only fails: a later one
///   makes up for it.
///
/// An operation during which the process dies has happened or not; `append` has written a prefix, `create_directories` has made
/// the first few or all and promised none, `lock` may have created an empty lock file.
///
/// # Lives
///
/// After a crash every call through a handle of the dead process, its files and its locks included, answers [`GONE`] and changes
/// nothing; dropping them changes nothing. [`VirtualStore::reboot`] answers the handle of the next process. What is there to look at
/// and to set up works through any handle.
///
/// Errors are those of Linux for the same calls. Time does not exist, links and permissions neither. Paths begin at the root,
/// `..` is refused. Nothing is ever written back by itself, which a crash cannot tell from a loss that happens to keep it.
#[derive(Clone)]
pub struct VirtualStore {
    machine: Arc<Mutex<Machine>>,
    life: u64,
}

#[derive(Debug, Clone)]
struct Machine {
    disk: Disk,
    history: History,
    faults: StorePlan,
    rng: Rng,
    /// Locks of the living process, with what their owners say about themselves.
    locks: BTreeMap<NodeId, String>,
    life: u64,
    is_dead: bool,
    /// After so many more operations the process dies in one.
    countdown: Option<(u64, CrashKind)>,
    operations: u64,
    log: Vec<String>,
}

impl VirtualStore {
    /// An empty disk with a root, and its first process. The seed decides what else is left to chance: how far an operation has
    /// come when the process dies in it, and which calls fail at a rate.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let machine = Machine {
            disk: Disk::default(),
            history: History::default(),
            faults: StorePlan::new(splitmix64(seed ^ 0xFA_017)),
            rng: Rng::new(splitmix64(seed)),
            locks: BTreeMap::new(),
            life: 1,
            is_dead: false,
            countdown: None,
            operations: 0,
            log: vec!["life 1".to_owned()],
        };
        Self { machine: Arc::new(Mutex::new(machine)), life: 1 }
    }

    fn machine(&self) -> MutexGuard<'_, Machine> {
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The process dies now, between two operations. A process that is dead already can still lose power.
    pub fn crash(&self, kind: CrashKind) {
        self.machine().die(kind);
    }

    /// The living process dies in an operation, after so many more operations; 0 for the next one. Replaces what was set before; it
    /// is forgotten at the end of this life.
    pub fn crash_at(&self, operations_before: u64, kind: CrashKind) {
        self.machine().countdown = Some((operations_before, kind));
    }

    /// True if the process of this handle is dead.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.machine().is_gone(self.life)
    }

    /// The handle of a new process on what the crash has left. A process that is alive is killed first.
    #[must_use]
    pub fn reboot(&self) -> Self {
        let mut machine = self.machine();
        if !machine.is_dead {
            machine.die(CrashKind::Kill);
        }
        Self { machine: Arc::clone(&self.machine), life: machine.boot() }
    }

    /// A copy of the disk as the next process would find it if this one died now, which it does not. The copy shares nothing with the
    /// original and has none of its faults; it has its history and its log.
    #[must_use]
    pub fn image(&self, kind: CrashKind) -> Self {
        let mut machine = self.machine().clone();
        machine.faults = StorePlan::new(machine.rng.next_u64());
        machine.die(kind);
        let life = machine.boot();
        Self { machine: Arc::new(Mutex::new(machine)), life }
    }

    /// One in `one_in` calls of this kind fails, as long as [`VirtualStore::allow_faults`] lets it; 0 for none.
    pub fn set_fault_rate(&self, fault: StoreFault, one_in: u64) {
        self.machine().faults.set_rate(fault, one_in);
    }

    /// So many calls may fail by rate from now on.
    pub fn allow_faults(&self, budget: u32) {
        self.machine().faults.allow(budget);
    }

    /// One call of this kind fails, after so many that do not; 0 for the next one.
    pub fn fail_after(&self, fault: StoreFault, calls_before: u64) {
        self.machine().faults.fail_after(fault, calls_before);
    }

    /// The disk is full once its files have this many bytes; `None` for a disk without end. What is there stays, and may be renamed
    /// and removed. A full disk takes no new file, directory or lock file either.
    pub fn set_quota(&self, bytes: Option<u64>) {
        self.machine().faults.quota = bytes;
    }

    /// How many calls have failed because they had to; those of a full disk are not counted.
    #[must_use]
    pub fn faults_struck(&self) -> u32 {
        self.machine().faults.struck
    }

    /// Bytes of all files together.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.machine().disk.used()
    }

    /// Operations begun so far, by all lives. Those that a dead process tried are not among them.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.machine().operations
    }

    /// What happened, one line for each operation, crash and life.
    #[must_use]
    pub fn log(&self) -> Vec<String> {
        self.machine().log.clone()
    }

    /// All files that the living process sees, with their bytes.
    #[must_use]
    pub fn files(&self) -> BTreeMap<String, Vec<u8>> {
        self.machine().files(|_| true)
    }

    /// All files that survive whatever happens, with the bytes that do; bytes in doubt after a failed sync are zero.
    #[must_use]
    pub fn promised_files(&self) -> BTreeMap<String, Vec<u8>> {
        let mut machine = self.machine().clone();
        machine.disk = power_loss(&machine.disk, Fate::Lost).0;
        machine.files(|_| true)
    }

    /// All directories that the living process sees, without the root.
    #[must_use]
    pub fn directories(&self) -> BTreeSet<String> {
        let machine = self.machine();
        let all = machine.disk.below(ROOT, "").into_iter();
        all.filter(|(_, node)| machine.disk.directory(*node).is_ok()).map(|(path, _)| path).collect()
    }

    /// Lock files of locks that the living process has.
    #[must_use]
    pub fn locks(&self) -> BTreeSet<String> {
        let machine = self.machine();
        machine.locks.keys().filter_map(|node| machine.disk.path_of(*node)).collect()
    }

    /// Changes of names that a loss of power may take back, oldest first.
    #[must_use]
    pub fn unsynced_names(&self) -> Vec<String> {
        self.machine().disk.pending.iter().map(|pending| pending.text.clone()).collect()
    }

    /// Every file ever seen below this directory whose name does not begin with a dot, in no directory below it whose name does, and
    /// what became of it over all lives. Lock files are left out.
    #[must_use]
    pub fn visible_history(&self, directory: &Path) -> Vec<VisibleFile> {
        self.machine().history.below(text(directory).trim_end_matches('/'))
    }
}

impl fmt::Debug for VirtualStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let machine = self.machine();
        f.debug_struct("VirtualStore")
            .field("life", &self.life)
            .field("is_dead", &machine.is_gone(self.life))
            .field("operations", &machine.operations)
            .finish_non_exhaustive()
    }
}

impl Machine {
    fn is_gone(&self, life: u64) -> bool {
        self.is_dead || self.life != life
    }

    fn die(&mut self, kind: CrashKind) {
        self.is_dead = true;
        self.countdown = None;
        self.locks.clear();
        match kind {
            CrashKind::Kill => self.log.push("killed".to_owned()),
            CrashKind::PowerLoss { seed } => {
                let before = self.files(|file| !file.is_lock);
                let fate = Fate::drawn(splitmix64(seed ^ splitmix64(self.operations)));
                let (disk, report) = power_loss(&self.disk, fate);
                self.disk = disk;
                let after = self.files(|file| !file.is_lock);
                self.history.power_lost(&before, &after, self.operations);
                self.log.push(format!("power lost, seed {seed}"));
                self.log.extend(report.into_iter().map(|line| format!("     {line}")));
            }
        }
    }

    fn boot(&mut self) -> u64 {
        self.life += 1;
        self.is_dead = false;
        self.disk.forget_unnamed();
        self.log.push(format!("life {}", self.life));
        self.life
    }

    fn files(&self, is_meant: impl Fn(&disk::File) -> bool) -> BTreeMap<String, Vec<u8>> {
        let all = self.disk.below(ROOT, "").into_iter();
        let files = all.filter_map(|(path, node)| Some((path, self.disk.file(node).ok()?)));
        files.filter(|(_, file)| is_meant(file)).map(|(path, file)| (path, file.bytes.clone())).collect()
    }
}
