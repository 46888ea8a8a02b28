//! Who steps the subtasks of an execution.

use std::fmt;
use std::sync::Arc;

use crate::base::clock::Clock;
use crate::base::error::{BoxError, Error};
use crate::config::{Cores, IdleStrategy};
use crate::runtime::affinity::available_cores;
use crate::runtime::snapshot_pool::{SnapshotPool, TaskPool};
use crate::runtime::subtask::Subtask;
use crate::runtime::worker::{WorkerSeed, Workers};
use crate::sync::wake::{Parker, Waker};

/// Steps the subtasks of one execution at a time: pinned threads, or the one thread of the deterministic scheduler.
pub trait Executor: fmt::Debug {
    /// Gets ready for an execution and answers the wakers of the workers among which its subtasks are divided.
    fn prepare(&mut self) -> Vec<Waker>;

    /// Opens the subtasks (each reports [`Opened`](crate::runtime::signal::Signal::Opened)) and begins to step them.
    ///
    /// # Errors
    /// If the machine refuses a thread.
    fn launch(&mut self, workers: Vec<Vec<Subtask>>) -> Result<(), BoxError>;

    /// Stops stepping and drops the subtasks. After it returns, none of them does anything any more; `orderly` if helpers
    /// must still write what was handed to them. Does nothing if nothing was launched.
    fn stop(&mut self, orderly: bool);

    /// Where snapshots are written.
    fn pool(&self) -> Arc<dyn TaskPool>;
}

/// Pinned worker threads.
#[derive(Debug)]
pub struct PinnedThreads {
    cores: Vec<usize>,
    strategy: IdleStrategy,
    clock: Arc<dyn Clock>,
    pool: Arc<SnapshotPool>,
    parkers: Vec<Parker>,
    workers: Option<Workers>,
}

impl PinnedThreads {
    /// Workers on these cores, but never more workers than subtasks.
    ///
    /// # Errors
    /// If the machine refuses a thread for the snapshot pool.
    pub fn new(
        cores: &Cores,
        subtasks: usize,
        strategy: IdleStrategy,
        snapshot_threads: usize,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, Error> {
        let mut cores = match cores {
            Cores::All => available_cores(),
            Cores::Count(count) => available_cores().into_iter().take(*count).collect(),
            Cores::List(cores) => cores.clone(),
        };
        cores.truncate(subtasks.max(1));
        let pool = Arc::new(SnapshotPool::new(snapshot_threads)?);
        Ok(Self { cores, strategy, clock, pool, parkers: Vec::new(), workers: None })
    }
}

impl Executor for PinnedThreads {
    fn prepare(&mut self) -> Vec<Waker> {
        self.parkers = self.cores.iter().map(|_| Parker::new()).collect();
        self.parkers.iter().map(Parker::waker).collect()
    }

    fn launch(&mut self, workers: Vec<Vec<Subtask>>) -> Result<(), BoxError> {
        let parts = self.cores.iter().zip(self.parkers.drain(..)).zip(workers);
        let seeds = parts.map(|((core, parker), subtasks)| WorkerSeed { core: *core, parker, subtasks });
        self.workers = Some(Workers::start(seeds.collect(), self.strategy, &self.clock)?);
        Ok(())
    }

    fn stop(&mut self, orderly: bool) {
        if let Some(mut workers) = self.workers.take() {
            workers.stop(orderly);
        }
    }

    fn pool(&self) -> Arc<dyn TaskPool> {
        Arc::clone(&self.pool) as Arc<dyn TaskPool>
    }
}
