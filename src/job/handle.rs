//! A running job, in the hands of its embedder.

use std::sync::Arc;
use std::thread::JoinHandle;

use crossbeam::channel::{Sender, bounded};

use super::result::{JobProgress, JobResult, JobStatus};
use super::supervisor::{Request, SupervisorEvent};
use crate::base::error::{Error, ErrorKind, Recovery};
use crate::base::id::{CheckpointId, JobId};

/// A running job. Dropping the handle suspends the job, so that it can be resumed, and waits for its end.
#[derive(Debug)]
pub struct JobHandle {
    job_id: JobId,
    events: Sender<SupervisorEvent>,
    status: Arc<JobStatus>,
    thread: Option<JoinHandle<JobResult>>,
}

/// Asks a job to end, from any thread, as often as one likes.
#[derive(Debug, Clone)]
pub struct JobStopper {
    events: Sender<SupervisorEvent>,
}

impl JobStopper {
    /// Ends the job for good; state CANCELED.
    pub fn cancel(&self) {
        let _ = self.events.send(SupervisorEvent::Request(Request::Cancel));
    }

    /// Ends the job so that it can be resumed; state SUSPENDED.
    pub fn suspend(&self) {
        let _ = self.events.send(SupervisorEvent::Request(Request::Suspend));
    }
}

impl JobHandle {
    pub(super) fn new(
        job_id: JobId,
        events: Sender<SupervisorEvent>,
        status: Arc<JobStatus>,
        thread: JoinHandle<JobResult>,
    ) -> Self {
        Self { job_id, events, status, thread: Some(thread) }
    }

    /// Identity of the job.
    #[must_use]
    pub fn job_id(&self) -> JobId {
        self.job_id
    }

    /// Ends the job from other threads.
    #[must_use]
    pub fn stopper(&self) -> JobStopper {
        JobStopper { events: self.events.clone() }
    }

    /// How the job is doing.
    #[must_use]
    pub fn progress(&self) -> JobProgress {
        self.status.progress()
    }

    /// True once the job is over; [`JobHandle::wait`] then answers at once.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Takes a checkpoint now and waits until it is durable.
    ///
    /// # Errors
    /// If the checkpoint was aborted, or the job ended before.
    pub fn trigger_checkpoint(&self) -> Result<CheckpointId, Error> {
        let failed = |message| Error::new(ErrorKind::Checkpoint, Recovery::GiveUp, message);
        let (answer, answered) = bounded(1);
        let request = SupervisorEvent::Request(Request::Checkpoint(answer));
        let over = || failed("the job is over".to_owned());
        self.events.send(request).map_err(|_| over())?;
        answered.recv().map_err(|_| over())?.map_err(|reason| failed(reason.to_string()))
    }

    /// Waits for the end of the job.
    ///
    /// # Panics
    /// If the engine itself panicked.
    #[must_use = "the result says whether the job failed"]
    pub fn wait(mut self) -> JobResult {
        let thread = self.thread.take().expect("the thread is taken only here and on drop");
        match thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

impl Drop for JobHandle {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.stopper().suspend();
            let _ = thread.join();
        }
    }
}
