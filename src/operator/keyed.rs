//! A record with its key.

use std::fmt;
use std::marker::PhantomData;

use serde::{Deserialize, Serialize};

use crate::base::key_group::CarriedHash;
use crate::codec::Key;

/// A record on its way to the subtask that owns its key. The key, and its hash unless hashing an integer again is cheaper,
/// were computed once, at the producer.
#[derive(Serialize, Deserialize)]
#[serde(bound(serialize = "V: Serialize", deserialize = "V: Deserialize<'de>"))]
pub struct Keyed<K: Key, V> {
    /// The key.
    pub key: K,
    carried: K::Carried,
    /// The rest of the record.
    pub value: V,
}

impl<K: Key, V> Keyed<K, V> {
    /// The record and the hash of its key.
    #[inline]
    #[must_use]
    pub fn new(key: K, value: V) -> (Self, u64) {
        let hash = key.stable_hash();
        (Self { key, carried: K::Carried::carry(hash), value }, hash)
    }

    /// The stable hash of the key.
    #[inline]
    #[must_use]
    pub fn hash(&self) -> u64 {
        self.carried.hash(&self.key)
    }
}

impl<K: Key + fmt::Debug, V: fmt::Debug> fmt::Debug for Keyed<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyed").field("key", &self.key).field("value", &self.value).finish_non_exhaustive()
    }
}

/// Makes a key and the value that travels with it out of a record.
pub trait KeySelector<T>: Clone + Send + 'static {
    /// The key.
    type Key: Key;
    /// What travels with it.
    type Value: 'static;

    /// Splits the record. Must give the same key for the same record at any time, on any machine.
    fn select(&mut self, record: T) -> (Self::Key, Self::Value);
}

/// The key is computed from the record, and the whole record travels with it.
#[derive(Debug, Clone)]
pub struct ByReference<F, K>(pub(crate) F, pub(crate) PhantomData<fn() -> K>);

impl<T, K, F> KeySelector<T> for ByReference<F, K>
where
    T: 'static,
    K: Key,
    F: FnMut(&T) -> K + Clone + Send + 'static,
{
    type Key = K;
    type Value = T;

    #[inline]
    fn select(&mut self, record: T) -> (K, T) {
        ((self.0)(&record), record)
    }
}

/// The record is taken apart into its key and the rest.
#[derive(Debug)]
pub struct ByParts<F, K, V>(pub(crate) F, pub(crate) PhantomData<fn() -> (K, V)>);

impl<F: Clone, K, V> Clone for ByParts<F, K, V> {
    fn clone(&self) -> Self {
        Self(self.0.clone(), PhantomData)
    }
}

impl<T, K, V, F> KeySelector<T> for ByParts<F, K, V>
where
    K: Key,
    V: 'static,
    F: FnMut(T) -> (K, V) + Clone + Send + 'static,
{
    type Key = K;
    type Value = V;

    #[inline]
    fn select(&mut self, record: T) -> (K, V) {
        (self.0)(record)
    }
}
