//! A stream-processing engine in one process, in the making.

pub mod align;
pub mod base;
pub mod checkpoint;
pub mod codec;
pub mod config;
pub mod element;
pub mod job;
pub mod metrics;
pub mod ring;
pub mod snapshot;
pub mod state;
pub mod sync;
pub mod time;
