//! A stream-processing engine in one process, in the making.

pub mod base;
pub mod codec;
pub mod config;
pub mod element;
pub mod metrics;
pub mod ring;
pub mod snapshot;
pub mod state;
pub mod sync;
