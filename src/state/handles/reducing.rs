//! One value for each key, made of all that was added.

use crate::codec::{Key, Value};
use crate::state::current::{CurrentKey, Namespace};
use crate::state::heap::HeapTable;

/// All that was added for the current key, merged into one value.
pub struct ReducingState<'a, K, N, V, F> {
    table: &'a mut HeapTable<K, N, V>,
    current: CurrentKey<'a, K, N>,
    reduce: &'a F,
}

impl<'a, K: Key, N: Namespace, V: Value, F: Fn(&mut V, V)> ReducingState<'a, K, N, V, F> {
    #[inline]
    pub(in crate::state) fn new(
        table: &'a mut HeapTable<K, N, V>,
        current: CurrentKey<'a, K, N>,
        reduce: &'a F,
    ) -> Self {
        Self { table, current, reduce }
    }

    /// A clone of the merged value; none if nothing was added.
    #[inline]
    #[must_use]
    pub fn get(&self) -> Option<V> {
        self.table.get(&self.current).cloned()
    }

    /// Merges a value into what is there, with a single look-up.
    #[inline]
    pub fn add(&mut self, value: V) {
        self.table.merge(&self.current, value, self.reduce);
    }

    /// Forgets all that was added.
    #[inline]
    pub fn clear(&mut self) {
        self.table.remove(&self.current);
    }
}

impl<K, N, V, F> std::fmt::Debug for ReducingState<'_, K, N, V, F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReducingState").finish_non_exhaustive()
    }
}
