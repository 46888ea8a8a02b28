//! Leads one job: deploys executions, feeds the checkpoint coordinator and carries out what it wants, restarts after failures,
//! and knows when the job is over.
//!
//! It has no thread and no clock: [`Supervisor::handle`] takes one event at a time with the time at which it is taken, and
//! [`Supervisor::next_deadline`] says when [`Supervisor::on_time`] must be called. The thread in [`super::execute`] and the
//! deterministic scheduler both do just that.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use crossbeam::channel::Sender;

use super::executor::Executor;
use super::lifecycle::{JobEvent, JobState};
use super::measurements::Measurements;
use super::restart::{RestartDecision, RestartStrategy, Restarts};
use super::result::{JobResult, JobStatus};
use crate::api::JobGraph;
use crate::base::clock::{Clock, Nanos};
use crate::base::error::{Error, ErrorKind, Recovery};
use crate::base::id::{Attempt, CheckpointId, JobId, OperatorUid, SubtaskId};
use crate::checkpoint::protocol::{AbortReason, Command, RequestId};
use crate::checkpoint::{Action, Coordinator, Event};
use crate::config::{JobConfig, RestartConfig};
use crate::graph::PhysicalPlan;
use crate::runtime::deploy::deploy;
use crate::runtime::mailbox::{Mailboxes, SubtaskCommand};
use crate::runtime::signal::{Signal, SignalSink};
use crate::runtime::subtask::SubtaskEnvironment;
use crate::runtime::under_way::CheckpointsUnderWay;
use crate::snapshot::{CheckpointStorage, CompletedCheckpoint, StateFiles, SubtaskSnapshot};

/// What a supervisor is told.
#[derive(Debug)]
pub enum SupervisorEvent {
    /// By the runtime.
    Signal(Signal),
    /// By the storage: the checkpoint is durable.
    Stored(CheckpointId),
    /// By the storage: the checkpoint is not, and never will be.
    StoreFailed(CheckpointId, String),
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
    job_id: JobId,
    config: JobConfig,
    plan: PhysicalPlan,
    /// The operators of each vertex.
    uids: Vec<Vec<OperatorUid>>,
    executor: E,
    clock: Arc<dyn Clock>,
    storage: Arc<dyn CheckpointStorage>,
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
    restored_from: Option<CheckpointId>,
}

impl<E: Executor> std::fmt::Debug for Supervisor<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Supervisor")
            .field("job_id", &self.job_id)
            .field("state", &self.state)
            .field("attempt", &self.attempt)
            .finish_non_exhaustive()
    }
}

struct Execution {
    mailboxes: Mailboxes,
    subtasks: Vec<(SubtaskId, bool)>,
    launched_at: Nanos,
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
        job_id: JobId,
        job: JobGraph,
        executor: E,
        clock: Arc<dyn Clock>,
        storage: Arc<dyn CheckpointStorage>,
        events: Sender<SupervisorEvent>,
        status: Arc<JobStatus>,
    ) -> Result<Self, Error> {
        let JobGraph { logical, physical: plan, config } = job;
        let uid = |id: &_| logical.operator(*id).uid_or_default();
        let uids = plan.vertices.iter().map(|vertex| vertex.operators.iter().map(uid).collect()).collect();
        let retained = storage.list().map_err(snapshot_error)?;
        // Not the newest retained one: an id that was given away is never given again, even if its checkpoint was aborted.
        let highest = storage.highest_id().map_err(snapshot_error)?;
        let first_id = highest.map_or(CheckpointId(1), CheckpointId::next);
        let settings = config.checkpoints.clone();
        let strategy = match config.restart() {
            RestartConfig::None => RestartStrategy::None,
            RestartConfig::FixedDelay { attempts, delay } => RestartStrategy::FixedDelay { attempts, delay },
        };
        Ok(Self {
            job_id,
            config,
            plan,
            uids,
            executor,
            clock,
            storage,
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

    /// Deploys the first execution.
    pub fn start(&mut self, now: Nanos) {
        self.deploy(now);
    }

    /// Takes one event.
    pub fn handle(&mut self, event: SupervisorEvent, now: Nanos) {
        match event {
            SupervisorEvent::Signal(signal) => self.take_signal(signal, now),
            SupervisorEvent::Stored(checkpoint) => self.coordinate(Event::Stored { checkpoint }, now),
            SupervisorEvent::StoreFailed(checkpoint, reason) => {
                self.coordinate(Event::StoreFailed { checkpoint, reason }, now);
            }
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
    }

    /// Does what is due by now.
    pub fn on_time(&mut self, now: Nanos) {
        if self.coordinator.next_deadline().is_some_and(|deadline| deadline <= now) {
            self.coordinate(Event::Timer, now);
        }
        self.restart_if_due(now);
    }

    /// When [`Supervisor::on_time`] must be called next, if nothing else happens before.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Nanos> {
        let restart = self.restart_at.filter(|_| self.coordinator.storing().is_none());
        self.coordinator.next_deadline().into_iter().chain(restart).min()
    }

    /// True once the job is over, for better or worse. A checkpoint that was being made durable when the job ended is
    /// waited for: whoever asked for it has an answer, and no more checkpoints are kept than there should be.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.state.is_terminal() && self.coordinator.storing().is_none()
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
            job_id: self.job_id,
            name: self.config.name,
            state: self.state,
            records_in: progress.records_in,
            records_out: progress.records_out,
            duration,
            restore: self.restore,
            restarts: self.restarts.granted(),
            restored_from: self.restored_from,
            checkpoints: self.coordinator.counts(),
            last_checkpoint: self.measured.last,
            alignment_us: self.measured.alignment_us,
            sync_pause_us: self.measured.sync_pause_us,
            checkpoint_duration_us: self.measured.checkpoint_duration_us,
            accumulators: self.execution.map(|execution| execution.accumulators).unwrap_or_default(),
            error: self.error.filter(|_| self.state == JobState::Failed),
        }
    }

    fn deploy(&mut self, now: Nanos) {
        if let Err(error) = self.try_deploy(now) {
            self.fail(error, now);
        }
    }

    fn try_deploy(&mut self, now: Nanos) -> Result<(), Error> {
        let restored = self.storage.newest().map_err(snapshot_error)?;
        if let Some(checkpoint) = restored.as_ref().filter(|c| c.max_parallelism != self.plan.max_parallelism)
        {
            let message = format!(
                "checkpoint {} has max parallelism {}, the job {}; a job keeps the one that it began with: set \
                 pipeline.max-parallelism to {}",
                checkpoint.id,
                checkpoint.max_parallelism,
                self.plan.max_parallelism,
                checkpoint.max_parallelism
            );
            return Err(Error::new(ErrorKind::Plan, Recovery::GiveUp, message));
        }
        let wakers = self.executor.prepare();
        let env = SubtaskEnvironment {
            attempt: self.attempt,
            clock: Arc::clone(&self.clock),
            signals: Arc::new(self.events.clone()) as Arc<dyn SignalSink>,
            pool: self.executor.pool(),
            storage: Arc::clone(&self.storage),
            under_way: Arc::clone(&self.under_way),
            async_snapshots: self.config.async_snapshots,
            checkpointing: self.config.checkpoints.interval.is_some(),
        };
        let files = Arc::clone(&self.storage) as Arc<dyn StateFiles>;
        let from = restored.as_ref().map(|checkpoint| (checkpoint, &files));
        let deployment = deploy(&mut self.plan, &self.uids, &wakers, &self.config, from, &env)?;
        self.restored_from = restored.map(|checkpoint| checkpoint.id);
        self.status.set_counters(deployment.counters);
        self.execution = Some(Execution {
            mailboxes: deployment.mailboxes,
            subtasks: deployment.subtasks,
            launched_at: now,
            opened: BTreeSet::new(),
            finished: BTreeSet::new(),
            accumulators: BTreeMap::new(),
        });
        self.executor.launch(deployment.workers).map_err(|error| {
            Error::new(ErrorKind::Resource, Recovery::Restart, format!("cannot start the workers: {error}"))
        })
    }

    fn take_signal(&mut self, signal: Signal, now: Nanos) {
        match signal {
            Signal::Opened { attempt, subtask } if self.runs(attempt) => self.opened(subtask, now),
            Signal::Failed { attempt, error } if self.runs(attempt) => self.fail(error, now),
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
        attempt == self.attempt && self.restart_at.is_none() && !self.state.is_terminal()
    }

    fn opened(&mut self, subtask: SubtaskId, now: Nanos) {
        let Some(execution) = self.execution.as_mut() else { return };
        execution.opened.insert(subtask);
        if execution.opened.len() < execution.subtasks.len() {
            return;
        }
        execution.mailboxes.broadcast(SubtaskCommand::Start);
        self.restore = now.since(execution.launched_at);
        self.started_at.get_or_insert(now);
        let started = Event::Started { attempt: self.attempt, subtasks: execution.subtasks.clone() };
        self.transition(JobEvent::Deployed);
        self.coordinate(started, now);
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
            self.ended_at = Some(now);
            self.executor.stop(true);
            self.transition(JobEvent::Finished);
        }
    }

    /// The execution failed: another one follows, or the job has failed.
    fn fail(&mut self, error: Error, now: Nanos) {
        if self.state.is_terminal() || self.restart_at.is_some() {
            // One execution fails once; what its other parts report while they are being stopped is for the log.
            tracing::warn!(target: "stoplog::job", job = %self.job_id, attempt = %self.attempt, "{error}");
            return;
        }
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
                    target: "stoplog::job", job = %self.job_id, attempt = %self.attempt, ?delay, "{error}; restarting"
                );
                self.transition(JobEvent::Restart);
                self.restart_at = Some(now.after(delay));
                self.status.set_restarts(self.restarts.granted());
            }
            RestartDecision::GiveUp => {
                tracing::error!(target: "stoplog::job", job = %self.job_id, attempt = %self.attempt, "{error}");
                self.error = Some(error);
                self.transition(JobEvent::Fail);
                self.coordinate(Event::Shutdown, now);
                self.transition(JobEvent::Stopped);
            }
        }
    }

    fn restart_if_due(&mut self, now: Nanos) {
        // Which checkpoint is the newest is open while one is being made durable.
        if self.restart_at.is_some_and(|at| at <= now) && self.coordinator.storing().is_none() {
            self.restart_at = None;
            self.attempt = Attempt(self.attempt.0 + 1);
            self.deploy(now);
        }
    }

    fn stop(&mut self, event: JobEvent, now: Nanos) {
        if self.state.is_terminal() {
            return;
        }
        self.restart_at = None;
        self.executor.stop(true);
        self.ended_at = Some(now);
        self.transition(event);
        self.coordinate(Event::Shutdown, now);
        if event == JobEvent::Cancel {
            self.transition(JobEvent::Stopped);
        }
    }

    fn transition(&mut self, event: JobEvent) {
        match self.state.next(event) {
            Ok(state) => {
                tracing::info!(target: "stoplog::job", job = %self.job_id, from = %self.state, to = %state, "job state");
                self.state = state;
                self.status.set_state(state);
            }
            Err(illegal) => panic!("the supervisor is wrong about the job: {illegal}"),
        }
    }

    fn coordinate(&mut self, event: Event<SubtaskSnapshot>, now: Nanos) {
        let mut actions = Vec::new();
        let last = self.coordinator.counts().last;
        self.coordinator.handle(event, now, &mut actions);
        // Not where subtasks are told: a checkpoint may complete after its execution has ended.
        if let Some(completed) = self.coordinator.counts().last.filter(|completed| Some(*completed) != last) {
            let summary = self.measured.completed(completed);
            self.under_way.end(completed.id);
            tracing::debug!(
                target: "stoplog::checkpoint::coordinator",
                job = %self.job_id, checkpoint = %summary.id, duration = ?summary.duration, bytes = summary.bytes, "completed"
            );
        }
        for action in actions {
            self.carry_out(action, now);
        }
        let in_flight = self.coordinator.in_flight().next().map(|pending| pending.id());
        let measured = &self.measured;
        self.status.set_checkpoints(
            self.coordinator.counts(),
            in_flight,
            measured.last,
            measured.worst_alignment,
        );
    }

    fn carry_out(&mut self, action: Action<SubtaskSnapshot>, now: Nanos) {
        match action {
            Action::Trigger { checkpoint, sources } => {
                self.under_way.begin(checkpoint);
                for source in sources.iter() {
                    self.send(*source, SubtaskCommand::Checkpoint(Command::Trigger(checkpoint)));
                }
            }
            Action::Store { checkpoint, snapshots } => self.store(checkpoint, snapshots),
            Action::NotifyComplete { checkpoint } => {
                self.broadcast(SubtaskCommand::Checkpoint(Command::Complete(checkpoint)));
            }
            Action::NotifyAborted { checkpoint, reason } => {
                tracing::warn!(
                    target: "stoplog::checkpoint::coordinator",
                    job = %self.job_id, %checkpoint, "checkpoint aborted: {reason}"
                );
                self.measured.aborted(checkpoint);
                self.under_way.end(checkpoint);
                self.broadcast(SubtaskCommand::Checkpoint(Command::Abort(checkpoint)));
            }
            Action::Discard { checkpoint, .. } => {
                let storage = Arc::clone(&self.storage);
                self.executor.pool().spawn_ahead(Box::new(move || {
                    if let Err(error) = storage.discard(checkpoint) {
                        tracing::warn!(target: "stoplog::checkpoint", %checkpoint, "cannot be removed: {error}");
                    }
                }));
            }
            Action::Answer { request, result } => {
                if let Some(answer) = self.requests.remove(&request) {
                    let _ = answer.send(result);
                }
            }
            Action::FailJob { reason } => {
                let message = format!("too many checkpoints failed in a row, the last one because {reason}");
                self.fail(Error::new(ErrorKind::Checkpoint, Recovery::Restart, message), now);
            }
            Action::Finish => self.broadcast(SubtaskCommand::Finish),
        }
    }

    fn store(&mut self, id: CheckpointId, snapshots: Vec<(SubtaskId, SubtaskSnapshot)>) {
        let subtasks: Vec<_> = snapshots.into_iter().map(|(_, snapshot)| snapshot).collect();
        self.measured.stored(id, subtasks.iter().map(|subtask| subtask.bytes).sum());
        let now_ms = self.clock.epoch_millis();
        let pending = self.coordinator.in_flight().find(|pending| pending.id() == id);
        let age = pending.map_or(Duration::ZERO, |pending| self.clock.now().since(pending.triggered()));
        let checkpoint = CompletedCheckpoint {
            id,
            job: self.job_id,
            max_parallelism: self.plan.max_parallelism,
            triggered_at_ms: now_ms.saturating_sub(u64::try_from(age.as_millis()).unwrap_or(u64::MAX)),
            completed_at_ms: now_ms,
            subtasks,
        };
        let (storage, events) = (Arc::clone(&self.storage), self.events.clone());
        self.executor.pool().spawn_ahead(Box::new(move || {
            let stored = match catch_unwind(AssertUnwindSafe(|| storage.commit(&checkpoint))) {
                Ok(Ok(())) => SupervisorEvent::Stored(checkpoint.id),
                Ok(Err(error)) => SupervisorEvent::StoreFailed(checkpoint.id, error.to_string()),
                Err(_) => SupervisorEvent::StoreFailed(checkpoint.id, "the storage panicked".to_owned()),
            };
            let _ = events.send(stored);
        }));
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

fn snapshot_error(error: crate::snapshot::SnapshotError) -> Error {
    // What is damaged stays damaged; a storage that did not answer may do so next time. Never an older checkpoint instead.
    let recovery = if error.is_transient() { Recovery::Restart } else { Recovery::GiveUp };
    Error::caused_by(ErrorKind::Snapshot, recovery, &error.into())
}
