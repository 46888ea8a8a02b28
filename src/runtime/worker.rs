//! The pinned threads.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use super::affinity::pin_current_thread;
use super::blocking::HelperThreads;
use super::idle::Idler;
use super::signal::Signal;
use super::subtask::Subtask;
use crate::base::clock::Clock;
use crate::base::error::{BoxError, Error};
use crate::base::progress::Progress;
use crate::config::IdleStrategy;
use crate::operator::context::HelperPool;
use crate::operator::failure::caught;
use crate::sync::wake::{Parker, Waker};

/// Records that one step takes at most: enough to spread the cost of a step thin, few enough (tens of microseconds for cheap
/// operators) that the other subtasks of the core get their turn.
pub const STEP_BUDGET: usize = 2048;

/// The subtasks of one core, stepped in turn.
#[derive(Debug)]
pub struct Worker {
    subtasks: Vec<Placed>,
}

#[derive(Debug)]
struct Placed {
    subtask: Subtask,
    /// It failed, or is done: not to be stepped again.
    over: bool,
}

impl Worker {
    /// A worker for these subtasks.
    #[must_use]
    pub fn new(subtasks: Vec<Subtask>) -> Self {
        Self { subtasks: subtasks.into_iter().map(|subtask| Placed { subtask, over: false }).collect() }
    }

    /// Opens all subtasks, as long as they are given helpers. A failure is reported and leaves the rest unopened: the attempt is
    /// over.
    pub fn open(&mut self, mut helpers: impl FnMut(&Subtask) -> Option<Box<dyn HelperPool>>) {
        for placed in &mut self.subtasks {
            let Some(mut helpers) = helpers(&placed.subtask) else { break };
            guarded(placed, |subtask| subtask.open(helpers.as_mut()).map(|()| Progress::Worked));
            if placed.over {
                break;
            }
        }
    }

    /// Steps each subtask once.
    pub fn step(&mut self, budget: usize) -> Progress {
        let mut progress = Progress::Done;
        for placed in &mut self.subtasks {
            progress = progress.and(guarded(placed, |subtask| subtask.step(budget)));
        }
        progress
    }

    /// Steps one subtask; for schedulers that choose themselves.
    pub fn step_one(&mut self, index: usize, budget: usize) -> Progress {
        guarded(&mut self.subtasks[index], |subtask| subtask.step(budget))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // A user's value may panic when it is dropped. Each subtask is dropped on its own: a second panic while the first one
        // unwinds would end the process.
        for placed in self.subtasks.drain(..) {
            let _ = catch_unwind(AssertUnwindSafe(|| drop(placed)));
        }
    }
}

/// Calls into a subtask. A panic or an error of a user's function ends the subtask and is reported, never more.
fn guarded(placed: &mut Placed, call: impl FnOnce(&mut Subtask) -> Result<Progress, Error>) -> Progress {
    if placed.over {
        return Progress::Done;
    }
    let subtask = &mut placed.subtask;
    let error = match catch_unwind(AssertUnwindSafe(|| call(subtask))) {
        Ok(Ok(Progress::Done)) => {
            placed.over = true;
            return Progress::Done;
        }
        Ok(Ok(progress)) => return progress,
        Ok(Err(error)) => error,
        Err(payload) => caught(payload),
    };
    placed.over = true;
    let error = error.in_subtask(subtask.id().index);
    subtask.signals().send(Signal::Failed { attempt: subtask.attempt(), error });
    Progress::Worked
}

/// One worker that is to become a thread.
#[derive(Debug)]
pub struct WorkerSeed {
    /// Core to pin to.
    pub core: usize,
    /// Its sleep.
    pub parker: Parker,
    /// Its subtasks.
    pub subtasks: Vec<Subtask>,
}

/// The threads of one attempt.
#[derive(Debug, Default)]
pub struct Workers {
    threads: Vec<(JoinHandle<()>, Waker)>,
    stop: Arc<AtomicBool>,
    helpers: Arc<HelperThreads>,
}

impl Workers {
    /// Starts one thread for each seed.
    ///
    /// # Errors
    /// If the machine refuses a thread; those already started are stopped again.
    pub fn start(
        seeds: Vec<WorkerSeed>,
        strategy: IdleStrategy,
        clock: &Arc<dyn Clock>,
    ) -> Result<Self, BoxError> {
        let mut workers = Self::default();
        for seed in seeds {
            let waker = seed.parker.waker();
            let (stop, helpers) = (Arc::clone(&workers.stop), Arc::clone(&workers.helpers));
            let clock = Arc::clone(clock);
            let builder = std::thread::Builder::new().name(format!("stoplog-core-{}", seed.core));
            let body = move || run_or_report(seed, strategy, clock.as_ref(), &stop, &helpers);
            match builder.spawn(body) {
                Ok(thread) => workers.threads.push((thread, waker)),
                Err(error) => {
                    workers.stop(false);
                    return Err(error.into());
                }
            }
        }
        Ok(workers)
    }

    /// Stops all threads and waits for them; `orderly` if what was handed to helpers must still be written.
    pub fn stop(&mut self, orderly: bool) {
        self.stop.store(true, Ordering::Release);
        self.threads.iter().for_each(|(_, waker)| waker.wake());
        for (thread, _) in self.threads.drain(..) {
            let _ = thread.join();
        }
        self.helpers.stop(orderly);
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.stop(false);
    }
}

/// What a user's function throws is caught around each call. What gets here is a fault of the engine itself, and must end as a
/// failed job too, never as a job that stands still because one of its threads is gone.
fn run_or_report(
    seed: WorkerSeed,
    strategy: IdleStrategy,
    clock: &dyn Clock,
    stop: &AtomicBool,
    helpers: &Arc<HelperThreads>,
) {
    let report = seed.subtasks.first().map(|subtask| (subtask.attempt(), Arc::clone(subtask.signals())));
    let ran = catch_unwind(AssertUnwindSafe(|| run(seed, strategy, clock, stop, helpers)));
    if let (Err(payload), Some((attempt, signals))) = (ran, report) {
        signals.send(Signal::Failed { attempt, error: caught(payload) });
    }
}

fn run(
    seed: WorkerSeed,
    strategy: IdleStrategy,
    clock: &dyn Clock,
    stop: &AtomicBool,
    helpers: &Arc<HelperThreads>,
) {
    let (job, core, subtasks) = (seed.subtasks.first().map(Subtask::job), seed.core, seed.subtasks.len());
    let job = job.map(tracing::field::display);
    tracing::debug!(target: "stoplog::runtime::worker", job, core, subtasks, "worker started");
    let mut worker = Worker::new(seed.subtasks);
    worker.open(|subtask| {
        // A job that is being stopped does not restore its state first.
        (!stop.load(Ordering::Acquire)).then(|| {
            let pool = helpers.pool(subtask.attempt(), subtask.id().index, Arc::clone(subtask.signals()));
            Box::new(pool) as Box<dyn HelperPool>
        })
    });
    // Only now: threads inherit the cores of the thread that starts them, and a helper must not be held on this one.
    pin_current_thread(seed.core);
    let mut idler = Idler::new(strategy);
    while !stop.load(Ordering::Acquire) {
        let mut progress = worker.step(STEP_BUDGET);
        if let Progress::Idle(deadline) = progress {
            progress = idler.wait(deadline, &seed.parker, clock, || {
                // After the announcement of the sleep, a stop must be seen here or its waker sees the sleeper.
                if stop.load(Ordering::Acquire) { Progress::Worked } else { worker.step(STEP_BUDGET) }
            });
        }
        match progress {
            Progress::Worked => idler.reset(),
            Progress::Idle(_) => {}
            Progress::Done => break,
        }
    }
    tracing::debug!(target: "stoplog::runtime::worker", job, core, subtasks, "worker ended");
}
