//! Executes a planned job on pinned threads. Adds `execute` to the environment, so that the builder never imports the engine.

use std::sync::Arc;

use crossbeam::channel::{Receiver, RecvTimeoutError, unbounded};

use super::executor::PinnedThreads;
use super::handle::JobHandle;
use super::lifecycle::JobState;
use super::origin::JobOrigin;
use super::result::{JobResult, JobStatus};
use super::start::RunIdentity;
use super::supervisor::{Supervisor, SupervisorEvent};
use crate::api::{JobGraph, StreamEnvironment};
use crate::base::clock::{Clock, SystemClock};
use crate::base::error::{Error, ErrorKind, Recovery};
use crate::base::id::JobId;
use crate::snapshot::{CheckpointStorage, LocalStore, Store};

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
    /// Starts the job on threads of its own: a new run that keeps its checkpoints where the settings say, from the snapshot that the
    /// settings name, if any.
    ///
    /// # Errors
    /// If the snapshot cannot be read, or the machine refuses a thread.
    pub fn start(self) -> Result<JobHandle, Error> {
        self.start_as(RunIdentity::Fresh(None))
    }

    /// Goes on with the newest run of the job's name under the checkpoint directory: under its identity, from its newest checkpoint. A
    /// run that is finished is not run again. If there is none, a new one begins.
    ///
    /// ```
    /// use std::time::Duration;
    /// use stoplog::prelude::*;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let scratch = tempfile::tempdir()?;
    /// # let (checkpoints, output) = (scratch.path().join("checkpoints"), scratch.path().join("output"));
    /// let run = || {
    ///     let mut config = JobConfig { name: "numbers".into(), ..JobConfig::default() };
    ///     config.checkpoints.interval = Some(Duration::from_millis(10));
    ///     config.checkpoints.dir = Some(checkpoints.clone());
    ///     let env = StreamEnvironment::new(config);
    ///     let sink = LineSink::directory(&output, |n: &u64, line: &mut Vec<u8>| line.extend(n.to_string().bytes()));
    ///     env.source("numbers", GeneratorSource::new(100, |n| n)).uid("numbers").sink("lines", sink).uid("lines");
    ///     Ok::<_, Box<dyn std::error::Error>>(env.plan()?.resume()?.wait())
    /// };
    /// assert_eq!(run()?.records_in, 100);
    /// assert_eq!(run()?.records_in, 0, "the run is finished");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If no checkpoint directory is set, another live process has the run, the run's newest checkpoint is damaged, or the machine
    /// refuses a thread.
    pub fn resume(self) -> Result<JobHandle, Error> {
        self.start_as(RunIdentity::Resumed(None))
    }

    /// Starts or resumes the job as this run.
    ///
    /// # Errors
    /// As [`JobGraph::start`] and [`JobGraph::resume`].
    pub fn start_as(self, identity: RunIdentity) -> Result<JobHandle, Error> {
        let store: Arc<dyn Store> = Arc::new(LocalStore);
        let now_ms = SystemClock::new().epoch_millis();
        let origin = JobOrigin::from_settings(&self.config, identity, &store, now_ms)?;
        self.start_from(origin)
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
