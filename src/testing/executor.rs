//! Steps subtasks, snapshot tasks and helpers by hand, one at a time.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use crate::base::clock::Nanos;
use crate::base::error::{BoxError, Error, ErrorKind, Recovery};
use crate::base::id::{Attempt, SubtaskId, SubtaskIndex};
use crate::base::progress::Progress;
use crate::job::executor::Executor;
use crate::operator::context::{Helper, HelperPool, HelperStatus};
use crate::operator::failure::caught;
use crate::runtime::signal::{Signal, SignalSink};
use crate::runtime::snapshot_pool::{Task, TaskPool};
use crate::runtime::subtask::Subtask;
use crate::runtime::worker::Worker;
use crate::sync::wake::{Parker, Waker};

/// Tasks that wait to be run.
#[derive(Default)]
pub struct SimPool {
    tasks: Mutex<Vec<Task>>,
}

impl fmt::Debug for SimPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimPool").field("waiting", &self.len()).finish()
    }
}

impl TaskPool for SimPool {
    fn spawn(&self, task: Task) {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).push(task);
    }
}

impl SimPool {
    /// How many tasks wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// True if no task waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Runs one of the waiting tasks; the pool of a job has several threads, so any may be next.
    pub fn run(&self, index: usize) {
        let task = self.tasks.lock().unwrap_or_else(PoisonError::into_inner).remove(index);
        task();
    }
}

/// One simulated worker: what one pinned thread would step.
#[derive(Debug)]
pub struct SimWorker {
    worker: Worker,
    ids: Vec<SubtaskId>,
    parker: Parker,
    open: bool,
    /// Asleep until then, unless it is woken.
    asleep_until: Option<Nanos>,
}

impl SimWorker {
    /// True if the worker would be running at this time.
    #[must_use]
    pub fn is_awake(&self, now: Nanos) -> bool {
        self.asleep_until.is_none_or(|until| until <= now || !self.parker.is_asleep())
    }

    /// When it wakes by itself.
    #[must_use]
    pub fn wakes_at(&self) -> Option<Nanos> {
        self.asleep_until.filter(|until| *until != Nanos::MAX)
    }

    /// Its subtasks.
    #[must_use]
    pub fn subtasks(&self) -> &[SubtaskId] {
        &self.ids
    }

    /// True once its subtasks are open.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.open
    }

    /// Steps one of its subtasks.
    pub fn step(&mut self, index: usize, budget: usize) -> Progress {
        if self.asleep_until.take().is_some() {
            self.parker.cancel();
        }
        self.worker.step_one(index, budget)
    }

    /// What a pinned thread does before it sleeps: announce it, look at everything once more, sleep if there is nothing.
    pub fn try_sleep(&mut self, budget: usize) -> Progress {
        self.parker.prepare();
        let progress = self.worker.step(budget);
        match progress {
            Progress::Idle(until) => self.asleep_until = Some(until),
            Progress::Done => self.asleep_until = Some(Nanos::MAX),
            Progress::Worked => self.parker.cancel(),
        }
        progress
    }
}

/// One helper that would have a thread of its own.
pub struct SimHelper {
    helper: Box<dyn Helper>,
    parker: Parker,
    asleep: bool,
    done: bool,
    attempt: Attempt,
    subtask: SubtaskIndex,
    signals: Arc<dyn SignalSink>,
}

impl fmt::Debug for SimHelper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimHelper")
            .field("subtask", &self.subtask)
            .field("asleep", &self.asleep)
            .field("done", &self.done)
            .finish_non_exhaustive()
    }
}

impl SimHelper {
    /// True if the helper's thread would be running.
    #[must_use]
    pub fn is_awake(&self) -> bool {
        !self.done && (!self.asleep || !self.parker.is_asleep())
    }

    /// Steps the helper; when it is idle, it sleeps as its thread would.
    pub fn step(&mut self) {
        if std::mem::take(&mut self.asleep) {
            self.parker.cancel();
        }
        if self.call(|helper| helper.step()) == Some(HelperStatus::Idle) {
            self.parker.prepare();
            if self.call(|helper| helper.step()) == Some(HelperStatus::Idle) {
                self.asleep = true;
            } else {
                self.parker.cancel();
            }
        }
    }

    fn call<R: Finishing>(&mut self, call: impl FnOnce(&mut dyn Helper) -> Result<R, BoxError>) -> Option<R> {
        if self.done {
            return None;
        }
        let helper = self.helper.as_mut();
        let error = match catch_unwind(AssertUnwindSafe(|| call(helper))) {
            Ok(Ok(answer)) => {
                self.done = answer.is_last();
                return Some(answer);
            }
            Ok(Err(error)) => Error::caused_by(ErrorKind::Connector, Recovery::Restart, &error),
            Err(payload) => caught(payload),
        };
        self.done = true;
        self.signals.send(Signal::Failed { attempt: self.attempt, error: error.in_subtask(self.subtask) });
        None
    }
}

trait Finishing: Copy + PartialEq {
    fn is_last(self) -> bool;
}

impl Finishing for HelperStatus {
    fn is_last(self) -> bool {
        self == Self::Done
    }
}

impl Finishing for () {
    fn is_last(self) -> bool {
        true
    }
}

type Spawned = Arc<Mutex<Vec<SimHelper>>>;

struct SimHelperPool {
    spawned: Spawned,
    attempt: Attempt,
    subtask: SubtaskIndex,
    signals: Arc<dyn SignalSink>,
}

impl HelperPool for SimHelperPool {
    fn spawn(&mut self, _name: String, helper: Box<dyn Helper>) -> Result<Waker, BoxError> {
        let parker = Parker::new();
        let waker = parker.waker();
        self.spawned.lock().unwrap_or_else(PoisonError::into_inner).push(SimHelper {
            helper,
            parker,
            asleep: false,
            done: false,
            attempt: self.attempt,
            subtask: self.subtask,
            signals: Arc::clone(&self.signals),
        });
        Ok(waker)
    }
}

/// Steps nothing by itself: whoever holds it does.
#[derive(Debug)]
pub struct SimExecutor {
    worker_count: usize,
    parkers: Vec<Parker>,
    pool: Arc<SimPool>,
    /// The workers of the execution that runs.
    pub workers: Vec<SimWorker>,
    /// Its helpers.
    pub helpers: Vec<SimHelper>,
    /// Executions launched so far.
    pub launches: u32,
}

impl SimExecutor {
    /// An executor with this many workers.
    #[must_use]
    pub fn new(worker_count: usize) -> Self {
        Self {
            worker_count,
            parkers: Vec::new(),
            pool: Arc::default(),
            workers: Vec::new(),
            helpers: Vec::new(),
            launches: 0,
        }
    }

    /// The waiting snapshot tasks.
    #[must_use]
    pub fn tasks(&self) -> Arc<SimPool> {
        Arc::clone(&self.pool)
    }

    /// Opens the subtasks of one worker.
    pub fn open(&mut self, worker: usize) {
        let spawned = Spawned::default();
        let worker = &mut self.workers[worker];
        worker.open = true;
        worker.worker.open(|subtask| {
            let pool = SimHelperPool {
                spawned: Arc::clone(&spawned),
                attempt: subtask.attempt(),
                subtask: subtask.id().index,
                signals: Arc::clone(subtask.signals()),
            };
            Some(Box::new(pool) as Box<dyn HelperPool>)
        });
        self.helpers.append(&mut spawned.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl Executor for SimExecutor {
    fn prepare(&mut self) -> Vec<Waker> {
        self.parkers = (0..self.worker_count).map(|_| Parker::new()).collect();
        self.parkers.iter().map(Parker::waker).collect()
    }

    fn launch(&mut self, workers: Vec<Vec<Subtask>>) -> Result<(), BoxError> {
        self.launches += 1;
        self.helpers.clear();
        let workers = self.parkers.drain(..).zip(workers).filter(|(_, subtasks)| !subtasks.is_empty());
        self.workers = workers
            .map(|(parker, subtasks)| SimWorker {
                ids: subtasks.iter().map(Subtask::id).collect(),
                worker: Worker::new(subtasks),
                parker,
                open: false,
                asleep_until: None,
            })
            .collect();
        Ok(())
    }

    fn stop(&mut self, orderly: bool) {
        self.workers.clear();
        for mut helper in self.helpers.drain(..) {
            if orderly {
                let _ = helper.call(|helper| helper.stop());
            }
        }
    }

    fn pool(&self) -> Arc<dyn TaskPool> {
        Arc::clone(&self.pool) as Arc<dyn TaskPool>
    }
}
