//! What a loss of power leaves of a [`Disk`].

use std::collections::BTreeMap;

use super::disk::{Body, Change, Directory, Disk, File, Node, NodeId, ROOT};
use crate::base::rng::Rng;

/// What becomes of everything that no sync has made durable.
#[derive(Debug)]
pub(super) enum Fate {
    /// All of it is lost.
    Lost,
    /// Each change and each file has its own fate.
    Drawn {
        rng: Rng,
        /// Of 8 changes of names so many are kept, on average.
        names_kept: u64,
        /// Of 8 files so many keep all of their bytes, on average.
        bytes_kept: u64,
    },
}

impl Fate {
    /// Some losses take everything, some almost nothing: what is drawn for each change alone hardly ever does either.
    pub(super) fn drawn(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let share = |rng: &mut Rng| [0, 1, 4, 7, 8][rng.below(5) as usize];
        let (names_kept, bytes_kept) = (share(&mut rng), share(&mut rng));
        Self::Drawn { rng, names_kept, bytes_kept }
    }

    fn keeps_name(&mut self) -> bool {
        match self {
            Self::Lost => false,
            Self::Drawn { rng, names_kept, .. } => rng.below(8) < *names_kept,
        }
    }

    /// If a file that was moved and has its new name has lost its old one.
    fn loses_old_name(&mut self) -> bool {
        match self {
            Self::Lost => false,
            Self::Drawn { rng, .. } => rng.one_in(2),
        }
    }

    fn bytes_of(&mut self, file: &File) -> Vec<u8> {
        let mut bytes = file.bytes.clone();
        match self {
            Self::Lost => {
                bytes.truncate(file.promised);
                for range in &file.doubtful {
                    fill(&mut bytes, range.clone(), || 0);
                }
            }
            Self::Drawn { rng, bytes_kept, .. } => {
                if rng.below(8) < *bytes_kept {
                    return bytes;
                }
                let whole = bytes.len();
                let length = between(rng, file.promised, whole);
                match rng.below(3) {
                    // Nothing of it had reached the disk.
                    0 => bytes.truncate(file.promised),
                    // It had come so far.
                    1 => bytes.truncate(length),
                    // The length had come so far, but a part of the bytes had not: mostly the end.
                    _ => {
                        bytes.truncate(length);
                        let from = between(rng, file.promised, length);
                        let to = if rng.one_in(4) { between(rng, from, length) } else { length };
                        tear(&mut bytes, from..to, rng);
                    }
                }
                for range in &file.doubtful {
                    if rng.one_in(2) {
                        tear(&mut bytes, range.clone(), rng);
                    }
                }
            }
        }
        bytes
    }
}

fn between(rng: &mut Rng, low: usize, high: usize) -> usize {
    low + rng.below((high - low) as u64 + 1) as usize
}

/// Overwrites what there is of the range.
fn fill(bytes: &mut [u8], range: std::ops::Range<usize>, mut with: impl FnMut() -> u8) {
    let end = range.end.min(bytes.len());
    let start = range.start.min(end);
    bytes[start..end].iter_mut().for_each(|byte| *byte = with());
}

fn tear(bytes: &mut [u8], range: std::ops::Range<usize>, rng: &mut Rng) {
    if rng.one_in(2) {
        fill(bytes, range, || 0);
    } else {
        fill(bytes, range, || rng.next_u64() as u8);
    }
}

/// The disk as the next process finds it, all of it promised, and a line for everything that had not been.
pub(super) fn power_loss(disk: &Disk, mut fate: Fate) -> (Disk, Vec<String>) {
    let mut report = Vec::new();
    let mut image = disk.clone();
    for pending in std::mem::take(&mut image.pending) {
        let outcome = if fate.keeps_name() { apply(&mut image, &pending.change, &mut fate) } else { "lost" };
        report.push(format!("{outcome}: {}", pending.text));
    }
    (rebuild(disk, &image, &mut fate, &mut report), report)
}

/// Makes the change in the promised names.
///
/// What another lost change should have made room for is lost as well: a name is taken only from what the program itself has removed
/// or replaced.
fn apply(image: &mut Disk, change: &Change, fate: &mut Fate) -> &'static str {
    let is_free = |image: &Disk, directory: NodeId, name: &str, node: NodeId| {
        let bearer = image.directory(directory).ok().and_then(|directory| directory.promised.get(name));
        bearer.is_none_or(|bearer| *bearer == node || !image.is_linked(*bearer))
    };
    match change {
        Change::Create { directory, name, node } => {
            if !is_free(image, *directory, name, *node) {
                return "lost with what it depends on";
            }
            image.directory_mut(*directory).promised.insert(name.clone(), *node);
        }
        Change::Remove { directory, node } => {
            image.directory_mut(*directory).promised.retain(|_, other| other != node);
        }
        Change::Rename { directory, to, node } => {
            if !is_free(image, *directory, to, *node) {
                return "lost with what it depends on";
            }
            let names = &mut image.directory_mut(*directory).promised;
            names.retain(|_, other| other != node);
            names.insert(to.clone(), *node);
        }
        Change::Move { from, directory, to, node } => {
            if !is_free(image, *directory, to, *node) {
                return "lost with what it depends on";
            }
            image.directory_mut(*directory).promised.insert(to.clone(), *node);
            // A file whose new directory is lost would be nowhere.
            if !image.promised_directories().contains(directory) || !fate.loses_old_name() {
                return "kept beside the old name";
            }
            image.directory_mut(*from).promised.retain(|_, other| other != node);
        }
    }
    "kept"
}

/// A disk of what the promised names of the image lead to.
fn rebuild(before: &Disk, image: &Disk, fate: &mut Fate, report: &mut Vec<String>) -> Disk {
    let mut disk = Disk::default();
    let mut contents: BTreeMap<NodeId, Vec<u8>> = BTreeMap::new();
    let mut waiting = vec![(ROOT, ROOT)];
    let mut next = ROOT + 1;
    while let Some((old, new)) = waiting.pop() {
        let names = image.directory(old).expect("only directories wait").promised.clone();
        for (name, child) in &names {
            let body = match &image.nodes[child].body {
                Body::Directory(_) => {
                    waiting.push((*child, next));
                    Body::Directory(Directory::default())
                }
                Body::File(file) => {
                    let bytes = contents.entry(*child).or_insert_with(|| {
                        let bytes = fate.bytes_of(file);
                        if bytes != file.bytes {
                            let path = before.path_of(*child).unwrap_or_else(|| format!("(removed) {name}"));
                            let same = bytes.iter().zip(&file.bytes).take_while(|(a, b)| a == b).count();
                            let (length, whole) = (bytes.len(), file.bytes.len());
                            report.push(format!(
                                "{path}: {length} of {whole} bytes, the first {same} unchanged"
                            ));
                        }
                        bytes
                    });
                    let (bytes, is_lock) = (bytes.clone(), file.is_lock);
                    Body::File(File { promised: bytes.len(), bytes, doubtful: Vec::new(), is_lock })
                }
            };
            disk.nodes.insert(next, Node { place: Some((new, name.clone())), body });
            let directory = disk.directory_mut(new);
            directory.seen.insert(name.clone(), next);
            directory.promised.insert(name.clone(), next);
            next += 1;
        }
    }
    disk.count_on_from(next);
    disk
}
