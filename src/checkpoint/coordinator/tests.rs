//! Tables of events and actions. The job has a source `0.0` and a sink `1.0`; times are in milliseconds.

mod ending;
mod failing;

use std::time::Duration;

use super::*;
use crate::base::id::{SubtaskIndex, VertexId};

const SOURCE: SubtaskId = SubtaskId { vertex: VertexId(0), index: SubtaskIndex(0) };
const SINK: SubtaskId = SubtaskId { vertex: VertexId(1), index: SubtaskIndex(0) };

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn at(ms: u64) -> Nanos {
    Nanos(ms * 1_000_000)
}

/// Every 100 ms, timeout 1 s.
fn periodic() -> CheckpointConfig {
    CheckpointConfig { interval: Some(ms(100)), timeout: ms(1000), ..CheckpointConfig::default() }
}

fn several(max_concurrent: u32) -> CheckpointConfig {
    CheckpointConfig { max_concurrent, ..periodic() }
}

struct Probe {
    coordinator: Coordinator<&'static str>,
    now: Nanos,
    attempt: Attempt,
}

impl Probe {
    /// A coordinator whose first attempt started at 0.
    fn started(settings: CheckpointConfig) -> Self {
        let coordinator = Coordinator::new(settings, CheckpointId(1), []);
        let mut probe = Self { coordinator, now: Nanos(0), attempt: Attempt(0) };
        assert_eq!(probe.start(0), "");
        probe
    }

    fn handle(&mut self, event: Event<&'static str>) -> String {
        let mut actions = Vec::new();
        self.coordinator.handle(event, self.now, &mut actions);
        if let Some(next) = self.coordinator.next_deadline() {
            assert!(next > self.now, "a deadline that has passed would spin");
        }
        actions.iter().map(show).collect::<Vec<_>>().join(", ")
    }

    fn report(&mut self, subtask: SubtaskId, message: Message<&'static str>) -> String {
        self.handle(Event::Report(Report { attempt: self.attempt, subtask, message }))
    }

    fn start(&mut self, attempt: u32) -> String {
        self.attempt = Attempt(attempt);
        let subtasks = vec![(SOURCE, true), (SINK, false)];
        self.handle(Event::Started { attempt: self.attempt, subtasks })
    }

    fn timer(&mut self, ms: u64) -> String {
        self.now = at(ms);
        self.handle(Event::Timer)
    }

    fn request(&mut self, request: u64) -> String {
        self.handle(Event::TriggerRequested(RequestId(request)))
    }

    fn ack(&mut self, id: u64, subtask: SubtaskId) -> String {
        self.report(subtask, Message::Acknowledge { checkpoint: CheckpointId(id), snapshot: "part" })
    }

    fn ack_all(&mut self, id: u64) -> String {
        assert_eq!(self.ack(id, SOURCE), "");
        self.ack(id, SINK)
    }

    fn decline(&mut self, id: u64) -> String {
        self.report(SINK, Message::Decline { checkpoint: CheckpointId(id), reason: "no".to_owned() })
    }

    fn stored(&mut self, id: u64) -> String {
        self.handle(Event::Stored { checkpoint: CheckpointId(id) })
    }

    fn store_failed(&mut self, id: u64) -> String {
        self.handle(Event::StoreFailed { checkpoint: CheckpointId(id), reason: "disk full".to_owned() })
    }

    fn end_of_input(&mut self) -> String {
        assert_eq!(self.report(SOURCE, Message::EndOfInput), "");
        self.report(SINK, Message::EndOfInput)
    }

    fn notified(&mut self, id: u64, subtask: SubtaskId) -> String {
        self.report(subtask, Message::Notified { checkpoint: CheckpointId(id) })
    }

    fn attempt_failed(&mut self) -> String {
        self.handle(Event::AttemptFailed { attempt: self.attempt })
    }

    fn deadline(&self) -> Option<Nanos> {
        self.coordinator.next_deadline()
    }

    fn retained(&self) -> Vec<u64> {
        self.coordinator.retained().map(|id| id.0).collect()
    }
}

fn show(action: &Action<&'static str>) -> String {
    match action {
        Action::Trigger { checkpoint, sources } => {
            assert_eq!(sources[..], [SOURCE]);
            format!("trigger {checkpoint}")
        }
        Action::Store { checkpoint, snapshots } => {
            assert_eq!(snapshots[..], [(SOURCE, "part"), (SINK, "part")]);
            format!("store {checkpoint}")
        }
        Action::NotifyComplete { checkpoint } => format!("complete {checkpoint}"),
        Action::NotifyAborted { checkpoint, reason } => format!("abort {checkpoint} ({})", name(reason)),
        Action::Discard { checkpoint, cause, snapshots } => match cause {
            DiscardCause::Retired => format!("retire {checkpoint}"),
            DiscardCause::Aborted => format!("discard {checkpoint} with {}", snapshots.len()),
            DiscardCause::Late => format!("discard late {checkpoint} with {}", snapshots.len()),
        },
        Action::Answer { request, result } => match result {
            Ok(id) => format!("answer {} with {id}", request.0),
            Err(reason) => format!("refuse {} ({})", request.0, name(reason)),
        },
        Action::FailJob { reason } => format!("fail job ({})", name(reason)),
        Action::Finish => "finish".to_owned(),
    }
}

fn name(reason: &AbortReason) -> String {
    match reason {
        AbortReason::Declined { .. } => "declined".to_owned(),
        AbortReason::TimedOut { missing } => format!("{missing} missing"),
        AbortReason::StoreFailed { .. } => "store failed".to_owned(),
        AbortReason::Subsumed { by } => format!("subsumed by {by}"),
        AbortReason::AttemptFailed => "attempt failed".to_owned(),
        AbortReason::JobFinished => "job finished".to_owned(),
        AbortReason::ShuttingDown => "shutdown".to_owned(),
    }
}

// Triggering and completing

#[test]
fn a_checkpoint_completes_only_after_all_acknowledged_and_it_is_stored() {
    let mut probe = Probe::started(periodic());
    assert_eq!(probe.deadline(), Some(at(100)));
    assert_eq!(probe.timer(99), "");
    assert_eq!(probe.timer(100), "trigger 1");
    let pending = probe.coordinator.in_flight().next().unwrap();
    assert_eq!((pending.id(), pending.triggered()), (CheckpointId(1), at(100)));
    assert_eq!(pending.waiting_for().collect::<Vec<_>>(), [SOURCE, SINK]);
    assert_eq!(probe.ack(1, SINK), "");
    assert_eq!(probe.coordinator.in_flight().next().unwrap().waiting_for().collect::<Vec<_>>(), [SOURCE]);
    assert_eq!(probe.ack(1, SOURCE), "store 1");
    assert_eq!(
        (probe.coordinator.storing(), probe.coordinator.newest_completed()),
        (Some(CheckpointId(1)), None)
    );
    probe.now = at(130);
    assert_eq!(probe.stored(1), "complete 1");
    assert_eq!((probe.coordinator.storing(), probe.retained()), (None, vec![1]));
    let last = Some(LastCheckpoint { id: CheckpointId(1), duration: ms(30) });
    let counts = CheckpointCounts { triggered: 1, completed: 1, failed: 0, subsumed: 0, last };
    assert_eq!(probe.coordinator.counts(), counts);
}

#[test]
fn an_answer_for_a_checkpoint_that_is_not_being_stored_is_ignored() {
    let mut probe = Probe::started(periodic());
    assert_eq!(probe.stored(1), "");
    probe.timer(100);
    assert_eq!((probe.stored(1), probe.store_failed(1)), (String::new(), String::new()));
    assert_eq!(probe.ack_all(1), "store 1");
    assert_eq!(probe.stored(1), "complete 1");
    assert_eq!((probe.stored(1), probe.store_failed(1)), (String::new(), String::new()));
}

#[test]
fn a_tick_that_finds_the_limit_reached_waits_and_runs_as_soon_as_it_may() {
    let mut probe = Probe::started(periodic());
    assert_eq!(probe.timer(100), "trigger 1");
    assert_eq!(probe.timer(200), "");
    assert_eq!(probe.timer(350), "", "ticks fall together");
    assert_eq!(probe.ack_all(1), "store 1");
    assert_eq!(probe.stored(1), "complete 1, trigger 2");
    assert_eq!(probe.ack_all(2), "store 2");
    assert_eq!(probe.stored(2), "complete 2, retire 1");
    assert_eq!(probe.deadline(), Some(at(400)), "back on the grid");
}

#[test]
fn several_checkpoints_may_be_under_way_up_to_the_limit() {
    let mut probe = Probe::started(several(2));
    assert_eq!(
        (probe.timer(100), probe.timer(200), probe.timer(300)),
        ("trigger 1".into(), "trigger 2".into(), String::new())
    );
    assert_eq!(probe.ack_all(1), "store 1");
    assert_eq!(probe.stored(1), "complete 1, trigger 3");
}

/// The last completion was read at the wrong moment, so that the pause could be skipped.
#[test]
fn the_pause_holds_even_if_completion_and_tick_fall_on_the_same_instant() {
    let settings = CheckpointConfig { min_pause: ms(250), ..periodic() };
    for tick_first in [false, true] {
        let mut probe = Probe::started(settings.clone());
        assert_eq!(probe.timer(100), "trigger 1");
        assert_eq!(probe.ack_all(1), "store 1");
        probe.now = at(200);
        if tick_first {
            assert_eq!(probe.timer(200), "");
        }
        assert_eq!(probe.stored(1), "complete 1");
        assert_eq!(probe.timer(200), "");
        assert_eq!(probe.deadline(), Some(at(450)));
        assert_eq!(probe.timer(449), "");
        assert_eq!(probe.timer(450), "trigger 2");
    }
}

#[test]
fn a_late_timer_starts_one_checkpoint_not_one_per_missed_tick() {
    let mut probe = Probe::started(several(5));
    assert_eq!(probe.timer(777), "trigger 1");
    assert_eq!(probe.deadline(), Some(at(800)));
}

#[test]
fn ids_grow_across_attempts_and_begin_where_they_are_told() {
    let mut probe = Probe::started(periodic());
    probe.coordinator = Coordinator::new(periodic(), CheckpointId(41), [CheckpointId(40)]);
    probe.start(0);
    assert_eq!(probe.timer(100), "trigger 41");
    probe.attempt_failed();
    probe.start(1);
    assert_eq!(probe.timer(200), "trigger 42");
}

#[test]
#[should_panic(expected = "ids grow across lives of a job")]
fn an_id_of_an_earlier_life_is_refused() {
    let _ = Coordinator::<()>::new(periodic(), CheckpointId(3), [CheckpointId(3)]);
}

// Retention and subsumption

#[test]
fn only_the_newest_are_retained_those_taken_over_included() {
    let settings = CheckpointConfig { num_retained: 2, ..periodic() };
    let mut probe = Probe::started(periodic());
    probe.coordinator = Coordinator::new(settings, CheckpointId(10), [CheckpointId(7), CheckpointId(8)]);
    probe.start(0);
    assert_eq!(probe.coordinator.newest_completed(), Some(CheckpointId(8)));
    probe.timer(100);
    probe.ack_all(10);
    assert_eq!(probe.stored(10), "complete 10, retire 7");
    assert_eq!(probe.retained(), [8, 10]);
}

/// A sink commits on the completion; what it prepared for the older checkpoint is part of that.
#[test]
fn older_ones_are_subsumed_after_the_completion_is_told() {
    let settings = CheckpointConfig { tolerable_failures: 0, ..several(3) };
    let mut probe = Probe::started(settings);
    assert_eq!(probe.timer(100), "trigger 1");
    assert_eq!(probe.ack(1, SOURCE), "");
    assert_eq!((probe.timer(200), probe.timer(300)), ("trigger 2".into(), "trigger 3".into()));
    assert_eq!(probe.ack_all(2), "store 2");
    assert_eq!(probe.stored(2), "complete 2, abort 1 (subsumed by 2), discard 1 with 1");
    assert_eq!(probe.ack_all(3), "store 3");
    let counts = probe.coordinator.counts();
    assert_eq!((counts.triggered, counts.completed, counts.failed, counts.subsumed), (3, 1, 0, 1));
}

#[test]
fn one_store_at_a_time_and_a_complete_older_one_that_waits_is_subsumed() {
    let mut probe = Probe::started(several(2));
    probe.timer(100);
    probe.timer(200);
    assert_eq!(probe.ack_all(2), "store 2");
    assert_eq!(probe.ack_all(1), "");
    assert_eq!(probe.timer(1250), "", "it waits for the storage, not for a subtask: no timeout");
    assert_eq!(probe.stored(2), "complete 2, abort 1 (subsumed by 2), discard 1 with 2, trigger 3");
    probe.timer(1300);
    assert_eq!(probe.ack_all(3), "store 3");
    assert_eq!(probe.ack_all(4), "");
    assert_eq!(probe.stored(3), "complete 3, retire 2, store 4");
}

// Requests by hand

#[test]
fn requests_by_hand_all_run_in_order_and_each_is_answered() {
    let mut probe = Probe::started(periodic());
    assert_eq!(probe.request(1), "trigger 1");
    assert_eq!((probe.request(2), probe.request(3)), (String::new(), String::new()));
    probe.ack_all(1);
    assert_eq!(probe.stored(1), "complete 1, answer 1 with 1, trigger 2");
    probe.ack_all(2);
    assert_eq!(probe.stored(2), "complete 2, answer 2 with 2, retire 1, trigger 3");
}

/// A request was lost when a periodic barrier was taken in the same turn.
#[test]
fn a_request_and_a_tick_in_the_same_turn_both_run() {
    let mut probe = Probe::started(periodic());
    probe.now = at(100);
    assert_eq!(probe.request(1), "trigger 1");
    probe.ack_all(1);
    assert_eq!(probe.stored(1), "complete 1, answer 1 with 1, trigger 2");
    let mut probe = Probe::started(periodic());
    assert_eq!(probe.timer(100), "trigger 1");
    assert_eq!(probe.request(1), "");
    probe.ack_all(1);
    assert_eq!(probe.stored(1), "complete 1, trigger 2");
}

#[test]
fn a_failure_of_one_by_hand_does_not_count() {
    let mut probe = Probe::started(periodic());
    probe.request(1);
    assert_eq!(probe.decline(1), "refuse 1 (declined), abort 1 (declined), discard 1 with 0");
}

#[test]
fn a_request_whose_checkpoint_is_subsumed_is_answered_with_the_newer_one() {
    let mut probe = Probe::started(several(2));
    assert_eq!(probe.request(1), "trigger 1");
    assert_eq!(probe.timer(100), "trigger 2");
    probe.ack_all(2);
    assert_eq!(probe.stored(2), "complete 2, answer 1 with 2, abort 1 (subsumed by 2), discard 1 with 0");
}

#[test]
fn a_request_between_two_attempts_waits_for_the_next() {
    let mut probe = Probe::started(periodic());
    probe.attempt_failed();
    assert_eq!(probe.request(1), "");
    assert_eq!(probe.start(1), "trigger 1");
}

#[test]
fn the_pause_does_not_hold_back_a_request() {
    let mut probe = Probe::started(CheckpointConfig { min_pause: ms(500), ..periodic() });
    probe.timer(100);
    probe.ack_all(1);
    probe.stored(1);
    assert_eq!(probe.request(1), "trigger 2");
    probe.now = at(300);
    probe.ack_all(2);
    probe.stored(2);
    assert_eq!(probe.deadline(), Some(at(800)), "but it counts from its completion too");
}

#[test]
fn with_checkpointing_off_requests_still_work() {
    let mut probe = Probe::started(CheckpointConfig::default());
    assert_eq!((probe.timer(1_000_000), probe.deadline()), (String::new(), None));
    assert_eq!(probe.request(1), "trigger 1");
    probe.ack_all(1);
    assert_eq!(probe.stored(1), "complete 1, answer 1 with 1");
}
