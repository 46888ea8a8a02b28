//! The head of a chain that takes its records from rings.

use std::fmt;
use std::marker::PhantomData;

use super::rings::InputChannel;
use crate::base::clock::Nanos;
use crate::base::error::Error;
use crate::base::id::ChannelIndex;
use crate::base::progress::Flow;
use crate::element::Control;
use crate::operator::context::EdgeId;
use crate::operator::contract::ChainedOperator;
use crate::operator::{ChainHead, OpenContext, Operator, Polled, Stop};
use crate::ring::Peek;

/// Drains the channels of one or more edges into a chain.
pub struct InputHead<T, C> {
    edges: Vec<EdgeId>,
    channels: Vec<InputChannel<T>>,
    chain: C,
    record_type: PhantomData<fn(T)>,
}

impl<T, C> fmt::Debug for InputHead<T, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InputHead").field("edges", &self.edges).finish_non_exhaustive()
    }
}

impl<T, C> InputHead<T, C> {
    /// A head for the channels of these edges, in this order.
    pub fn new(edges: Vec<EdgeId>, chain: C) -> Self {
        Self { edges, channels: Vec::new(), chain, record_type: PhantomData }
    }
}

impl<T: Send + 'static, C: Operator<T>> ChainedOperator for InputHead<T, C> {
    type Next = C;

    fn next(&mut self) -> &mut C {
        &mut self.chain
    }

    fn open_self(&mut self, cx: &mut OpenContext<'_>) -> Result<(), Error> {
        for edge in &self.edges {
            self.channels.extend(cx.ports.take_inputs::<Vec<InputChannel<T>>>(*edge));
        }
        Ok(())
    }
}

impl<T: Send + 'static, C: Operator<T>> ChainHead for InputHead<T, C> {
    fn channels(&self) -> usize {
        self.channels.len()
    }

    fn poll(&mut self, channel: ChannelIndex, max: usize) -> Polled {
        let Self { channels, chain, .. } = self;
        let channel = &mut channels[channel.index()];
        let mut records = 0;
        // A run ends where the ring's storage wraps: look again until there is nothing, a mark, or no budget.
        while records < max {
            match channel.consumer.peek(max - records) {
                Peek::Records(count) => {
                    chain.prepare(channel.consumer.records(count));
                    let mut flow = Flow::Continue;
                    records += channel.consumer.drain(count, |record| {
                        flow = chain.process(record);
                        !flow.is_blocked()
                    });
                    channel.producer.wake();
                    if flow.is_blocked() {
                        return Polled { records, stop: Stop::Blocked };
                    }
                }
                Peek::Mark(mark) => {
                    channel.consumer.pop_mark();
                    channel.producer.wake();
                    let control = Control::from_mark(mark.tag, mark.word);
                    return Polled { records, stop: Stop::Control(control) };
                }
                Peek::Empty => return Polled { records, stop: Stop::Empty(Nanos::MAX) },
                Peek::Closed => return Polled { records, stop: Stop::Abandoned },
            }
        }
        Polled { records, stop: Stop::Budget }
    }

    fn set_parked(&mut self, channel: ChannelIndex, parked: bool) {
        let channel = &mut self.channels[channel.index()];
        channel.consumer.set_parked(parked);
        if parked {
            // The producer may already wait for room in a full ring; parked, that ring may grow.
            channel.producer.wake();
        }
    }
}
