//! A stream-processing engine in one process, in the making.

pub mod align;
pub mod api;
pub mod base;
pub mod checkpoint;
#[cfg(feature = "cli")]
pub mod cli;
pub mod codec;
pub mod config;
pub mod connectors;
pub mod element;
pub mod exchange;
pub mod graph;
pub mod job;
#[cfg(feature = "cli")]
pub mod jobs;
pub mod metrics;
pub mod operator;
pub mod prelude;
pub mod ring;
pub mod runtime;
pub mod snapshot;
pub mod state;
pub mod sync;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod time;
