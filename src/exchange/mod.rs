//! Exchange of records between subtasks: one ring for each pair of a producer and a consumer.
//!
//! [`outbound`] holds the tails of chains, one per way of partitioning; [`inbound`] the head that drains rings into a chain.

pub mod inbound;
pub mod outbound;
pub mod rings;

pub use inbound::InputHead;
pub use outbound::{DynOperator, FanOut, HashOutput, RoundRobinOutput};
pub use rings::{ExchangeConfig, InputChannel, OutputChannel, Wiring};
