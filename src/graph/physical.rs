//! The plan that is deployed: chains with their parallelism, and the edges between them.

use std::any::Any;
use std::fmt;

use crate::base::error::Error;
use crate::base::id::{OperatorId, VertexId};
use crate::exchange::{ExchangeConfig, Wiring};
use crate::operator::context::EdgeId;
use crate::operator::{ChainHead, SinkRecovery};
use crate::sync::wake::Waker;

/// Makes the subtasks of one chain.
pub trait VertexFactory: Send {
    /// One head for each subtask. A fresh job divides its sources' input here, a restored one has it in its snapshot.
    ///
    /// # Errors
    /// If a source cannot divide its input.
    fn heads(&mut self, parallelism: u32, fresh: bool) -> Result<Vec<Box<dyn ChainHead>>, Error>;
}

/// The ends of an edge's rings per subtask, their record type erased until a chain takes them.
pub type ErasedEnds = Vec<Box<dyn Any + Send>>;

/// Makes the rings of one edge.
pub trait EdgeFactory: Send {
    /// The producing ends per producer and the consuming ends per consumer.
    fn link(
        &self,
        wiring: Wiring,
        producers: &[Waker],
        consumers: &[Waker],
        config: &ExchangeConfig,
    ) -> (ErasedEnds, ErasedEnds);

    /// Id and version of the codec for the records of the edge.
    fn codec(&self) -> (String, u32);
}

/// One chain.
pub struct Vertex {
    /// Its place in the plan.
    pub id: VertexId,
    /// The fused operators, head first.
    pub operators: Vec<OperatorId>,
    /// Number of subtasks.
    pub parallelism: u32,
    /// True if its head is a source.
    pub is_source: bool,
    /// Makes its subtasks.
    pub factory: Box<dyn VertexFactory>,
}

impl fmt::Debug for Vertex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Vertex")
            .field("id", &self.id)
            .field("operators", &self.operators)
            .field("parallelism", &self.parallelism)
            .finish_non_exhaustive()
    }
}

/// One exchange.
pub struct Edge {
    /// Its identity.
    pub id: EdgeId,
    /// Producing chain.
    pub from: VertexId,
    /// Consuming chain.
    pub to: VertexId,
    /// Which subtasks are linked.
    pub wiring: Wiring,
    /// How records are divided, for people.
    pub partitioning: &'static str,
    /// Makes its rings.
    pub factory: Box<dyn EdgeFactory>,
}

impl fmt::Debug for Edge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Edge")
            .field("id", &self.id)
            .field("from", &self.from)
            .field("to", &self.to)
            .field("partitioning", &self.partitioning)
            .finish_non_exhaustive()
    }
}

/// All chains and exchanges of a job, producers before consumers.
#[derive(Debug)]
pub struct PhysicalPlan {
    /// The chains; `vertices[i].id` is `i`.
    pub vertices: Vec<Vertex>,
    /// The exchanges.
    pub edges: Vec<Edge>,
    /// Number of key groups.
    pub max_parallelism: u32,
    /// What has to be done for transactional sinks while no subtask runs.
    pub sinks: Vec<(OperatorId, Box<dyn SinkRecovery>)>,
}
