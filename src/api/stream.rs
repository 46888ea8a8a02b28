//! Streams of records.

use std::fmt;
use std::marker::PhantomData;

use super::env::StreamEnvironment;
use super::keyed::KeyedStream;
use super::pipes::{
    Divide, FilterPipe, FlatMapPipe, MapPipe, Placeable, RebalancePipe, SharedPipe, UnionPipe,
};
use super::sink::StreamSink;
use crate::base::id::OperatorUid;
use crate::codec::{Key, Record};
use crate::graph::logical::OperatorKind;
use crate::graph::{Pipe, Tail};
use crate::operator::Sink;
use crate::operator::keyed::{ByParts, ByReference};
use crate::operator::sink::SinkOperator;

/// A stream of records of type `T`. `P` is the chain of operators that leads here; write `impl Pipe<Out = T>` where a
/// function takes or returns a stream.
///
/// Functions given to a stream are cloned once per subtask; each clone is called by one thread only.
#[must_use = "a stream does nothing until it leads to a sink"]
pub struct Stream<T, P: Pipe<Out = T>> {
    env: StreamEnvironment,
    pipe: P,
}

impl<T, P: Pipe<Out = T>> fmt::Debug for Stream<T, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").field("after", &self.pipe.last_operators()).finish_non_exhaustive()
    }
}

impl<T: 'static, P: Pipe<Out = T>> Stream<T, P> {
    pub(super) fn new(env: StreamEnvironment, pipe: P) -> Self {
        Self { env, pipe }
    }

    fn then<U, Q: Pipe<Out = U>>(
        self,
        name: &str,
        pipe: impl FnOnce(crate::base::id::OperatorId, P) -> Q,
    ) -> Stream<U, Q> {
        let id = self.env.add_operator(name, OperatorKind::Transformation, &self.pipe);
        Stream { env: self.env, pipe: pipe(id, self.pipe) }
    }

    /// Applies a function to each record.
    pub fn map<U, F>(self, function: F) -> Stream<U, MapPipe<P, F>>
    where
        U: 'static,
        F: FnMut(T) -> U + Clone + Send + 'static,
    {
        self.then("Map", |id, before| MapPipe { id, before, function })
    }

    /// Keeps the records for which the predicate holds.
    pub fn filter<F>(self, predicate: F) -> Stream<T, FilterPipe<P, F>>
    where
        F: FnMut(&T) -> bool + Clone + Send + 'static,
    {
        self.then("Filter", |id, before| FilterPipe { id, before, function: predicate })
    }

    /// Replaces each record by the items of an iterator. The iterator is advanced only as fast as the items are taken.
    pub fn flat_map<U, F>(self, function: F) -> Stream<U::Item, FlatMapPipe<P, F>>
    where
        U: IntoIterator<Item: 'static, IntoIter: Send + 'static>,
        F: FnMut(T) -> U + Clone + Send + 'static,
    {
        self.then("FlatMap", |id, before| FlatMapPipe { id, before, function })
    }

    /// Divides the stream by a key that is computed from each record. The record travels with its key to the subtask that owns
    /// the key.
    pub fn key_by<K, F>(self, key: F) -> KeyedStream<K, T, P, ByReference<F, K>>
    where
        T: Record,
        K: Key,
        F: FnMut(&T) -> K + Clone + Send + 'static,
    {
        KeyedStream::new(self.env, self.pipe, ByReference(key, PhantomData))
    }

    /// Divides the stream by key, taking each record apart into its key and the rest, so that nothing travels twice.
    pub fn key_by_parts<K, V, F>(self, parts: F) -> KeyedStream<K, V, P, ByParts<F, K, V>>
    where
        K: Key,
        V: Record,
        F: FnMut(T) -> (K, V) + Clone + Send + 'static,
    {
        KeyedStream::new(self.env, self.pipe, ByParts(parts, PhantomData))
    }

    /// Ends the stream in a sink.
    pub fn sink<S: Sink<T>>(self, name: &str, sink: S) -> StreamSink
    where
        T: Record,
    {
        let id = self.env.add_operator(&format!("Sink: {name}"), OperatorKind::Sink, &self.pipe);
        let pipe = Divide { before: self.pipe, to: id };
        self.env.add_sink(move |planner| {
            if let Some(recovery) = sink.recovery() {
                planner.add_sink_recovery(id, recovery);
            }
            let operator = SinkOperator::<T, S>::new(planner.uid(id), sink);
            pipe.attach(planner, Tail { operators: vec![id], chain: operator });
        });
        StreamSink::new(self.env, id)
    }
}

impl<T: Record, P: Pipe<Out = T>> Stream<T, P> {
    /// Hands the records to all subtasks of the next operator in turn.
    pub fn rebalance(self) -> Stream<T, RebalancePipe<P>> {
        Stream { env: self.env, pipe: RebalancePipe { before: self.pipe } }
    }

    /// The records of both streams, in no particular order between the two.
    pub fn union<Q: Pipe<Out = T>>(self, other: Stream<T, Q>) -> Stream<T, UnionPipe<P, Q>> {
        if !self.env.is_same(&other.env) {
            let mistake = "a union joins streams of two environments; all streams of a job come from one";
            self.env.edit(|graph| graph.mistakes.push(mistake.to_owned()));
        }
        Stream { env: self.env, pipe: UnionPipe { left: self.pipe, right: other.pipe } }
    }

    /// Makes the stream usable more than once: each use gets all records.
    pub fn share(self) -> SharedStream<T>
    where
        T: Clone,
    {
        let Self { env, pipe: before } = self;
        let id = env.add_operator("Share", OperatorKind::Transformation, &before);
        env.add_share(move |planner| {
            let chain = planner.take_fan_out::<T>(id);
            before.attach(planner, Tail { operators: vec![id], chain });
        });
        SharedStream { env, shared: id, record_type: PhantomData }
    }
}

impl<T: 'static, P: Placeable<Out = T>> Stream<T, P> {
    /// Gives the last operator its uid, by which its state is found again.
    pub fn uid(self, uid: &str) -> Self {
        let id = self.pipe.operator();
        self.env.edit(|graph| graph.operator_mut(id).uid = Some(OperatorUid::new(uid)));
        self
    }

    /// Sets the number of subtasks of the last operator. Without it an operator has as many as the one it follows; sources,
    /// keyed operators and what follows a union or `rebalance` have the job's default.
    pub fn parallelism(self, parallelism: u32) -> Stream<T, P::Placed> {
        let id = self.pipe.operator();
        self.env.edit(|graph| graph.operator_mut(id).parallelism = Some(parallelism));
        Stream { env: self.env, pipe: self.pipe.place() }
    }

    /// Keeps the last operator out of the chain of the one before it.
    pub fn start_new_chain(self) -> Stream<T, P::Placed> {
        let id = self.pipe.operator();
        self.env.edit(|graph| graph.operator_mut(id).starts_chain = true);
        Stream { env: self.env, pipe: self.pipe.place() }
    }
}

/// A stream that can be used any number of times.
#[derive(Clone)]
pub struct SharedStream<T> {
    env: StreamEnvironment,
    shared: crate::base::id::OperatorId,
    record_type: PhantomData<fn() -> T>,
}

impl<T> fmt::Debug for SharedStream<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedStream").field("shared", &self.shared).finish_non_exhaustive()
    }
}

impl<T: Record + Clone> SharedStream<T> {
    /// The stream, once more.
    pub fn stream(&self) -> Stream<T, SharedPipe<T>> {
        let pipe = SharedPipe { shared: self.shared, record_type: PhantomData };
        Stream { env: self.env.clone(), pipe }
    }
}
