//! Runs one job on one thread, by a seed.
//!
//! Each turn does one thing: open the subtasks of a worker, step one subtask with a small budget, send a worker to sleep, run one
//! waiting snapshot task, step a helper, deliver one event to the supervisor, let a timer fire, or move the clock. What is done next is
//! drawn from the seed. Events of one sender stay in order; between senders any order can happen.
//!
//! A worker that has announced its sleep is not stepped until something wakes it or its deadline has come, so a wake-up that is
//! forgotten ends as a run that is stuck, not as one that is slow.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use crossbeam::channel::{Receiver, Sender, unbounded};

use super::clock::{STARTED_AT_MS, VirtualClock};
use super::executor::SimExecutor;
use crate::api::JobGraph;
use crate::base::clock::{Clock, Nanos};
use crate::base::error::Error;
use crate::base::id::{CheckpointId, JobId, SubtaskId};
use crate::base::progress::Progress;
use crate::base::rng::{Rng, splitmix64};
use crate::checkpoint::protocol::{Message, Report};
use crate::job::supervisor::{Request, Supervisor, SupervisorEvent};
use crate::job::{JobOrigin, JobResult, JobStatus};
use crate::runtime::signal::Signal;
use crate::snapshot::CheckpointStorage;

/// How a run is scheduled. The weights are relative to each other; 0 never, unless nothing else can be done.
#[derive(Debug, Clone)]
pub struct SimOptions {
    /// Seed of all decisions.
    pub seed: u64,
    /// Workers among which the subtasks are divided.
    pub workers: usize,
    /// Weight of a step of a subtask.
    pub step_weight: u64,
    /// Weight of a waiting snapshot task.
    pub task_weight: u64,
    /// Weight of a step of a helper.
    pub helper_weight: u64,
    /// Weight of an event for the supervisor.
    pub event_weight: u64,
    /// Weight of a move of the clock.
    pub time_weight: u64,
    /// The clock moves by up to this much.
    pub time_step: Duration,
    /// Most records of one step.
    pub budget_max: usize,
    /// A run with more turns has failed.
    pub turns_max: u64,
    /// The time at the beginning: milliseconds since 1970.
    pub started_at_ms: u64,
}

impl SimOptions {
    /// Options drawn from a seed: some runs have slow subtasks, some a slow supervisor, some a slow storage.
    #[must_use]
    pub fn from_seed(seed: u64) -> Self {
        let mut rng = Rng::new(splitmix64(seed ^ 0x0905));
        let mut weight = |usual: u64| if rng.one_in(4) { 1 + rng.below(2) } else { 1 + rng.below(usual) };
        let (task_weight, helper_weight, event_weight, time_weight) =
            (weight(20), weight(20), weight(30), weight(6));
        Self {
            seed,
            workers: 1 + rng.below(8) as usize,
            step_weight: 30,
            task_weight,
            helper_weight,
            event_weight,
            time_weight,
            time_step: Duration::from_micros(1 + rng.below(200)),
            budget_max: if rng.one_in(4) { 3 } else { 64 },
            turns_max: 400_000,
            started_at_ms: STARTED_AT_MS,
        }
    }
}

/// Who sent an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Actor {
    Subtask(SubtaskId),
    Worker(usize),
    Task,
    Helper(usize),
    Embedder,
}

/// One job under the deterministic scheduler.
#[derive(Debug)]
pub struct Simulation {
    options: SimOptions,
    supervisor: Supervisor<SimExecutor>,
    clock: Arc<VirtualClock>,
    rng: Rng,
    sender: Sender<SupervisorEvent>,
    receiver: Receiver<SupervisorEvent>,
    /// Not yet delivered, by sender.
    events: BTreeMap<Actor, VecDeque<SupervisorEvent>>,
    waiting_events: usize,
    /// How often each worker is chosen when it is drawn, of 8.
    speeds: Vec<u64>,
    timeout: Duration,
    newest_id: Option<CheckpointId>,
    oldest_id: Option<CheckpointId>,
    failures: Vec<Error>,
    trace: u64,
    turns: u64,
}

impl Simulation {
    /// A run of the job that has deployed its first execution.
    ///
    /// # Errors
    /// If the storage cannot be read.
    pub fn new(
        job: JobGraph,
        storage: Arc<dyn CheckpointStorage>,
        options: SimOptions,
    ) -> Result<Self, Error> {
        let origin = JobOrigin::in_storage(JobId::from_words(0, options.seed), storage);
        Self::with_origin(job, origin, options)
    }

    /// A run of the job that goes on from this origin and has deployed its first execution.
    ///
    /// # Errors
    /// If the storage cannot be read.
    pub fn with_origin(job: JobGraph, origin: JobOrigin, options: SimOptions) -> Result<Self, Error> {
        let clock = Arc::new(VirtualClock::starting_at(options.started_at_ms));
        let (sender, receiver) = unbounded();
        let timeout = job.config.checkpoints.timeout;
        let mut rng = Rng::new(splitmix64(options.seed));
        let speeds = (0..options.workers).map(|_| 1 + rng.below(8)).collect();
        let mut supervisor = Supervisor::new(
            origin,
            job,
            SimExecutor::new(options.workers),
            Arc::clone(&clock) as Arc<dyn Clock>,
            sender.clone(),
            Arc::<JobStatus>::default(),
        )?;
        supervisor.start(clock.now());
        Ok(Self {
            options,
            supervisor,
            clock,
            rng,
            sender,
            receiver,
            events: BTreeMap::new(),
            waiting_events: 0,
            speeds,
            timeout,
            newest_id: None,
            oldest_id: None,
            failures: Vec::new(),
            trace: 0,
            turns: 0,
        })
    }

    /// Asks something of the job; it is delivered like any other event.
    pub fn request(&mut self, request: Request) {
        let _ = self.sender.send(SupervisorEvent::Request(request));
        self.collect(Actor::Embedder);
    }

    /// True once the job is over.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.supervisor.is_over()
    }

    /// The supervisor, to look at.
    #[must_use]
    pub fn supervisor(&self) -> &Supervisor<SimExecutor> {
        &self.supervisor
    }

    /// Executions launched so far.
    #[must_use]
    pub fn launches(&self) -> u32 {
        self.supervisor.executor().launches
    }

    /// Everything that subtasks and helpers failed with, oldest first.
    #[must_use]
    pub fn failures(&self) -> &[Error] {
        &self.failures
    }

    /// The time of the run.
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.clock.now()
    }

    /// A number that stands for all decisions and events so far.
    #[must_use]
    pub fn trace(&self) -> u64 {
        self.trace
    }

    /// Turns so far.
    #[must_use]
    pub fn turns(&self) -> u64 {
        self.turns
    }

    /// Requests that the job did not take before it was over; their senders learn that it is.
    #[must_use]
    pub fn undelivered_requests(&self) -> usize {
        let events = self.events.values().flatten();
        events.filter(|event| matches!(event, SupervisorEvent::Request(_))).count()
    }

    /// A number for decisions outside the scheduler.
    pub fn draw(&mut self, bound: u64) -> u64 {
        self.rng.below(bound)
    }

    /// Does one thing.
    ///
    /// # Errors
    /// If nothing can be done any more although the job is not over, if the run takes too long, or if a rule of the
    /// coordinator is broken.
    pub fn turn(&mut self) -> Result<(), String> {
        self.turns += 1;
        if self.turns > self.options.turns_max {
            return Err(self.dump("the job does not come to its end"));
        }
        let now = self.clock.now();
        let tasks = self.supervisor.executor().tasks().len();
        let executor = self.supervisor.executor();
        let awake: Vec<usize> =
            (0..executor.workers.len()).filter(|worker| executor.workers[*worker].is_awake(now)).collect();
        let helpers: Vec<usize> =
            (0..executor.helpers.len()).filter(|helper| executor.helpers[*helper].is_awake()).collect();
        let timer = self.supervisor.next_deadline().is_some_and(|deadline| deadline <= now);
        let SimOptions { step_weight, task_weight, helper_weight, event_weight, time_weight, .. } =
            self.options;
        let if_any = |any: bool, weight: u64| if any { weight } else { 0 };
        let weights = [
            if_any(!awake.is_empty(), step_weight),
            if_any(tasks > 0, task_weight),
            if_any(!helpers.is_empty(), helper_weight),
            if_any(self.waiting_events > 0, event_weight),
            if_any(timer, event_weight),
        ];
        let busy: u64 = weights.iter().sum();
        if busy == 0 {
            return self.move_to_deadline();
        }
        let mut drawn = self.rng.below(busy + time_weight);
        let choice = weights.iter().position(|weight| {
            let here = drawn < *weight;
            drawn = drawn.saturating_sub(if here { 0 } else { *weight });
            here
        });
        match choice {
            Some(0) => self.step_worker(&awake),
            Some(1) => {
                let task = self.rng.below(tasks as u64) as usize;
                self.mix(1 << 32 | task as u64);
                self.supervisor.executor().tasks().run(task);
                self.collect(Actor::Task);
            }
            Some(2) => {
                let helper = helpers[self.rng.below(helpers.len() as u64) as usize];
                self.mix(2 << 32 | helper as u64);
                self.supervisor.executor_mut().helpers[helper].step();
                self.collect(Actor::Helper(helper));
            }
            Some(3) => {
                self.deliver();
                self.check_timeouts()?;
            }
            Some(_) => {
                self.fire_timer();
                self.check_timeouts()?;
            }
            None => {
                let step = 1 + self.rng.below(self.options.time_step.as_nanos() as u64);
                self.mix(3 << 32 | step);
                self.clock.move_to(Nanos(now.0 + step));
            }
        }
        self.check_coordinator()
    }

    fn step_worker(&mut self, awake: &[usize]) {
        let mut worker = awake[self.rng.below(awake.len() as u64) as usize];
        if self.rng.below(8) >= self.speeds[worker] {
            worker = awake[self.rng.below(awake.len() as u64) as usize];
        }
        let subtasks = self.supervisor.executor().workers[worker].subtasks().len();
        let index = self.rng.below(subtasks as u64) as usize;
        let budget = 1 + self.rng.below(self.options.budget_max as u64) as usize;
        let sleepy = self.rng.one_in(2);
        self.mix(4 << 32 | (worker as u64) << 16 | index as u64);
        let executor = self.supervisor.executor_mut();
        if !executor.workers[worker].is_open() {
            executor.open(worker);
            self.collect(Actor::Worker(worker));
            return;
        }
        let subtask = executor.workers[worker].subtasks()[index];
        let progress = executor.workers[worker].step(index, budget);
        self.collect(Actor::Subtask(subtask));
        if progress != Progress::Worked && sleepy {
            let _ = self.supervisor.executor_mut().workers[worker].try_sleep(budget);
            self.collect(Actor::Worker(worker));
        }
    }

    /// Takes over what was sent during the last action. Reports name their subtask; the rest was sent by whoever acted.
    fn collect(&mut self, actor: Actor) {
        while let Ok(event) = self.receiver.try_recv() {
            let sender = match &event {
                SupervisorEvent::Signal(
                    Signal::Opened { subtask, .. }
                    | Signal::Finished { subtask, .. }
                    | Signal::Report(Report { subtask, .. }),
                ) => Actor::Subtask(*subtask),
                SupervisorEvent::Signal(Signal::Failed { error, .. }) => {
                    self.failures.push(error.clone());
                    actor
                }
                _ => actor,
            };
            self.events.entry(sender).or_default().push_back(event);
            self.waiting_events += 1;
        }
    }

    fn deliver(&mut self) {
        let chosen = self.rng.below(self.events.len() as u64) as usize;
        let sender = *self.events.keys().nth(chosen).expect("an index below the number of senders");
        let queue = self.events.get_mut(&sender).expect("it is there");
        let event = queue.pop_front().expect("senders without events are removed");
        if queue.is_empty() {
            self.events.remove(&sender);
        }
        self.waiting_events -= 1;
        self.mix(fingerprint(&event));
        let now = self.clock.now();
        self.supervisor.handle(event, now);
        self.supervisor.on_time(now);
        self.collect(Actor::Embedder);
    }

    fn fire_timer(&mut self) {
        self.mix(5 << 32);
        self.supervisor.on_time(self.clock.now());
        self.collect(Actor::Embedder);
    }

    fn move_to_deadline(&mut self) -> Result<(), String> {
        let now = self.clock.now();
        let workers = &self.supervisor.executor().workers;
        let wakes = workers.iter().filter_map(|worker| worker.wakes_at());
        let Some(next) = wakes.chain(self.supervisor.next_deadline()).filter(|at| *at > now).min() else {
            return Err(self.dump("nothing can be done any more, but the job is not over"));
        };
        self.mix(6 << 32 ^ next.0);
        self.clock.move_to(next);
        Ok(())
    }

    /// Nothing that waits for acknowledgements is older than its timeout, once the supervisor has looked at the time.
    fn check_timeouts(&self) -> Result<(), String> {
        let now = self.clock.now();
        let expired = self.supervisor.coordinator().in_flight().find(|pending| {
            pending.waiting_for().next().is_some() && pending.triggered().after(self.timeout) <= now
        });
        match expired {
            None => Ok(()),
            Some(pending) => Err(format!("checkpoint {} has outlived its timeout", pending.id())),
        }
    }

    /// Ids grow, and no more than the limit are under way.
    fn check_coordinator(&mut self) -> Result<(), String> {
        let newest = self.supervisor.coordinator().in_flight().last().map(|pending| pending.id());
        if newest > self.newest_id {
            let oldest = self.supervisor.coordinator().in_flight().next().map(|pending| pending.id());
            self.oldest_id = self.oldest_id.or(oldest);
            self.newest_id = newest;
        } else if newest.is_some() && newest != self.newest_id {
            // The newest is over; an older one still runs.
            let ids: Vec<_> = self.supervisor.coordinator().in_flight().map(|p| p.id()).collect();
            if !ids.is_sorted() {
                return Err(format!("checkpoints out of order: {ids:?}"));
            }
        }
        Ok(())
    }

    /// The first checkpoint id seen.
    #[must_use]
    pub fn oldest_id(&self) -> Option<CheckpointId> {
        self.oldest_id
    }

    /// The highest checkpoint id seen.
    #[must_use]
    pub fn newest_id(&self) -> Option<CheckpointId> {
        self.newest_id
    }

    /// Runs the snapshot tasks that still wait, as the end of the real pool does, and answers what became of the job.
    #[must_use]
    pub fn finish(self) -> JobResult {
        let tasks = self.supervisor.executor().tasks();
        let result = self.supervisor.into_result();
        while !tasks.is_empty() {
            tasks.run(0);
        }
        result
    }

    /// All that is known about a run that is stuck.
    #[must_use]
    pub fn dump(&self, reason: &str) -> String {
        let mut text = format!(
            "{reason}: seed {}, turn {}, time {:?}\n",
            self.options.seed,
            self.turns,
            self.clock.now()
        );
        let executor = self.supervisor.executor();
        let _ = writeln!(text, "{:?}\n{:?}", self.supervisor, self.supervisor.coordinator());
        for worker in &executor.workers {
            let _ = writeln!(text, "{worker:?}");
        }
        let _ =
            writeln!(text, "{:?}\n{:?}\nundelivered {:?}", executor.helpers, executor.tasks(), self.events);
        text
    }

    fn mix(&mut self, word: u64) {
        self.trace = splitmix64(self.trace ^ word);
    }
}

/// A number that stands for an event.
fn fingerprint(event: &SupervisorEvent) -> u64 {
    let subtask = |subtask: &SubtaskId| u64::from(subtask.vertex.0) << 20 | u64::from(subtask.index.0);
    let (kind, a, b) = match event {
        SupervisorEvent::Signal(Signal::Opened { attempt, subtask: id }) => {
            (1, u64::from(attempt.0), subtask(id))
        }
        SupervisorEvent::Signal(Signal::Report(Report { attempt, subtask: id, message })) => {
            let message = match message {
                Message::Acknowledge { checkpoint, snapshot } => {
                    1 << 60 | checkpoint.0 << 32 | snapshot.bytes & 0xFFFF_FFFF
                }
                Message::Decline { checkpoint, .. } => 2 << 60 | checkpoint.0,
                Message::EndOfInput => 3 << 60,
                Message::Notified { checkpoint } => 4 << 60 | checkpoint.0,
            };
            (2 + u64::from(attempt.0) * 16, subtask(id), message)
        }
        SupervisorEvent::Signal(Signal::Forked { checkpoint, alignment, .. }) => {
            (3, checkpoint.0, alignment.map_or(0, |alignment| alignment.as_nanos() as u64))
        }
        SupervisorEvent::Signal(Signal::Written { checkpoint, duration }) => {
            (4, checkpoint.0, duration.as_nanos() as u64)
        }
        SupervisorEvent::Signal(Signal::Failed { attempt, error }) => {
            (5, u64::from(attempt.0), error.to_string().len() as u64)
        }
        SupervisorEvent::Signal(Signal::Finished { attempt, subtask: id, .. }) => {
            (6, u64::from(attempt.0), subtask(id))
        }
        SupervisorEvent::Stored(checkpoint) => (7, checkpoint.0, 0),
        SupervisorEvent::StoreFailed(checkpoint, _) => (8, checkpoint.0, 0),
        SupervisorEvent::Discarded(checkpoint) => (14, checkpoint.0, 0),
        SupervisorEvent::Settled(attempt, result) => (12, u64::from(attempt.0), u64::from(result.is_ok())),
        SupervisorEvent::Concluded(result) => (13, 0, u64::from(result.is_ok())),
        SupervisorEvent::Request(Request::Cancel) => (9, 0, 0),
        SupervisorEvent::Request(Request::Suspend) => (10, 0, 0),
        SupervisorEvent::Request(Request::Checkpoint(_)) => (11, 0, 0),
    };
    splitmix64(splitmix64(splitmix64(kind) ^ a) ^ b)
}
