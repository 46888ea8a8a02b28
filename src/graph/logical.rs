//! The graph of operators as the builder describes it.

use crate::base::id::{OperatorId, OperatorUid};

/// What an operator is, as far as planning cares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OperatorKind {
    /// Begins a stream.
    Source,
    /// Takes records and hands on records.
    Transformation,
    /// Ends a stream.
    Sink,
}

/// One operator.
#[derive(Debug, Clone)]
pub struct LogicalOperator {
    /// Its place in the graph.
    pub id: OperatorId,
    /// What it is.
    pub kind: OperatorKind,
    /// What it does, for people: `Map`, `Source: lines`.
    pub name: String,
    /// The uid that the user gave.
    pub uid: Option<OperatorUid>,
    /// The parallelism that the user gave.
    pub parallelism: Option<u32>,
    /// True if it takes its parallelism from the operator before it when the user gave none.
    pub inherits_parallelism: bool,
    /// True if it must not be chained to the operator before it.
    pub starts_chain: bool,
    /// Names and kinds of its states: `count: value`.
    pub states: Vec<(String, String)>,
    /// False for a source that cannot be put back to a position.
    pub replayable: bool,
}

impl LogicalOperator {
    /// The uid, or the one made up from the operator's place. Made-up uids change when operators are added before it.
    #[must_use]
    pub fn uid_or_default(&self) -> OperatorUid {
        self.uid.clone().unwrap_or_else(|| {
            let word: String = self.name.chars().filter(char::is_ascii_alphanumeric).collect();
            OperatorUid::new(format!("{}-{}", word.to_ascii_lowercase(), self.id))
        })
    }
}

/// How records get from one operator to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Partitioning {
    /// To the same subtask where the parallelism is equal, else to all in turn.
    Forward,
    /// To all subtasks in turn.
    Rebalance,
    /// To the subtask that owns the key's group.
    Hash,
}

impl Partitioning {
    /// True if subtask `i` sends to subtask `i` only, between this many subtasks and that many.
    #[must_use]
    pub fn is_one_to_one(self, from: u32, to: u32) -> bool {
        self == Self::Forward && from == to
    }
}

/// A stream from one operator to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogicalEdge {
    /// Producer.
    pub from: OperatorId,
    /// Consumer.
    pub to: OperatorId,
    /// How records are divided among the consumer's subtasks.
    pub partitioning: Partitioning,
}

/// The operators and streams of a job.
#[derive(Debug, Clone, Default)]
pub struct LogicalGraph {
    /// In the order of their ids.
    pub operators: Vec<LogicalOperator>,
    /// In the order in which they were declared.
    pub edges: Vec<LogicalEdge>,
    /// What went wrong while streams were declared, one sentence each.
    pub mistakes: Vec<String>,
}

impl LogicalGraph {
    /// Adds an operator.
    pub fn add(&mut self, kind: OperatorKind, name: impl Into<String>) -> OperatorId {
        let id =
            OperatorId(u32::try_from(self.operators.len()).expect("a graph has fewer than 2^32 operators"));
        self.operators.push(LogicalOperator {
            id,
            kind,
            name: name.into(),
            uid: None,
            parallelism: None,
            inherits_parallelism: false,
            starts_chain: false,
            states: Vec::new(),
            replayable: true,
        });
        id
    }

    /// Adds a stream.
    pub fn connect(&mut self, from: OperatorId, to: OperatorId, partitioning: Partitioning) {
        self.edges.push(LogicalEdge { from, to, partitioning });
    }

    /// The operator with this id.
    ///
    /// # Panics
    /// If there is none: ids come from [`LogicalGraph::add`].
    #[must_use]
    pub fn operator(&self, id: OperatorId) -> &LogicalOperator {
        &self.operators[id.index()]
    }

    /// The operator with this id.
    ///
    /// # Panics
    /// If there is none: ids come from [`LogicalGraph::add`].
    pub fn operator_mut(&mut self, id: OperatorId) -> &mut LogicalOperator {
        &mut self.operators[id.index()]
    }

    /// The parallelism of an operator: its own, that of the operator it follows, or the default.
    #[must_use]
    pub fn parallelism(&self, id: OperatorId, default: u32) -> u32 {
        let operator = self.operator(id);
        match operator.parallelism {
            Some(parallelism) => parallelism,
            None if operator.inherits_parallelism => {
                let before = self.edges.iter().find(|edge| edge.to == id);
                before.map_or(default, |edge| self.parallelism(edge.from, default))
            }
            None => default,
        }
    }
}
