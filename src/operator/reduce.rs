//! Combines the values of each key.

use std::fmt;
use std::marker::PhantomData;

use super::contract::Output;
use super::process::{AtEnd, ProcessContext, ProcessFunction, StatesOf, TablesOf};
use crate::base::error::BoxError;
use crate::codec::{Key, Value};
use crate::state::ReducingStateDescriptor;

/// Name of the state that holds the combination of each key's values.
pub const REDUCED: &str = "reduced";

/// Combines values; see [`KeyedStream::reduce`](crate::api::KeyedStream::reduce).
pub struct ReduceFunction<K, V, F> {
    combine: F,
    /// True to hand on each combination once, at the end, instead of after every record.
    only_at_end: bool,
    types: PhantomData<fn(K, V)>,
}

impl<K, V, F> ReduceFunction<K, V, F> {
    /// Hands on the combination after every record.
    pub fn updates(combine: F) -> Self {
        Self { combine, only_at_end: false, types: PhantomData }
    }

    /// Hands on the combination of each key at the end of the input.
    pub fn at_end(combine: F) -> Self {
        Self { combine, only_at_end: true, types: PhantomData }
    }
}

impl<K, V, F> fmt::Debug for ReduceFunction<K, V, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReduceFunction").field("only_at_end", &self.only_at_end).finish_non_exhaustive()
    }
}

impl<K, V, F: Clone> Clone for ReduceFunction<K, V, F> {
    fn clone(&self) -> Self {
        Self { combine: self.combine.clone(), only_at_end: self.only_at_end, types: PhantomData }
    }
}

impl<K, V, F> ProcessFunction for ReduceFunction<K, V, F>
where
    K: Key,
    V: Value,
    F: Fn(&mut V, V) + Clone + Send + Sync + 'static,
{
    type Key = K;
    type In = V;
    type Out = (K, V);
    type States = ReducingStateDescriptor<V, F>;

    fn states(&self) -> Self::States {
        ReducingStateDescriptor::new(REDUCED, self.combine.clone())
    }

    #[inline]
    fn process(
        &mut self,
        value: V,
        mut reduced: StatesOf<'_, Self>,
        cx: &ProcessContext<'_, K>,
        output: &mut impl Output<(K, V)>,
    ) -> Result<(), BoxError> {
        reduced.add(value);
        if !self.only_at_end
            && let Some(combined) = reduced.get()
        {
            let _ = output.collect((cx.key().clone(), combined));
        }
        Ok(())
    }

    fn at_end(&mut self, table: &mut TablesOf<Self>) -> Option<AtEnd<(K, V)>> {
        self.only_at_end.then(|| {
            Box::new(table.fork().entries().map(|(key, (), combined)| (key, combined))) as AtEnd<(K, V)>
        })
    }
}
