//! One value for each key.

use crate::codec::{Key, Value};
use crate::state::current::{CurrentKey, Namespace};
use crate::state::heap::HeapTable;

/// The value of the current key, if it has one.
#[derive(Debug)]
pub struct ValueState<'a, K, N, V> {
    table: &'a mut HeapTable<K, N, V>,
    current: CurrentKey<'a, K, N>,
}

impl<'a, K: Key, N: Namespace, V: Value> ValueState<'a, K, N, V> {
    #[inline]
    pub(in crate::state) fn new(table: &'a mut HeapTable<K, N, V>, current: CurrentKey<'a, K, N>) -> Self {
        Self { table, current }
    }

    /// A clone of the value.
    #[inline]
    #[must_use]
    pub fn value(&self) -> Option<V> {
        self.get().cloned()
    }

    /// The value where it lies.
    #[inline]
    #[must_use]
    pub fn get(&self) -> Option<&V> {
        self.table.get(&self.current)
    }

    /// Sets the value.
    #[inline]
    pub fn update(&mut self, value: V) {
        self.table.set(&self.current, value);
    }

    /// Changes the value in place with a single look-up; starts from `default` if there is none.
    #[inline]
    pub fn modify<R>(&mut self, default: impl FnOnce() -> V, change: impl FnOnce(&mut V) -> R) -> R {
        self.table.modify(&self.current, default, change)
    }

    /// Removes the value.
    #[inline]
    pub fn clear(&mut self) {
        self.table.remove(&self.current);
    }
}
