//! The key whose state may be seen.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::base::key_group::{KeyGroup, KeyGroups, StableHash};
use crate::codec::Key;

/// Divides the state of one key further, for instance by window. Implemented by every type that meets the bounds.
pub trait Namespace: Clone + Eq + StableHash + Send + Sync + Serialize + DeserializeOwned + 'static {
    /// The hash of a key and this namespace together; the hash of the key itself if the namespace is `()`.
    #[inline]
    fn mix(&self, key_hash: u64) -> u64 {
        // The rotation keeps (a, b) apart from (b, a).
        key_hash ^ self.stable_hash().rotate_left(23)
    }
}
impl<T: Clone + Eq + StableHash + Send + Sync + Serialize + DeserializeOwned + 'static> Namespace for T {}

/// The namespace of state that is not divided further.
pub type VoidNamespace = ();

/// The key and namespace of the record that is being processed.
#[derive(Debug)]
pub struct CurrentKey<'a, K, N> {
    key: &'a K,
    namespace: &'a N,
    hash: u64,
    slot_hash: u64,
    group: KeyGroup,
}

impl<K, N> Clone for CurrentKey<'_, K, N> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, N> Copy for CurrentKey<'_, K, N> {}

impl<'a, K: Key, N: Namespace> CurrentKey<'a, K, N> {
    /// The key whose stable hash, which came with the record, is `hash`.
    #[inline]
    #[must_use]
    pub fn new(key: &'a K, namespace: &'a N, hash: u64, groups: &KeyGroups) -> Self {
        debug_assert_eq!(
            hash,
            key.stable_hash(),
            "the hash that came with the record is not that of its key"
        );
        Self { key, namespace, hash, slot_hash: namespace.mix(hash), group: groups.group(hash) }
    }

    /// The key.
    #[inline]
    #[must_use]
    pub fn key(&self) -> &'a K {
        self.key
    }

    /// The namespace.
    #[inline]
    #[must_use]
    pub fn namespace(&self) -> &'a N {
        self.namespace
    }

    /// Stable hash of the key.
    #[inline]
    #[must_use]
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Key group of the key.
    #[inline]
    #[must_use]
    pub fn group(&self) -> KeyGroup {
        self.group
    }

    /// Hash of key and namespace: where the entry lies inside its group.
    #[inline]
    pub(super) fn slot_hash(&self) -> u64 {
        self.slot_hash
    }
}
