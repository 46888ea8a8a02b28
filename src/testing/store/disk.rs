//! The file system itself: what a running process sees, and what of it is promised to survive.
//!
//! Files are nodes; directories name them. A directory keeps two sets of names: those that are seen and those that are promised.
//! The changes between the two stand in a list, in their order; [`crash`](super::crash) decides what becomes of them.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::path::{Component, Path};

use crate::snapshot::StoreEntry;

pub(super) type NodeId = u64;

pub(super) const ROOT: NodeId = 0;

#[derive(Debug, Clone)]
pub(super) struct Node {
    /// The directory and the name under which it is seen; `None` once it is removed or replaced.
    pub(super) place: Option<(NodeId, String)>,
    pub(super) body: Body,
}

#[derive(Debug, Clone)]
pub(super) enum Body {
    File(File),
    Directory(Directory),
}

#[derive(Debug, Clone, Default)]
pub(super) struct File {
    pub(super) bytes: Vec<u8>,
    /// So many bytes survive, but for the doubtful ones.
    pub(super) promised: usize,
    /// Written before a sync that failed: no later sync vouches for them.
    pub(super) doubtful: Vec<Range<usize>>,
    pub(super) is_lock: bool,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Directory {
    pub(super) seen: BTreeMap<String, NodeId>,
    pub(super) promised: BTreeMap<String, NodeId>,
}

/// A change of names that no sync has made durable.
#[derive(Debug, Clone)]
pub(super) struct Pending {
    pub(super) change: Change,
    /// For people.
    pub(super) text: String,
}

#[derive(Debug, Clone)]
pub(super) enum Change {
    Create {
        directory: NodeId,
        name: String,
        node: NodeId,
    },
    Remove {
        directory: NodeId,
        node: NodeId,
    },
    Rename {
        directory: NodeId,
        to: String,
        node: NodeId,
    },
    /// A file that gets a name in another directory.
    Move {
        from: NodeId,
        directory: NodeId,
        to: String,
        node: NodeId,
    },
}

impl Change {
    fn node(&self) -> NodeId {
        match self {
            Self::Create { node, .. }
            | Self::Remove { node, .. }
            | Self::Rename { node, .. }
            | Self::Move { node, .. } => *node,
        }
    }

    /// The directory in which a name appears or goes; of a move the new one.
    fn directory(&self) -> NodeId {
        match self {
            Self::Create { directory, .. }
            | Self::Remove { directory, .. }
            | Self::Rename { directory, .. }
            | Self::Move { directory, .. } => *directory,
        }
    }
}

#[derive(Debug, Clone)]
pub(super) struct Disk {
    pub(super) nodes: BTreeMap<NodeId, Node>,
    pub(super) pending: Vec<Pending>,
    next: NodeId,
}

impl Default for Disk {
    fn default() -> Self {
        let root = Node { place: None, body: Body::Directory(Directory::default()) };
        Self { nodes: BTreeMap::from([(ROOT, root)]), pending: Vec::new(), next: ROOT + 1 }
    }
}

/// The names of which a path consists, from the root on. There is no working directory: a relative path begins at the root.
fn names(path: &Path) -> io::Result<Vec<&str>> {
    let mut names = Vec::new();
    for component in path.components() {
        match component {
            Component::RootDir | Component::CurDir => {}
            Component::Normal(name) => {
                let name = name.to_str().ok_or_else(|| invalid("a name that is not UTF-8"))?;
                names.push(name);
            }
            Component::ParentDir | Component::Prefix(_) => return Err(invalid("a path with `..`")),
        }
    }
    Ok(names)
}

/// The path as it stands in logs and lists.
pub(super) fn text(path: &Path) -> String {
    names(path).map_or_else(|_| path.display().to_string(), |names| format!("/{}", names.join("/")))
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, what)
}

impl Disk {
    pub(super) fn file(&self, node: NodeId) -> io::Result<&File> {
        match &self.nodes[&node].body {
            Body::File(file) => Ok(file),
            Body::Directory(_) => Err(ErrorKind::IsADirectory.into()),
        }
    }

    fn file_mut(&mut self, node: NodeId) -> io::Result<&mut File> {
        match &mut self.node_mut(node).body {
            Body::File(file) => Ok(file),
            Body::Directory(_) => Err(ErrorKind::IsADirectory.into()),
        }
    }

    pub(super) fn directory(&self, node: NodeId) -> io::Result<&Directory> {
        match &self.nodes[&node].body {
            Body::Directory(directory) => Ok(directory),
            Body::File(_) => Err(ErrorKind::NotADirectory.into()),
        }
    }

    /// # Panics
    /// If it is a file.
    pub(super) fn directory_mut(&mut self, node: NodeId) -> &mut Directory {
        match &mut self.node_mut(node).body {
            Body::Directory(directory) => directory,
            Body::File(_) => unreachable!("names are only looked up in directories"),
        }
    }

    fn node_mut(&mut self, node: NodeId) -> &mut Node {
        self.nodes.get_mut(&node).expect("whoever names a node keeps it")
    }

    fn walk(&self, names: &[&str]) -> io::Result<NodeId> {
        names.iter().try_fold(ROOT, |node, name| {
            self.directory(node)?.seen.get(*name).copied().ok_or_else(|| ErrorKind::NotFound.into())
        })
    }

    /// What the path stands for.
    pub(super) fn find(&self, path: &Path) -> io::Result<NodeId> {
        self.walk(&names(path)?)
    }

    /// The directory that has or would have the path's last name, and that name.
    fn parent<'p>(&self, path: &'p Path) -> io::Result<(NodeId, &'p str)> {
        let names = names(path)?;
        let (last, parents) = names.split_last().ok_or_else(|| invalid("the root"))?;
        let directory = self.walk(parents)?;
        self.directory(directory)?;
        Ok((directory, last))
    }

    /// Where a node is seen.
    pub(super) fn path_of(&self, mut node: NodeId) -> Option<String> {
        let mut path = String::new();
        while node != ROOT {
            let (directory, name) = self.nodes[&node].place.as_ref()?;
            path.insert_str(0, &format!("/{name}"));
            node = *directory;
        }
        Some(path)
    }

    pub(super) fn is_linked(&self, node: NodeId) -> bool {
        node == ROOT || self.nodes[&node].place.is_some()
    }

    /// Every directory and file that is seen below a node, with its path; not the node itself unless it is a file.
    pub(super) fn below(&self, node: NodeId, path: &str) -> Vec<(String, NodeId)> {
        let mut found = Vec::new();
        let mut waiting = vec![(path.to_owned(), node)];
        while let Some((path, node)) = waiting.pop() {
            if let Body::Directory(directory) = &self.nodes[&node].body {
                waiting.extend(directory.seen.iter().map(|(name, child)| (format!("{path}/{name}"), *child)));
            }
            found.push((path, node));
        }
        found.retain(|(_, found)| *found != node || self.file(node).is_ok());
        found.sort();
        found
    }

    /// Bytes of all files that have a name.
    pub(super) fn used(&self) -> u64 {
        let files = self.nodes.values().filter(|node| node.place.is_some());
        files.map(|node| if let Body::File(file) = &node.body { file.bytes.len() as u64 } else { 0 }).sum()
    }

    pub(super) fn entry(&self, path: &Path) -> io::Result<StoreEntry> {
        Ok(self.entry_of(self.find(path)?))
    }

    fn entry_of(&self, node: NodeId) -> StoreEntry {
        match &self.nodes[&node].body {
            Body::File(file) => StoreEntry::File { length: file.bytes.len() as u64 },
            Body::Directory(_) => StoreEntry::Directory,
        }
    }

    pub(super) fn list(&self, path: &Path) -> io::Result<Vec<(String, StoreEntry)>> {
        let names = self.directory(self.find(path)?)?.seen.iter();
        Ok(names.map(|(name, node)| (name.clone(), self.entry_of(*node))).collect())
    }

    fn make(&mut self, directory: NodeId, name: &str, body: Body, text: String) -> NodeId {
        let node = self.next;
        self.next += 1;
        self.nodes.insert(node, Node { place: Some((directory, name.to_owned())), body });
        self.directory_mut(directory).seen.insert(name.to_owned(), node);
        self.pending
            .push(Pending { change: Change::Create { directory, name: name.to_owned(), node }, text });
        node
    }

    pub(super) fn create(&mut self, path: &Path, is_lock: bool) -> io::Result<NodeId> {
        let (directory, name) = match names(path)?.is_empty() {
            true => return Err(ErrorKind::AlreadyExists.into()),
            false => self.parent(path)?,
        };
        if self.directory(directory)?.seen.contains_key(name) {
            return Err(ErrorKind::AlreadyExists.into());
        }
        let file = File { is_lock, ..File::default() };
        Ok(self.make(directory, name, Body::File(file), format!("create {}", text(path))))
    }

    /// Creates the directories that are missing, and makes their names durable; with a maximum only so many of them, and no name
    /// durable.
    pub(super) fn create_directories(&mut self, path: &Path, count_max: Option<usize>) -> io::Result<()> {
        let mut made = Vec::new();
        let mut at = ROOT;
        let mut so_far = String::new();
        let all = names(path)?;
        for (index, name) in all.iter().enumerate() {
            so_far = format!("{so_far}/{name}");
            at = match self.directory(at)?.seen.get(*name) {
                Some(child) => *child,
                None if count_max == Some(made.len()) => return Ok(()),
                None => {
                    let body = Body::Directory(Directory::default());
                    let node = self.make(at, name, body, format!("make directory {so_far}"));
                    made.push((at, node));
                    node
                }
            };
            if self.directory(at).is_err() {
                let is_last = index + 1 == all.len();
                return Err(if is_last { ErrorKind::AlreadyExists } else { ErrorKind::NotADirectory }.into());
            }
        }
        for (directory, node) in made.into_iter().filter(|_| count_max.is_none()) {
            self.promise_new(directory, node);
        }
        Ok(())
    }

    /// Makes the name of a node just created durable, and no other name in its directory if that can be helped.
    fn promise_new(&mut self, directory: NodeId, node: NodeId) {
        let (_, name) = self.nodes[&node].place.clone().expect("it was created just now");
        if self.directory_mut(directory).promised.contains_key(&name) {
            // Its former bearer has to go first.
            return self.promise(directory);
        }
        self.directory_mut(directory).promised.insert(name, node);
        self.pending.retain(|pending| !matches!(pending.change, Change::Create { node: n, .. } if n == node));
    }

    pub(super) fn append(&mut self, node: NodeId, bytes: &[u8]) {
        self.file_mut(node).expect("only files are opened").bytes.extend_from_slice(bytes);
    }

    /// Replaces the text of a lock file.
    pub(super) fn overwrite(&mut self, node: NodeId, bytes: &[u8]) -> io::Result<()> {
        *self.file_mut(node)? =
            File { bytes: bytes.to_vec(), promised: 0, doubtful: Vec::new(), is_lock: true };
        Ok(())
    }

    /// Makes the bytes of a file durable.
    pub(super) fn sync(&mut self, node: NodeId) -> io::Result<()> {
        let file = self.file_mut(node)?;
        file.promised = file.bytes.len();
        Ok(())
    }

    /// The sync of a file fails: the system has forgotten that these bytes are still to be written.
    pub(super) fn fail_sync(&mut self, node: NodeId) -> io::Result<()> {
        let file = self.file_mut(node)?;
        let known = file.doubtful.last().map_or(0, |range| range.end).max(file.promised);
        if known < file.bytes.len() {
            file.doubtful.push(known..file.bytes.len());
        }
        Ok(())
    }

    pub(super) fn sync_directory(&mut self, path: &Path) -> io::Result<()> {
        let node = self.find(path)?;
        self.directory(node)?;
        self.promise(node);
        Ok(())
    }

    /// Makes all names in the directory durable. A file that was moved away goes from here only once its new name is durable, so
    /// that directory is made durable as well.
    fn promise(&mut self, directory: NodeId) {
        let mut together = BTreeSet::from([directory]);
        loop {
            let before = together.len();
            for pending in &self.pending {
                if let Change::Move { from, directory, .. } = &pending.change
                    && together.contains(from)
                {
                    together.insert(*directory);
                }
            }
            if together.len() == before {
                break;
            }
        }
        for directory in &together {
            let directory = self.directory_mut(*directory);
            directory.promised.clone_from(&directory.seen);
        }
        let reachable = self.promised_directories();
        self.pending.retain_mut(|pending| {
            if !together.contains(&pending.change.directory()) {
                return true;
            }
            match pending.change {
                Change::Move { from, directory, node, .. } if !together.contains(&from) => {
                    // The new name is safe, but the old one may still come back.
                    if reachable.contains(&directory) {
                        pending.text.push_str(" (the old name)");
                        pending.change = Change::Remove { directory: from, node };
                    }
                    true
                }
                _ => false,
            }
        });
        self.drop_unreachable(&reachable);
    }

    /// Forgets changes in directories that are gone for good.
    fn drop_unreachable(&mut self, reachable: &BTreeSet<NodeId>) {
        let may_return: BTreeSet<NodeId> = self.pending.iter().map(|pending| pending.change.node()).collect();
        let nodes = &self.nodes;
        self.pending.retain(|pending| {
            let directory = pending.change.directory();
            let is_seen = directory == ROOT || nodes[&directory].place.is_some();
            is_seen || reachable.contains(&directory) || may_return.contains(&directory)
        });
    }

    /// Directories that the promised names lead to.
    pub(super) fn promised_directories(&self) -> BTreeSet<NodeId> {
        let mut found = BTreeSet::new();
        let mut waiting = vec![ROOT];
        while let Some(node) = waiting.pop() {
            if let Ok(directory) = self.directory(node)
                && found.insert(node)
            {
                waiting.extend(directory.promised.values());
            }
        }
        found
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let (old_directory, old_name) = self.parent(from)?;
        let (new_directory, new_name) = self.parent(to)?;
        let missing = || io::Error::from(ErrorKind::NotFound);
        let node = *self.directory(old_directory)?.seen.get(old_name).ok_or_else(missing)?;
        let replaced = self.directory(new_directory)?.seen.get(new_name).copied();
        if self.lineage(new_directory).contains(&node) {
            return Err(invalid("a directory cannot be moved into itself"));
        }
        if replaced.is_some_and(|replaced| self.lineage(old_directory).contains(&replaced)) {
            return Err(ErrorKind::DirectoryNotEmpty.into());
        }
        if replaced == Some(node) {
            return Ok(());
        }
        let is_directory = self.directory(node).is_ok();
        if let Some(replaced) = replaced {
            match (is_directory, self.directory(replaced)) {
                (true, Err(not_a_directory)) => return Err(not_a_directory),
                (true, Ok(directory)) if !directory.seen.is_empty() => {
                    return Err(ErrorKind::DirectoryNotEmpty.into());
                }
                (false, Ok(_)) => return Err(ErrorKind::IsADirectory.into()),
                (true, Ok(_)) => self.release(replaced),
                (false, Err(_)) => {}
            }
            self.node_mut(replaced).place = None;
        }
        self.directory_mut(old_directory).seen.remove(old_name);
        self.directory_mut(new_directory).seen.insert(new_name.to_owned(), node);
        self.node_mut(node).place = Some((new_directory, new_name.to_owned()));
        let to_name = new_name.to_owned();
        let change = if old_directory == new_directory {
            Change::Rename { directory: old_directory, to: to_name, node }
        } else {
            Change::Move { from: old_directory, directory: new_directory, to: to_name, node }
        };
        self.pending.push(Pending { change, text: format!("rename {} to {}", text(from), text(to)) });
        if is_directory && old_directory != new_directory {
            // Not modelled: a directory with two parents, or none.
            self.promise(old_directory);
        }
        Ok(())
    }

    /// The directory and those above it.
    fn lineage(&self, directory: NodeId) -> Vec<NodeId> {
        let above = |node: &NodeId| self.nodes[node].place.as_ref().map(|(directory, _)| *directory);
        std::iter::successors(Some(directory), above).collect()
    }

    /// A directory is about to go: what was moved out of it must not depend on it any longer.
    fn release(&mut self, directory: NodeId) {
        let moved_out =
            |pending: &Pending| matches!(pending.change, Change::Move { from, .. } if from == directory);
        if self.pending.iter().any(moved_out) {
            self.promise(directory);
        }
    }

    pub(super) fn remove_file(&mut self, path: &Path) -> io::Result<()> {
        let (directory, name) = self.parent(path)?;
        let node = self.find(path)?;
        self.file(node)?;
        self.unlink(directory, name, node, text(path));
        Ok(())
    }

    pub(super) fn remove_directory(&mut self, path: &Path) -> io::Result<()> {
        let (directory, name) = self.parent(path)?;
        let node = self.find(path)?;
        if !self.directory(node)?.seen.is_empty() {
            return Err(ErrorKind::DirectoryNotEmpty.into());
        }
        self.release(node);
        self.unlink(directory, name, node, text(path));
        Ok(())
    }

    /// Removes a file by its node, wherever it is by now.
    pub(super) fn remove_node(&mut self, node: NodeId) {
        if let Some(path) = self.path_of(node)
            && let Some((directory, name)) = self.nodes[&node].place.clone()
        {
            self.unlink(directory, &name, node, path);
        }
    }

    fn unlink(&mut self, directory: NodeId, name: &str, node: NodeId, path: String) {
        self.directory_mut(directory).seen.remove(name);
        self.node_mut(node).place = None;
        self.pending
            .push(Pending { change: Change::Remove { directory, node }, text: format!("remove {path}") });
    }

    /// A disk rebuilt from parts: its nodes are numbered below `next`.
    pub(super) fn count_on_from(&mut self, next: NodeId) {
        self.next = next;
    }

    /// Drops what no name and no pending change leads to. No handle of an earlier process may be used afterwards.
    pub(super) fn forget_unnamed(&mut self) {
        let mut waiting = vec![ROOT];
        for pending in &self.pending {
            waiting.extend([pending.change.node(), pending.change.directory()]);
            if let Change::Move { from, .. } = pending.change {
                waiting.push(from);
            }
        }
        let mut named = BTreeSet::new();
        while let Some(node) = waiting.pop() {
            if named.insert(node)
                && let Ok(directory) = self.directory(node)
            {
                waiting.extend(directory.seen.values().chain(directory.promised.values()));
            }
        }
        self.nodes.retain(|node, _| named.contains(node));
    }
}
