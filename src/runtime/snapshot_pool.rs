//! Where forked state is serialised, compressed and written while the subtasks go on.

use std::sync::Mutex;
use std::thread::JoinHandle;

use crate::base::error::{Error, ErrorKind, Recovery};

/// Work for the pool.
pub type Task = Box<dyn FnOnce() + Send>;

/// Runs tasks away from the record path.
pub trait TaskPool: Send + Sync + std::fmt::Debug {
    /// Runs the task soon, on another thread. Never blocks.
    fn spawn(&self, task: Task);

    /// The same for a short task (metadata, removing files) that must not wait behind whole snapshots.
    fn spawn_ahead(&self, task: Task) {
        self.spawn(task);
    }
}

/// Rayon pools of the engine's own: one for snapshots, and one thread for what must not wait behind them. Dropping it waits for
/// the tasks that were given to it and ends its threads.
#[derive(Debug)]
pub struct SnapshotPool {
    snapshots: JoiningPool,
    ahead: JoiningPool,
}

impl SnapshotPool {
    /// A pool that writes with this many threads.
    ///
    /// # Errors
    /// If the machine refuses a thread.
    pub fn new(threads: usize) -> Result<Self, Error> {
        Ok(Self { snapshots: JoiningPool::new("snap", threads)?, ahead: JoiningPool::new("store", 1)? })
    }
}

impl TaskPool for SnapshotPool {
    fn spawn(&self, task: Task) {
        self.snapshots.spawn(task);
    }

    fn spawn_ahead(&self, task: Task) {
        self.ahead.spawn(task);
    }
}

/// A rayon pool that joins its threads, which rayon itself does not.
#[derive(Debug)]
struct JoiningPool {
    pool: Option<rayon::ThreadPool>,
    threads: Vec<JoinHandle<()>>,
}

impl JoiningPool {
    fn new(name: &str, threads: usize) -> Result<Self, Error> {
        let handles = Mutex::new(Vec::new());
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            // A task that panics has told nobody more than its panic; without this, rayon would end the process.
            .panic_handler(|_| {})
            .spawn_handler(|thread| {
                let builder = std::thread::Builder::new().name(format!("stoplog-{name}-{}", thread.index()));
                let handle = builder.spawn(|| thread.run())?;
                handles.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(handle);
                Ok(())
            })
            .build()
            .map_err(|error| {
                let message = format!("cannot start {threads} threads for snapshots: {error}");
                Error::new(ErrorKind::Resource, Recovery::GiveUp, message)
            })?;
        let threads = handles.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        Ok(Self { pool: Some(pool), threads })
    }

    fn spawn(&self, task: Task) {
        if let Some(pool) = &self.pool {
            pool.spawn_fifo(task);
        }
    }
}

impl Drop for JoiningPool {
    fn drop(&mut self) {
        // The threads end once the pool is gone and its queue is empty.
        drop(self.pool.take());
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
