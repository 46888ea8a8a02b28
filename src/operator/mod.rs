//! What users and built-in jobs implement, and the operators of the engine.
//!
//! An operator is chained to the next one by type: `Map<F, Filter<G, Output>>` is one value, its `process` one inlined
//! function. Records are pushed from the head of a chain to its tail.

pub mod context;
pub mod contract;
pub mod failure;
pub mod filter;
pub mod flat_map;
pub mod head;
mod held;
pub mod keyed;
pub mod later;
pub mod map;
pub mod process;
pub mod recovery;
pub mod reduce;
pub mod sink;
pub mod source;
pub mod two_phase;

pub use context::{CloseContext, OpenContext, SnapshotContext};
pub use contract::{Operator, OperatorLifecycle, Output, Sink, Source, SourceStatus};
pub use head::{ChainHead, Polled, Stop};
pub use keyed::{KeySelector, Keyed};
pub use process::{ProcessContext, ProcessFunction};
pub use recovery::{PreCommitContext, SinkClaim, SinkRecovery};
pub use two_phase::{TransactionContext, TwoPhaseCommitSink};
