//! One descriptor alone is a set too, so that an operator with one state needs no tuple.

use super::current::{CurrentKey, Namespace};
use super::descriptor::{KeyedStateTable, StateDescriptor};
use super::error::StateError;
use super::set::StateSet;
use crate::base::key_group::{KeyGroup, KeyGroupRange, KeyGroups};
use crate::codec::Key;
use crate::snapshot::{FrozenState, StateDeclaration};

impl<D: StateDescriptor> StateSet for D {
    type Tables<K: Key, N: Namespace> = D::Table<K, N>;
    type Handles<'a, K: Key, N: Namespace>
        = D::Handle<'a, K, N>
    where
        Self: 'a;

    fn declarations(&self) -> Vec<StateDeclaration> {
        vec![self.declaration()]
    }

    fn create<K: Key, N: Namespace>(&self, groups: KeyGroups, range: KeyGroupRange) -> D::Table<K, N> {
        self.create_table(groups, range)
    }

    #[inline]
    fn bind<'a, K: Key, N: Namespace>(
        &'a self,
        table: &'a mut D::Table<K, N>,
        current: &'a CurrentKey<'a, K, N>,
    ) -> D::Handle<'a, K, N> {
        StateDescriptor::bind(self, table, current)
    }

    #[inline]
    fn prepare<K: Key, N: Namespace>(
        &self,
        table: &D::Table<K, N>,
        hashes: impl Iterator<Item = u64> + Clone,
    ) {
        table.prepare(hashes);
    }

    fn fork_all<K: Key, N: Namespace>(
        &self,
        table: &mut D::Table<K, N>,
    ) -> Vec<(StateDeclaration, Box<dyn FrozenState>)> {
        vec![(table.declaration().clone(), table.fork_state())]
    }

    fn restore<K: Key, N: Namespace>(
        &self,
        table: &mut D::Table<K, N>,
        name: &str,
        group: KeyGroup,
        contents: &[u8],
    ) -> Result<bool, StateError> {
        if table.declaration().name != name {
            return Ok(false);
        }
        table.restore(group, contents).map(|()| true)
    }
}
