//! Streams divided by key.

use std::fmt;
use std::marker::PhantomData;

use super::env::StreamEnvironment;
use super::pipes::ProcessPipe;
use super::stream::Stream;
use crate::codec::{Key, Record, Value};
use crate::graph::Pipe;
use crate::operator::process::{ClosureFunction, ProcessFunction};
use crate::operator::reduce::ReduceFunction;
use crate::operator::{KeySelector, ProcessContext};
use crate::state::StateSet;

/// A stream whose records of one key are all handled by one subtask, in order, with state of that key.
#[must_use = "a stream does nothing until it leads to a sink"]
pub struct KeyedStream<K, V, P, S> {
    env: StreamEnvironment,
    pipe: P,
    selector: S,
    types: PhantomData<fn() -> (K, V)>,
}

/// A stream of keys and the combination of each key's values.
pub type ReducedStream<K, V, P, S, F> = Stream<(K, V), ProcessPipe<P, S, ReduceFunction<K, V, F>>>;

impl<K, V, P, S> fmt::Debug for KeyedStream<K, V, P, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedStream").finish_non_exhaustive()
    }
}

impl<K, V, P, S> KeyedStream<K, V, P, S>
where
    K: Key,
    V: Record,
    P: Pipe,
    S: KeySelector<P::Out, Key = K, Value = V>,
{
    pub(super) fn new(env: StreamEnvironment, pipe: P, selector: S) -> Self {
        Self { env, pipe, selector, types: PhantomData }
    }

    /// Runs a function of the user's on each record, with access to the states that it declares.
    pub fn process<F>(self, function: F) -> Stream<F::Out, ProcessPipe<P, S, F>>
    where
        F: ProcessFunction<Key = K, In = V>,
    {
        self.keyed("Process", function)
    }

    /// Runs a closure on each record: it gets the value, the states of the record's key, and the context with the key; what it
    /// returns is handed on, item by item.
    ///
    /// ```
    /// use stoplog::prelude::*;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let env = StreamEnvironment::new(JobConfig::default());
    /// let counts = CollectSink::new();
    /// env.source("words", VecSource::new(["to", "be", "to"].map(String::from).to_vec()))
    ///     .key_by_parts(|word| (word, ()))
    ///     .process_with(ValueStateDescriptor::<u64>::new("count"), |(), mut count, cx| {
    ///         let n = count.value().unwrap_or(0) + 1;
    ///         count.update(n);
    ///         Some((cx.key().clone(), n))
    ///     })
    ///     .uid("counter")
    ///     .sink("out", counts.clone());
    /// env.execute()?;
    /// let mut counts = counts.take();
    /// counts.sort();
    /// assert_eq!(counts, [("be".to_owned(), 1), ("to".to_owned(), 1), ("to".to_owned(), 2)]);
    /// # Ok(())
    /// # }
    /// ```
    #[allow(clippy::type_complexity, reason = "the closure's type has no shorter name")]
    pub fn process_with<D, I, F>(
        self,
        states: D,
        function: F,
    ) -> Stream<I::Item, ProcessPipe<P, S, ClosureFunction<K, V, D, I, F>>>
    where
        D: StateSet,
        I: IntoIterator<Item: Send + 'static> + 'static,
        F: for<'a> FnMut(V, D::Handles<'a, K, ()>, &ProcessContext<'_, K>) -> I + Clone + Send + 'static,
    {
        self.keyed("Process", ClosureFunction::new(states, function))
    }

    /// Combines the values of each key: every record yields its key and the combination of all values so far.
    pub fn reduce<F>(self, combine: F) -> ReducedStream<K, V, P, S, F>
    where
        V: Value,
        F: Fn(&mut V, V) + Clone + Send + Sync + 'static,
    {
        self.keyed("Reduce", ReduceFunction::updates(combine))
    }

    /// Combines the values of each key and hands on one record per key, at the end of the input.
    pub fn reduce_final<F>(self, combine: F) -> ReducedStream<K, V, P, S, F>
    where
        V: Value,
        F: Fn(&mut V, V) + Clone + Send + Sync + 'static,
    {
        self.keyed("Reduce", ReduceFunction::at_end(combine))
    }

    fn keyed<F>(self, name: &str, function: F) -> Stream<F::Out, ProcessPipe<P, S, F>>
    where
        F: ProcessFunction<Key = K, In = V>,
    {
        let Self { env, pipe: before, selector, .. } = self;
        let id = env.add_keyed_operator(name, &before);
        let declarations = function.states().declarations();
        env.edit(|graph| {
            graph.operator_mut(id).states =
                declarations.into_iter().map(|state| (state.name, state.kind.to_string())).collect();
        });
        Stream::new(env, ProcessPipe { id, before, selector, function })
    }
}
