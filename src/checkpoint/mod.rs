//! Checkpoints: who is asked for one when, and what its outcome is.
//!
//! [`Coordinator`] is a state machine apart from threads, time and files: events go in, actions come out. [`protocol`]
//! holds what subtasks and coordinator say to each other.

mod coordinator;
mod event;
mod execution;
mod pending;
pub mod protocol;

pub use coordinator::Coordinator;
pub use event::{Action, CheckpointCounts, DiscardCause, Event, LastCheckpoint};
pub use pending::Pending;
