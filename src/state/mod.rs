//! Keyed state on the heap, and how operator state is divided again.
//!
//! An operator declares its states before the job runs, by descriptors ([`descriptor`]). The engine creates one table for
//! each state and subtask, binds the tables to the key of the current record and hands the bound handles ([`handles`]) to
//! the user's function. A handle has no way to name another key, so an operator sees the state of its current key only.
//!
//! A snapshot forks each table ([`heap`]): one pointer is copied, and the processing thread goes on at once.
//! [`crate::snapshot::write_state`] then serialises the fork on another thread.

mod current;
pub mod descriptor;
mod error;
pub mod handles;
pub mod heap;
pub mod operator_state;
mod restored;
mod set;
mod single;

#[cfg(test)]
mod tests;

pub use current::{CurrentKey, Namespace, VoidNamespace};
pub use descriptor::{KeyedStateTable, ReducingStateDescriptor, StateDescriptor, ValueStateDescriptor};
pub use error::StateError;
pub use handles::{ReducingState, ValueState};
pub use heap::{FrozenEntries, FrozenTable, HeapTable, TableStatistics};
pub use restored::RestoredKeyedState;
pub use set::{StateSet, restore_keyed_state};
