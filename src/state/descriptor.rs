//! States are declared before the job runs.

use std::fmt;
use std::marker::PhantomData;

use super::current::{CurrentKey, Namespace};
use super::error::StateError;
use super::handles::{ReducingState, ValueState};
use super::heap::HeapTable;
use crate::base::key_group::{KeyGroup, KeyGroupRange, KeyGroups};
use crate::codec::{Key, PostcardSerializer, Serializer, Value};
use crate::snapshot::{FrozenState, StateDeclaration, StateKind};

/// Declares one keyed state of an operator.
pub trait StateDescriptor: Clone + Send + 'static {
    /// Holds the state of all keys of one subtask; owned by the engine.
    type Table<K: Key, N: Namespace>: KeyedStateTable<K, N>;
    /// The state of the current key; given to the user's function.
    type Handle<'a, K: Key, N: Namespace>
    where
        Self: 'a;

    /// Name, kind and format of the state.
    fn declaration(&self) -> StateDeclaration;

    /// An empty table for the key groups in `range`.
    fn create_table<K: Key, N: Namespace>(
        &self,
        groups: KeyGroups,
        range: KeyGroupRange,
    ) -> Self::Table<K, N>;

    /// The state of `current`.
    fn bind<'a, K: Key, N: Namespace>(
        &'a self,
        table: &'a mut Self::Table<K, N>,
        current: &'a CurrentKey<'a, K, N>,
    ) -> Self::Handle<'a, K, N>;
}

/// What the engine does with a table, whatever the kind of its state.
pub trait KeyedStateTable<K: Key, N: Namespace>: Send + 'static {
    /// What the state is.
    fn declaration(&self) -> &StateDeclaration;

    /// Number of entries.
    fn entries(&self) -> usize;

    /// Brings what will be needed for the keys with these hashes, in the void namespace, nearer to the processor.
    /// Changes nothing; worth calling for a batch of records before the first of them is processed.
    fn prepare(&self, hashes: impl Iterator<Item = u64>);

    /// The table as it is now.
    fn fork_state(&mut self) -> Box<dyn FrozenState>;

    /// Adds the entries of one key group, as [`FrozenState::encode_group`] wrote them.
    ///
    /// # Errors
    /// If they are not the entries of this group, or the table does not own the group.
    fn restore(&mut self, group: KeyGroup, contents: &[u8]) -> Result<(), StateError>;
}

fn postcard_declaration<V: Value>(name: &str, kind: StateKind) -> StateDeclaration {
    let serializer = PostcardSerializer::<V>::new();
    StateDeclaration {
        name: name.to_owned(),
        kind,
        serializer: serializer.id().to_owned(),
        serializer_version: serializer.version(),
    }
}

/// Declares one value for each key.
pub struct ValueStateDescriptor<V> {
    name: String,
    value: PhantomData<fn() -> V>,
}

impl<V: Value> ValueStateDescriptor<V> {
    /// State with this name, which must be unique within the operator and is how the state is found again.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), value: PhantomData }
    }
}

impl<V> Clone for ValueStateDescriptor<V> {
    fn clone(&self) -> Self {
        Self { name: self.name.clone(), value: PhantomData }
    }
}

impl<V> fmt::Debug for ValueStateDescriptor<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ValueStateDescriptor").field("name", &self.name).finish_non_exhaustive()
    }
}

impl<V: Value> StateDescriptor for ValueStateDescriptor<V> {
    type Table<K: Key, N: Namespace> = HeapTable<K, N, V>;
    type Handle<'a, K: Key, N: Namespace> = ValueState<'a, K, N, V>;

    fn declaration(&self) -> StateDeclaration {
        postcard_declaration::<V>(&self.name, StateKind::Value)
    }

    fn create_table<K: Key, N: Namespace>(
        &self,
        groups: KeyGroups,
        range: KeyGroupRange,
    ) -> HeapTable<K, N, V> {
        HeapTable::new(self.declaration(), groups, range)
    }

    #[inline]
    fn bind<'a, K: Key, N: Namespace>(
        &'a self,
        table: &'a mut HeapTable<K, N, V>,
        current: &'a CurrentKey<'a, K, N>,
    ) -> ValueState<'a, K, N, V> {
        ValueState::new(table, *current)
    }
}

/// Declares one value for each key, into which every added value is merged.
pub struct ReducingStateDescriptor<V, F> {
    name: String,
    reduce: F,
    value: PhantomData<fn() -> V>,
}

impl<V: Value, F: Fn(&mut V, V) + Clone + Send + Sync + 'static> ReducingStateDescriptor<V, F> {
    /// State with this name, which must be unique within the operator and is how the state is found again.
    ///
    /// `reduce` merges an added value into the one that is there; the first value is kept as it is. It is called on the
    /// thread that processes records and must not block.
    pub fn new(name: impl Into<String>, reduce: F) -> Self {
        Self { name: name.into(), reduce, value: PhantomData }
    }
}

impl<V, F: Clone> Clone for ReducingStateDescriptor<V, F> {
    fn clone(&self) -> Self {
        Self { name: self.name.clone(), reduce: self.reduce.clone(), value: PhantomData }
    }
}

impl<V, F> fmt::Debug for ReducingStateDescriptor<V, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReducingStateDescriptor").field("name", &self.name).finish_non_exhaustive()
    }
}

impl<V: Value, F: Fn(&mut V, V) + Clone + Send + Sync + 'static> StateDescriptor
    for ReducingStateDescriptor<V, F>
{
    type Table<K: Key, N: Namespace> = HeapTable<K, N, V>;
    type Handle<'a, K: Key, N: Namespace> = ReducingState<'a, K, N, V, F>;

    fn declaration(&self) -> StateDeclaration {
        postcard_declaration::<V>(&self.name, StateKind::Reducing)
    }

    fn create_table<K: Key, N: Namespace>(
        &self,
        groups: KeyGroups,
        range: KeyGroupRange,
    ) -> HeapTable<K, N, V> {
        HeapTable::new(self.declaration(), groups, range)
    }

    #[inline]
    fn bind<'a, K: Key, N: Namespace>(
        &'a self,
        table: &'a mut HeapTable<K, N, V>,
        current: &'a CurrentKey<'a, K, N>,
    ) -> ReducingState<'a, K, N, V, F> {
        ReducingState::new(table, *current, &self.reduce)
    }
}
