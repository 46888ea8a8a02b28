use super::*;
use crate::base::rng::Rng;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Input {
    Mark(i64),
    Idle,
    Active,
    End,
}
use Input::{Active, End, Idle, Mark};

fn apply(merge: &mut WatermarkMerge, channel: u32, input: Input) -> MergeOutput {
    let channel = ChannelIndex(channel);
    match input {
        Mark(time) => merge.watermark(channel, Watermark(time)),
        Idle => merge.idle(channel),
        Active => merge.active(channel),
        End => merge.end_of_input(channel),
    }
}

/// Feeds the inputs and returns all that came out, in order.
fn outputs(channels: usize, inputs: &[(u32, Input)]) -> Vec<Control> {
    let mut merge = WatermarkMerge::new(channels);
    inputs.iter().flat_map(|(channel, input)| apply(&mut merge, *channel, *input).entries()).collect()
}

fn mark(time: i64) -> Control {
    Control::Watermark(Watermark(time))
}

const MAX: Control = Control::Watermark(Watermark::MAX);

#[test]
fn the_output_is_the_minimum_over_the_channels() {
    let inputs = [(0, Mark(5)), (1, Mark(3)), (1, Mark(4)), (1, Mark(9)), (0, Mark(7))];
    assert_eq!(outputs(2, &inputs), [mark(3), mark(4), mark(5), mark(7)]);
}

#[test]
fn nothing_leaves_before_every_active_channel_has_spoken() {
    assert_eq!(outputs(3, &[(0, Mark(5)), (1, Mark(6))]), []);
    assert_eq!(outputs(3, &[(0, Mark(5)), (1, Mark(6)), (2, Idle)]), [mark(5)]);
}

#[test]
fn a_watermark_that_does_not_grow_changes_nothing() {
    assert_eq!(outputs(1, &[(0, Mark(5)), (0, Mark(5)), (0, Mark(4))]), [mark(5)]);
}

/// The result once depended on which channel became idle first.
#[test]
fn when_all_become_idle_the_furthest_watermark_leaves_whatever_the_order() {
    let a_first = outputs(2, &[(0, Mark(5)), (1, Mark(4)), (0, Idle), (1, Idle)]);
    let b_first = outputs(2, &[(0, Mark(5)), (1, Mark(4)), (1, Idle), (0, Idle)]);
    assert_eq!(a_first, [mark(4), mark(5), Control::Idle]);
    assert_eq!(b_first, [mark(4), mark(5), Control::Idle]);
    let one_by_one = outputs(2, &[(0, Mark(5)), (0, Idle), (1, Mark(4)), (1, Idle)]);
    assert_eq!(one_by_one, [mark(4), mark(5), Control::Idle]);
}

#[test]
fn an_idle_channel_holds_nothing_back() {
    let inputs = [(0, Mark(5)), (1, Mark(2)), (1, Idle), (0, Mark(8))];
    assert_eq!(outputs(2, &inputs), [mark(2), mark(5), mark(8)]);
}

#[test]
fn a_channel_that_comes_back_behind_holds_the_output_where_it_is() {
    let inputs =
        [(0, Mark(9)), (1, Mark(2)), (1, Idle), (1, Active), (0, Mark(20)), (1, Mark(15)), (1, Mark(30))];
    assert_eq!(outputs(2, &inputs), [mark(2), mark(9), mark(15), mark(20)]);
}

#[test]
fn the_output_is_idle_only_while_all_are_and_the_watermark_leaves_before_the_idle_mark() {
    let inputs = [(0, Idle), (1, Mark(3)), (1, Idle), (0, Active), (0, Mark(4)), (0, Idle), (1, Active)];
    let expected = [mark(3), Control::Idle, Control::Active, mark(4), Control::Idle, Control::Active];
    assert_eq!(outputs(2, &inputs), expected);
}

#[test]
fn an_ended_channel_holds_nothing_back_and_the_last_end_is_the_end_of_time() {
    assert_eq!(outputs(2, &[(0, Mark(5)), (1, End), (0, Mark(6)), (0, End)]), [mark(5), mark(6), MAX]);
    assert_eq!(outputs(2, &[(0, Mark(i64::MAX)), (1, Mark(7)), (1, Mark(i64::MAX))]), [mark(7), MAX]);
    assert_eq!(outputs(1, &[(0, End), (0, End), (0, Mark(3))]), [MAX]);
}

/// Otherwise all records of a source that was merely quiet would be late.
#[test]
fn the_end_of_the_others_is_not_the_end_of_an_idle_channel() {
    let inputs = [(0, Mark(5)), (1, Mark(7)), (0, Idle), (1, End), (0, Active), (0, Mark(8)), (0, End)];
    let expected = [mark(5), mark(7), Control::Idle, Control::Active, mark(8), MAX];
    assert_eq!(outputs(2, &inputs), expected);
    assert_eq!(outputs(2, &[(0, Idle), (1, End), (0, End)]), [Control::Idle, Control::Active, MAX]);
}

#[test]
fn a_watermark_on_an_idle_channel_is_kept_for_later() {
    assert_eq!(
        outputs(2, &[(0, Idle), (0, Mark(9)), (1, Mark(4)), (0, Active), (1, Mark(12))]),
        [mark(4), mark(9)]
    );
}

/// Every output against the rule, computed from scratch.
#[test]
fn random_inputs_follow_the_rule_and_never_go_backwards() {
    for seed in 0..5_000 {
        let mut rng = Rng::new(seed);
        let channels = 1 + rng.below(4) as u32;
        let mut merge = WatermarkMerge::new(channels as usize);
        let mut model: Vec<(i64, bool, bool)> = vec![(i64::MIN, false, false); channels as usize];
        let (mut output, mut output_idle) = (i64::MIN, false);
        for step in 0..60 {
            let channel = rng.below(u64::from(channels)) as u32;
            let (reached, done, idle) = &mut model[channel as usize];
            let input = match rng.below(24) {
                0 => End,
                1..=4 => Idle,
                5..=8 => Active,
                _ => Mark(step / 2 + rng.below(10) as i64),
            };
            match input {
                Mark(time) if !*done => *reached = time.max(*reached),
                Mark(_) => {}
                Idle => *idle = true,
                Active => *idle = false,
                End => *done = true,
            }
            let change = apply(&mut merge, channel, input);

            let live: Vec<_> = model.iter().filter(|(_, done, _)| !done).collect();
            let slowest = live.iter().filter(|(_, _, idle)| !idle).map(|(reached, ..)| *reached).min();
            let furthest = model.iter().map(|(reached, ..)| *reached).max();
            let candidate = if live.is_empty() { i64::MAX } else { slowest.or(furthest).expect("a channel") };
            let grown = (candidate > output).then_some(Watermark(candidate));
            assert_eq!(change.watermark, grown, "seed {seed}, step {step}: {input:?} on {channel}");
            output = output.max(candidate);
            let idle = !live.is_empty() && slowest.is_none();
            assert_eq!(change.idle, (idle != output_idle).then_some(idle), "seed {seed}, step {step}");
            output_idle = idle;
            assert_eq!((merge.current(), merge.is_idle()), (Watermark(output), output_idle));
        }
    }
}

/// Channels that fall idle with nothing in between: the end state is the same in every order.
#[test]
fn the_order_of_becoming_idle_does_not_matter() {
    for seed in 0..2_000 {
        let mut rng = Rng::new(seed);
        let marks: Vec<i64> = (0..4).map(|_| rng.below(10) as i64).collect();
        let mut merge = WatermarkMerge::new(4);
        for (channel, time) in (0..).zip(&marks) {
            let _ = merge.watermark(ChannelIndex(channel), Watermark(*time));
        }
        let mut order = [0, 1, 2, 3];
        for at in (1..4).rev() {
            order.swap(at, rng.below(at as u64 + 1) as usize);
        }
        for channel in order {
            let _ = merge.idle(ChannelIndex(channel));
        }
        assert_eq!(Some(merge.current().0), marks.iter().copied().max(), "seed {seed}");
        assert!(merge.is_idle());
    }
}
