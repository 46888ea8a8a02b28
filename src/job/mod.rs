//! The life of a job.

pub mod lifecycle;
pub mod restart;

pub use lifecycle::{IllegalTransition, JobEvent, JobState};
pub use restart::{RestartDecision, RestartStrategy, Restarts};
