//! The end of the job: by its input, or by a shutdown.

use super::*;

#[test]
fn after_the_shutdown_nothing_begins_and_no_timer_is_left() {
    let mut probe = Probe::started(several(2));
    probe.timer(100);
    probe.ack_all(1);
    probe.timer(200);
    assert_eq!(probe.request(1), "");
    let expected = "abort 2 (shutdown), discard 2 with 0, refuse 1 (shutdown)";
    assert_eq!(probe.handle(Event::Shutdown), expected);
    assert_eq!(probe.deadline(), None);
    assert_eq!(probe.timer(9000), "");
    assert_eq!(probe.stored(1), "", "durable all the same");
    assert_eq!(probe.retained(), [1]);
    assert_eq!(probe.request(2), "refuse 2 (shutdown)");
    assert_eq!((probe.start(1), probe.timer(20_000), probe.deadline()), (String::new(), String::new(), None));
    assert_eq!(probe.handle(Event::Shutdown), "");
}

#[test]
fn the_job_finishes_when_the_final_checkpoint_is_durable_and_published() {
    let mut probe = Probe::started(CheckpointConfig { min_pause: ms(500), ..periodic() });
    probe.timer(100);
    probe.ack_all(1);
    probe.stored(1);
    assert_eq!(probe.end_of_input(), "trigger 2", "at once, in spite of the pause");
    assert_eq!(probe.timer(700), "", "no tick any more");
    assert_eq!(probe.ack_all(2), "store 2");
    assert_eq!(probe.notified(2, SOURCE), "", "not before it is durable");
    assert_eq!(probe.stored(2), "complete 2, retire 1");
    assert_eq!(probe.deadline(), None);
    assert_eq!(
        (probe.notified(2, SINK), probe.notified(2, SINK), probe.notified(1, SOURCE)),
        Default::default()
    );
    assert_eq!(probe.request(1), "refuse 1 (job finished)");
    assert_eq!(probe.notified(2, SOURCE), "finish");
    assert_eq!(
        (probe.notified(2, SOURCE), probe.timer(10_000), probe.deadline()),
        (String::new(), String::new(), None)
    );
    assert_eq!(probe.request(2), "refuse 2 (job finished)");
    assert_eq!((probe.start(1), probe.attempt_failed()), Default::default());
}

#[test]
fn the_end_of_some_subtasks_is_not_the_end_of_the_job() {
    let mut probe = Probe::started(periodic());
    assert_eq!(probe.report(SOURCE, Message::EndOfInput), "");
    assert_eq!(probe.report(SOURCE, Message::EndOfInput), "");
    assert_eq!(probe.timer(100), "trigger 1", "an ended subtask still takes part");
    probe.ack_all(1);
    assert_eq!(probe.stored(1), "complete 1");
    assert_eq!(probe.report(SINK, Message::EndOfInput), "trigger 2");
}

/// The last snapshot was put off behind a normal one and then forbidden since the job was already stopping.
#[test]
fn the_final_checkpoint_waits_for_the_one_under_way_and_goes_before_everything_else() {
    let mut probe = Probe::started(periodic());
    probe.timer(100);
    assert_eq!((probe.request(1), probe.request(2)), Default::default());
    assert_eq!((probe.timer(250), probe.end_of_input()), Default::default());
    probe.ack_all(1);
    assert_eq!(probe.stored(1), "complete 1, trigger 2");
    assert_eq!(probe.request(3), "");
    probe.ack_all(2);
    assert_eq!(probe.stored(2), "complete 2, answer 1 with 2, answer 2 with 2, answer 3 with 2, retire 1");
    probe.notified(2, SINK);
    assert_eq!(probe.notified(2, SOURCE), "finish");
}

#[test]
fn a_checkpoint_begun_before_the_end_is_not_the_final_one() {
    let mut probe = Probe::started(several(2));
    probe.timer(100);
    assert_eq!(probe.end_of_input(), "trigger 2");
    probe.ack_all(1);
    assert_eq!(probe.stored(1), "complete 1");
    assert_eq!((probe.notified(1, SINK), probe.notified(1, SOURCE)), Default::default());
    probe.ack_all(2);
    assert_eq!(probe.stored(2), "complete 2, retire 1");
}

/// The end of the input and the tick at the same instant left a snapshot that nobody owned.
#[test]
fn the_end_of_input_and_a_tick_at_the_same_instant_make_one_checkpoint() {
    let mut probe = Probe::started(several(3));
    probe.now = at(100);
    assert_eq!(probe.report(SOURCE, Message::EndOfInput), "trigger 1");
    assert_eq!(probe.report(SINK, Message::EndOfInput), "trigger 2");
    let mut probe = Probe::started(several(3));
    assert_eq!(probe.end_of_input(), "trigger 1");
    assert_eq!((probe.timer(100), probe.timer(200)), Default::default());
}

#[test]
fn a_failed_final_checkpoint_is_repeated_while_failures_are_tolerated() {
    let mut probe = Probe::started(CheckpointConfig { tolerable_failures: 1, ..periodic() });
    assert_eq!(probe.end_of_input(), "trigger 1");
    assert_eq!(probe.decline(1), "abort 1 (declined), discard 1 with 0");
    assert_eq!(probe.deadline(), Some(at(100)));
    assert_eq!(probe.timer(100), "trigger 2");
    probe.ack_all(2);
    assert_eq!(probe.store_failed(2), "abort 2 (store failed), discard 2 with 0, fail job (store failed)");
    assert_eq!(probe.deadline(), None);
}

#[test]
fn a_repeated_final_checkpoint_does_not_wait_for_a_long_interval() {
    let hour = Some(Duration::from_secs(3600));
    let mut probe = Probe::started(CheckpointConfig { interval: hour, tolerable_failures: 1, ..periodic() });
    probe.end_of_input();
    assert_eq!(probe.timer(1000), "abort 1 (2 missing), discard 1 with 0");
    assert_eq!(probe.timer(2000), "trigger 2");
}

#[test]
fn an_attempt_that_fails_while_publishing_is_followed_by_another_end() {
    let mut probe = Probe::started(periodic());
    probe.end_of_input();
    probe.ack_all(1);
    assert_eq!(probe.stored(1), "complete 1");
    probe.notified(1, SOURCE);
    assert_eq!(probe.attempt_failed(), "");
    assert_eq!(probe.notified(1, SINK), "");
    probe.start(1);
    assert_eq!(probe.end_of_input(), "trigger 2");
    probe.ack_all(2);
    assert_eq!(probe.stored(2), "complete 2, retire 1");
    probe.notified(2, SOURCE);
    assert_eq!(probe.notified(2, SINK), "finish");
}

#[test]
fn with_checkpointing_off_the_job_finishes_when_all_have_ended() {
    let mut probe = Probe::started(CheckpointConfig::default());
    assert_eq!(probe.end_of_input(), "finish");
    assert_eq!(probe.request(1), "refuse 1 (job finished)");
}

#[test]
fn with_checkpointing_off_the_end_refuses_open_requests_but_awaits_a_store() {
    let mut probe = Probe::started(CheckpointConfig::default());
    probe.request(1);
    assert_eq!(probe.request(2), "");
    let expected =
        "refuse 1 (job finished), abort 1 (job finished), discard 1 with 0, refuse 2 (job finished), finish";
    assert_eq!(probe.end_of_input(), expected);

    let mut probe = Probe::started(CheckpointConfig::default());
    probe.request(1);
    probe.ack_all(1);
    assert_eq!(probe.end_of_input(), "");
    assert_eq!(probe.request(2), "refuse 2 (job finished)");
    assert_eq!(probe.stored(1), "complete 1, answer 1 with 1, finish");
}
