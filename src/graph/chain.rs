//! Fusing operators into chains.
//!
//! The builder's types say which operators *can* be one chain; the plan says which *are*. A [`Pipe`] is the part of a stream
//! between the last exchange and its end, with all its types: handing it the operator that follows ([`Pipe::attach`]) yields the
//! fused chain. Where a chain ends, the operator that follows is the output to an edge ([`Pipe::attach_edge`]).

use std::any::Any;
use std::collections::HashMap;
use std::marker::PhantomData;
use std::sync::Arc;

use super::logical::{LogicalGraph, Partitioning};
use super::physical::{Edge, EdgeFactory, ErasedEnds, PhysicalPlan, Vertex, VertexFactory};
use crate::base::error::{Error, ErrorKind, Recovery};
use crate::base::id::{OperatorId, OperatorUid, VertexId};
use crate::codec::{PostcardSerializer, Record, Serializer};
use crate::config::JobConfig;
use crate::exchange::{
    DynOperator, ExchangeConfig, FanOut, HashOutput, InputHead, RoundRobinOutput, Wiring, rings,
};
use crate::operator::context::EdgeId;
use crate::operator::failure::in_operator;
use crate::operator::source::SourceHead;
use crate::operator::{ChainHead, KeySelector, Keyed, Operator, SinkRecovery, Source};
use crate::sync::wake::Waker;

/// The end of a chain: the operators so far, last ones first to be attached.
#[derive(Debug, Clone)]
pub struct Tail<C> {
    /// Ids of the operators in it, head first; an output to an edge has none.
    pub operators: Vec<OperatorId>,
    /// The operators, fused.
    pub chain: C,
}

impl<C> Tail<C> {
    /// This tail behind one more operator.
    pub fn behind<D>(mut self, operator: OperatorId, wrap: impl FnOnce(C) -> D) -> Tail<D> {
        self.operators.insert(0, operator);
        Tail { operators: self.operators, chain: wrap(self.chain) }
    }
}

/// A stream up to some operator, still open at its end.
pub trait Pipe: 'static {
    /// Records at the end of the pipe.
    type Out: 'static;

    /// The operators from which the records come: one, or several behind a union.
    fn last_operators(&self) -> Vec<OperatorId>;

    /// How records get from those operators to the next one.
    fn partitioning(&self) -> Partitioning {
        Partitioning::Forward
    }

    /// Closes the pipe with the operators that follow in the same chain.
    fn attach<C: Operator<Self::Out> + Clone>(self, planner: &mut Planner, tail: Tail<C>);

    /// Closes the pipe with edges to `to`, which begins another chain.
    fn attach_edge<E: EdgeKind<Self::Out>>(
        self,
        planner: &mut Planner,
        kind: E,
        to: OperatorId,
    ) -> Vec<EdgeId>
    where
        Self: Sized,
    {
        let from = self.last_operators()[0];
        let (edge, output) = planner.add_edge(from, to, &kind);
        self.attach(planner, Tail { operators: Vec::new(), chain: output });
        vec![edge]
    }
}

/// A way of dividing records among the subtasks of the next chain.
pub trait EdgeKind<T>: Clone + 'static {
    /// What travels through the rings.
    type Wire: Record;
    /// The operator that sends.
    type Output: Operator<T> + Clone;

    /// How the graph shows it.
    const PARTITIONING: Partitioning;

    /// The operator that sends to this edge.
    fn output(&self, edge: EdgeId) -> Self::Output;
}

/// To the same subtask if both sides have equally many, else to all in turn.
#[derive(Debug, Clone, Copy)]
pub struct ForwardEdge;

impl<T: Record> EdgeKind<T> for ForwardEdge {
    type Wire = T;
    type Output = RoundRobinOutput<T>;

    const PARTITIONING: Partitioning = Partitioning::Forward;

    fn output(&self, edge: EdgeId) -> RoundRobinOutput<T> {
        RoundRobinOutput::new(edge)
    }
}

/// To all subtasks in turn.
#[derive(Debug, Clone, Copy)]
pub struct RebalanceEdge;

impl<T: Record> EdgeKind<T> for RebalanceEdge {
    type Wire = T;
    type Output = RoundRobinOutput<T>;

    const PARTITIONING: Partitioning = Partitioning::Rebalance;

    fn output(&self, edge: EdgeId) -> RoundRobinOutput<T> {
        RoundRobinOutput::new(edge)
    }
}

/// To the owner of the key.
#[derive(Debug, Clone)]
pub struct HashEdge<S> {
    /// The keyed operator.
    pub uid: OperatorUid,
    /// Makes the key.
    pub selector: S,
}

impl<T, S> EdgeKind<T> for HashEdge<S>
where
    T: 'static,
    S: KeySelector<T, Value: Record>,
{
    type Wire = Keyed<S::Key, S::Value>;
    type Output = HashOutput<T, S>;

    const PARTITIONING: Partitioning = Partitioning::Hash;

    fn output(&self, edge: EdgeId) -> HashOutput<T, S> {
        HashOutput::new(edge, self.uid.clone(), self.selector.clone())
    }
}

struct PlannedEdge {
    from: OperatorId,
    to: OperatorId,
    wiring: Wiring,
    partitioning: &'static str,
    factory: Box<dyn EdgeFactory>,
}

/// Makes a physical plan while pipes are attached.
pub struct Planner<'a> {
    graph: &'a LogicalGraph,
    config: &'a JobConfig,
    vertices: Vec<Vertex>,
    edges: Vec<PlannedEdge>,
    fan_outs: HashMap<OperatorId, Vec<Box<dyn Any>>>,
    sinks: Vec<(OperatorId, Box<dyn SinkRecovery>)>,
}

impl std::fmt::Debug for Planner<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Planner").field("vertices", &self.vertices).finish_non_exhaustive()
    }
}

impl<'a> Planner<'a> {
    /// A planner for a valid graph.
    #[must_use]
    pub fn new(graph: &'a LogicalGraph, config: &'a JobConfig) -> Self {
        Self {
            graph,
            config,
            vertices: Vec::new(),
            edges: Vec::new(),
            fan_outs: HashMap::new(),
            sinks: Vec::new(),
        }
    }

    /// The number of subtasks of an operator.
    #[must_use]
    pub fn parallelism(&self, operator: OperatorId) -> u32 {
        self.graph.parallelism(operator, self.config.parallelism)
    }

    /// The uid of an operator.
    #[must_use]
    pub fn uid(&self, operator: OperatorId) -> OperatorUid {
        self.graph.operator(operator).uid_or_default()
    }

    /// True if `to` is fused to `from`.
    #[must_use]
    pub fn is_chained(&self, from: OperatorId, to: OperatorId) -> bool {
        self.parallelism(from) == self.parallelism(to) && !self.graph.operator(to).starts_chain
    }

    /// Adds an edge and makes the operator that sends to it.
    pub fn add_edge<T, E: EdgeKind<T>>(
        &mut self,
        from: OperatorId,
        to: OperatorId,
        kind: &E,
    ) -> (EdgeId, E::Output) {
        let edge = EdgeId(u32::try_from(self.edges.len()).expect("fewer than 2^32 edges"));
        let one_to_one = E::PARTITIONING.is_one_to_one(self.parallelism(from), self.parallelism(to));
        let serializer = PostcardSerializer::<E::Wire>::default();
        self.edges.push(PlannedEdge {
            from,
            to,
            wiring: if one_to_one { Wiring::OneToOne } else { Wiring::AllToAll },
            partitioning: match E::PARTITIONING {
                Partitioning::Hash => "HASH",
                Partitioning::Forward if one_to_one => "FORWARD",
                Partitioning::Forward | Partitioning::Rebalance => "REBALANCE",
            },
            factory: Box::new(TypedEdge::<E::Wire> { serializer: Arc::new(serializer) }),
        });
        (edge, kind.output(edge))
    }

    /// Adds a chain that begins with a source.
    pub fn add_source<S, C>(&mut self, operator: OperatorId, source: S, tail: Tail<C>)
    where
        S: Source,
        C: Operator<S::Out> + Clone,
    {
        let uid = self.uid(operator);
        let tail = tail.behind(operator, |chain| chain);
        let factory = SourceFactory { uid, source, chain: tail.chain };
        self.add_vertex(tail.operators, true, Box::new(factory));
    }

    /// Adds a chain that takes records of type `T` from edges.
    pub fn add_chain<T, C>(&mut self, edges: Vec<EdgeId>, tail: Tail<C>)
    where
        T: Send + 'static,
        C: Operator<T> + Clone,
    {
        let factory = InputFactory { edges, chain: tail.chain, record_type: PhantomData::<fn(T)> };
        self.add_vertex(tail.operators, false, Box::new(factory));
    }

    fn add_vertex(&mut self, operators: Vec<OperatorId>, is_source: bool, factory: Box<dyn VertexFactory>) {
        let id = VertexId(u32::try_from(self.vertices.len()).expect("fewer than 2^32 chains"));
        let parallelism = self.parallelism(operators[0]);
        self.vertices.push(Vertex { id, operators, parallelism, is_source, factory });
    }

    /// Adds what has to be done for a transactional sink while no subtask runs.
    pub fn add_sink_recovery(&mut self, operator: OperatorId, recovery: Box<dyn SinkRecovery>) {
        self.sinks.push((operator, recovery));
    }

    /// Adds one more output to a shared stream.
    pub fn add_fan_out<T: Clone + 'static>(&mut self, shared: OperatorId, output: impl Operator<T> + Clone) {
        let output: Box<dyn DynOperator<T>> = Box::new(output);
        self.fan_outs.entry(shared).or_default().push(Box::new(output));
    }

    /// All outputs of a shared stream, once each of its uses is attached.
    ///
    /// # Panics
    /// If the stream is not used; validation refuses that.
    pub fn take_fan_out<T: Clone + 'static>(&mut self, shared: OperatorId) -> FanOut<T> {
        let outputs = self.fan_outs.remove(&shared).unwrap_or_default();
        let typed = |output: Box<dyn Any>| {
            *output.downcast::<Box<dyn DynOperator<T>>>().expect("one shared stream has one record type")
        };
        FanOut::new(outputs.into_iter().map(typed).collect())
    }

    /// The finished plan, producers before consumers.
    ///
    /// # Panics
    /// If an edge leads to an operator that is in no chain: the pipes are then wrong.
    #[must_use]
    pub fn finish(self) -> PhysicalPlan {
        let Self { mut vertices, edges, config, sinks, .. } = self;
        let mut place = HashMap::new();
        for vertex in &vertices {
            for operator in &vertex.operators {
                place.insert(*operator, vertex.id);
            }
        }
        // A chain's rank is the longest way to it from a source; the graph has no cycle, since streams are used up.
        let mut rank = vec![0usize; vertices.len()];
        for _ in 0..vertices.len() {
            for edge in &edges {
                let (from, to) = (place[&edge.from].index(), place[&edge.to].index());
                rank[to] = rank[to].max(rank[from] + 1);
            }
        }
        vertices.sort_by_key(|vertex| (rank[vertex.id.index()], vertex.operators[0]));
        let mut renumbered = HashMap::new();
        for (index, vertex) in vertices.iter_mut().enumerate() {
            let id = VertexId(u32::try_from(index).expect("fewer than 2^32 chains"));
            renumbered.insert(vertex.id, id);
            vertex.id = id;
        }
        let edges = edges.into_iter().enumerate().map(|(index, edge)| Edge {
            id: EdgeId(u32::try_from(index).expect("fewer than 2^32 edges")),
            from: renumbered[&place[&edge.from]],
            to: renumbered[&place[&edge.to]],
            wiring: edge.wiring,
            partitioning: edge.partitioning,
            factory: edge.factory,
        });
        PhysicalPlan { edges: edges.collect(), vertices, max_parallelism: config.max_parallelism(), sinks }
    }
}

struct TypedEdge<T> {
    /// Not used while barriers stay in order; barriers that overtake records will have to write them.
    serializer: Arc<dyn Serializer<T>>,
}

impl<T: Record> EdgeFactory for TypedEdge<T> {
    fn link(
        &self,
        wiring: Wiring,
        producers: &[Waker],
        consumers: &[Waker],
        config: &ExchangeConfig,
    ) -> (ErasedEnds, ErasedEnds) {
        let (outputs, inputs) = rings::link::<T>(wiring, producers, consumers, config);
        let outputs = outputs.into_iter().map(|ends| Box::new(ends) as Box<dyn Any + Send>).collect();
        let inputs = inputs.into_iter().map(|ends| Box::new(ends) as Box<dyn Any + Send>).collect();
        (outputs, inputs)
    }

    fn codec(&self) -> (String, u32) {
        (self.serializer.id().to_string(), self.serializer.version())
    }
}

struct SourceFactory<S, C> {
    uid: OperatorUid,
    source: S,
    chain: C,
}

impl<S: Source, C: Operator<S::Out> + Clone> VertexFactory for SourceFactory<S, C> {
    fn heads(&mut self, parallelism: u32, fresh: bool) -> Result<Vec<Box<dyn ChainHead>>, Error> {
        let mut splits = vec![Vec::new(); parallelism as usize];
        if fresh {
            let all = in_operator(&self.uid, || self.source.create_splits(parallelism)).map_err(|error| {
                Error::caused_by(ErrorKind::Connector, Recovery::RejectJob, &error).in_operator(&self.uid)
            })?;
            for (index, split) in all.into_iter().enumerate() {
                splits[index % parallelism as usize].push(split);
            }
        }
        let head = |splits| -> Box<dyn ChainHead> {
            Box::new(SourceHead::new(self.uid.clone(), self.source.clone(), splits, self.chain.clone()))
        };
        Ok(splits.into_iter().map(head).collect())
    }
}

struct InputFactory<T, C> {
    edges: Vec<EdgeId>,
    chain: C,
    record_type: PhantomData<fn(T)>,
}

impl<T: Send + 'static, C: Operator<T> + Clone> VertexFactory for InputFactory<T, C> {
    fn heads(&mut self, parallelism: u32, _fresh: bool) -> Result<Vec<Box<dyn ChainHead>>, Error> {
        let head = |_| -> Box<dyn ChainHead> {
            Box::new(InputHead::<T, C>::new(self.edges.clone(), self.chain.clone()))
        };
        Ok((0..parallelism).map(head).collect())
    }
}
