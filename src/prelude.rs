//! What the author of a job imports: `use stoplog::prelude::*;`.

pub use crate::api::{JobGraph, KeyedStream, SharedStream, Stream, StreamEnvironment};
pub use crate::base::error::{BoxError, Error};
pub use crate::base::id::CheckpointId;
pub use crate::base::progress::Flow;
pub use crate::config::{CheckpointConfig, Cores, IdleStrategy, JobConfig, RestartConfig};
pub use crate::connectors::{
    CollectSink, DiscardSink, FileSource, GeneratorSource, LineSink, SocketSource, TwoPhase, VecSource,
};
pub use crate::graph::Pipe;
pub use crate::job::{JobHandle, JobResult, JobState};
pub use crate::operator::process::{StatesOf, TablesOf};
pub use crate::operator::{
    Output, ProcessContext, ProcessFunction, Sink, SinkClaim, Source, SourceStatus, TransactionContext,
    TwoPhaseCommitSink,
};
pub use crate::state::{ReducingStateDescriptor, StateDescriptor, ValueStateDescriptor};
