//! Looks at snapshots on the disk, without a running job and without the program that wrote them.
//!
//! [`inspect`] tells what a snapshot consists of, [`verify`] whether all of it is there and undamaged. Both take the directory of a
//! checkpoint, the `_metadata` in it, or the directory of a run for all of its completed checkpoints. Nothing is changed, and no lock is
//! taken: in the directory of a run that is being led, a checkpoint may disappear while it is looked at.
#![deny(clippy::unwrap_used, clippy::indexing_slicing)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking"))]

mod inspect;
mod verify;

#[cfg(test)]
mod tests;

pub use crate::snapshot::LocalStore;
pub use inspect::{
    FileDescription, Inspection, KeyedStateDescription, ListStateDescription, OperatorDescription,
    RecordDescription, RunDescription, SnapshotDescription, inspect,
};
pub use verify::{Damage, Verification, verify};
