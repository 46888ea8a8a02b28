//! State that no longer changes.

use super::manifest::StateDeclaration;
use crate::base::key_group::{KeyGroup, KeyGroupRange};
use crate::codec::CodecError;

/// One keyed state of one subtask as it was at one moment, readable from any thread.
pub trait FrozenState: Send + Sync {
    /// What the state is.
    fn declaration(&self) -> &StateDeclaration;

    /// Canonical form of the keys.
    fn key_form(&self) -> String;

    /// The key groups that the subtask owns.
    fn key_groups(&self) -> KeyGroupRange;

    /// Appends one key group: the number of entries as a little-endian `u64`, then each entry's key, namespace and
    /// value. Appends nothing if the group is empty. Answers the number of entries.
    ///
    /// # Errors
    /// If a key or value has no representation in its format.
    fn encode_group(&self, group: KeyGroup, out: &mut Vec<u8>) -> Result<u64, CodecError>;
}

impl std::fmt::Debug for dyn FrozenState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FrozenState").field("declaration", self.declaration()).finish_non_exhaustive()
    }
}
