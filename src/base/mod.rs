//! What knows nothing about streams: identifiers, key groups, clocks, seeded randomness, errors.

pub mod clock;
pub mod error;
pub mod id;
pub mod key_group;
pub mod progress;
pub mod rng;
