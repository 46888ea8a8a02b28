//! The live table.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use super::fork::FrozenTable;
use super::tree::{self, Place, SEGMENT_ENTRIES_MAX, Tree};
use crate::base::key_group::{KeyGroup, KeyGroupRange, KeyGroups};
use crate::codec::frame::Reader;
use crate::codec::{CodecError, Key, PostcardSerializer, Serializer, Value};
use crate::snapshot::{FrozenState, StateDeclaration};
use crate::state::current::{CurrentKey, Namespace};
use crate::state::descriptor::KeyedStateTable;
use crate::state::error::StateError;

/// Tables with fewer bytes of entries than this are taken to lie in the processor's cache already.
const PREPARE_MIN_BYTES: usize = 1 << 20;
/// Keys that are looked ahead at once.
const PREPARE_AHEAD: usize = 32;

/// One state of all keys of one subtask. Owned by the thread that processes records; [`fork`](Self::fork) lets others read.
#[derive(Debug)]
pub struct HeapTable<K, N, V> {
    tree: Tree<Entry<K, N, V>>,
    groups: KeyGroups,
    range: KeyGroupRange,
    declaration: Arc<StateDeclaration>,
    entries: usize,
    segment_copies: u64,
}

/// Numbers about a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableStatistics {
    /// Entries in the table.
    pub entries: usize,
    /// Segments copied since the last fork, because a fork still held them when they were written to.
    pub segments_copied: u64,
}

#[derive(Debug, Clone)]
pub(super) struct Entry<K, N, V> {
    pub(super) key: K,
    pub(super) namespace: N,
    pub(super) value: V,
}

impl<K: Key, N: Namespace, V: Value> tree::Entry for Entry<K, N, V> {
    #[inline]
    fn slot_hash(&self) -> u64 {
        self.namespace.mix(self.key.stable_hash())
    }
}

impl<K: Key, N: Namespace, V: Value> Entry<K, N, V> {
    #[inline]
    fn new(current: &CurrentKey<'_, K, N>, value: V) -> Self {
        Self { key: current.key().clone(), namespace: current.namespace().clone(), value }
    }

    #[inline]
    fn is(&self, current: &CurrentKey<'_, K, N>) -> bool {
        self.key == *current.key() && self.namespace == *current.namespace()
    }
}

/// The node behind the pointer, for writing: copied first if a fork holds it too. Adds to `copies` if it was copied.
///
/// This is [`Arc::make_mut`] without its two atomic read-modify-writes for each level, which guard against weak pointers.
#[inline]
#[expect(unsafe_code, reason = "measured; see the module above")]
pub(super) fn exclusive<'a, T: Clone>(node: &'a mut Arc<T>, copies: &mut u64) -> &'a mut T {
    // The thread sanitizer does not know fences: there, the standard library asks the same question with an acquiring load.
    #[cfg(tsan)]
    let is_exclusive = Arc::get_mut(node).is_some();
    #[cfg(not(tsan))]
    let is_exclusive = Arc::strong_count(node) == 1;
    if !is_exclusive {
        copy(node, copies);
    }
    // Pairs with the release in the drop of a fork's `Arc`: what its thread read, it read before we write.
    fence(Ordering::Acquire);
    // SAFETY: `node` is the only pointer to its target, so no other reference to it exists while the `&mut` to `node` lasts:
    // the count was 1 above, or the target is a fresh copy; a strong pointer can only come from another strong pointer, and
    // this one is borrowed exclusively; weak pointers to nodes are never made.
    unsafe { &mut *Arc::as_ptr(node).cast_mut() }
}

/// Asks the processor to load the first cache line of a value; without effect on the program.
#[inline]
#[cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "measured; see the module above"))]
fn prefetch<T>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads nothing, and the address is that of a reference; SSE is part of x86-64.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(
            std::ptr::from_ref(value).cast(),
        );
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}

#[cold]
fn copy<T: Clone>(node: &mut Arc<T>, copies: &mut u64) {
    *copies += 1;
    *node = Arc::new(T::clone(node));
}

impl<K: Key, N: Namespace, V: Value> HeapTable<K, N, V> {
    /// An empty table for the key groups in `range`.
    #[must_use]
    pub fn new(declaration: StateDeclaration, groups: KeyGroups, range: KeyGroupRange) -> Self {
        assert!(range.end <= groups.max_parallelism(), "the range ends within the key groups");
        Self {
            tree: Tree::new(range.len()),
            groups,
            range,
            declaration: Arc::new(declaration),
            entries: 0,
            segment_copies: 0,
        }
    }

    /// The value of the current key.
    #[inline]
    #[must_use]
    pub fn get(&self, current: &CurrentKey<'_, K, N>) -> Option<&V> {
        let place = self.place(current);
        let entry = self.tree.segment(place)?.find(place.hash, |entry| entry.is(current))?;
        Some(&entry.value)
    }

    /// Changes the value of the current key in place; starts from `default` if there is none.
    #[inline]
    pub fn modify<R>(
        &mut self,
        current: &CurrentKey<'_, K, N>,
        default: impl FnOnce() -> V,
        change: impl FnOnce(&mut V) -> R,
    ) -> R {
        let place = self.place(current);
        let segment = self.tree.segment_mut(place, &mut self.segment_copies);
        if let Some(entry) = segment.find_mut(place.hash, |entry| entry.is(current)) {
            return change(&mut entry.value);
        }
        let mut value = default();
        let result = change(&mut value);
        self.insert(place, Entry::new(current, value));
        result
    }

    /// Sets the value of the current key.
    #[inline]
    pub fn set(&mut self, current: &CurrentKey<'_, K, N>, value: V) {
        self.merge(current, value, |old, new| *old = new);
    }

    /// Merges the value into that of the current key.
    #[inline]
    pub fn merge(&mut self, current: &CurrentKey<'_, K, N>, value: V, merge: impl FnOnce(&mut V, V)) {
        let place = self.place(current);
        let segment = self.tree.segment_mut(place, &mut self.segment_copies);
        match segment.find_mut(place.hash, |entry| entry.is(current)) {
            Some(entry) => merge(&mut entry.value, value),
            None => self.insert(place, Entry::new(current, value)),
        }
    }

    /// Removes the value of the current key and answers it. Copies nothing if there is none.
    pub fn remove(&mut self, current: &CurrentKey<'_, K, N>) -> Option<V> {
        self.get(current)?;
        let place = self.place(current);
        let segment = self.tree.segment_mut(place, &mut self.segment_copies);
        let entry = segment.find_entry(place.hash, |entry| entry.is(current)).ok()?;
        let (removed, _) = entry.remove();
        if segment.is_empty() {
            // An emptied segment keeps its place in the tree but not its memory.
            segment.shrink_to(0, tree::Entry::slot_hash);
        }
        self.entries -= 1;
        Some(removed.value)
    }

    /// The table as it is now. Costs one reference count, whatever the size of the table; afterwards the first write to a
    /// segment copies that segment, as long as the fork is alive.
    #[must_use]
    pub fn fork(&mut self) -> FrozenTable<K, N, V> {
        self.segment_copies = 0;
        FrozenTable::new(self.tree.clone(), self.range, Arc::clone(&self.declaration))
    }

    /// Numbers about the table.
    #[must_use]
    pub fn statistics(&self) -> TableStatistics {
        TableStatistics { entries: self.entries, segments_copied: self.segment_copies }
    }

    #[inline]
    fn place(&self, current: &CurrentKey<'_, K, N>) -> Place {
        Place { group: self.own_group(current.group()), hash: current.slot_hash() }
    }

    /// The group's number, counted from the subtask's first.
    #[inline]
    fn own_group(&self, group: KeyGroup) -> usize {
        assert!(self.range.contains(group), "a record reached a subtask that does not own its key group");
        (u32::from(group.0) - self.range.start) as usize
    }

    /// Inserts an entry that is not there yet.
    fn insert(&mut self, place: Place, entry: Entry<K, N, V>) {
        let copies = &mut self.segment_copies;
        while self.tree.segment_mut(place, copies).len() >= SEGMENT_ENTRIES_MAX
            && self.tree.split(place, copies)
        {}
        let segment = self.tree.segment_mut(place, copies);
        segment.insert_unique(place.hash, entry, tree::Entry::slot_hash);
        self.entries += 1;
    }
}

impl<K: Key, N: Namespace, V: Value> KeyedStateTable<K, N> for HeapTable<K, N, V> {
    fn declaration(&self) -> &StateDeclaration {
        &self.declaration
    }

    fn entries(&self) -> usize {
        self.entries
    }

    #[inline]
    fn prepare(&self, hashes: impl Iterator<Item = u64>) {
        if self.entries * size_of::<Entry<K, N, V>>() < PREPARE_MIN_BYTES {
            return;
        }
        let mut hashes = hashes.peekable();
        while hashes.peek().is_some() {
            // Two passes over a few keys: the headers of the segments are on their way when the second reads them.
            let mut segments = [const { None }; PREPARE_AHEAD];
            for (segment, hash) in segments.iter_mut().zip(hashes.by_ref()) {
                let place = Place { group: self.own_group(self.groups.group(hash)), hash };
                *segment =
                    self.tree.segment(place).inspect(|segment| prefetch(*segment)).map(|found| (found, hash));
            }
            for (segment, hash) in segments.into_iter().flatten() {
                // The first entry with the tag of the key is nearly always the key's own.
                let _found = segment.find(hash, |entry| {
                    prefetch(entry);
                    true
                });
            }
        }
    }

    fn fork_state(&mut self) -> Box<dyn FrozenState> {
        Box::new(self.fork())
    }

    fn restore(&mut self, group: KeyGroup, contents: &[u8]) -> Result<(), StateError> {
        let declaration = Arc::clone(&self.declaration);
        let state = || declaration.name.clone();
        if !self.range.contains(group) {
            return Err(StateError::ForeignGroup { state: state(), group });
        }
        let mut reader = Reader::new(contents);
        let count = reader.array().map_err(|source| StateError::Count { state: state(), group, source })?;
        let mut input = reader.rest();
        for _ in 0..u64::from_le_bytes(count) {
            let (key, namespace, value): (K, N, V) = decode_entry(&mut input)
                .map_err(|source| StateError::Entries { state: state(), group, source })?;
            let current = CurrentKey::new(&key, &namespace, key.stable_hash(), &self.groups);
            if current.group() != group {
                return Err(StateError::KeyMoved { state: state(), group, belongs: current.group() });
            }
            if self.get(&current).is_some() {
                return Err(StateError::Duplicate { state: state(), group });
            }
            let place = self.place(&current);
            self.insert(place, Entry { key, namespace, value });
        }
        if input.is_empty() {
            return Ok(());
        }
        let source = CodecError::Trailing { bytes: input.len() };
        Err(StateError::Entries { state: state(), group, source })
    }
}

pub(super) fn encode_entry<K: Key, N: Namespace, V: Value>(
    entry: &Entry<K, N, V>,
    out: &mut Vec<u8>,
) -> Result<(), CodecError> {
    PostcardSerializer::new().serialize(&entry.key, out)?;
    PostcardSerializer::new().serialize(&entry.namespace, out)?;
    PostcardSerializer::new().serialize(&entry.value, out)
}

fn decode_entry<K: Key, N: Namespace, V: Value>(input: &mut &[u8]) -> Result<(K, N, V), CodecError> {
    let key = PostcardSerializer::new().deserialize(input)?;
    let namespace = PostcardSerializer::new().deserialize(input)?;
    let value = PostcardSerializer::new().deserialize(input)?;
    Ok((key, namespace, value))
}
