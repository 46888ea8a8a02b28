//! The tails of chains that send their records to other subtasks.

use std::fmt;
use std::marker::PhantomData;

use super::rings::OutputChannel;
use crate::base::error::Error;
use crate::base::id::CheckpointId;
use crate::base::id::OperatorUid;
use crate::base::key_group::{KeyGroupRange, KeyGroups};
use crate::base::progress::Flow;
use crate::element::{Control, Watermark};
use crate::operator::context::EdgeId;
use crate::operator::failure::in_operator;
use crate::operator::{
    CloseContext, KeySelector, Keyed, OpenContext, Operator, OperatorLifecycle, SnapshotContext,
};

/// The channels of one outgoing edge, whatever the way of partitioning.
pub struct Outputs<T> {
    edge: EdgeId,
    channels: Vec<OutputChannel<T>>,
    ended: bool,
}

impl<T> fmt::Debug for Outputs<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outputs").field("edge", &self.edge).finish_non_exhaustive()
    }
}

impl<T: Send + 'static> Outputs<T> {
    fn new(edge: EdgeId) -> Self {
        Self { edge, channels: Vec::new(), ended: false }
    }

    fn open(&mut self, cx: &mut OpenContext<'_>) {
        self.channels = cx.ports.take_outputs(self.edge);
    }

    fn broadcast(&mut self, control: Control) -> Flow {
        let mut flow = Flow::Continue;
        for channel in &mut self.channels {
            flow = flow.and(channel.send_control(control));
        }
        flow
    }

    fn resume(&mut self) -> Flow {
        let mut flow = Flow::Continue;
        for channel in &mut self.channels {
            flow = flow.and(channel.resume());
        }
        flow
    }

    fn end_input(&mut self) -> Flow {
        if !std::mem::replace(&mut self.ended, true) {
            let _ = self.broadcast(Control::EndOfInput);
        }
        self.resume()
    }

    fn flush(&mut self) {
        self.channels.iter_mut().for_each(OutputChannel::publish);
    }
}

/// What all outputs to an edge have in common.
macro_rules! edge_lifecycle {
    ($name:ident<$($generic:ident),*> $(where $($bound:tt)*)?) => {
        impl<$($generic),*> OperatorLifecycle for $name<$($generic),*> $(where $($bound)*)? {
            fn open(&mut self, cx: &mut OpenContext<'_>) -> Result<(), Error> {
                self.outputs.open(cx);
                self.opened(cx);
                Ok(())
            }

            #[inline]
            fn resume(&mut self) -> Flow {
                self.outputs.resume()
            }

            fn watermark(&mut self, watermark: Watermark) -> Flow {
                self.outputs.broadcast(Control::Watermark(watermark))
            }

            fn idle(&mut self, idle: bool) {
                // A full ring keeps the mark in the overflow; the next `resume` or `process` meets the block.
                let _ = self.outputs.broadcast(if idle { Control::Idle } else { Control::Active });
            }

            fn end_input(&mut self) -> Flow {
                self.outputs.end_input()
            }

            fn barrier(&mut self, checkpoint: CheckpointId) {
                let _ = self.outputs.broadcast(Control::Barrier(checkpoint));
            }

            fn cancel_barrier(&mut self, checkpoint: CheckpointId) {
                let _ = self.outputs.broadcast(Control::CancelBarrier(checkpoint));
            }

            fn snapshot(&mut self, _cx: &mut SnapshotContext) {}

            #[inline]
            fn flush(&mut self) {
                self.outputs.flush();
            }

            fn notify_complete(&mut self, _checkpoint: CheckpointId) -> Result<(), Error> {
                Ok(())
            }

            fn notify_aborted(&mut self, _checkpoint: CheckpointId) -> Result<(), Error> {
                Ok(())
            }

            fn close(&mut self, _cx: &mut CloseContext) -> Result<(), Error> {
                Ok(())
            }

            fn published(&mut self) -> Result<Flow, Error> {
                Ok(Flow::Continue)
            }
        }
    };
}

/// Sends to the linked subtasks in turn: to all of them, or to the one with the same index where the edge is one-to-one.
#[derive(Debug)]
pub struct RoundRobinOutput<T> {
    outputs: Outputs<T>,
    next: usize,
}

impl<T: Send + 'static> RoundRobinOutput<T> {
    /// The output to an edge.
    #[must_use]
    pub fn new(edge: EdgeId) -> Self {
        Self { outputs: Outputs::new(edge), next: 0 }
    }

    /// Subtasks begin at different channels, so that few records do not all go to the first.
    fn opened(&mut self, cx: &OpenContext<'_>) {
        self.next = cx.subtask.index() % self.outputs.channels.len().max(1);
    }
}

impl<T: Send + 'static> Clone for RoundRobinOutput<T> {
    fn clone(&self) -> Self {
        Self::new(self.outputs.edge)
    }
}

impl<T: Send + 'static> Operator<T> for RoundRobinOutput<T> {
    #[inline]
    fn process(&mut self, record: T) -> Flow {
        let flow = self.outputs.channels[self.next].send(record);
        self.next += 1;
        if self.next == self.outputs.channels.len() {
            self.next = 0;
        }
        flow
    }
}

edge_lifecycle!(RoundRobinOutput<T> where T: Send + 'static);

/// Sends to the subtask that owns the key group of the record's key.
pub struct HashOutput<T, S>
where
    S: KeySelector<T>,
{
    uid: OperatorUid,
    selector: S,
    outputs: Outputs<Keyed<S::Key, S::Value>>,
    key_groups: KeyGroups,
    /// The consumer of each key group: looked up, since a division per record costs more than the hash.
    owners: Box<[u16]>,
    record_type: PhantomData<fn(T)>,
}

impl<T, S: KeySelector<T>> fmt::Debug for HashOutput<T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HashOutput").field("uid", &self.uid).field("outputs", &self.outputs).finish()
    }
}

impl<T: 'static, S: KeySelector<T, Value: Send>> HashOutput<T, S> {
    /// The output to an edge whose consumers own the key groups, divided evenly. `uid` names the keyed operator, for
    /// failures of the selector.
    #[must_use]
    pub fn new(edge: EdgeId, uid: OperatorUid, selector: S) -> Self {
        let outputs = Outputs::new(edge);
        let key_groups = KeyGroups::new(1, 1);
        Self { uid, selector, outputs, key_groups, owners: Box::default(), record_type: PhantomData }
    }

    fn opened(&mut self, cx: &OpenContext<'_>) {
        let consumers = u32::try_from(self.outputs.channels.len()).expect("parallelism fits 32 bits");
        self.key_groups = KeyGroups::new(cx.key_groups.max_parallelism(), consumers);
        let groups = KeyGroupRange { start: 0, end: self.key_groups.max_parallelism() };
        let owner = |group| u16::try_from(self.key_groups.subtask_of_group(group).0);
        let owners: Result<_, _> = groups.iter().map(owner).collect();
        self.owners =
            owners.expect("there are no more subtasks than key groups, of which there are at most 32768");
    }
}

impl<T: 'static, S: KeySelector<T, Value: Send>> Clone for HashOutput<T, S> {
    fn clone(&self) -> Self {
        Self::new(self.outputs.edge, self.uid.clone(), self.selector.clone())
    }
}

impl<T: 'static, S: KeySelector<T, Value: Send>> Operator<T> for HashOutput<T, S> {
    #[inline]
    fn process(&mut self, record: T) -> Flow {
        let (key, value) = in_operator(&self.uid, || self.selector.select(record));
        let (keyed, hash) = Keyed::new(key, value);
        let consumer = self.owners[usize::from(self.key_groups.group(hash).0)];
        self.outputs.channels[usize::from(consumer)].send(keyed)
    }
}

edge_lifecycle!(HashOutput<T, S> where T: 'static, S: KeySelector<T, Value: Send>);

/// An operator behind a pointer, which can be cloned.
pub trait DynOperator<T>: Operator<T> {
    /// A clone of the prototype.
    fn boxed_clone(&self) -> Box<dyn DynOperator<T>>;
}

impl<T, O: Operator<T> + Clone> DynOperator<T> for O {
    fn boxed_clone(&self) -> Box<dyn DynOperator<T>> {
        Box::new(self.clone())
    }
}

/// Sends each record to several edges.
pub struct FanOut<T> {
    outputs: Vec<Box<dyn DynOperator<T>>>,
}

impl<T> fmt::Debug for FanOut<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FanOut").field("outputs", &self.outputs.len()).finish()
    }
}

impl<T> FanOut<T> {
    /// # Panics
    /// If there is no output.
    #[must_use]
    pub fn new(outputs: Vec<Box<dyn DynOperator<T>>>) -> Self {
        assert!(!outputs.is_empty(), "a stream that is used has an output");
        Self { outputs }
    }

    fn all(&mut self, mut call: impl FnMut(&mut dyn DynOperator<T>) -> Flow) -> Flow {
        let mut flow = Flow::Continue;
        for output in &mut self.outputs {
            flow = flow.and(call(output.as_mut()));
        }
        flow
    }
}

impl<T: 'static> Clone for FanOut<T> {
    fn clone(&self) -> Self {
        Self { outputs: self.outputs.iter().map(|output| output.boxed_clone()).collect() }
    }
}

impl<T: Clone + 'static> Operator<T> for FanOut<T> {
    fn process(&mut self, record: T) -> Flow {
        let (last, others) = self.outputs.split_last_mut().expect("never empty");
        let mut flow = Flow::Continue;
        for output in others {
            flow = flow.and(output.process(record.clone()));
        }
        flow.and(last.process(record))
    }
}

impl<T: 'static> OperatorLifecycle for FanOut<T> {
    fn open(&mut self, cx: &mut OpenContext<'_>) -> Result<(), Error> {
        self.outputs.iter_mut().try_for_each(|output| output.open(cx))
    }

    fn resume(&mut self) -> Flow {
        self.all(|output| output.resume())
    }

    fn watermark(&mut self, watermark: Watermark) -> Flow {
        self.all(|output| output.watermark(watermark))
    }

    fn idle(&mut self, idle: bool) {
        self.outputs.iter_mut().for_each(|output| output.idle(idle));
    }

    fn end_input(&mut self) -> Flow {
        self.all(|output| output.end_input())
    }

    fn barrier(&mut self, checkpoint: CheckpointId) {
        self.outputs.iter_mut().for_each(|output| output.barrier(checkpoint));
    }

    fn cancel_barrier(&mut self, checkpoint: CheckpointId) {
        self.outputs.iter_mut().for_each(|output| output.cancel_barrier(checkpoint));
    }

    fn snapshot(&mut self, cx: &mut SnapshotContext) {
        self.outputs.iter_mut().for_each(|output| output.snapshot(cx));
    }

    fn flush(&mut self) {
        self.outputs.iter_mut().for_each(|output| output.flush());
    }

    fn notify_complete(&mut self, checkpoint: CheckpointId) -> Result<(), Error> {
        self.outputs.iter_mut().try_for_each(|output| output.notify_complete(checkpoint))
    }

    fn notify_aborted(&mut self, checkpoint: CheckpointId) -> Result<(), Error> {
        self.outputs.iter_mut().try_for_each(|output| output.notify_aborted(checkpoint))
    }

    fn close(&mut self, cx: &mut CloseContext) -> Result<(), Error> {
        self.outputs.iter_mut().try_for_each(|output| output.close(cx))
    }

    fn published(&mut self) -> Result<Flow, Error> {
        let outputs = self.outputs.iter_mut();
        outputs.map(|output| output.published()).try_fold(Flow::Continue, |all, one| Ok(all.and(one?)))
    }
}
