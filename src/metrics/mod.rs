//! What the engine counts and measures about itself.

pub mod counters;
pub mod histogram;

pub use counters::SubtaskCounters;
pub use histogram::{Durations, new_durations, record};
