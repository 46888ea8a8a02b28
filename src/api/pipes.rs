//! The pipes behind the streams of the builder, see [`crate::graph::chain`].

use std::fmt;
use std::marker::PhantomData;

use crate::base::id::OperatorId;
use crate::codec::Record;
use crate::graph::chain::{ForwardEdge, HashEdge, RebalanceEdge};
use crate::graph::logical::Partitioning;
use crate::graph::{EdgeKind, Pipe, Planner, Tail};
use crate::operator::context::EdgeId;
use crate::operator::filter::FilterOperator;
use crate::operator::flat_map::FlatMapOperator;
use crate::operator::map::MapOperator;
use crate::operator::process::{ProcessFunction, ProcessOperator};
use crate::operator::{KeySelector, Keyed, Operator, Source};

/// A pipe that ends with an operator which can be given a place of its own: a parallelism, a chain.
///
/// Operators are fused by type. One that is placed keeps both ways open, and the plan decides.
pub trait Placeable: Pipe {
    /// The pipe with both ways open in front of its last operator.
    type Placed: Pipe<Out = Self::Out>;

    /// Opens both ways.
    fn place(self) -> Self::Placed;

    /// The last operator.
    fn operator(&self) -> OperatorId;
}

macro_rules! opaque_debug {
    ($($name:ident<$($generic:ident),*>),* $(,)?) => {$(
        impl<$($generic),*> fmt::Debug for $name<$($generic),*> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name)).finish_non_exhaustive()
            }
        }
    )*};
}
opaque_debug!(
    SourcePipe<S>,
    MapPipe<P, F>,
    FilterPipe<P, F>,
    FlatMapPipe<P, F>,
    Divide<P>,
    RebalancePipe<P>,
    UnionPipe<A, B>,
    SharedPipe<T>,
    ProcessPipe<P, S, F>,
);

/// A source.
pub struct SourcePipe<S> {
    pub(super) id: OperatorId,
    pub(super) source: S,
}

impl<S: Source> Pipe for SourcePipe<S> {
    type Out = S::Out;

    fn last_operators(&self) -> Vec<OperatorId> {
        vec![self.id]
    }

    fn attach<C: Operator<S::Out> + Clone>(self, planner: &mut Planner<'_>, tail: Tail<C>) {
        planner.add_source(self.id, self.source, tail);
    }
}

impl<S: Source> Placeable for SourcePipe<S> {
    type Placed = Self;

    fn place(self) -> Self {
        self
    }

    fn operator(&self) -> OperatorId {
        self.id
    }
}

/// A function of each record.
pub struct MapPipe<P, F> {
    pub(super) id: OperatorId,
    pub(super) before: P,
    pub(super) function: F,
}

impl<P, U, F> Pipe for MapPipe<P, F>
where
    P: Pipe,
    U: 'static,
    F: FnMut(P::Out) -> U + Clone + Send + 'static,
{
    type Out = U;

    fn last_operators(&self) -> Vec<OperatorId> {
        vec![self.id]
    }

    fn attach<C: Operator<U> + Clone>(self, planner: &mut Planner<'_>, tail: Tail<C>) {
        let (uid, function) = (planner.uid(self.id), self.function);
        self.before.attach(planner, tail.behind(self.id, |next| MapOperator { uid, function, next }));
    }
}

/// A predicate.
pub struct FilterPipe<P, F> {
    pub(super) id: OperatorId,
    pub(super) before: P,
    pub(super) function: F,
}

impl<P, F> Pipe for FilterPipe<P, F>
where
    P: Pipe,
    F: FnMut(&P::Out) -> bool + Clone + Send + 'static,
{
    type Out = P::Out;

    fn last_operators(&self) -> Vec<OperatorId> {
        vec![self.id]
    }

    fn attach<C: Operator<P::Out> + Clone>(self, planner: &mut Planner<'_>, tail: Tail<C>) {
        let (uid, predicate) = (planner.uid(self.id), self.function);
        self.before.attach(planner, tail.behind(self.id, |next| FilterOperator { uid, predicate, next }));
    }
}

/// A function from each record to any number of records.
pub struct FlatMapPipe<P, F> {
    pub(super) id: OperatorId,
    pub(super) before: P,
    pub(super) function: F,
}

impl<P, U, F> Pipe for FlatMapPipe<P, F>
where
    P: Pipe,
    U: IntoIterator<Item: 'static, IntoIter: Send + 'static>,
    F: FnMut(P::Out) -> U + Clone + Send + 'static,
{
    type Out = U::Item;

    fn last_operators(&self) -> Vec<OperatorId> {
        vec![self.id]
    }

    fn attach<C: Operator<U::Item> + Clone>(self, planner: &mut Planner<'_>, tail: Tail<C>) {
        let (uid, function) = (planner.uid(self.id), self.function);
        let tail = tail.behind(self.id, |next| FlatMapOperator::<F, U::IntoIter, C> {
            uid,
            function,
            pending: Default::default(),
            next,
        });
        self.before.attach(planner, tail);
    }
}

macro_rules! placeable {
    ($name:ident) => {
        impl<P, F> Placeable for $name<P, F>
        where
            P: Pipe<Out: Record>,
            Self: Pipe,
            $name<Divide<P>, F>: Pipe<Out = <Self as Pipe>::Out>,
        {
            type Placed = $name<Divide<P>, F>;

            fn place(self) -> Self::Placed {
                let Self { id, before, function } = self;
                $name { id, before: Divide { before, to: id }, function }
            }

            fn operator(&self) -> OperatorId {
                self.id
            }
        }
    };
}
placeable!(MapPipe);
placeable!(FilterPipe);
placeable!(FlatMapPipe);

/// A place where the plan decides whether a chain goes on or ends.
pub struct Divide<P> {
    pub(super) before: P,
    pub(super) to: OperatorId,
}

impl<P: Pipe<Out: Record>> Pipe for Divide<P> {
    type Out = P::Out;

    fn last_operators(&self) -> Vec<OperatorId> {
        self.before.last_operators()
    }

    fn partitioning(&self) -> Partitioning {
        self.before.partitioning()
    }

    fn attach<C: Operator<P::Out> + Clone>(self, planner: &mut Planner<'_>, tail: Tail<C>) {
        let chained = match self.before.last_operators().as_slice() {
            [from] => planner.is_chained(*from, self.to),
            _ => false,
        };
        if chained {
            self.before.attach(planner, tail);
        } else {
            let edges = self.before.attach_edge(planner, ForwardEdge, self.to);
            planner.add_chain::<P::Out, C>(edges, tail);
        }
    }

    fn attach_edge<E: EdgeKind<P::Out>>(
        self,
        planner: &mut Planner<'_>,
        kind: E,
        to: OperatorId,
    ) -> Vec<EdgeId> {
        self.before.attach_edge(planner, kind, to)
    }
}

/// Records to all subtasks in turn.
pub struct RebalancePipe<P> {
    pub(super) before: P,
}

impl<P: Pipe<Out: Record>> Pipe for RebalancePipe<P> {
    type Out = P::Out;

    fn last_operators(&self) -> Vec<OperatorId> {
        self.before.last_operators()
    }

    fn partitioning(&self) -> Partitioning {
        Partitioning::Rebalance
    }

    fn attach<C: Operator<P::Out> + Clone>(self, planner: &mut Planner<'_>, tail: Tail<C>) {
        let to = tail.operators[0];
        let edges = self.before.attach_edge(planner, RebalanceEdge, to);
        planner.add_chain::<P::Out, C>(edges, tail);
    }

    fn attach_edge<E: EdgeKind<P::Out>>(
        self,
        planner: &mut Planner<'_>,
        kind: E,
        to: OperatorId,
    ) -> Vec<EdgeId> {
        // A partitioning that follows at once replaces this one; a plain edge takes it over.
        if E::PARTITIONING == Partitioning::Forward {
            self.before.attach_edge(planner, RebalanceEdge, to)
        } else {
            self.before.attach_edge(planner, kind, to)
        }
    }
}

/// The records of two streams.
pub struct UnionPipe<A, B> {
    pub(super) left: A,
    pub(super) right: B,
}

impl<A, B> Pipe for UnionPipe<A, B>
where
    A: Pipe<Out: Record>,
    B: Pipe<Out = A::Out>,
{
    type Out = A::Out;

    fn last_operators(&self) -> Vec<OperatorId> {
        let mut operators = self.left.last_operators();
        operators.extend(self.right.last_operators());
        operators
    }

    fn attach<C: Operator<A::Out> + Clone>(self, planner: &mut Planner<'_>, tail: Tail<C>) {
        let to = tail.operators[0];
        let edges = self.attach_edge(planner, ForwardEdge, to);
        planner.add_chain::<A::Out, C>(edges, tail);
    }

    fn attach_edge<E: EdgeKind<A::Out>>(
        self,
        planner: &mut Planner<'_>,
        kind: E,
        to: OperatorId,
    ) -> Vec<EdgeId> {
        let mut edges = self.left.attach_edge(planner, kind.clone(), to);
        edges.extend(self.right.attach_edge(planner, kind, to));
        edges
    }
}

/// One use of a shared stream.
pub struct SharedPipe<T> {
    pub(super) shared: OperatorId,
    pub(super) record_type: PhantomData<fn() -> T>,
}

impl<T: Record + Clone> Pipe for SharedPipe<T> {
    type Out = T;

    fn last_operators(&self) -> Vec<OperatorId> {
        vec![self.shared]
    }

    fn attach<C: Operator<T> + Clone>(self, planner: &mut Planner<'_>, tail: Tail<C>) {
        match tail.operators.first() {
            Some(to) => {
                let to = *to;
                let edges = self.attach_edge(planner, ForwardEdge, to);
                planner.add_chain::<T, C>(edges, tail);
            }
            // The output to an edge hangs on the shared chain itself.
            None => planner.add_fan_out(self.shared, tail.chain),
        }
    }
}

/// A keyed operator behind an exchange by hash.
pub struct ProcessPipe<P, S, F> {
    pub(super) id: OperatorId,
    pub(super) before: P,
    pub(super) selector: S,
    pub(super) function: F,
}

impl<P, S, F> Pipe for ProcessPipe<P, S, F>
where
    P: Pipe,
    S: KeySelector<P::Out, Value: Record>,
    F: ProcessFunction<Key = S::Key, In = S::Value>,
{
    type Out = F::Out;

    fn last_operators(&self) -> Vec<OperatorId> {
        vec![self.id]
    }

    fn attach<C: Operator<F::Out> + Clone>(self, planner: &mut Planner<'_>, tail: Tail<C>) {
        let uid = planner.uid(self.id);
        let kind = HashEdge { uid: uid.clone(), selector: self.selector };
        let edges = self.before.attach_edge(planner, kind, self.id);
        let tail = tail.behind(self.id, |next| ProcessOperator::new(uid, self.function, next));
        planner.add_chain::<Keyed<S::Key, S::Value>, _>(edges, tail);
    }
}

impl<P, S, F> Placeable for ProcessPipe<P, S, F>
where
    Self: Pipe,
{
    type Placed = Self;

    fn place(self) -> Self {
        self
    }

    fn operator(&self) -> OperatorId {
        self.id
    }
}
