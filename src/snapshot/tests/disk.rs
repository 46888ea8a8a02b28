//! A file system in memory that can refuse any operation and show what a loss of power at any moment leaves behind.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::base::rng::Rng;
use crate::snapshot::{LockError, Store, StoreEntry, StoreFile, StoreLock};

/// What happens at an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It is refused. Of bytes to be written a half is there.
    Refused,
    /// It is done, and reported as failed.
    Lied,
    /// It is refused like all that follow.
    Died,
    /// From here on names in directories cannot be made durable.
    Unsynced,
}

type Call = Box<dyn FnOnce() + Send>;

/// Clones share the contents.
#[derive(Clone)]
pub(crate) struct Disk {
    inner: Arc<Mutex<Inner>>,
    before_sync: Arc<Mutex<Option<Call>>>,
}

impl std::fmt::Debug for Disk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Disk").finish_non_exhaustive()
    }
}

struct Inner {
    nodes: Vec<Node>,
    locks: BTreeSet<PathBuf>,
    operations: u64,
    fault: Option<(u64, Fault)>,
    dead: bool,
    /// Refused as often as they are tried.
    refused: Option<&'static str>,
}

#[derive(Debug, Clone)]
enum Node {
    File {
        bytes: Vec<u8>,
        /// So many of them survive.
        durable: usize,
    },
    Directory {
        names: BTreeMap<String, usize>,
        durable: BTreeMap<String, usize>,
        /// What was done since: some first part of it survives.
        changes: Vec<Vec<(String, Option<usize>)>>,
    },
}

impl Node {
    fn directory() -> Self {
        Self::Directory { names: BTreeMap::new(), durable: BTreeMap::new(), changes: Vec::new() }
    }
}

fn error(kind: io::ErrorKind) -> io::Error {
    kind.into()
}

impl Disk {
    pub(crate) fn new() -> Self {
        let nodes = vec![Node::directory()];
        let inner =
            Inner { nodes, locks: BTreeSet::new(), operations: 0, fault: None, dead: false, refused: None };
        Self { inner: Arc::new(Mutex::new(inner)), before_sync: Arc::default() }
    }

    /// Is called once, when the bytes of a file are to be made durable next.
    pub(crate) fn before_sync(&self, call: impl FnOnce() + Send + 'static) {
        *self.before_sync.lock().unwrap() = Some(Box::new(call));
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap()
    }

    /// The operation of this number, counted from now on and from 0, goes wrong.
    pub(crate) fn fail_at(&self, operation: u64, fault: Fault) {
        let mut inner = self.inner();
        inner.operations = 0;
        inner.fault = Some((operation, fault));
    }

    /// All operations of this name are refused from now on.
    pub(crate) fn refuse(&self, operation: Option<&'static str>) {
        self.inner().refused = operation;
    }

    /// True while everything fails.
    pub(crate) fn is_dead(&self) -> bool {
        self.inner().dead
    }

    /// True if the planned fault has struck. There is none any more.
    pub(crate) fn heal(&self) -> bool {
        let mut inner = self.inner();
        let planned = inner.fault.take();
        inner.dead = false;
        inner.refused = None;
        planned.is_some_and(|(at, _)| inner.operations > at)
    }

    /// What a new process finds after a kill: everything except the locks.
    pub(crate) fn killed(&self) -> Self {
        let inner = self.inner();
        let nodes = inner.nodes.clone();
        let new = Self::new();
        new.inner().nodes = nodes;
        new.remove_locks();
        new
    }

    /// What a new process finds after a loss of power. The generator decides what of the things that nobody made durable survives.
    pub(crate) fn powered_off(&self, rng: &mut Rng) -> Self {
        let mut choose = |most: usize| rng.below(most as u64 + 1) as usize;
        let new = self.killed();
        for node in &mut new.inner().nodes {
            match node {
                Node::File { bytes, durable } => {
                    bytes.truncate(*durable + choose(bytes.len() - *durable));
                    *durable = bytes.len();
                }
                Node::Directory { names, durable, changes } => {
                    let kept = choose(changes.len());
                    *names = std::mem::take(durable);
                    changes.drain(..).take(kept).for_each(|change| apply(names, change));
                    durable.clone_from(names);
                }
            }
        }
        new
    }

    /// All names below a directory, without locks.
    pub(crate) fn tree(&self, path: &str) -> Vec<String> {
        fn walk(nodes: &[Node], at: usize, prefix: &str, found: &mut Vec<String>) {
            if let Node::Directory { names, .. } = &nodes[at] {
                for (name, node) in names {
                    let path = format!("{prefix}{name}");
                    walk(nodes, *node, &format!("{path}/"), found);
                    found.push(path);
                }
            }
        }
        let inner = self.inner();
        let mut found = Vec::new();
        if let Ok(at) = inner.find(Path::new(path)) {
            walk(&inner.nodes, at, "", &mut found);
        }
        found.retain(|name| !name.ends_with(".lock"));
        found
    }

    /// Replaces the bytes of a file, or removes it.
    pub(crate) fn tamper(&self, path: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let mut inner = self.inner();
        let at = inner.find(Path::new(path)).unwrap();
        match &mut inner.nodes[at] {
            Node::File { bytes, durable } => {
                change(bytes);
                *durable = bytes.len();
            }
            Node::Directory { .. } => panic!("{path} is a directory"),
        }
    }

    fn remove_locks(&self) {
        let mut inner = self.inner();
        inner.locks.clear();
    }

    /// Counts the operation and does it, unless something goes wrong.
    fn operate<T>(
        &self,
        name: &'static str,
        operation: impl FnOnce(&mut Inner, bool) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut inner = self.inner();
        let number = inner.operations;
        inner.operations += 1;
        let fault = inner.fault.filter(|(at, _)| *at == number).map(|(_, fault)| fault);
        inner.dead |= fault == Some(Fault::Died);
        if fault == Some(Fault::Unsynced) {
            inner.refused = Some("sync_directory");
        }
        let failed = || io::Error::other(format!("{name} failed"));
        if inner.dead || inner.refused == Some(name) {
            return Err(failed());
        }
        match fault {
            Some(Fault::Refused) => {
                if name == "append" {
                    let _ = operation(&mut inner, true);
                }
                Err(failed())
            }
            Some(Fault::Lied) => operation(&mut inner, false).and_then(|_| Err(failed())),
            Some(Fault::Died | Fault::Unsynced) | None => operation(&mut inner, false),
        }
    }
}

fn apply(names: &mut BTreeMap<String, usize>, change: Vec<(String, Option<usize>)>) {
    for (name, node) in change {
        match node {
            Some(node) => names.insert(name, node),
            None => names.remove(&name),
        };
    }
}

impl Inner {
    fn find(&self, path: &Path) -> io::Result<usize> {
        let mut at = 0;
        for part in path.strip_prefix("/").expect("absolute paths only") {
            match &self.nodes[at] {
                Node::Directory { names, .. } => {
                    let part = part.to_str().unwrap();
                    at = *names.get(part).ok_or_else(|| error(io::ErrorKind::NotFound))?;
                }
                Node::File { .. } => return Err(error(io::ErrorKind::NotADirectory)),
            }
        }
        Ok(at)
    }

    fn names(&self, at: usize) -> io::Result<&BTreeMap<String, usize>> {
        match &self.nodes[at] {
            Node::Directory { names, .. } => Ok(names),
            Node::File { .. } => Err(error(io::ErrorKind::NotADirectory)),
        }
    }

    fn bytes(&self, path: &Path) -> io::Result<&Vec<u8>> {
        match &self.nodes[self.find(path)?] {
            Node::File { bytes, .. } => Ok(bytes),
            Node::Directory { .. } => Err(error(io::ErrorKind::IsADirectory)),
        }
    }

    fn change(&mut self, directory: &Path, change: Vec<(String, Option<usize>)>) -> io::Result<()> {
        let at = self.find(directory)?;
        match &mut self.nodes[at] {
            Node::Directory { names, changes, .. } => {
                apply(names, change.clone());
                changes.push(change);
                Ok(())
            }
            Node::File { .. } => Err(error(io::ErrorKind::NotADirectory)),
        }
    }

    fn add(&mut self, path: &Path, node: Node) -> io::Result<usize> {
        if self.find(path).is_ok() {
            return Err(error(io::ErrorKind::AlreadyExists));
        }
        let new = self.nodes.len();
        self.nodes.push(node);
        self.change(path.parent().unwrap(), vec![(name(path), Some(new))])?;
        Ok(new)
    }

    fn sync_directory(&mut self, path: &Path) -> io::Result<()> {
        let at = self.find(path)?;
        match &mut self.nodes[at] {
            Node::Directory { names, durable, changes } => {
                durable.clone_from(names);
                changes.clear();
                Ok(())
            }
            Node::File { .. } => Err(error(io::ErrorKind::NotADirectory)),
        }
    }
}

fn name(path: &Path) -> String {
    path.file_name().unwrap().to_str().unwrap().to_owned()
}

impl Store for Disk {
    fn create_directories(&self, path: &Path) -> io::Result<()> {
        self.operate("create_directories", |inner, _| {
            let ancestors: Vec<_> = path.ancestors().collect();
            for directory in ancestors.into_iter().rev().skip(1) {
                match inner.find(directory) {
                    Ok(at) => {
                        inner.names(at)?;
                    }
                    Err(_) => {
                        inner.add(directory, Node::directory())?;
                        inner.sync_directory(directory.parent().unwrap())?;
                    }
                }
            }
            Ok(())
        })
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn StoreFile>> {
        self.operate("create", |inner, _| {
            let node = inner.add(path, Node::File { bytes: Vec::new(), durable: 0 })?;
            Ok(Box::new(DiskFile { disk: self.clone(), node }) as Box<dyn StoreFile>)
        })
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.operate("read", |inner, _| inner.bytes(path).cloned())
    }

    fn read_range(&self, path: &Path, offset: u64, length: u64) -> io::Result<Vec<u8>> {
        self.operate("read_range", |inner, _| {
            let bytes = inner.bytes(path)?;
            let end = offset.checked_add(length).and_then(|end| usize::try_from(end).ok());
            let range = end.and_then(|end| bytes.get(usize::try_from(offset).ok()?..end));
            range.map(<[u8]>::to_vec).ok_or_else(|| error(io::ErrorKind::UnexpectedEof))
        })
    }

    fn entry(&self, path: &Path) -> io::Result<StoreEntry> {
        self.operate("entry", |inner, _| {
            Ok(match &inner.nodes[inner.find(path)?] {
                Node::File { bytes, .. } => StoreEntry::File { length: bytes.len() as u64 },
                Node::Directory { .. } => StoreEntry::Directory,
            })
        })
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<(String, StoreEntry)>> {
        self.operate("list", |inner, _| {
            let names = inner.names(inner.find(directory)?)?;
            let entry = |node: &usize| match &inner.nodes[*node] {
                Node::File { bytes, .. } => StoreEntry::File { length: bytes.len() as u64 },
                Node::Directory { .. } => StoreEntry::Directory,
            };
            Ok(names.iter().map(|(name, node)| (name.clone(), entry(node))).collect())
        })
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.operate("rename", |inner, _| {
            assert_eq!(from.parent(), to.parent(), "only within a directory is a rename one step");
            let node = inner.find(from)?;
            if let Ok(replaced) = inner.find(to) {
                match (&inner.nodes[node], &inner.nodes[replaced]) {
                    (Node::File { .. }, Node::File { .. }) => {}
                    (_, Node::Directory { names, .. }) if names.is_empty() => {}
                    _ => return Err(error(io::ErrorKind::DirectoryNotEmpty)),
                }
            }
            inner.change(from.parent().unwrap(), vec![(name(from), None), (name(to), Some(node))])
        })
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.operate("remove_file", |inner, _| {
            inner.bytes(path)?;
            inner.change(path.parent().unwrap(), vec![(name(path), None)])
        })
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        self.operate("remove_directory", |inner, _| {
            if !inner.names(inner.find(path)?)?.is_empty() {
                return Err(error(io::ErrorKind::DirectoryNotEmpty));
            }
            inner.change(path.parent().unwrap(), vec![(name(path), None)])
        })
    }

    fn sync_file(&self, path: &Path) -> io::Result<()> {
        self.operate("sync_file", |inner, _| {
            let at = inner.find(path)?;
            match &mut inner.nodes[at] {
                Node::File { bytes, durable } => *durable = bytes.len(),
                Node::Directory { .. } => return Err(error(io::ErrorKind::IsADirectory)),
            }
            Ok(())
        })
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        self.operate("sync_directory", |inner, _| inner.sync_directory(path))
    }

    fn lock(&self, path: &Path, owner: &str) -> Result<Box<dyn StoreLock>, LockError> {
        let bytes = owner.as_bytes().to_vec();
        let locked = self.operate("lock", |inner, _| {
            if inner.locks.contains(path) {
                return Ok(Err(String::from_utf8_lossy(inner.bytes(path)?).into_owned()));
            }
            if inner.find(path).is_err() {
                inner.add(path, Node::File { bytes: Vec::new(), durable: 0 })?;
            }
            let at = inner.find(path)?;
            inner.nodes[at] = Node::File { bytes, durable: 0 };
            inner.locks.insert(path.to_owned());
            Ok(Ok(()))
        });
        match locked {
            Ok(Ok(())) => Ok(Box::new(DiskLock { disk: self.clone(), path: path.to_owned() })),
            Ok(Err(owner)) => Err(LockError::Held { owner }),
            Err(error) => {
                // Done, and reported as failed: nobody holds what nobody got.
                self.inner().locks.remove(path);
                Err(error.into())
            }
        }
    }
}

struct DiskFile {
    disk: Disk,
    node: usize,
}

impl StoreFile for DiskFile {
    fn append(&mut self, new: &[u8]) -> io::Result<()> {
        self.disk.operate("append", |inner, half| {
            if let Node::File { bytes, .. } = &mut inner.nodes[self.node] {
                bytes.extend_from_slice(&new[..if half { new.len() / 2 } else { new.len() }]);
            }
            Ok(())
        })
    }

    fn sync(&mut self) -> io::Result<()> {
        let call = self.disk.before_sync.lock().unwrap().take();
        if let Some(call) = call {
            call();
        }
        self.disk.operate("sync", |inner, _| {
            if let Node::File { bytes, durable } = &mut inner.nodes[self.node] {
                *durable = bytes.len();
            }
            Ok(())
        })
    }
}

#[derive(Debug)]
struct DiskLock {
    disk: Disk,
    path: PathBuf,
}

impl StoreLock for DiskLock {}

impl Drop for DiskLock {
    fn drop(&mut self) {
        let mut inner = self.disk.inner();
        inner.locks.remove(&self.path);
        // A process that died removes nothing.
        if !inner.dead {
            let _ = inner.change(self.path.parent().unwrap(), vec![(name(&self.path), None)]);
        }
    }
}
