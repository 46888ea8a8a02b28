//! A table as it was at the moment of a fork.

use std::sync::Arc;

use super::table::{Entry, encode_entry};
use super::tree::{Slot, Tree};
use crate::base::key_group::{KeyGroup, KeyGroupRange};
use crate::codec::{CodecError, Key, Value};
use crate::snapshot::{FrozenState, StateDeclaration};
use crate::state::current::Namespace;

/// All entries that a table had when it was forked. Readable from any thread while the table goes on.
#[derive(Debug, Clone)]
pub struct FrozenTable<K, N, V> {
    tree: Tree<Entry<K, N, V>>,
    range: KeyGroupRange,
    declaration: Arc<StateDeclaration>,
}

impl<K: Key, N: Namespace, V: Value> FrozenTable<K, N, V> {
    pub(super) fn new(
        tree: Tree<Entry<K, N, V>>,
        range: KeyGroupRange,
        declaration: Arc<StateDeclaration>,
    ) -> Self {
        Self { tree, range, declaration }
    }

    /// All entries, group by group; clones, made a segment at a time as the iterator advances.
    #[must_use]
    pub fn entries(self) -> FrozenEntries<K, N, V> {
        FrozenEntries {
            tree: self.tree,
            groups: 0..self.range.len(),
            nodes: Vec::new(),
            segment: Vec::new().into_iter(),
        }
    }

    pub(super) fn group(&self, group: KeyGroup) -> &Slot<Entry<K, N, V>> {
        assert!(self.range.contains(group), "only a group that the subtask owned can be read");
        self.tree.group((u32::from(group.0) - self.range.start) as usize)
    }
}

impl<K: Key, N: Namespace, V: Value> FrozenState for FrozenTable<K, N, V> {
    fn key_form(&self) -> String {
        K::canonical_form()
    }

    fn declaration(&self) -> &StateDeclaration {
        &self.declaration
    }

    fn key_groups(&self) -> KeyGroupRange {
        self.range
    }

    fn encode_group(&self, group: KeyGroup, out: &mut Vec<u8>) -> Result<u64, CodecError> {
        let group = self.group(group);
        let count = group.entries() as u64;
        if count > 0 {
            out.extend_from_slice(&count.to_le_bytes());
            group.try_for_each_segment(&mut |segment| {
                segment.iter().try_for_each(|entry| encode_entry(entry, out))
            })?;
        }
        Ok(count)
    }
}

/// A node, and how many of its children were begun.
type Begun<K, N, V> = (Slot<Entry<K, N, V>>, usize);

/// Yields the entries of a [`FrozenTable`]. Can be kept as long as need be: it owns its share of the table.
#[derive(Debug)]
pub struct FrozenEntries<K, N, V> {
    tree: Tree<Entry<K, N, V>>,
    /// The groups that were not begun yet.
    groups: std::ops::Range<usize>,
    /// The nodes that were begun, outermost first.
    nodes: Vec<Begun<K, N, V>>,
    /// What is left of the current segment.
    segment: std::vec::IntoIter<(K, N, V)>,
}

impl<K: Key, N: Namespace, V: Value> FrozenEntries<K, N, V> {
    /// Moves on by one node or segment. False if there is none.
    fn advance(&mut self) -> bool {
        let slot = match self.nodes.last_mut() {
            Some((node, begun)) => {
                let Some(child) = node.children().get(*begun) else {
                    self.nodes.pop();
                    return true;
                };
                *begun += 1;
                child.clone()
            }
            None => match self.groups.next() {
                Some(group) => self.tree.group(group).clone(),
                None => return false,
            },
        };
        if let Slot::Segment(segment) = slot {
            let entries = segment.iter().cloned().map(|entry| (entry.key, entry.namespace, entry.value));
            self.segment = entries.collect::<Vec<_>>().into_iter();
        } else if !slot.children().is_empty() {
            self.nodes.push((slot, 0));
        }
        true
    }
}

impl<K: Key, N: Namespace, V: Value> Iterator for FrozenEntries<K, N, V> {
    type Item = (K, N, V);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(entry) = self.segment.next() {
                return Some(entry);
            }
            if !self.advance() {
                return None;
            }
        }
    }
}
