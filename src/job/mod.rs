//! The life of a job: from a planned graph through executions and restarts to its result.
//!
//! [`lifecycle`] and [`restart`] decide, pure; [`supervisor`] carries out, still without a thread of its own, so that the
//! deterministic scheduler drives the same code; [`execute`] gives it a thread and the pinned workers.

pub mod execute;
pub mod executor;
pub mod handle;
pub mod lifecycle;
mod measurements;
pub mod origin;
pub mod restart;
pub mod result;
mod sinks;
pub mod start;
pub mod supervisor;

pub use handle::{JobHandle, JobStopper};
pub use lifecycle::{IllegalTransition, JobEvent, JobState};
pub use origin::{JobOrigin, Restorable};
pub use restart::{RestartDecision, RestartStrategy, Restarts};
pub use result::{CheckpointSummary, JobProgress, JobResult, JobStatus};
pub use start::RunIdentity;
