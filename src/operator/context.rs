//! What an operator is given: when it starts, when it is snapshot, when the job is finished.

use std::any::Any;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use super::later::Later;
use crate::base::clock::Clock;
use crate::base::error::{BoxError, Error, ErrorKind, Recovery};
use crate::base::id::{CheckpointId, OperatorUid, SubtaskIndex};
use crate::base::key_group::{KeyGroupRange, KeyGroups};
use crate::metrics::SubtaskCounters;
use crate::snapshot::FrozenState;
use crate::state::RestoredKeyedState;
use crate::sync::wake::Waker;

/// Identifies an exchange edge of the physical plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EdgeId(pub u32);

/// The ends of the rings that belong to one subtask, by edge. The types are known where they are taken.
#[derive(Default)]
pub struct Ports {
    outputs: HashMap<EdgeId, Box<dyn Any + Send>>,
    inputs: HashMap<EdgeId, Box<dyn Any + Send>>,
}

impl fmt::Debug for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ports")
            .field("outputs", &self.outputs.keys())
            .field("inputs", &self.inputs.keys())
            .finish()
    }
}

impl Ports {
    /// Adds the producing ends of an edge.
    pub fn put_outputs(&mut self, edge: EdgeId, ends: Box<dyn Any + Send>) {
        self.outputs.insert(edge, ends);
    }

    /// Adds the consuming ends of an edge.
    pub fn put_inputs(&mut self, edge: EdgeId, ends: Box<dyn Any + Send>) {
        self.inputs.insert(edge, ends);
    }

    /// Takes the producing ends of an edge.
    ///
    /// # Panics
    /// If they were taken before or have another type: the plan is then wrong.
    pub fn take_outputs<E: 'static>(&mut self, edge: EdgeId) -> E {
        Self::take(self.outputs.remove(&edge), edge)
    }

    /// Takes the consuming ends of an edge.
    ///
    /// # Panics
    /// If they were taken before or have another type: the plan is then wrong.
    pub fn take_inputs<E: 'static>(&mut self, edge: EdgeId) -> E {
        Self::take(self.inputs.remove(&edge), edge)
    }

    fn take<E: 'static>(ends: Option<Box<dyn Any + Send>>, edge: EdgeId) -> E {
        let ends = ends.unwrap_or_else(|| panic!("edge {} has no ends here", edge.0));
        *ends.downcast().unwrap_or_else(|_| panic!("edge {} carries another type", edge.0))
    }
}

/// What a helper's step achieved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HelperStatus {
    /// Step again.
    Worked,
    /// Nothing to do until it is woken.
    Idle,
    /// The helper has nothing left to do, ever.
    Done,
}

/// Blocking work that belongs to a subtask but runs on a thread of its own, linked to it by rings.
pub trait Helper: Send {
    /// Does one piece of work. May block, but returns within about 100 ms, so that the job can end.
    ///
    /// # Errors
    /// An error fails the job.
    fn step(&mut self) -> Result<HelperStatus, BoxError>;

    /// The job is ending in an orderly way (finished or suspended): last chance to write what was handed over.
    ///
    /// # Errors
    /// An error fails the job.
    fn stop(&mut self) -> Result<(), BoxError> {
        Ok(())
    }
}

/// Starts helpers: on threads in production, as further steps of the one thread under the deterministic scheduler.
pub trait HelperPool {
    /// Starts a helper; the answer wakes it.
    ///
    /// # Errors
    /// If no thread can be had.
    fn spawn(&mut self, name: String, helper: Box<dyn Helper>) -> Result<Waker, BoxError>;
}

/// What a snapshot holds for one operator, as far as it concerns one subtask.
#[derive(Debug, Clone, Default)]
pub struct RestoredOperator {
    /// Keyed state: the sections of the subtask's own key groups.
    pub keyed: Option<RestoredKeyedState>,
    /// List state of this subtask, by name.
    pub list: BTreeMap<String, Vec<Vec<u8>>>,
    /// True if the operator had handed on what was due at the end of its input.
    pub ended: bool,
}

/// What the job goes on from.
#[derive(Debug, Clone)]
pub struct Restored {
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// Per operator. An operator that is not listed had no state.
    pub operators: HashMap<OperatorUid, RestoredOperator>,
}

/// What an operator is given when it starts.
pub struct OpenContext<'a> {
    /// Which of the operator's subtasks this is.
    pub subtask: SubtaskIndex,
    /// How many subtasks the operator has.
    pub key_groups: KeyGroups,
    /// The engine's clock. Nothing in an operator reads another one.
    pub clock: Arc<dyn Clock>,
    /// Wakes this subtask; for helpers that hand something to it.
    pub waker: Waker,
    /// The snapshot from which the job goes on, if it does.
    pub restored: Option<&'a Restored>,
    /// Numbers of this subtask.
    pub counters: Arc<SubtaskCounters>,
    /// True if checkpoints are taken at all.
    pub checkpointing: bool,
    pub(crate) ports: &'a mut Ports,
    pub(crate) helpers: &'a mut dyn HelperPool,
}

impl fmt::Debug for OpenContext<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenContext")
            .field("subtask", &self.subtask)
            .field("key_groups", &self.key_groups)
            .field("restored", &self.restored.map(|restored| restored.checkpoint))
            .finish_non_exhaustive()
    }
}

impl OpenContext<'_> {
    /// How many subtasks the operator has.
    #[must_use]
    pub fn parallelism(&self) -> u32 {
        self.key_groups.parallelism()
    }

    /// The key groups of this subtask.
    #[must_use]
    pub fn key_group_range(&self) -> KeyGroupRange {
        self.key_groups.range(self.subtask)
    }

    /// What the snapshot holds for an operator.
    #[must_use]
    pub fn restored_operator(&self, uid: &OperatorUid) -> Option<&RestoredOperator> {
        self.restored.and_then(|restored| restored.operators.get(uid))
    }

    /// Starts blocking work on a thread of its own. It ends with the subtask.
    ///
    /// # Errors
    /// If no thread can be had.
    pub fn spawn_helper(&mut self, name: &str, helper: Box<dyn Helper>) -> Result<Waker, BoxError> {
        self.helpers.spawn(format!("{name}-{}", self.subtask), helper)
    }
}

/// The fork of one operator's state, taken between two records.
pub struct OperatorFork {
    /// The operator.
    pub uid: OperatorUid,
    /// Keyed state, still to be serialised.
    pub keyed: Vec<Box<dyn FrozenState>>,
    /// List state by name, serialised (a few bytes).
    pub list: BTreeMap<String, Vec<Vec<u8>>>,
    /// Items of the list state [`TRANSACTIONS`](super::recovery::TRANSACTIONS), which the snapshot waits for.
    pub later: Option<Later<Vec<Vec<u8>>>>,
    /// See [`RestoredOperator::ended`].
    pub ended: bool,
}

impl fmt::Debug for OperatorFork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OperatorFork").field("uid", &self.uid).finish_non_exhaustive()
    }
}

/// Collects the forks of a chain's operators.
#[derive(Debug)]
pub struct SnapshotContext {
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// What the operators have forked so far.
    pub forks: Vec<OperatorFork>,
    /// Why the snapshot must be declined, if it must.
    pub declined: Option<Error>,
}

impl SnapshotContext {
    /// An empty collection.
    #[must_use]
    pub fn new(checkpoint: CheckpointId) -> Self {
        Self { checkpoint, forks: Vec::new(), declined: None }
    }

    /// Declines the snapshot because of this operator.
    pub fn decline(&mut self, uid: &OperatorUid, error: &BoxError) {
        let error = Error::caused_by(ErrorKind::Snapshot, Recovery::Restart, error).in_operator(uid);
        self.declined.get_or_insert(error);
    }
}

/// What an operator is given when the job is finished.
#[derive(Debug, Default)]
pub struct CloseContext {
    accumulators: BTreeMap<String, u64>,
}

impl CloseContext {
    /// Adds to a number that the job's result shows under this name, summed over all subtasks modulo 2^64.
    pub fn accumulate(&mut self, name: &str, amount: u64) {
        let sum = self.accumulators.entry(name.to_owned()).or_default();
        *sum = sum.wrapping_add(amount);
    }

    /// The numbers.
    #[must_use]
    pub fn into_accumulators(self) -> BTreeMap<String, u64> {
        self.accumulators
    }
}
