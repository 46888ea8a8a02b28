//! Look at a run from outside and say what is wrong with it.

pub mod audit;
pub mod cut;

pub use audit::{AuditSink, Observed};
