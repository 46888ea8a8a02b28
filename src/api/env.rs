//! The environment in which streams are declared.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

use super::pipes::SourcePipe;
use super::stream::Stream;
use crate::base::id::OperatorId;
use crate::config::JobConfig;
use crate::graph::explain::explain;
use crate::graph::logical::{OperatorKind, Partitioning};
use crate::graph::validate::{PlanError, validate, warnings};
use crate::graph::{LogicalGraph, PhysicalPlan, Pipe, Planner};
use crate::operator::Source;

type Attach = Box<dyn FnOnce(&mut Planner<'_>)>;

#[derive(Default)]
struct Declared {
    graph: LogicalGraph,
    /// Closes one pipe each, at its sink.
    sinks: Vec<Attach>,
    /// Closes the pipe that leads to each shared stream, in order of declaration.
    shares: Vec<Attach>,
    is_planned: bool,
}

/// Where a job is put together: sources are added here, and the finished job is executed from here.
///
/// ```
/// use stoplog::prelude::*;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let env = StreamEnvironment::new(JobConfig { parallelism: 2, ..JobConfig::default() });
/// let doubled = CollectSink::new();
/// env.source("numbers", VecSource::new(vec![1u64, 2, 3])).map(|n| n * 2).sink("out", doubled.clone());
/// env.execute()?;
/// let mut numbers = doubled.take();
/// numbers.sort();
/// assert_eq!(numbers, [2, 4, 6]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct StreamEnvironment {
    declared: Rc<RefCell<Declared>>,
    config: JobConfig,
}

impl fmt::Debug for StreamEnvironment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamEnvironment").field("config", &self.config).finish_non_exhaustive()
    }
}

impl StreamEnvironment {
    /// An environment with these settings.
    #[must_use]
    pub fn new(config: JobConfig) -> Self {
        Self { declared: Rc::default(), config }
    }

    /// The settings.
    #[must_use]
    pub fn config(&self) -> &JobConfig {
        &self.config
    }

    /// Adds a source.
    pub fn source<S: Source>(&self, name: &str, source: S) -> Stream<S::Out, SourcePipe<S>> {
        let id = self.edit(|graph| {
            let id = graph.add(OperatorKind::Source, format!("Source: {name}"));
            graph.operator_mut(id).replayable = source.is_replayable();
            id
        });
        Stream::new(self.clone(), SourcePipe { id, source })
    }

    /// Checks the declared job and plans it. Clones of the environment share what is declared: after this, nothing can be added
    /// through any of them.
    ///
    /// # Errors
    /// Lists every mistake in the job and its settings.
    pub fn plan(self) -> Result<JobGraph, PlanError> {
        let declared = self.declared.replace(Declared { is_planned: true, ..Declared::default() });
        if declared.is_planned {
            return Err(PlanError { mistakes: vec!["the job was planned already".to_owned()] });
        }
        validate(&declared.graph, &self.config)?;
        for warning in warnings(&declared.graph, self.config.checkpoints.interval.is_some()) {
            tracing::warn!(target: "stoplog::graph", job = %self.config.name, "{warning}");
        }
        let mut planner = Planner::new(&declared.graph, &self.config);
        for attach in declared.sinks {
            attach(&mut planner);
        }
        // A shared stream is declared before the streams made of it: going backwards, all of its uses are attached first.
        for attach in declared.shares.into_iter().rev() {
            attach(&mut planner);
        }
        let physical = planner.finish();
        Ok(JobGraph { logical: declared.graph, physical, config: self.config })
    }

    /// # Panics
    /// If the job was planned already: what was declared went into the plan, and nothing can be added to it.
    pub(super) fn edit<R>(&self, edit: impl FnOnce(&mut LogicalGraph) -> R) -> R {
        let mut declared = self.declared.borrow_mut();
        assert!(
            !declared.is_planned,
            "the job was planned already; streams are declared before plan() or execute()"
        );
        edit(&mut declared.graph)
    }

    /// True if both are the same environment.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.declared, &other.declared)
    }

    pub(super) fn add_sink(&self, attach: impl FnOnce(&mut Planner<'_>) + 'static) {
        self.declared.borrow_mut().sinks.push(Box::new(attach));
    }

    pub(super) fn add_share(&self, attach: impl FnOnce(&mut Planner<'_>) + 'static) {
        self.declared.borrow_mut().shares.push(Box::new(attach));
    }

    /// Adds an operator behind the end of a pipe.
    pub(super) fn add_operator(&self, name: &str, kind: OperatorKind, before: &impl Pipe) -> OperatorId {
        self.add_behind(name, kind, before, before.partitioning())
    }

    /// Adds an operator that gets its records by key.
    pub(super) fn add_keyed_operator(&self, name: &str, before: &impl Pipe) -> OperatorId {
        self.add_behind(name, OperatorKind::Transformation, before, Partitioning::Hash)
    }

    fn add_behind(
        &self,
        name: &str,
        kind: OperatorKind,
        before: &impl Pipe,
        partitioning: Partitioning,
    ) -> OperatorId {
        let from = before.last_operators();
        self.edit(|graph| {
            let id = graph.add(kind, name);
            from.iter().for_each(|operator| graph.connect(*operator, id, partitioning));
            // What follows an exchange begins a chain, and has the job's parallelism unless it says otherwise.
            graph.operator_mut(id).inherits_parallelism =
                from.len() == 1 && partitioning == Partitioning::Forward;
            id
        })
    }
}

/// A job that is checked and planned, ready to be executed.
#[derive(Debug)]
pub struct JobGraph {
    /// The operators as declared.
    pub logical: LogicalGraph,
    /// The chains and exchanges.
    pub physical: PhysicalPlan,
    /// The settings.
    pub config: JobConfig,
}

impl JobGraph {
    /// The plan as text: chains, operators, uids, states, exchanges.
    #[must_use]
    pub fn explain(&self) -> String {
        explain(&self.logical, &self.physical)
    }
}
