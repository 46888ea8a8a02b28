//! Keyed state of a snapshot, on its way into the tables of one subtask.

use std::fmt;
use std::sync::Arc;

use super::current::Namespace;
use super::error::StateError;
use super::set::{StateSet, restore_keyed_state};
use crate::base::key_group::KeyGroupRange;
use crate::codec::Key;
use crate::snapshot::{KeyedStateSnapshot, StateFiles};

/// What earlier subtasks of one operator wrote, and where it lies.
#[derive(Clone)]
pub struct RestoredKeyedState {
    files: Arc<dyn StateFiles>,
    snapshots: Vec<KeyedStateSnapshot>,
}

impl fmt::Debug for RestoredKeyedState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RestoredKeyedState").field("snapshots", &self.snapshots.len()).finish_non_exhaustive()
    }
}

impl RestoredKeyedState {
    /// The state that these snapshots describe.
    #[must_use]
    pub fn new(files: Arc<dyn StateFiles>, snapshots: Vec<KeyedStateSnapshot>) -> Self {
        Self { files, snapshots }
    }

    /// Number of bytes of the key groups in `range`.
    #[must_use]
    pub fn bytes(&self, range: KeyGroupRange) -> u64 {
        let sections = self.snapshots.iter().flat_map(|snapshot| &snapshot.sections);
        sections.filter(|(group, _)| range.contains(*group)).map(|(_, handle)| handle.length()).sum()
    }

    /// Fills the tables with the key groups in `range`.
    ///
    /// # Errors
    /// If the state cannot be read, is not what the job declares, or has a name that the job does not declare. The tables
    /// must then not be used.
    pub fn restore_into<S: StateSet, K: Key, N: Namespace>(
        &self,
        set: &S,
        tables: &mut S::Tables<K, N>,
        range: KeyGroupRange,
    ) -> Result<(), StateError> {
        for snapshot in &self.snapshots {
            if !restore_keyed_state(set, tables, range, self.files.as_ref(), snapshot)? {
                return Err(StateError::Unclaimed { state: snapshot.declaration.name.clone() });
            }
        }
        Ok(())
    }
}
