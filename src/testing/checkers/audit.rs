//! A sink that watches how it is called.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crossbeam::channel::{Receiver, Sender, unbounded};

use crate::base::error::BoxError;
use crate::base::id::{CheckpointId, SubtaskIndex};
use crate::base::progress::Flow;
use crate::connectors::CollectSink;
use crate::operator::context::{Helper, HelperStatus};
use crate::operator::{OpenContext, PreCommitContext, Sink};
use crate::sync::wake::Waker;
use crate::testing::faults::{Fault, Faults, FaultyStorage};

/// What is seen of a job across all of its sinks and sources.
#[derive(Debug, Default)]
pub struct Observed {
    /// Counts executions; the one who steps the simulation raises it at each launch.
    pub epoch: AtomicU32,
    /// Sinks that were closed in this execution.
    pub closed: AtomicU32,
    violations: Mutex<Vec<String>>,
}

impl Observed {
    /// Notes that a rule was broken.
    pub fn violation(&self, what: String) {
        self.violations.lock().unwrap_or_else(PoisonError::into_inner).push(what);
    }

    /// The first broken rule.
    ///
    /// # Errors
    /// If a rule was broken.
    pub fn check(&self) -> Result<(), String> {
        self.violations.lock().unwrap_or_else(PoisonError::into_inner).first().cloned().map_or(Ok(()), Err)
    }
}

/// What one sink promised to a checkpoint.
#[derive(Debug, Clone)]
struct Promise<T> {
    epoch: u32,
    checkpoint: CheckpointId,
    records: Vec<T>,
}

#[derive(Debug)]
struct Shared<T> {
    promises: Vec<Promise<T>>,
    /// Everything promised up to a completed checkpoint.
    durable: BTreeMap<CheckpointId, Vec<T>>,
}

/// A [`CollectSink`] that fails, blocks and watches.
#[derive(Debug)]
pub struct AuditSink<T> {
    /// Where the records go.
    pub collected: CollectSink<T>,
    name: &'static str,
    observed: Arc<Observed>,
    faults: Faults,
    storage: FaultyStorage,
    shared: Arc<Mutex<Shared<T>>>,
    /// Blocks on one record in so many; 0 for none.
    block_one_in: u32,
    subtask: SubtaskIndex,
    written: u32,
    current: Vec<T>,
    newest: Option<CheckpointId>,
    completed: Option<CheckpointId>,
    aborted: BTreeSet<CheckpointId>,
    unblock: Option<Unblock>,
    ended: bool,
}

/// Asks the helper for leave to go on.
#[derive(Debug)]
struct Unblock {
    ask: Sender<()>,
    answer: Receiver<()>,
    helper: Waker,
    waiting: bool,
}

/// Lets a blocked sink go on, from "another thread".
#[derive(Debug)]
struct Unblocker {
    asked: Receiver<()>,
    answer: Sender<()>,
    sink: Waker,
    faults: Faults,
}

impl Helper for Unblocker {
    fn step(&mut self) -> Result<HelperStatus, BoxError> {
        self.faults.check(Fault::Helper)?;
        if self.asked.try_recv().is_err() {
            return Ok(HelperStatus::Idle);
        }
        let _ = self.answer.send(());
        self.sink.wake();
        Ok(HelperStatus::Worked)
    }
}

impl<T> Clone for AuditSink<T> {
    fn clone(&self) -> Self {
        Self {
            collected: self.collected.clone(),
            name: self.name,
            observed: Arc::clone(&self.observed),
            faults: self.faults.clone(),
            storage: self.storage.clone(),
            shared: Arc::clone(&self.shared),
            block_one_in: self.block_one_in,
            subtask: self.subtask,
            written: 0,
            current: Vec::new(),
            newest: None,
            completed: None,
            aborted: BTreeSet::new(),
            unblock: None,
            ended: false,
        }
    }
}

impl<T: Clone> AuditSink<T> {
    /// A sink that has seen nothing.
    #[must_use]
    pub fn new(
        name: &'static str,
        observed: Arc<Observed>,
        faults: Faults,
        storage: FaultyStorage,
        block_one_in: u32,
    ) -> Self {
        let shared = Shared { promises: Vec::new(), durable: BTreeMap::new() };
        Self {
            collected: CollectSink::new(),
            name,
            observed,
            faults,
            storage,
            shared: Arc::new(Mutex::new(shared)),
            block_one_in,
            subtask: SubtaskIndex(0),
            written: 0,
            current: Vec::new(),
            newest: None,
            completed: None,
            aborted: BTreeSet::new(),
            unblock: None,
            ended: false,
        }
    }

    fn shared(&self) -> MutexGuard<'_, Shared<T>> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Everything promised to this checkpoint, which has just become durable in an execution that was restored from
    /// `restored`: what was promised up to that one, and since then up to this one.
    #[must_use]
    pub fn promised(&self, checkpoint: CheckpointId, restored: Option<CheckpointId>) -> Vec<T> {
        let epoch = self.observed.epoch.load(Ordering::Relaxed);
        let mut shared = self.shared();
        let mut records =
            restored.and_then(|restored| shared.durable.get(&restored).cloned()).unwrap_or_default();
        for promise in &shared.promises {
            if promise.epoch == epoch && promise.checkpoint <= checkpoint {
                records.extend(promise.records.iter().cloned());
            }
        }
        shared.durable.insert(checkpoint, records.clone());
        records
    }

    fn require(&self, rule: bool, what: &str, checkpoint: CheckpointId) {
        if !rule {
            let (name, subtask) = (self.name, self.subtask);
            self.observed.violation(format!("sink {name}.{subtask}, checkpoint {checkpoint}: {what}"));
        }
    }
}

impl<T: Clone + Send + 'static> Sink<T> for AuditSink<T> {
    fn open(&mut self, cx: &mut OpenContext<'_>) -> Result<(), BoxError> {
        self.faults.check(Fault::Open)?;
        self.subtask = cx.subtask;
        if self.block_one_in > 0 {
            let (ask, asked) = unbounded();
            let (answer, answered) = unbounded();
            let helper = Unblocker { asked, answer, sink: cx.waker.clone(), faults: self.faults.clone() };
            let helper = cx.spawn_helper(self.name, Box::new(helper))?;
            self.unblock = Some(Unblock { ask, answer: answered, helper, waiting: false });
        }
        self.collected.open(cx)
    }

    fn write(&mut self, record: T) -> Result<Flow, BoxError> {
        self.faults.check(Fault::Write)?;
        let blocked = self.unblock.as_ref().is_some_and(|unblock| unblock.waiting);
        self.require(!blocked, "a record was written while blocked", CheckpointId(0));
        self.require(!self.ended, "a record was written after the end", CheckpointId(0));
        self.current.push(record.clone());
        let flow = self.collected.write(record)?;
        self.written += 1;
        if let Some(unblock) = &mut self.unblock
            && self.written.is_multiple_of(self.block_one_in)
        {
            unblock.waiting = true;
            let _ = unblock.ask.send(());
            unblock.helper.wake();
            return Ok(Flow::Blocked);
        }
        Ok(flow)
    }

    fn resume(&mut self) -> Result<Flow, BoxError> {
        match &mut self.unblock {
            Some(unblock) if unblock.waiting && unblock.answer.try_recv().is_err() => Ok(Flow::Blocked),
            Some(unblock) => {
                unblock.waiting = false;
                Ok(Flow::Continue)
            }
            None => Ok(Flow::Continue),
        }
    }

    fn end_input(&mut self) -> Result<Flow, BoxError> {
        self.ended = true;
        self.collected.end_input()
    }

    fn pre_commit(&mut self, cx: &mut PreCommitContext) -> Result<(), BoxError> {
        let checkpoint = cx.checkpoint;
        let blocked = self.unblock.as_ref().is_some_and(|unblock| unblock.waiting);
        self.require(!blocked, "pre-commit while blocked", checkpoint);
        self.require(self.newest < Some(checkpoint), "pre-commit out of order", checkpoint);
        self.require(!self.aborted.contains(&checkpoint), "pre-commit after its abort", checkpoint);
        self.newest = Some(checkpoint);
        self.faults.check(Fault::PreCommit)?;
        let epoch = self.observed.epoch.load(Ordering::Relaxed);
        let records = std::mem::take(&mut self.current);
        self.shared().promises.push(Promise { epoch, checkpoint, records });
        self.collected.pre_commit(cx)
    }

    fn notify_complete(&mut self, checkpoint: CheckpointId) -> Result<(), BoxError> {
        self.require(self.storage.was_committed(checkpoint), "complete before it is durable", checkpoint);
        self.require(self.newest >= Some(checkpoint), "complete before its pre-commit", checkpoint);
        self.require(self.completed < Some(checkpoint), "complete out of order", checkpoint);
        self.faults.check(Fault::Notify)?;
        self.completed = Some(checkpoint);
        self.collected.notify_complete(checkpoint)
    }

    fn notify_aborted(&mut self, checkpoint: CheckpointId) -> Result<(), BoxError> {
        self.require(!self.storage.was_committed(checkpoint), "aborted although durable", checkpoint);
        self.aborted.insert(checkpoint);
        self.collected.notify_aborted(checkpoint)
    }

    fn close(&mut self) -> Result<(), BoxError> {
        self.faults.check(Fault::Close)?;
        self.observed.closed.fetch_add(1, Ordering::Relaxed);
        self.collected.close()
    }
}
