//! What goes wrong: declines, timeouts, stray messages, failed attempts.

use super::*;

// Failing

#[test]
fn the_first_failure_fails_the_job_by_default() {
    let mut probe = Probe::started(periodic());
    probe.timer(100);
    assert_eq!(probe.decline(1), "abort 1 (declined), discard 1 with 0, fail job (declined)");
    assert_eq!(probe.deadline(), None);
    assert_eq!(probe.timer(5000), "");
    assert_eq!(probe.attempt_failed(), "");
    assert_eq!(probe.start(1), "");
    assert_eq!(probe.timer(5100), "trigger 2");
}

#[test]
fn failures_in_a_row_are_tolerated_and_a_success_sets_them_back() {
    let mut probe = Probe::started(CheckpointConfig { tolerable_failures: 2, ..periodic() });
    probe.timer(100);
    assert_eq!(probe.decline(1), "abort 1 (declined), discard 1 with 0");
    probe.timer(200);
    probe.ack_all(2);
    assert_eq!(probe.store_failed(2), "abort 2 (store failed), discard 2 with 0");
    probe.timer(300);
    probe.ack_all(3);
    assert_eq!(probe.stored(3), "complete 3");
    for (id, tick) in [(4, 400), (5, 500)] {
        probe.timer(tick);
        assert_eq!(probe.decline(id), format!("abort {id} (declined), discard {id} with 0"));
    }
    probe.timer(600);
    assert_eq!(probe.decline(6), "abort 6 (declined), discard 6 with 0, fail job (declined)");
}

#[test]
fn a_new_attempt_begins_with_no_failures() {
    let mut probe = Probe::started(CheckpointConfig { tolerable_failures: 1, ..periodic() });
    probe.timer(100);
    probe.decline(1);
    probe.attempt_failed();
    probe.start(1);
    probe.timer(200);
    assert_eq!(probe.decline(2), "abort 2 (declined), discard 2 with 0");
}

#[test]
fn failing_the_job_aborts_the_others_under_way() {
    let mut probe = Probe::started(several(3));
    probe.timer(100);
    probe.timer(200);
    probe.ack_all(1);
    probe.timer(300);
    let expected = "abort 3 (declined), discard 3 with 0, abort 2 (attempt failed), discard 2 with 0, fail job (declined)";
    assert_eq!(probe.decline(3), expected);
    assert_eq!(probe.coordinator.storing(), Some(CheckpointId(1)), "its outcome is awaited");
}

/// An expired checkpoint left a flag behind that kept the next one from starting.
#[test]
fn a_timeout_is_reported_and_the_waiting_trigger_runs_in_the_same_turn() {
    let mut probe = Probe::started(CheckpointConfig { tolerable_failures: 5, ..periodic() });
    probe.timer(100);
    probe.ack(1, SINK);
    assert_eq!(probe.deadline(), Some(at(1100)), "the waiting tick alone needs no timer");
    assert_eq!(probe.timer(1099), "");
    assert_eq!(probe.timer(1100), "abort 1 (1 missing), discard 1 with 1, trigger 2");
}

#[test]
fn a_last_acknowledgement_at_the_very_timeout_counts() {
    let mut probe = Probe::started(periodic());
    probe.timer(100);
    probe.ack(1, SINK);
    probe.now = at(1100);
    assert_eq!(probe.ack(1, SOURCE), "store 1");
    assert_eq!(probe.timer(9999), "", "no timeout while it is being stored");
}

/// The outcome was lost when a checkpoint was cancelled before its barriers were sent, and the queue stopped.
#[test]
fn a_decline_straight_after_the_trigger_ends_it_with_a_reason_and_the_next_runs() {
    let mut probe = Probe::started(CheckpointConfig { tolerable_failures: 5, ..periodic() });
    assert_eq!(probe.request(1), "trigger 1");
    assert_eq!((probe.request(2), probe.request(3)), (String::new(), String::new()));
    assert_eq!(probe.decline(1), "refuse 1 (declined), abort 1 (declined), discard 1 with 0, trigger 2");
    assert_eq!(probe.decline(2), "refuse 2 (declined), abort 2 (declined), discard 2 with 0, trigger 3");
    probe.ack_all(3);
    assert_eq!(probe.stored(3), "complete 3, answer 3 with 3");
}

// Messages that come too late or twice

#[test]
fn duplicate_and_foreign_acknowledgements_count_for_nothing() {
    let mut probe = Probe::started(periodic());
    probe.timer(100);
    assert_eq!(probe.ack(1, SOURCE), "");
    assert_eq!(probe.ack(1, SOURCE), "");
    assert_eq!(probe.ack(1, SubtaskId { vertex: VertexId(9), index: SubtaskIndex(0) }), "");
    assert_eq!(probe.ack(1, SINK), "store 1");
    assert_eq!(probe.ack(1, SINK), "");
    assert_eq!(probe.decline(1), "", "nothing from outside aborts a store");
    assert_eq!(probe.stored(1), "complete 1");
    assert_eq!(probe.ack(1, SINK), "", "its part is in use");
    assert_eq!(probe.decline(1), "");
}

#[test]
fn messages_of_another_attempt_count_for_nothing() {
    let mut probe = Probe::started(periodic());
    probe.attempt_failed();
    probe.start(1);
    probe.timer(100);
    probe.attempt = Attempt(0);
    assert_eq!((probe.ack(1, SOURCE), probe.ack(1, SINK)), (String::new(), String::new()));
    assert_eq!((probe.decline(1), probe.end_of_input()), (String::new(), String::new()));
    assert_eq!(probe.attempt_failed(), "");
    probe.attempt = Attempt(1);
    assert_eq!(probe.ack_all(1), "store 1");
}

#[test]
fn a_late_acknowledgement_of_an_aborted_checkpoint_is_discarded() {
    let mut probe = Probe::started(CheckpointConfig { tolerable_failures: 1, ..periodic() });
    probe.timer(100);
    probe.decline(1);
    assert_eq!(probe.ack(1, SOURCE), "discard late 1 with 1");
    assert_eq!(probe.decline(1), "");
    assert_eq!(probe.ack(77, SOURCE), "", "never given");
    probe.attempt_failed();
    assert_eq!(probe.ack(1, SINK), "discard late 1 with 1");
}

#[test]
fn a_part_of_an_earlier_life_is_left_alone() {
    let mut probe = Probe::started(periodic());
    probe.coordinator = Coordinator::new(periodic(), CheckpointId(10), [CheckpointId(5)]);
    probe.start(0);
    assert_eq!((probe.ack(5, SOURCE), probe.ack(6, SOURCE)), (String::new(), String::new()));
}

// Attempts and shutdown

/// A subtask once waited for ever on a checkpoint whose abort was lost in a restart.
#[test]
fn a_failed_attempt_aborts_what_was_under_way_and_the_next_one_completes() {
    let mut probe = Probe::started(several(2));
    probe.timer(100);
    probe.timer(200);
    probe.ack(1, SOURCE);
    let expected = "abort 1 (attempt failed), discard 1 with 1, abort 2 (attempt failed), discard 2 with 0";
    assert_eq!(probe.attempt_failed(), expected);
    assert_eq!(probe.attempt_failed(), "");
    assert_eq!(probe.deadline(), None);
    assert_eq!(probe.start(1), "");
    assert_eq!(probe.deadline(), Some(at(300)));
    assert_eq!(probe.timer(300), "trigger 3");
    probe.ack_all(3);
    assert_eq!(probe.stored(3), "complete 3");
    assert_eq!(probe.coordinator.counts().failed, 2);
}

#[test]
fn a_store_in_flight_survives_the_attempt_and_nobody_is_notified() {
    let mut probe = Probe::started(periodic());
    assert_eq!(probe.request(7), "trigger 1");
    probe.ack_all(1);
    assert_eq!(probe.attempt_failed(), "");
    assert_eq!(probe.coordinator.storing(), Some(CheckpointId(1)), "the restart has to wait");
    assert_eq!(probe.stored(1), "answer 7 with 1");
    assert_eq!(probe.coordinator.newest_completed(), Some(CheckpointId(1)));
    probe.start(1);

    probe.timer(100);
    probe.ack_all(2);
    probe.attempt_failed();
    assert_eq!(probe.store_failed(2), "abort 2 (store failed), discard 2 with 0");
    assert_eq!(probe.coordinator.newest_completed(), Some(CheckpointId(1)));
}

#[test]
#[should_panic(expected = "an attempt starts only when the last store is answered")]
fn starting_while_a_store_is_in_flight_is_a_broken_contract() {
    let mut probe = Probe::started(periodic());
    probe.timer(100);
    probe.ack_all(1);
    probe.attempt_failed();
    probe.start(1);
}
