//! Executes a planned job on pinned threads. Adds `execute` to the environment, so that the builder never imports the engine.

use std::sync::Arc;

use crossbeam::channel::{Receiver, RecvTimeoutError, unbounded};

use super::executor::PinnedThreads;
use super::handle::JobHandle;
use super::lifecycle::JobState;
use super::origin::JobOrigin;
use super::result::{JobResult, JobStatus};
use super::supervisor::{Supervisor, SupervisorEvent};
use crate::api::{JobGraph, StreamEnvironment};
use crate::base::clock::{Clock, SystemClock};
use crate::base::error::{Error, ErrorKind, Recovery};
use crate::base::id::JobId;
use crate::snapshot::{CheckpointStorage, MemoryStorage};

impl StreamEnvironment {
    /// Plans the job, runs it to its end, and answers what became of it.
    ///
    /// # Errors
    /// If the job is not valid, or it failed.
    pub fn execute(self) -> Result<JobResult, Error> {
        let result = self.plan()?.start()?.wait();
        match (result.state, &result.error) {
            (JobState::Failed, Some(error)) => Err(error.clone()),
            _ => Ok(result),
        }
    }
}

impl JobGraph {
    /// Starts the job on threads of its own.
    ///
    /// # Errors
    /// If the machine refuses a thread.
    pub fn start(self) -> Result<JobHandle, Error> {
        self.start_as(JobId::random())
    }

    /// Starts the job under this identity, with its checkpoints in memory.
    ///
    /// # Errors
    /// If the machine refuses a thread.
    pub fn start_as(self, job_id: JobId) -> Result<JobHandle, Error> {
        self.start_with(job_id, Arc::new(MemoryStorage::new()))
    }

    /// Starts the job under this identity, with its checkpoints in this storage. If the storage holds a completed checkpoint, the
    /// job goes on from the newest.
    ///
    /// # Errors
    /// If the machine refuses a thread, or the storage cannot be read.
    pub fn start_with(self, job_id: JobId, storage: Arc<dyn CheckpointStorage>) -> Result<JobHandle, Error> {
        self.start_from(JobOrigin::in_storage(job_id, storage))
    }

    /// Starts the job from this origin.
    ///
    /// # Errors
    /// If the machine refuses a thread, or the storage cannot be read.
    pub fn start_from(self, origin: JobOrigin) -> Result<JobHandle, Error> {
        let job_id = origin.job_id;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let status = Arc::new(JobStatus::default());
        let (sender, receiver) = unbounded();
        let subtasks = self.physical.vertices.iter().map(|vertex| vertex.parallelism as usize).sum();
        let config = &self.config;
        let executor = PinnedThreads::new(
            &config.cores,
            subtasks,
            config.idle_strategy,
            config.snapshot_threads,
            Arc::clone(&clock),
        )?;
        // The plan holds user functions that are `Send`; the supervisor with all of it moves to its thread.
        let (events, shown) = (sender.clone(), Arc::clone(&status));
        let supervisor = Supervisor::new(origin, self, executor, Arc::clone(&clock), events, shown)?;
        let builder = std::thread::Builder::new().name("stoplog-job".to_owned());
        let thread = builder.spawn(move || lead(supervisor, &receiver, clock.as_ref())).map_err(|error| {
            Error::new(
                ErrorKind::Resource,
                Recovery::GiveUp,
                format!("cannot start the job's thread: {error}"),
            )
        })?;
        Ok(JobHandle::new(job_id, sender, status, thread))
    }
}

fn lead(
    mut supervisor: Supervisor<PinnedThreads>,
    events: &Receiver<SupervisorEvent>,
    clock: &dyn Clock,
) -> JobResult {
    supervisor.start(clock.now());
    while !supervisor.is_over() {
        let next = match supervisor.next_deadline() {
            None => events.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(deadline) => events.recv_timeout(deadline.since(clock.now())),
        };
        match next {
            Ok(event) => supervisor.handle(event, clock.now()),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => unreachable!("the supervisor holds a sender"),
        }
        supervisor.on_time(clock.now());
    }
    supervisor.into_result()
}
