//! All keyed states of one operator together: a tuple of descriptors.

use super::current::{CurrentKey, Namespace};
use super::descriptor::{KeyedStateTable, StateDescriptor};
use super::error::StateError;
use crate::base::key_group::{KeyGroup, KeyGroupRange, KeyGroups};
use crate::codec::Key;
use crate::snapshot::{FrozenState, KeyedStateSnapshot, StateDeclaration, StateFiles, read_state};

/// The keyed states of an operator: `()` or a tuple of up to four descriptors. The handles come in the same order.
pub trait StateSet: Clone + Send + 'static {
    /// One table for each state.
    type Tables<K: Key, N: Namespace>: Send + 'static;
    /// One handle for each state.
    type Handles<'a, K: Key, N: Namespace>
    where
        Self: 'a;

    /// What the states are, in order.
    fn declarations(&self) -> Vec<StateDeclaration>;

    /// Empty tables for the key groups in `range`.
    fn create<K: Key, N: Namespace>(&self, groups: KeyGroups, range: KeyGroupRange) -> Self::Tables<K, N>;

    /// The states of `current`.
    fn bind<'a, K: Key, N: Namespace>(
        &'a self,
        tables: &'a mut Self::Tables<K, N>,
        current: &'a CurrentKey<'a, K, N>,
    ) -> Self::Handles<'a, K, N>;

    /// Calls [`KeyedStateTable::prepare`] on every table.
    fn prepare<K: Key, N: Namespace>(
        &self,
        tables: &Self::Tables<K, N>,
        hashes: impl Iterator<Item = u64> + Clone,
    );

    /// All tables as they are now, in order.
    fn fork_all<K: Key, N: Namespace>(
        &self,
        tables: &mut Self::Tables<K, N>,
    ) -> Vec<(StateDeclaration, Box<dyn FrozenState>)>;

    /// Whether the state that the snapshot describes can be restored: `Ok(false)` if no state has its name.
    ///
    /// # Errors
    /// If the job declares something else under that name.
    fn check(&self, stored: &StateDeclaration) -> Result<bool, StateError> {
        let Some(declared) = self.declarations().into_iter().find(|declared| declared.name == stored.name)
        else {
            return Ok(false);
        };
        let state = || stored.name.clone();
        if declared.kind != stored.kind {
            return Err(StateError::Kind { state: state(), declared: declared.kind, found: stored.kind });
        }
        let serializer = |of: &StateDeclaration| format!("{} {}", of.serializer, of.serializer_version);
        if declared.serializer != stored.serializer || declared.serializer_version < stored.serializer_version
        {
            let (declared, found) = (serializer(&declared), serializer(stored));
            return Err(StateError::Serializer { state: state(), declared, found });
        }
        Ok(true)
    }

    /// Adds the entries of one key group to the state of that name: `Ok(false)` if no state has the name.
    ///
    /// # Errors
    /// If they are not the entries of that group, or the tables do not own the group.
    fn restore<K: Key, N: Namespace>(
        &self,
        tables: &mut Self::Tables<K, N>,
        name: &str,
        group: KeyGroup,
        contents: &[u8],
    ) -> Result<bool, StateError>;
}

/// Fills the tables of one subtask from what one subtask of an earlier execution wrote: takes those key groups that lie in
/// `range`, the range of the tables. Called once for each of the old subtasks. `Ok(false)` if no state has the name.
///
/// # Errors
/// If the state cannot be read or is not what the job declares. The tables may then hold a part of it.
pub fn restore_keyed_state<S: StateSet, K: Key, N: Namespace>(
    set: &S,
    tables: &mut S::Tables<K, N>,
    range: KeyGroupRange,
    files: &dyn StateFiles,
    snapshot: &KeyedStateSnapshot,
) -> Result<bool, StateError> {
    if !set.check(&snapshot.declaration)? {
        return Ok(false);
    }
    let declared = K::canonical_form();
    if declared != snapshot.key_form {
        let (state, found) = (snapshot.declaration.name.clone(), snapshot.key_form.clone());
        return Err(StateError::Key { state, declared, found });
    }
    read_state(files, snapshot, range, |group, contents| {
        set.restore(tables, &snapshot.declaration.name, group, contents).map(|_known| ())
    })?;
    Ok(true)
}

macro_rules! state_sets {
    ($($name:ident $index:tt),*) => {
        #[allow(unused_variables, clippy::unused_unit, reason = "the empty set has and uses nothing")]
        impl<$($name: StateDescriptor),*> StateSet for ($($name,)*) {
            type Tables<K: Key, N: Namespace> = ($($name::Table<K, N>,)*);
            type Handles<'a, K: Key, N: Namespace> = ($($name::Handle<'a, K, N>,)*);

            fn declarations(&self) -> Vec<StateDeclaration> {
                vec![$(self.$index.declaration()),*]
            }

            fn create<K: Key, N: Namespace>(&self, groups: KeyGroups, range: KeyGroupRange) -> Self::Tables<K, N> {
                ($(self.$index.create_table(groups, range),)*)
            }

            #[inline]
            fn bind<'a, K: Key, N: Namespace>(
                &'a self,
                tables: &'a mut Self::Tables<K, N>,
                current: &'a CurrentKey<'a, K, N>,
            ) -> Self::Handles<'a, K, N> {
                ($(self.$index.bind(&mut tables.$index, current),)*)
            }

            #[inline]
            fn prepare<K: Key, N: Namespace>(
                &self,
                tables: &Self::Tables<K, N>,
                hashes: impl Iterator<Item = u64> + Clone,
            ) {
                $(tables.$index.prepare(hashes.clone());)*
            }

            fn fork_all<K: Key, N: Namespace>(
                &self,
                tables: &mut Self::Tables<K, N>,
            ) -> Vec<(StateDeclaration, Box<dyn FrozenState>)> {
                vec![$((tables.$index.declaration().clone(), tables.$index.fork_state())),*]
            }

            fn restore<K: Key, N: Namespace>(
                &self,
                tables: &mut Self::Tables<K, N>,
                name: &str,
                group: KeyGroup,
                contents: &[u8],
            ) -> Result<bool, StateError> {
                $(if tables.$index.declaration().name == name {
                    return tables.$index.restore(group, contents).map(|()| true);
                })*
                Ok(false)
            }
        }
    };
}
state_sets!();
state_sets!(A 0);
state_sets!(A 0, B 1);
state_sets!(A 0, B 1, C 2);
state_sets!(A 0, B 1, C 2, D 3);
