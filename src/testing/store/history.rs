//! What readers of finished files have seen.

use std::collections::BTreeMap;

/// Something that happened to a file after it had first been seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum VisibleChange {
    /// The program removed it or gave it another name.
    Removed,
    /// The program wrote to it, or put a file with other bytes in its place.
    Rewritten,
    /// A loss of power took its name back: it had not been made durable.
    TakenBack,
    /// A loss of power damaged its bytes: they had not been made durable.
    Damaged,
    /// It was gone, and came back with other bytes than at first.
    ReturnedDifferent,
}

/// A file whose name does not begin with a dot, as readers have seen it over all lives.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct VisibleFile {
    /// Its path.
    pub path: String,
    /// Its bytes when it was first seen.
    pub contents: Vec<u8>,
    /// False if it is gone at this moment.
    pub is_there: bool,
    /// What happened to it, with the number of the store operation; empty for a file as it should be.
    pub changes: Vec<(u64, VisibleChange)>,
}

impl VisibleFile {
    /// What is wrong with a file that should be published once and stay as it is.
    ///
    /// That a loss of power takes it back is not wrong by itself, since no file system can publish a file and make that durable in
    /// one step; but the file must then come back as it was. It may still do so as long as the program has not finished.
    #[must_use]
    pub fn violation(&self) -> Option<String> {
        let broken = self.changes.iter().find(|(_, change)| *change != VisibleChange::TakenBack);
        broken.map(|(operation, change)| format!("{}: {change:?} at operation {operation}", self.path))
    }
}

/// All files ever seen under a name that does not begin with a dot.
#[derive(Debug, Clone, Default)]
pub(super) struct History {
    files: BTreeMap<String, VisibleFile>,
}

fn is_hidden(path: &str) -> bool {
    path.split('/').any(|name| name.starts_with('.'))
}

impl History {
    /// The files below a directory, without those in hidden directories below it. An empty path stands for the root.
    pub(super) fn below(&self, directory: &str) -> Vec<VisibleFile> {
        let inside = |path: &str| {
            let rest = path.strip_prefix(directory)?.strip_prefix('/')?;
            (!is_hidden(rest)).then_some(())
        };
        self.files.values().filter(|file| inside(&file.path).is_some()).cloned().collect()
    }

    /// A file has got this name; it may have taken the place of another one.
    pub(super) fn appeared(&mut self, path: &str, bytes: &[u8], operation: u64) {
        if path.rsplit('/').next().is_some_and(|name| name.starts_with('.')) {
            return;
        }
        let Some(file) = self.files.get_mut(path) else {
            let file = VisibleFile {
                path: path.to_owned(),
                contents: bytes.to_vec(),
                is_there: true,
                changes: Vec::new(),
            };
            self.files.insert(path.to_owned(), file);
            return;
        };
        if file.contents != bytes {
            let change =
                if file.is_there { VisibleChange::Rewritten } else { VisibleChange::ReturnedDifferent };
            file.changes.push((operation, change));
        }
        file.is_there = true;
    }

    /// Something happened to a file; nothing is noted if it was never seen.
    pub(super) fn changed(&mut self, path: &str, change: VisibleChange, operation: u64) {
        if let Some(file) = self.files.get_mut(path) {
            file.changes.push((operation, change));
            file.is_there = !matches!(change, VisibleChange::Removed | VisibleChange::TakenBack);
        }
    }

    /// Power was lost: what was seen before, and what is there after it.
    pub(super) fn power_lost(
        &mut self,
        before: &BTreeMap<String, Vec<u8>>,
        after: &BTreeMap<String, Vec<u8>>,
        operation: u64,
    ) {
        for (path, bytes) in before {
            match after.get(path) {
                None => self.changed(path, VisibleChange::TakenBack, operation),
                Some(left) if left != bytes => self.changed(path, VisibleChange::Damaged, operation),
                Some(_) => {}
            }
        }
        for (path, bytes) in after.iter().filter(|(path, _)| !before.contains_key(*path)) {
            self.appeared(path, bytes, operation);
        }
    }
}
