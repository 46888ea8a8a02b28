//! Leads one job: deploys executions, feeds the checkpoint coordinator and carries out what it wants, restarts after failures,
//! and knows when the job is over.
//!
//! It has no thread and no clock: [`Supervisor::handle`] takes one event at a time with the time at which it is taken, and
//! [`Supervisor::next_deadline`] says when [`Supervisor::on_time`] must be called. The thread in [`super::execute`] and the
//! deterministic scheduler both do just that.
//!
//! An execution, from its deployment to its first record:
//!
//! ```text
//! deploy --all opened, state restored--> settle the sinks --Settled--> Start
//! ```
//!
//! State is read before the sinks are settled: a damaged snapshot is noticed before anything outside has changed. At the end the
//! order is the other way round: what the newest checkpoint promises is published before checkpoints may be removed.

mod checkpoints;
mod conclusion;
mod deployment;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use crossbeam::channel::Sender;

use self::conclusion::Ending;

use super::executor::Executor;
use super::lifecycle::{JobEvent, JobState};
use super::measurements::Measurements;
use super::origin::{JobOrigin, Restorable};
use super::restart::{RestartDecision, RestartStrategy, Restarts};
use super::result::{JobResult, JobStatus};
use super::sinks::JobSinks;
use crate::api::JobGraph;
use crate::base::clock::{Clock, Nanos};
use crate::base::error::{Error, ErrorKind, Recovery};
use crate::base::id::{Attempt, CheckpointId, JobId, OperatorUid, SubtaskId};
use crate::checkpoint::protocol::{AbortReason, RequestId};
use crate::checkpoint::{Coordinator, Event};
use crate::config::{JobConfig, RestartConfig};
use crate::graph::PhysicalPlan;
use crate::runtime::mailbox::{Mailboxes, SubtaskCommand};
use crate::runtime::signal::Signal;
use crate::runtime::under_way::CheckpointsUnderWay;
use crate::snapshot::{SnapshotError, SubtaskSnapshot};

/// What a supervisor is told.
#[derive(Debug)]
pub enum SupervisorEvent {
    /// By the runtime.
    Signal(Signal),
    /// By the storage: the checkpoint is durable.
    Stored(CheckpointId),
    /// By the storage: the checkpoint is not, and never will be.
    StoreFailed(CheckpointId, String),
    /// By the storage: it has removed the checkpoint, or failed to.
    Discarded(CheckpointId),
    /// By those who act for the sinks: the outside is in line with what this attempt was restored from.
    Settled(Attempt, Result<(), Error>),
    /// By the storage: the end of the job is recorded, and nothing is left to do.
    Concluded(Result<(), Error>),
    /// By the embedder.
    Request(Request),
}

impl From<Signal> for SupervisorEvent {
    fn from(signal: Signal) -> Self {
        Self::Signal(signal)
    }
}

/// What an embedder may ask for.
#[derive(Debug)]
pub enum Request {
    /// End the job for good.
    Cancel,
    /// End the job in an orderly way, to be resumed later.
    Suspend,
    /// Take a checkpoint now and answer with its id.
    Checkpoint(Sender<Result<CheckpointId, AbortReason>>),
}

/// Leads one job.
pub struct Supervisor<E> {
    origin: JobOrigin,
    config: JobConfig,
    plan: PhysicalPlan,
    /// The operators of each vertex.
    uids: Vec<Vec<OperatorUid>>,
    executor: E,
    clock: Arc<dyn Clock>,
    sinks: JobSinks,
    /// True while the sinks are being settled; the outcome is awaited, whatever else happens.
    settling: bool,
    /// Checkpoints that are being removed. The job is over only after that: its storage concludes once nothing is under way.
    discarding: usize,
    /// Set once the job is to end.
    ending: Option<Ending>,
    events: Sender<SupervisorEvent>,
    status: Arc<JobStatus>,
    state: JobState,
    coordinator: Coordinator<SubtaskSnapshot>,
    restarts: Restarts,
    attempt: Attempt,
    execution: Option<Execution>,
    /// When the next execution is due.
    restart_at: Option<Nanos>,
    /// Why the job ends or ended without being finished.
    error: Option<Error>,
    requests: HashMap<RequestId, Sender<Result<CheckpointId, AbortReason>>>,
    next_request: RequestId,
    measured: Measurements,
    under_way: Arc<CheckpointsUnderWay>,
    /// When records could flow for the first time, and when the last execution ended.
    started_at: Option<Nanos>,
    ended_at: Option<Nanos>,
    restore: Duration,
    restored_from: Option<String>,
}

impl<E: Executor> std::fmt::Debug for Supervisor<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Supervisor")
            .field("job_id", &self.job_id())
            .field("state", &self.state)
            .field("attempt", &self.attempt)
            .finish_non_exhaustive()
    }
}

struct Execution {
    mailboxes: Mailboxes,
    subtasks: Vec<(SubtaskId, bool)>,
    launched_at: Nanos,
    restored: Option<Restorable>,
    opened: BTreeSet<SubtaskId>,
    finished: BTreeSet<SubtaskId>,
    accumulators: BTreeMap<String, u64>,
}

impl<E: Executor> Supervisor<E> {
    /// A supervisor of a job that has not begun. `events` leads back to [`Supervisor::handle`].
    ///
    /// # Errors
    /// If the storage cannot be read.
    pub fn new(
        origin: JobOrigin,
        job: JobGraph,
        executor: E,
        clock: Arc<dyn Clock>,
        events: Sender<SupervisorEvent>,
        status: Arc<JobStatus>,
    ) -> Result<Self, Error> {
        let JobGraph { logical, physical: mut plan, config } = job;
        let uid = |id: &_| logical.operator(*id).uid_or_default();
        let uids = plan.vertices.iter().map(|vertex| vertex.operators.iter().map(uid).collect()).collect();
        let sinks = std::mem::take(&mut plan.sinks).into_iter().map(|(id, sink)| (uid(&id), sink));
        let retained = origin.storage.list().map_err(snapshot_error)?;
        // Not the newest retained one: an id that was given away is never given again, even if its checkpoint was aborted.
        let highest = origin.storage.highest_id().map_err(snapshot_error)?;
        let highest = highest.max(origin.snapshot.as_ref().map(|snapshot| snapshot.checkpoint.id));
        let first_id = highest.map_or(CheckpointId(1), CheckpointId::next);
        let settings = config.checkpoints.clone();
        let strategy = match config.restart() {
            RestartConfig::None => RestartStrategy::None,
            RestartConfig::FixedDelay { attempts, delay } => RestartStrategy::FixedDelay { attempts, delay },
        };
        Ok(Self {
            origin,
            config,
            plan,
            uids,
            executor,
            clock,
            sinks: JobSinks::new(sinks.collect()),
            settling: false,
            discarding: 0,
            ending: None,
            events,
            status,
            state: JobState::Created,
            coordinator: Coordinator::new(settings, first_id, retained),
            restarts: Restarts::new(strategy),
            attempt: Attempt(0),
            execution: None,
            restart_at: None,
            error: None,
            requests: HashMap::new(),
            next_request: RequestId(0),
            measured: Measurements::default(),
            under_way: Arc::default(),
            started_at: None,
            ended_at: None,
            restore: Duration::ZERO,
            restored_from: None,
        })
    }

    /// Deploys the first execution. A job that an earlier process finished is only tidied up.
    pub fn start(&mut self, now: Nanos) {
        self.begin(now);
        self.conclude_if_ready();
    }

    /// Identity of the job.
    #[must_use]
    pub fn job_id(&self) -> JobId {
        self.origin.job_id
    }

    /// Takes one event.
    pub fn handle(&mut self, event: SupervisorEvent, now: Nanos) {
        match event {
            SupervisorEvent::Signal(signal) => self.take_signal(signal, now),
            SupervisorEvent::Stored(checkpoint) => self.coordinate(Event::Stored { checkpoint }, now),
            SupervisorEvent::StoreFailed(checkpoint, reason) => {
                self.coordinate(Event::StoreFailed { checkpoint, reason }, now);
            }
            SupervisorEvent::Discarded(_) => self.discarding -= 1,
            SupervisorEvent::Settled(attempt, result) => self.settled(attempt, result, now),
            SupervisorEvent::Concluded(result) => self.concluded(result),
            SupervisorEvent::Request(Request::Cancel) => self.stop(JobEvent::Cancel, now),
            SupervisorEvent::Request(Request::Suspend) => self.stop(JobEvent::Suspended, now),
            SupervisorEvent::Request(Request::Checkpoint(answer)) => {
                let request = self.next_request;
                self.next_request = RequestId(request.0 + 1);
                self.requests.insert(request, answer);
                self.coordinate(Event::TriggerRequested(request), now);
            }
        }
        self.restart_if_due(now);
        self.conclude_if_ready();
    }

    /// Does what is due by now.
    pub fn on_time(&mut self, now: Nanos) {
        if self.coordinator.next_deadline().is_some_and(|deadline| deadline <= now) {
            self.coordinate(Event::Timer, now);
        }
        self.restart_if_due(now);
        self.conclude_if_ready();
    }

    /// When [`Supervisor::on_time`] must be called next, if nothing else happens before.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Nanos> {
        let restart = self.restart_at.filter(|_| !self.awaits_outcome());
        self.coordinator.next_deadline().into_iter().chain(restart).min()
    }

    /// True once the job is over, for better or worse, and nothing is left to be tidied up.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.state.is_terminal()
    }

    /// True while something is under way whose outcome decides from what the job goes on.
    fn awaits_outcome(&self) -> bool {
        self.settling || self.coordinator.storing().is_some()
    }

    /// The state of the job.
    #[must_use]
    pub fn state(&self) -> JobState {
        self.state
    }

    /// The checkpoint coordinator, to look at.
    #[must_use]
    pub fn coordinator(&self) -> &Coordinator<SubtaskSnapshot> {
        &self.coordinator
    }

    /// The executor, to look at.
    #[must_use]
    pub fn executor(&self) -> &E {
        &self.executor
    }

    /// The executor, for a scheduler that steps the subtasks itself.
    pub fn executor_mut(&mut self) -> &mut E {
        &mut self.executor
    }

    /// Where the snapshot is that the last execution goes on from; see [`JobResult::restored_from`].
    #[must_use]
    pub fn restored_from(&self) -> Option<&str> {
        self.restored_from.as_deref()
    }

    /// What became of the job.
    #[must_use]
    pub fn into_result(mut self) -> JobResult {
        self.executor.stop(false);
        for vertex in std::mem::take(&mut self.plan.vertices) {
            // Holds prototypes of the user's functions, which may panic when they are dropped.
            let _ = catch_unwind(AssertUnwindSafe(|| drop(vertex)));
        }
        let progress = self.status.progress();
        let duration = match (self.started_at, self.ended_at) {
            (Some(from), Some(to)) => to.since(from),
            _ => Duration::ZERO,
        };
        JobResult {
            job_id: self.origin.job_id,
            name: self.config.name,
            state: self.state,
            records_in: progress.records_in,
            records_out: progress.records_out,
            duration,
            restore: self.restore,
            restarts: self.restarts.granted(),
            restored_from: self.restored_from,
            checkpoints: self.coordinator.counts(),
            last_checkpoint_path: self.measured.last.map(|last| self.origin.storage.path(last.id)),
            last_checkpoint: self.measured.last,
            alignment_us: self.measured.alignment_us,
            sync_pause_us: self.measured.sync_pause_us,
            checkpoint_duration_us: self.measured.checkpoint_duration_us,
            accumulators: self.execution.map(|execution| execution.accumulators).unwrap_or_default(),
            error: self.error.filter(|_| self.state == JobState::Failed),
        }
    }

    fn take_signal(&mut self, signal: Signal, now: Nanos) {
        match signal {
            Signal::Opened { attempt, subtask } if self.runs(attempt) => self.opened(subtask, now),
            // Whether it runs or not: what comes late is for the log.
            Signal::Failed { attempt, error } if attempt == self.attempt => self.fail(error, now),
            Signal::Finished { attempt, subtask, accumulators } if self.runs(attempt) => {
                self.finished(subtask, accumulators, now);
            }
            Signal::Report(report) => self.coordinate(Event::Report(report), now),
            Signal::Forked { checkpoint, alignment, sync_pause } => {
                self.measured.forked(checkpoint, alignment, sync_pause);
            }
            Signal::Written { checkpoint, duration } => self.measured.written(checkpoint, duration),
            // Of an execution that is over.
            Signal::Opened { .. } | Signal::Failed { .. } | Signal::Finished { .. } => {}
        }
    }

    /// False if the execution is over: what it sent before it was stopped means nothing any more.
    fn runs(&self, attempt: Attempt) -> bool {
        attempt == self.attempt && self.restart_at.is_none() && self.ending.is_none()
    }

    fn finished(&mut self, subtask: SubtaskId, accumulators: BTreeMap<String, u64>, now: Nanos) {
        let Some(execution) = self.execution.as_mut() else { return };
        if execution.finished.insert(subtask) {
            for (name, amount) in accumulators {
                let sum = execution.accumulators.entry(name).or_default();
                *sum = sum.wrapping_add(amount);
            }
        }
        if execution.finished.len() == execution.subtasks.len() {
            self.end(JobEvent::Finished, now);
        }
    }

    /// The execution failed: another one follows, or the job has failed.
    fn fail(&mut self, error: Error, now: Nanos) {
        if self.ending.is_some() || self.restart_at.is_some() {
            // One execution fails once; what its other parts report while they are being stopped is for the log.
            tracing::warn!(target: "stoplog::job", job = %self.job_id(), attempt = %self.attempt, "{error}");
            return;
        }
        let error = self.rejected_if_not_begun(error);
        self.executor.stop(false);
        self.ended_at = Some(now);
        self.coordinate(Event::AttemptFailed { attempt: self.attempt }, now);
        let decision = match error.recovery() {
            Recovery::Restart => self.restarts.on_failure(now),
            Recovery::RejectJob | Recovery::GiveUp => RestartDecision::GiveUp,
        };
        match decision {
            RestartDecision::After(delay) => {
                tracing::warn!(
                    target: "stoplog::job", job = %self.job_id(), attempt = %self.attempt, ?delay, "{error}; restarting"
                );
                self.transition(JobEvent::Restart);
                self.restart_at = Some(now.after(delay));
                self.status.set_restarts(self.restarts.granted());
            }
            RestartDecision::GiveUp => {
                tracing::error!(target: "stoplog::job", job = %self.job_id(), attempt = %self.attempt, "{error}");
                self.error = Some(error);
                self.end(JobEvent::Fail, now);
            }
        }
    }

    fn restart_if_due(&mut self, now: Nanos) {
        // Which checkpoint is the newest is open while one is being made durable.
        if self.restart_at.is_some_and(|at| at <= now) && !self.awaits_outcome() {
            self.restart_at = None;
            self.attempt = Attempt(self.attempt.0 + 1);
            self.deploy(now);
        }
    }

    fn stop(&mut self, event: JobEvent, now: Nanos) {
        if self.ending.is_none() {
            self.end(event, now);
        }
    }

    fn transition(&mut self, event: JobEvent) {
        match self.state.next(event) {
            Ok(state) => {
                tracing::info!(target: "stoplog::job", job = %self.job_id(), from = %self.state, to = %state, "job state");
                self.state = state;
                self.status.set_state(state);
            }
            Err(illegal) => panic!("the supervisor is wrong about the job: {illegal}"),
        }
    }

    fn send(&self, subtask: SubtaskId, command: SubtaskCommand) {
        if let Some(execution) = &self.execution {
            execution.mailboxes.send(subtask, command);
        }
    }

    fn broadcast(&self, command: SubtaskCommand) {
        if let Some(execution) = &self.execution {
            execution.mailboxes.broadcast(command);
        }
    }
}

fn snapshot_error(error: SnapshotError) -> Error {
    // What is damaged stays damaged; a storage that did not answer may do so next time. Never an older checkpoint instead.
    let recovery = if error.is_transient() { Recovery::Restart } else { Recovery::GiveUp };
    Error::caused_by(ErrorKind::Snapshot, recovery, &error.into())
}
