//! Threads for helpers: work that blocks, linked to a subtask by rings.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use super::signal::{Signal, SignalSink};
use crate::base::error::{BoxError, Error, ErrorKind, Recovery};
use crate::base::id::{Attempt, SubtaskIndex};
use crate::operator::context::{Helper, HelperPool, HelperStatus};
use crate::operator::failure::caught;
use crate::sync::wake::{Parker, Waker};

/// An idle helper looks again after this time even if nobody wakes it.
const HELPER_PARK: Duration = Duration::from_millis(100);

#[derive(Debug)]
struct Running {
    thread: JoinHandle<()>,
    waker: Waker,
}

/// All helper threads of one attempt.
#[derive(Debug, Default)]
pub struct HelperThreads {
    running: Mutex<Vec<Running>>,
    stop: AtomicBool,
    /// True if what was handed to the helpers must still be written.
    orderly: AtomicBool,
}

impl HelperThreads {
    /// The pool through which the subtask starts its helpers.
    #[must_use]
    pub fn pool(
        self: &Arc<Self>,
        attempt: Attempt,
        subtask: SubtaskIndex,
        signals: Arc<dyn SignalSink>,
    ) -> SubtaskHelpers {
        SubtaskHelpers { threads: Arc::clone(self), attempt, subtask, signals }
    }

    /// Ends all helpers and waits for them. No subtask may be running any more.
    pub fn stop(&self, orderly: bool) {
        self.orderly.store(orderly, Ordering::Release);
        self.stop.store(true, Ordering::Release);
        let running =
            std::mem::take(&mut *self.running.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
        running.iter().for_each(|helper| helper.waker.wake());
        for helper in running {
            let _ = helper.thread.join();
        }
    }

    fn run(&self, helper: &mut dyn Helper, parker: &Parker) -> Result<(), BoxError> {
        while !self.stop.load(Ordering::Acquire) {
            match helper.step()? {
                HelperStatus::Worked => {}
                HelperStatus::Done => return Ok(()),
                HelperStatus::Idle => {
                    parker.prepare();
                    // Once more after the announcement: see `Parker::prepare`.
                    match helper.step()? {
                        HelperStatus::Idle if !self.stop.load(Ordering::Acquire) => {
                            parker.park(Some(HELPER_PARK))
                        }
                        HelperStatus::Idle | HelperStatus::Worked => parker.cancel(),
                        HelperStatus::Done => return Ok(()),
                    }
                }
            }
        }
        if self.orderly.load(Ordering::Acquire) { helper.stop() } else { Ok(()) }
    }
}

/// Starts helpers for one subtask.
#[derive(Debug)]
pub struct SubtaskHelpers {
    threads: Arc<HelperThreads>,
    attempt: Attempt,
    subtask: SubtaskIndex,
    signals: Arc<dyn SignalSink>,
}

impl HelperPool for SubtaskHelpers {
    fn spawn(&mut self, name: String, mut helper: Box<dyn Helper>) -> Result<Waker, BoxError> {
        let parker = Parker::new();
        let waker = parker.waker();
        let (threads, signals) = (Arc::clone(&self.threads), Arc::clone(&self.signals));
        let (attempt, subtask) = (self.attempt, self.subtask);
        // What a helper logs, it says in the name of the subtask that starts it.
        let span = tracing::Span::current();
        let thread = std::thread::Builder::new().name(format!("stoplog-{name}")).spawn(move || {
            let _inside = span.enter();
            let run = catch_unwind(AssertUnwindSafe(|| threads.run(helper.as_mut(), &parker)));
            let error = match run {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(Error::caused_by(ErrorKind::Connector, Recovery::Restart, &error)),
                Err(payload) => Some(caught(payload)),
            };
            if let Some(error) = error {
                signals.send(Signal::Failed { attempt, error: error.in_subtask(subtask) });
            }
            // A drop that panics would end the process' thread noisily; the failure was reported already.
            let _ = catch_unwind(AssertUnwindSafe(|| drop(helper)));
        })?;
        let mut running = self.threads.running.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        running.push(Running { thread, waker: waker.clone() });
        Ok(waker)
    }
}
