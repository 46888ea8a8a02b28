//! Tables of events and actions. Channels are the letters a, b, c, ..; the clock stands at 10 times the line number.

use super::*;

/// Runs lines of the form `event -> actions` against a fresh aligner and compares.
fn check(channels: usize, lines: &[&str]) -> Aligner {
    let mut aligner = Aligner::new(channels);
    for (index, line) in lines.iter().enumerate() {
        let (event, expected) = line.split_once("->").expect("an arrow");
        let now = Nanos(10 * index as u64);
        let actions = apply(&mut aligner, event.trim(), now);
        let shown: Vec<_> = actions.iter().map(show).collect();
        assert_eq!(shown.join(", "), expected.trim(), "line {index}: {line}");
    }
    aligner
}

fn apply(aligner: &mut Aligner, event: &str, now: Nanos) -> Vec<Action> {
    let mut actions = Vec::new();
    if let Some(id) = event.strip_prefix("abort ") {
        aligner.abort(id_of(id), now, &mut actions);
        return actions;
    }
    let (channel, entry) = event.split_once(' ').expect("a channel and an entry");
    let channel = ChannelIndex(u32::from(channel.as_bytes()[0] - b'a'));
    match entry.split_once(' ') {
        Some(("barrier", id)) => aligner.barrier(channel, id_of(id), now, &mut actions),
        Some(("cancel", id)) => aligner.cancel_barrier(channel, id_of(id), now, &mut actions),
        None if entry == "end" => aligner.end_of_input(channel, now, &mut actions),
        _ => panic!("no such entry: {entry}"),
    }
    actions
}

fn id_of(text: &str) -> CheckpointId {
    CheckpointId(text.parse().expect("a number"))
}

fn letter(channel: ChannelIndex) -> char {
    char::from(b'a' + u8::try_from(channel.0).expect("a letter"))
}

fn show(action: &Action) -> String {
    match action {
        Action::Park(channel) => format!("park {}", letter(*channel)),
        Action::Unpark { channel, .. } => format!("unpark {}", letter(*channel)),
        Action::TakeSnapshot(alignment) => format!("take {}", alignment.checkpoint),
        Action::ForwardCancel { checkpoint, cause } => match cause {
            CancelCause::Superseded { by } => format!("cancel {checkpoint} for {by}"),
            CancelCause::Upstream => format!("cancel {checkpoint}"),
            CancelCause::Coordinator => format!("cancel {checkpoint} by coordinator"),
        },
    }
}

#[test]
fn a_single_channel_never_parks() {
    check(1, &["a barrier 1 -> take 1", "a barrier 2 -> take 2", "a end ->", "a barrier 3 -> take 3"]);
}

#[test]
fn a_barrier_on_one_channel_parks_only_that_channel() {
    let aligner = check(3, &["b barrier 1 -> park b"]);
    let parked = [0, 1, 2].map(|channel| aligner.is_parked(ChannelIndex(channel)));
    assert_eq!(parked, [false, true, false]);
    assert_eq!(aligner.aligning(), Some(CheckpointId(1)));
    assert_eq!(aligner.waiting_for().collect::<Vec<_>>(), [ChannelIndex(0), ChannelIndex(2)]);
}

#[test]
fn the_last_barrier_takes_the_snapshot_and_releases_in_the_order_of_parking() {
    let aligner = check(
        3,
        &["c barrier 1 -> park c", "a barrier 1 -> park a", "b barrier 1 -> take 1, unpark c, unpark a"],
    );
    assert_eq!(aligner.aligning(), None);
    assert_eq!(aligner.waiting_for().count(), 0);
}

#[test]
fn the_times_of_an_alignment_are_handed_out() {
    let mut aligner = Aligner::new(3);
    let mut actions = Vec::new();
    for (channel, now) in [(2, 100), (0, 130), (1, 175)] {
        aligner.barrier(ChannelIndex(channel), CheckpointId(7), Nanos(now), &mut actions);
    }
    let alignment =
        Alignment { checkpoint: CheckpointId(7), first_barrier: Nanos(100), completed: Nanos(175) };
    assert_eq!(alignment.duration(), Duration::from_nanos(75));
    let unpark =
        |channel, ns| Action::Unpark { channel: ChannelIndex(channel), parked_for: Duration::from_nanos(ns) };
    assert_eq!(actions[2..], [Action::TakeSnapshot(alignment), unpark(2, 75), unpark(0, 45)]);
}

#[test]
fn an_ended_channel_counts_as_aligned() {
    check(
        3,
        &[
            "a end ->",
            "b barrier 1 -> park b",
            "c barrier 1 -> take 1, unpark b",
            "b end ->",
            "c barrier 2 -> take 2",
        ],
    );
}

#[test]
fn the_end_of_the_last_missing_channel_completes_an_alignment() {
    check(
        3,
        &[
            "a barrier 1 -> park a",
            "b end ->",
            "c end -> take 1, unpark a",
            "b barrier 1 ->",
            "c barrier 1 ->",
            "a end ->",
        ],
    );
}

#[test]
fn an_end_without_alignment_does_nothing_and_counts_once() {
    check(2, &["a end ->", "a end ->", "b barrier 1 -> take 1"]);
    check(3, &["a barrier 1 -> park a", "b end ->", "b end ->", "c barrier 1 -> take 1, unpark a"]);
}

#[test]
fn with_all_channels_ended_any_barrier_takes_the_snapshot_and_the_others_are_dropped() {
    check(2, &["a end ->", "b end ->", "b barrier 1 -> take 1", "a barrier 1 ->", "a barrier 2 -> take 2"]);
}

/// Otherwise the next barrier of the ended channel would abandon the alignment in which it has just taken part.
#[test]
fn a_barrier_on_an_ended_channel_parks_it_while_others_are_missing() {
    let aligner = check(3, &["a end ->", "a barrier 1 -> park a"]);
    assert_eq!(aligner.waiting_for().collect::<Vec<_>>(), [ChannelIndex(1), ChannelIndex(2)]);
    check(
        3,
        &[
            "a end ->",
            "a barrier 1 -> park a",
            "b barrier 1 -> park b",
            "c barrier 1 -> take 1, unpark a, unpark b",
            "a barrier 2 -> park a",
        ],
    );
}

#[test]
fn a_newer_barrier_abandons_the_older_alignment() {
    check(
        3,
        &[
            "a barrier 1 -> park a",
            "b barrier 2 -> cancel 1 for 2, unpark a, park b",
            "a barrier 2 -> park a",
            "c barrier 1 ->",
            "c barrier 2 -> take 2, unpark b, unpark a",
        ],
    );
    check(2, &["a barrier 1 -> park a", "b end -> take 1, unpark a", "a barrier 3 -> take 3"]);
}

#[test]
fn a_newer_barrier_that_needs_no_other_takes_the_snapshot_at_once() {
    check(
        3,
        &[
            "a end ->",
            "b end ->",
            "a barrier 1 -> park a",
            "c barrier 2 -> cancel 1 for 2, unpark a, take 2",
            "a barrier 2 ->",
        ],
    );
}

/// The late barrier released a channel a second time, and the alignment of the newer one never ended.
#[test]
fn an_obsolete_barrier_after_a_newer_one_is_dropped() {
    check(
        2,
        &[
            "a barrier 2 -> park a",
            "b barrier 1 ->",
            "b barrier 2 -> take 2, unpark a",
            "b barrier 1 ->",
            "a barrier 2 ->",
        ],
    );
}

#[test]
fn a_cancel_while_aligning_releases_and_is_forwarded_once() {
    check(
        3,
        &[
            "a barrier 1 -> park a",
            "b cancel 1 -> cancel 1, unpark a",
            "c barrier 1 ->",
            "b barrier 2 -> park b",
            "c cancel 1 ->",
            "a barrier 2 -> park a",
            "c barrier 2 -> take 2, unpark b, unpark a",
        ],
    );
}

#[test]
fn a_cancel_while_idle_is_forwarded_once_and_later_barriers_are_swallowed() {
    check(3, &["a cancel 5 -> cancel 5", "b barrier 5 ->", "c cancel 5 ->", "b cancel 5 ->"]);
    check(1, &["a cancel 5 -> cancel 5", "a barrier 6 -> take 6"]);
}

#[test]
fn a_newer_cancel_abandons_the_older_alignment_too() {
    check(
        2,
        &["a barrier 1 -> park a", "b cancel 2 -> cancel 1 for 2, unpark a, cancel 2", "a barrier 2 ->"],
    );
}

#[test]
fn a_cancel_of_an_older_checkpoint_leaves_the_alignment_alone() {
    check(
        3,
        &[
            "a barrier 2 -> park a",
            "b cancel 1 ->",
            "b barrier 2 -> park b",
            "c end -> take 2, unpark a, unpark b",
        ],
    );
}

/// Two cancels in alternating order over the channels multiplied on their way downstream.
#[test]
fn interleaved_cancels_leave_once_per_checkpoint() {
    check(
        3,
        &[
            "a cancel 1 -> cancel 1",
            "b cancel 1 ->",
            "a cancel 2 -> cancel 2",
            "c cancel 1 ->",
            "b cancel 2 ->",
            "c cancel 2 ->",
            "a barrier 3 -> park a",
            "b barrier 3 -> park b",
            "c barrier 3 -> take 3, unpark a, unpark b",
        ],
    );
    check(
        3,
        &[
            "a barrier 1 -> park a",
            "b cancel 1 -> cancel 1, unpark a",
            "b cancel 2 -> cancel 2",
            "c cancel 1 ->",
            "a cancel 2 ->",
            "c cancel 2 ->",
        ],
    );
}

#[test]
fn an_abort_while_aligning_releases_and_is_forwarded_once() {
    check(
        3,
        &[
            "a barrier 1 -> park a",
            "b barrier 1 -> park b",
            "abort 1 -> cancel 1 by coordinator, unpark a, unpark b",
            "abort 1 ->",
            "c barrier 1 ->",
            "c cancel 1 ->",
            "c barrier 2 -> park c",
        ],
    );
}

#[test]
fn an_abort_that_comes_first_swallows_the_barrier() {
    check(
        2,
        &[
            "abort 1 ->",
            "a barrier 1 -> cancel 1 by coordinator",
            "b barrier 1 ->",
            "a barrier 2 -> park a",
            "b barrier 2 -> take 2, unpark a",
        ],
    );
    check(2, &["abort 1 ->", "a cancel 1 -> cancel 1 by coordinator", "b barrier 1 ->"]);
}

/// Forwarded at once, the cancel would overtake the barrier of the older checkpoint, which every subtask downstream
/// would then drop.
#[test]
fn an_abort_of_a_checkpoint_ahead_leaves_the_older_alignment_alone() {
    check(
        2,
        &[
            "a barrier 1 -> park a",
            "abort 2 ->",
            "b barrier 1 -> take 1, unpark a",
            "b barrier 2 -> cancel 2 by coordinator",
            "a barrier 2 ->",
        ],
    );
}

#[test]
fn a_barrier_of_a_checkpoint_aborted_ahead_still_abandons_the_older_alignment() {
    check(
        2,
        &[
            "a barrier 1 -> park a",
            "abort 2 ->",
            "b barrier 2 -> cancel 1 for 2, unpark a, cancel 2 by coordinator",
            "a barrier 2 ->",
        ],
    );
}

#[test]
fn an_abort_of_a_settled_or_unknown_checkpoint_does_nothing() {
    let aligner = check(
        1,
        &["a barrier 3 -> take 3", "abort 3 ->", "abort 1 ->", "abort 9 ->", "a barrier 10 -> take 10"],
    );
    assert_eq!(aligner.remembered_ranges(), 0, "nothing above 10 was aborted");
}

/// The upstream may be stuck for long, with every checkpoint timing out before its barrier gets here.
#[test]
fn the_memory_of_aborted_checkpoints_stays_bounded() {
    let mut aligner = Aligner::new(2);
    let mut actions = Vec::new();
    for id in 1..10_000 {
        aligner.abort(CheckpointId(id), Nanos(id), &mut actions);
    }
    assert_eq!((aligner.remembered_ranges(), actions.len()), (1, 0));
    aligner.barrier(ChannelIndex(0), CheckpointId(10_000), Nanos(1), &mut actions);
    assert_eq!(aligner.remembered_ranges(), 0);
    assert_eq!(actions, [Action::Park(ChannelIndex(0))]);
}

#[test]
fn ids_may_begin_anywhere_and_have_gaps() {
    check(2, &["a barrier 900 -> park a", "b barrier 900 -> take 900, unpark a", "b barrier 950 -> park b"]);
    check(1, &["a barrier 0 -> take 0", "a barrier 0 ->"]);
}

#[test]
fn actions_of_earlier_events_stay_in_the_buffer() {
    let mut aligner = Aligner::new(2);
    let mut actions = Vec::new();
    aligner.barrier(ChannelIndex(0), CheckpointId(1), Nanos(0), &mut actions);
    aligner.barrier(ChannelIndex(1), CheckpointId(1), Nanos(0), &mut actions);
    assert_eq!(actions.len(), 3);
}

#[test]
#[should_panic(expected = "channel 0 was read while it is parked")]
fn reading_a_parked_channel_is_a_broken_contract() {
    check(2, &["a barrier 1 -> park a", "a barrier 2 ->"]);
}

/// A watermark before a barrier in its channel leaves before that barrier as well, whichever channel aligned first.
#[test]
fn a_watermark_stays_on_its_side_of_the_barrier() {
    use crate::element::{Control, Watermark};
    use crate::time::WatermarkMerge;

    const WATERMARK: Control = Control::Watermark(Watermark(100));
    const BARRIER: Control = Control::Barrier(CheckpointId(1));
    // Channel a is at 100 already; b gets there before its barrier, or after it.
    for (b, expected) in
        [([WATERMARK, BARRIER], [WATERMARK, BARRIER]), ([BARRIER, WATERMARK], [BARRIER, WATERMARK])]
    {
        let mut aligner = Aligner::new(2);
        let mut merge = WatermarkMerge::new(2);
        let (mut out, mut actions) = (Vec::new(), Vec::new());
        for (channel, entries) in [(0, [WATERMARK, BARRIER]), (1, b)] {
            for entry in entries {
                match entry {
                    Control::Watermark(watermark) => {
                        out.extend(merge.watermark(ChannelIndex(channel), watermark).entries());
                    }
                    Control::Barrier(id) => {
                        aligner.barrier(ChannelIndex(channel), id, Nanos(0), &mut actions)
                    }
                    _ => unreachable!(),
                }
                for action in actions.drain(..) {
                    if let Action::TakeSnapshot(alignment) = action {
                        out.push(Control::Barrier(alignment.checkpoint));
                    }
                }
            }
        }
        assert_eq!(out, expected);
    }
}
