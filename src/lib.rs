//! A stream-processing engine in one process, in the making.

pub mod base;
pub mod config;
pub mod element;
pub mod metrics;
pub mod ring;
pub mod sync;
