//! The head of a chain: takes records from rings or from a source and pushes them through the chain.
//!
//! This is where the types end. The runtime sees a chain only through [`ChainHead`], one virtual call per run of records.

use super::contract::OperatorLifecycle;
use crate::base::clock::Nanos;
use crate::base::id::ChannelIndex;
use crate::base::progress::Flow;
use crate::element::Control;

/// Why [`ChainHead::poll`] stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// The budget is used up; there may be more.
    Budget,
    /// Nothing more is there; a source may name a time at which to ask again.
    Empty(Nanos),
    /// The output is full: call `resume` before anything else.
    Blocked,
    /// A control entry stood next in the channel and was taken out.
    Control(Control),
    /// The source has come to its end.
    Ended,
    /// The producer of the channel is gone without having ended its input: its subtask has failed.
    Abandoned,
}

/// What [`ChainHead::poll`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Polled {
    /// Records pushed through the chain.
    pub records: usize,
    /// Why it stopped.
    pub stop: Stop,
}

/// A chain with its inputs, as the runtime drives it.
pub trait ChainHead: OperatorLifecycle {
    /// Number of input channels, known once it is open; 0 for a source.
    fn channels(&self) -> usize;

    /// Pushes up to `max` records of one channel through the chain; a source ignores the channel.
    fn poll(&mut self, channel: ChannelIndex, max: usize) -> Polled;

    /// Parks a channel (its ring may then grow up to the parking budget) or releases it.
    fn set_parked(&mut self, channel: ChannelIndex, parked: bool);
}

impl Polled {
    /// `Flow` of the last record as a reason to stop, if it is one.
    #[must_use]
    pub fn after(records: usize, flow: Flow, otherwise: Stop) -> Self {
        Self { records, stop: if flow.is_blocked() { Stop::Blocked } else { otherwise } }
    }
}
