//! The operations of a [`VirtualStore`]: counted, logged, failed and cut short.

use std::io::{self, ErrorKind};
use std::path::Path;

use super::disk::{NodeId, text};
use super::history::VisibleChange;
use super::{CrashKind, GONE, Machine, StoreFault, VirtualStore};
use crate::base::rng::splitmix64;
use crate::snapshot::{LockError, Store, StoreEntry, StoreFile, StoreLock};
use crate::testing::faults::INJECTED;

/// How much of an operation happens. The number is random, for what can stop half-way.
#[derive(Debug, Clone, Copy)]
enum Extent {
    Whole,
    /// The process dies meanwhile.
    Crash(u64),
    /// It fails.
    Fault(u64),
}

impl Extent {
    /// For what happens or not.
    fn happens(self) -> bool {
        match self {
            Self::Whole => true,
            Self::Crash(random) => random.is_multiple_of(2),
            Self::Fault(_) => false,
        }
    }

    /// How many of so many parts are done.
    fn of(self, parts: usize) -> usize {
        match self {
            Self::Whole => parts,
            Self::Crash(random) | Self::Fault(random) => (random % (parts as u64 + 1)) as usize,
        }
    }
}

fn gone() -> io::Error {
    io::Error::other(GONE)
}

impl VirtualStore {
    /// Does one operation, or what the plan makes of it.
    fn perform<T>(
        &self,
        fault: Option<StoreFault>,
        describe: impl FnOnce(&Machine) -> String,
        act: impl FnOnce(&mut Machine, Extent) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut machine = self.machine();
        let machine = &mut *machine;
        if machine.is_gone(self.life) {
            return Err(gone());
        }
        machine.operations += 1;
        let mut line = format!("{:>4} {}", machine.operations, describe(machine));
        if let Some((operations_before, kind)) = &mut machine.countdown {
            if *operations_before == 0 {
                let kind = *kind;
                let seed = if let CrashKind::PowerLoss { seed } = kind { splitmix64(seed) } else { 0 };
                let random = machine.rng.next_u64() ^ seed;
                machine.log.push(format!("{line}: dies"));
                let _ = act(machine, Extent::Crash(random));
                machine.die(kind);
                return Err(gone());
            }
            *operations_before -= 1;
        }
        let result = match fault.filter(|fault| machine.faults.strikes(*fault)) {
            None => act(machine, Extent::Whole),
            Some(fault) => {
                let random = machine.rng.next_u64();
                let _ = act(machine, Extent::Fault(random));
                Err(fault.error())
            }
        };
        if let Err(error) = &result {
            line = format!("{line}: {error}");
        }
        machine.log.push(line);
        result
    }

    /// Does an operation that happens or not.
    fn perform_whole<T>(
        &self,
        fault: StoreFault,
        line: String,
        act: impl FnOnce(&mut Machine) -> io::Result<T>,
    ) -> io::Result<T> {
        self.perform(
            Some(fault),
            |_| line,
            |machine, extent| {
                if extent.happens() { act(machine) } else { Err(gone()) }
            },
        )
    }

    fn open(&self, node: NodeId) -> OpenFile {
        OpenFile { store: self.clone(), node }
    }
}

impl Machine {
    /// Bytes for which there is room.
    fn room(&self) -> u64 {
        self.faults.quota.map_or(u64::MAX, |quota| quota.saturating_sub(self.disk.used()))
    }

    fn need_room(&self) -> io::Result<()> {
        if self.room() == 0 { Err(full()) } else { Ok(()) }
    }

    fn name_of(&self, node: NodeId) -> String {
        self.disk.path_of(node).unwrap_or_else(|| "(removed)".to_owned())
    }

    fn append(&mut self, node: NodeId, bytes: &[u8], extent: Extent) -> io::Result<()> {
        let fitting = bytes.len().min(usize::try_from(self.room()).unwrap_or(usize::MAX));
        let written = extent.of(fitting);
        self.disk.append(node, &bytes[..written]);
        if written > 0
            && let Some(path) = self.disk.path_of(node)
        {
            self.history.changed(&path, VisibleChange::Rewritten, self.operations);
        }
        if fitting < bytes.len() { Err(full()) } else { Ok(()) }
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let (from_text, to_text) = (text(from), text(to));
        let moved = self.disk.find(from).map(|node| self.disk.below(node, "")).unwrap_or_default();
        self.disk.rename(from, to)?;
        if from_text == to_text {
            return Ok(());
        }
        for (below, node) in moved {
            let Ok(file) = self.disk.file(node) else { continue };
            let operation = self.operations;
            self.history.changed(&format!("{from_text}{below}"), VisibleChange::Removed, operation);
            if !file.is_lock {
                self.history.appeared(&format!("{to_text}{below}"), &file.bytes, operation);
            }
        }
        Ok(())
    }

    /// Takes the lock, or answers its owner.
    fn lock(&mut self, path: &Path, owner: &str, extent: Extent) -> io::Result<Result<NodeId, String>> {
        // Created, written, locked.
        let steps = if let Extent::Fault(_) = extent { 0 } else { extent.of(3) };
        if steps == 0 {
            return Err(gone());
        }
        let node = match self.disk.find(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.need_room()?;
                self.disk.create(path, true)?
            }
            found => found?,
        };
        if let Some(owner) = self.locks.get(&node) {
            return Ok(Err(owner.clone()));
        }
        self.disk.overwrite(node, if steps > 1 { owner.as_bytes() } else { b"" })?;
        if steps > 2 {
            self.locks.insert(node, owner.to_owned());
        }
        Ok(Ok(node))
    }
}

fn full() -> io::Error {
    io::Error::new(ErrorKind::StorageFull, format!("{INJECTED}: no space left on device"))
}

impl Store for VirtualStore {
    fn create_directories(&self, path: &Path) -> io::Result<()> {
        let line = format!("create directories {}", text(path));
        self.perform(
            Some(StoreFault::Create),
            |_| line,
            |machine, extent| {
                if let Extent::Fault(_) = extent {
                    return Ok(());
                }
                if machine.disk.find(path).is_err() {
                    machine.need_room()?;
                }
                let parts = path.components().count();
                let count_max = if let Extent::Whole = extent { None } else { Some(extent.of(parts)) };
                machine.disk.create_directories(path, count_max)
            },
        )
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn StoreFile>> {
        let node = self.perform_whole(StoreFault::Create, format!("create {}", text(path)), |machine| {
            if machine.disk.find(path).is_err() {
                machine.need_room()?;
            }
            let node = machine.disk.create(path, false)?;
            machine.history.appeared(&text(path), b"", machine.operations);
            Ok(node)
        })?;
        Ok(Box::new(self.open(node)))
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.perform_whole(StoreFault::Read, format!("read {}", text(path)), |machine| {
            let node = machine.disk.find(path)?;
            Ok(machine.disk.file(node)?.bytes.clone())
        })
    }

    fn read_range(&self, path: &Path, offset: u64, length: u64) -> io::Result<Vec<u8>> {
        let line = format!("read {length} bytes from {offset} on of {}", text(path));
        self.perform_whole(StoreFault::Read, line, |machine| {
            let node = machine.disk.find(path)?;
            let bytes = &machine.disk.file(node)?.bytes;
            let end = offset.checked_add(length).filter(|end| *end <= bytes.len() as u64);
            let end = end.ok_or(ErrorKind::UnexpectedEof)?;
            Ok(bytes[offset as usize..end as usize].to_vec())
        })
    }

    fn entry(&self, path: &Path) -> io::Result<StoreEntry> {
        let line = format!("look up {}", text(path));
        self.perform_whole(StoreFault::Read, line, |machine| machine.disk.entry(path))
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<(String, StoreEntry)>> {
        let line = format!("list {}", text(directory));
        self.perform_whole(StoreFault::List, line, |machine| machine.disk.list(directory))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let line = format!("rename {} to {}", text(from), text(to));
        self.perform_whole(StoreFault::Rename, line, |machine| machine.rename(from, to))
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.perform_whole(StoreFault::Remove, format!("remove {}", text(path)), |machine| {
            machine.disk.remove_file(path)?;
            machine.history.changed(&text(path), VisibleChange::Removed, machine.operations);
            Ok(())
        })
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        let line = format!("remove directory {}", text(path));
        self.perform_whole(StoreFault::Remove, line, |machine| machine.disk.remove_directory(path))
    }

    fn sync_file(&self, path: &Path) -> io::Result<()> {
        let line = format!("sync {}", text(path));
        self.perform(
            Some(StoreFault::Sync),
            |_| line,
            |machine, extent| {
                let node = machine.disk.find(path)?;
                sync(machine, node, extent)
            },
        )
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        let line = format!("sync directory {}", text(path));
        self.perform_whole(StoreFault::SyncDirectory, line, |machine| machine.disk.sync_directory(path))
    }

    fn lock(&self, path: &Path, owner: &str) -> Result<Box<dyn StoreLock>, LockError> {
        let line = format!("lock {}", text(path));
        let act = |machine: &mut Machine, extent| machine.lock(path, owner, extent);
        match self.perform(Some(StoreFault::Lock), |_| line, act)? {
            Ok(node) => Ok(Box::new(HeldLock(self.open(node)))),
            Err(owner) => Err(LockError::Held { owner }),
        }
    }
}

fn sync(machine: &mut Machine, node: NodeId, extent: Extent) -> io::Result<()> {
    match extent {
        Extent::Fault(_) => machine.disk.fail_sync(node),
        _ if extent.happens() => machine.disk.sync(node),
        _ => Ok(()),
    }
}

/// A file that a process has open, by its node: it stays the same file under another name, or without any.
#[derive(Debug)]
struct OpenFile {
    store: VirtualStore,
    node: NodeId,
}

impl StoreFile for OpenFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let (node, count) = (self.node, bytes.len());
        let describe = |machine: &Machine| format!("append {count} bytes to {}", machine.name_of(node));
        self.store.perform(Some(StoreFault::Append), describe, |machine, extent| {
            machine.append(node, bytes, extent)
        })
    }

    fn sync(&mut self) -> io::Result<()> {
        let node = self.node;
        let describe = |machine: &Machine| format!("sync {}", machine.name_of(node));
        self.store.perform(Some(StoreFault::Sync), describe, |machine, extent| sync(machine, node, extent))
    }
}

#[derive(Debug)]
struct HeldLock(OpenFile);

impl StoreLock for HeldLock {}

impl Drop for HeldLock {
    fn drop(&mut self) {
        let node = self.0.node;
        let describe = |machine: &Machine| format!("unlock {}", machine.name_of(node));
        // If the process is dead, the lock has ended with it.
        let _ = self.0.store.perform(None, describe, |machine, extent| {
            if extent.happens() {
                machine.disk.remove_node(node);
                machine.locks.remove(&node);
            }
            Ok(())
        });
    }
}
