//! Random orders of events against the invariants.
//!
//! A small world answers the actions: subtasks acknowledge, decline, stay silent or repeat themselves, the storage
//! succeeds or fails, attempts fail and are followed by others. Everything on its way arrives in random order, with
//! messages that belong nowhere in between. Each action is checked against what has been delivered so far.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::*;
use crate::base::id::{SubtaskIndex, VertexId};
use crate::base::rng::Rng;

const SEEDS: u64 = 4_000;
const STEPS: u64 = 250;

/// One part of a snapshot; no two are the same.
type Part = u64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Open,
    Storing,
    Completed,
    Aborted,
}

struct World {
    seed: u64,
    rng: Rng,
    settings: CheckpointConfig,
    /// Nothing fails and nothing is lost.
    calm: bool,
    with_requests: bool,
    coordinator: Coordinator<Part>,
    subtasks: Vec<(SubtaskId, bool)>,
    now: Nanos,
    in_transit: Vec<Event<Part>>,
    attempt: Attempt,
    running: bool,
    closed: bool,
    finished: bool,
    outcomes: BTreeMap<CheckpointId, Outcome>,
    /// Of the running attempt, by checkpoint.
    acknowledged: BTreeMap<CheckpointId, BTreeSet<SubtaskId>>,
    next_part: Part,
    /// Parts that were the first of their checkpoint and subtask to be delivered.
    parts_due: BTreeSet<Part>,
    parts_seen: BTreeSet<(CheckpointId, SubtaskId)>,
    parts_handed_out: BTreeSet<Part>,
    open_requests: BTreeSet<RequestId>,
    requests_made: u64,
    ended: BTreeSet<SubtaskId>,
    /// The first checkpoint triggered after all have ended, and later ones.
    finals: BTreeSet<CheckpointId>,
    notified: BTreeSet<(CheckpointId, SubtaskId)>,
    last_completion: Option<Nanos>,
    failures_in_a_row: u32,
    retired: BTreeSet<CheckpointId>,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let max_concurrent = 1 + rng.below(3) as u32;
        let min_pause = Duration::from_nanos(if max_concurrent == 1 { rng.below(3) * 40 } else { 0 });
        let settings = CheckpointConfig {
            interval: (!rng.one_in(6)).then(|| Duration::from_nanos(1 + rng.below(60))),
            timeout: Duration::from_nanos(50 + rng.below(200)),
            min_pause,
            max_concurrent,
            tolerable_failures: rng.below(4) as u32,
            num_retained: 1 + rng.below(3) as u32,
            ..CheckpointConfig::default()
        };
        let subtasks = (0..1 + rng.below(4) as u32).map(|index| {
            (SubtaskId { vertex: VertexId(index / 2), index: SubtaskIndex(index % 2) }, index < 2)
        });
        let calm = rng.one_in(4);
        // Without a timeout nothing is lost, only slow.
        let settings = if calm { CheckpointConfig { timeout: Duration::MAX, ..settings } } else { settings };
        let first = CheckpointId(1 + rng.below(50));
        Self {
            seed,
            calm,
            with_requests: min_pause.is_zero() && rng.one_in(2),
            subtasks: subtasks.collect(),
            coordinator: Coordinator::new(settings.clone(), first, []),
            settings,
            rng,
            now: Nanos(0),
            in_transit: Vec::new(),
            attempt: Attempt(0),
            running: false,
            closed: false,
            finished: false,
            outcomes: BTreeMap::new(),
            acknowledged: BTreeMap::new(),
            next_part: 0,
            parts_due: BTreeSet::new(),
            parts_seen: BTreeSet::new(),
            parts_handed_out: BTreeSet::new(),
            open_requests: BTreeSet::new(),
            requests_made: 0,
            ended: BTreeSet::new(),
            finals: BTreeSet::new(),
            notified: BTreeSet::new(),
            last_completion: None,
            failures_in_a_row: 0,
            retired: BTreeSet::new(),
        }
    }

    fn outcome(&self, checkpoint: CheckpointId) -> Outcome {
        *self.outcomes.get(&checkpoint).unwrap_or_else(|| panic!("seed {}: {checkpoint} unknown", self.seed))
    }

    /// Delivers one event, notes what it means, and checks what comes of it.
    fn deliver(&mut self, event: Event<Part>) {
        let seed = self.seed;
        let mut stored = None;
        match &event {
            Event::Started { attempt, .. } if !self.closed => {
                (self.attempt, self.running, self.failures_in_a_row) = (*attempt, true, 0);
                self.acknowledged.clear();
                self.ended.clear();
                self.finals.clear();
                self.notified.clear();
            }
            Event::TriggerRequested(request) => {
                self.open_requests.insert(*request);
            }
            Event::Report(Report { attempt, subtask, message }) => {
                let current = self.running && *attempt == self.attempt;
                match message {
                    Message::Acknowledge { checkpoint, snapshot } => {
                        let genuine = self.outcomes.contains_key(checkpoint);
                        if genuine && self.parts_seen.insert((*checkpoint, *subtask)) {
                            self.parts_due.insert(*snapshot);
                        }
                        if current {
                            self.acknowledged.entry(*checkpoint).or_default().insert(*subtask);
                        }
                    }
                    Message::EndOfInput if current => {
                        self.ended.insert(*subtask);
                    }
                    Message::Notified { checkpoint }
                        if current && self.outcomes.get(checkpoint) == Some(&Outcome::Completed) =>
                    {
                        self.notified.insert((*checkpoint, *subtask));
                    }
                    _ => {}
                }
            }
            Event::Stored { checkpoint } if self.outcomes.get(checkpoint) == Some(&Outcome::Storing) => {
                self.outcomes.insert(*checkpoint, Outcome::Completed);
                (self.last_completion, self.failures_in_a_row) = (Some(self.now), 0);
                stored = Some(*checkpoint);
            }
            Event::AttemptFailed { attempt } if *attempt == self.attempt => self.running = false,
            Event::Shutdown => (self.running, self.closed) = (false, true),
            _ => {}
        }
        let told_before = self.running;
        let mut actions = Vec::new();
        self.coordinator.handle(event, self.now, &mut actions);
        let completes =
            actions.iter().filter(|action| matches!(action, Action::NotifyComplete { .. })).count();
        assert_eq!(
            completes,
            usize::from(stored.is_some() && told_before),
            "seed {seed}: told once, when running"
        );
        for action in actions {
            if let Action::NotifyComplete { checkpoint } = &action {
                assert_eq!(Some(*checkpoint), stored, "seed {seed}: only what has just become durable");
            }
            self.carry_out(action);
        }
        self.check();
    }

    fn carry_out(&mut self, action: Action<Part>) {
        let seed = self.seed;
        match action {
            Action::Trigger { checkpoint, sources } => self.triggered(checkpoint, &sources),
            Action::Store { checkpoint, snapshots } => {
                assert_eq!(self.outcome(checkpoint), Outcome::Open, "seed {seed}");
                assert!(
                    !self.outcomes.values().any(|o| *o == Outcome::Storing),
                    "seed {seed}: one at a time"
                );
                self.outcomes.insert(checkpoint, Outcome::Storing);
                let all: BTreeSet<_> = self.subtasks.iter().map(|(subtask, _)| *subtask).collect();
                assert_eq!(self.acknowledged.get(&checkpoint), Some(&all), "seed {seed}: {checkpoint}");
                assert!(snapshots.iter().map(|(subtask, _)| *subtask).eq(all), "seed {seed}: {checkpoint}");
                self.hand_out(snapshots.into_iter().map(|(_, part)| part));
                let fails = !self.calm && self.rng.one_in(8);
                self.in_transit.push(if fails {
                    Event::StoreFailed { checkpoint, reason: "torn".to_owned() }
                } else {
                    Event::Stored { checkpoint }
                });
            }
            Action::NotifyComplete { checkpoint } => {
                for (subtask, _) in self.subtasks.clone() {
                    self.send(subtask, Message::Notified { checkpoint });
                }
            }
            Action::NotifyAborted { checkpoint, reason } => self.aborted(checkpoint, &reason),
            Action::Discard { checkpoint, cause, snapshots } => {
                let expected =
                    if cause == DiscardCause::Retired { Outcome::Completed } else { Outcome::Aborted };
                let retired_before = self.retired.contains(&checkpoint);
                if cause != DiscardCause::Late || !retired_before {
                    assert_eq!(self.outcome(checkpoint), expected, "seed {seed}: {checkpoint} {cause:?}");
                }
                if cause == DiscardCause::Retired {
                    assert!(self.retired.insert(checkpoint), "seed {seed}: {checkpoint} retired twice");
                    assert!(snapshots.is_empty(), "seed {seed}");
                }
                assert!(
                    !self.coordinator.retained.contains(&checkpoint),
                    "seed {seed}: {checkpoint} is kept"
                );
                self.hand_out(snapshots);
            }
            Action::Answer { request, result } => {
                assert!(self.open_requests.remove(&request), "seed {seed}: answered twice");
                if let Ok(id) = result {
                    assert_eq!(self.outcome(id), Outcome::Completed, "seed {seed}: {id}");
                }
            }
            Action::FailJob { .. } => {
                assert!(self.running, "seed {seed}: an attempt that is over cannot fail");
                self.running = false;
                if !self.with_requests {
                    assert!(self.failures_in_a_row > self.settings.tolerable_failures, "seed {seed}");
                }
                let attempt = self.attempt;
                self.in_transit.push(Event::AttemptFailed { attempt });
            }
            Action::Finish => {
                assert!(self.running && !self.finished, "seed {seed}");
                assert_eq!(self.ended.len(), self.subtasks.len(), "seed {seed}: all have ended");
                if self.settings.interval.is_some() {
                    let newest = self.coordinator.newest_completed().expect("the final one");
                    assert!(self.finals.contains(&newest), "seed {seed}: {newest} began after the end");
                    let published = self.notified.iter().filter(|(id, _)| *id == newest).count();
                    assert_eq!(published, self.subtasks.len(), "seed {seed}: all have published");
                }
                (self.finished, self.closed, self.running) = (true, true, false);
            }
        }
    }

    fn triggered(&mut self, checkpoint: CheckpointId, sources: &[SubtaskId]) {
        let seed = self.seed;
        assert!(self.running && !self.closed, "seed {seed}: {checkpoint} begins in no attempt");
        assert!(self.outcomes.keys().all(|older| *older < checkpoint), "seed {seed}: ids grow");
        assert!(sources.iter().eq(self.subtasks.iter().filter(|(_, source)| *source).map(|(id, _)| id)));
        self.outcomes.insert(checkpoint, Outcome::Open);
        if self.ended.len() == self.subtasks.len() {
            let earlier = self.finals.iter().all(|id| self.outcome(*id) == Outcome::Aborted);
            assert!(earlier, "seed {seed}: one final checkpoint at a time, none after it");
            self.finals.insert(checkpoint);
        } else if let Some(last) = self.last_completion
            && !self.with_requests
        {
            assert!(
                self.now >= last.after(self.settings.min_pause),
                "seed {seed}: {checkpoint} in the pause"
            );
        }
        for (subtask, _) in self.subtasks.clone() {
            let copies = match self.rng.below(if self.calm { 1 } else { 20 }) {
                18 => {
                    self.send(subtask, Message::Decline { checkpoint, reason: "busy".to_owned() });
                    self.rng.below(2)
                }
                19 => 0,
                17 => 2,
                _ => 1,
            };
            for _ in 0..copies {
                self.next_part += 1;
                self.send(subtask, Message::Acknowledge { checkpoint, snapshot: self.next_part });
            }
        }
    }

    fn aborted(&mut self, checkpoint: CheckpointId, reason: &AbortReason) {
        let before = self.outcomes.insert(checkpoint, Outcome::Aborted);
        let from =
            if matches!(reason, AbortReason::StoreFailed { .. }) { Outcome::Storing } else { Outcome::Open };
        assert_eq!(before, Some(from), "seed {}: {checkpoint} {reason}", self.seed);
        if let AbortReason::Subsumed { by } = reason {
            assert!(*by > checkpoint && self.outcome(*by) == Outcome::Completed, "seed {}", self.seed);
        }
        let counts = matches!(
            reason,
            AbortReason::Declined { .. } | AbortReason::TimedOut { .. } | AbortReason::StoreFailed { .. }
        );
        self.failures_in_a_row += u32::from(counts && self.running);
    }

    fn hand_out(&mut self, parts: impl IntoIterator<Item = Part>) {
        for part in parts {
            assert!(self.parts_handed_out.insert(part), "seed {}: part {part} handed out twice", self.seed);
        }
    }

    fn send(&mut self, subtask: SubtaskId, message: Message<Part>) {
        self.in_transit.push(Event::Report(Report { attempt: self.attempt, subtask, message }));
    }

    fn check(&self) {
        let (seed, coordinator) = (self.seed, &self.coordinator);
        let open = |o: &Outcome| matches!(o, Outcome::Open | Outcome::Storing);
        let in_flight = self.outcomes.values().filter(|o| open(o)).count();
        assert_eq!(coordinator.in_flight().count(), in_flight, "seed {seed}");
        assert!(in_flight <= self.settings.max_concurrent as usize, "seed {seed}: too many under way");
        let storing = self.outcomes.iter().find(|(_, o)| **o == Outcome::Storing).map(|(id, _)| *id);
        assert_eq!(coordinator.storing(), storing, "seed {seed}");

        let completed = || self.outcomes.iter().filter(|(_, o)| **o == Outcome::Completed).map(|(id, _)| *id);
        assert_eq!(
            coordinator.newest_completed(),
            completed().next_back(),
            "seed {seed}: the newest is kept"
        );
        let kept: Vec<_> = completed().filter(|id| !self.retired.contains(id)).collect();
        assert_eq!(coordinator.retained().collect::<Vec<_>>(), kept, "seed {seed}");
        assert!(kept.len() <= self.settings.num_retained as usize, "seed {seed}: too many kept");

        let counts = coordinator.counts();
        assert_eq!(counts.triggered, self.outcomes.len() as u64, "seed {seed}");
        assert_eq!(counts.completed, completed().count() as u64, "seed {seed}");
        let sum = counts.completed + counts.failed + counts.subsumed + in_flight as u64;
        assert_eq!(counts.triggered, sum, "seed {seed}");

        if let Some(next) = coordinator.next_deadline() {
            assert!(next > self.now, "seed {seed}: {next:?} has passed at {:?}", self.now);
            assert!(self.running, "seed {seed}: a timer outlives the attempt");
        }
        if self.running && !self.with_requests {
            assert!(self.failures_in_a_row <= self.settings.tolerable_failures, "seed {seed}: one too many");
        }
    }

    /// The supervisor: another attempt, once the outcome of the last store is known.
    fn restart(&mut self) {
        if !self.running && !self.closed && self.coordinator.storing().is_none() {
            let (attempt, subtasks) = (Attempt(self.attempt.0 + 1), self.subtasks.clone());
            self.deliver(Event::Started { attempt, subtasks });
        }
    }

    /// A message that belongs nowhere.
    fn stray(&mut self) -> Event<Part> {
        let newest = self.outcomes.keys().next_back().map_or(0, |id| id.0);
        let checkpoint = CheckpointId(self.rng.below(newest + 3));
        let subtask = self.subtasks[self.rng.below(self.subtasks.len() as u64) as usize].0;
        let storing = self.coordinator.storing() == Some(checkpoint);
        let old = Attempt(self.attempt.0 + 1 + self.rng.below(2) as u32);
        match self.rng.below(5) {
            0 if !storing => Event::Stored { checkpoint },
            1 if !storing => Event::StoreFailed { checkpoint, reason: "stray".to_owned() },
            2 => {
                let message = Message::Decline { checkpoint, reason: "stray".to_owned() };
                Event::Report(Report { attempt: old, subtask, message })
            }
            3 => Event::Report(Report { attempt: old, subtask, message: Message::EndOfInput }),
            _ => Event::AttemptFailed { attempt: old },
        }
    }

    fn step(&mut self, step: u64) {
        // One step in three happens at the same instant as the one before.
        self.now.0 += self.rng.below(3).saturating_sub(1) * self.rng.below(40);
        match self.rng.below(12) {
            0 if self.with_requests => {
                self.requests_made += 1;
                self.deliver(Event::TriggerRequested(RequestId(self.requests_made)));
            }
            1 | 2 => {
                self.now = self.coordinator.next_deadline().map_or(self.now, |next| next.max(self.now));
                self.deliver(Event::Timer);
            }
            3 => self.restart(),
            4 if !self.calm => {
                let stray = self.stray();
                self.deliver(stray);
            }
            5 if !self.calm && self.rng.one_in(12) => {
                let attempt = self.attempt;
                self.deliver(Event::AttemptFailed { attempt });
            }
            6 if step > STEPS / 2 && self.running => {
                let subtask = self.subtasks[self.rng.below(self.subtasks.len() as u64) as usize].0;
                self.send(subtask, Message::EndOfInput);
            }
            7 if !self.calm && self.rng.one_in(100) => self.deliver(Event::Shutdown),
            _ => self.deliver_any(),
        }
    }

    fn deliver_any(&mut self) {
        if !self.in_transit.is_empty() {
            let event = self.in_transit.swap_remove(self.rng.below(self.in_transit.len() as u64) as usize);
            self.deliver(event);
        }
    }

    /// Without faults the job comes to its end.
    fn run_to_the_end(&mut self) {
        self.restart();
        for (subtask, _) in self.subtasks.clone() {
            self.send(subtask, Message::EndOfInput);
        }
        for _ in 0..10_000 {
            if self.finished {
                return;
            }
            if self.in_transit.is_empty() {
                self.now = self.coordinator.next_deadline().expect("something is still to be done");
                self.deliver(Event::Timer);
            }
            self.deliver_any();
        }
        panic!("seed {}: the job does not end: {:?}", self.seed, self.coordinator);
    }
}

#[test]
fn random_orders_keep_the_invariants() {
    let (mut completed, mut failed, mut subsumed, mut finished) = (0, 0, 0, 0);
    for seed in 0..SEEDS {
        let mut world = World::new(seed);
        world.restart();
        for step in 0..STEPS {
            world.step(step);
        }
        if world.calm {
            world.run_to_the_end();
        }
        world.deliver(Event::Shutdown);
        while !world.in_transit.is_empty() {
            world.deliver_any();
        }
        assert!(world.open_requests.is_empty(), "seed {seed}: requests without answer");
        assert_eq!(world.coordinator.storing(), None, "seed {seed}");
        let lost: Vec<_> = world.parts_due.difference(&world.parts_handed_out).collect();
        assert!(lost.is_empty(), "seed {seed}: parts {lost:?} were neither stored nor discarded");
        let counts = world.coordinator.counts();
        completed += counts.completed;
        failed += counts.failed;
        subsumed += counts.subsumed;
        finished += u64::from(world.finished);
    }
    let seen = [completed, failed, subsumed, finished];
    assert!(seen.iter().all(|n| *n > SEEDS / 8), "the model exercises every end: {seen:?}");
}
