//! The watermark of a subtask: the minimum over its active input channels.
//!
//! * A channel is *active*, *idle* or *done*. It is done once its watermark is [`Watermark::MAX`], be it by a watermark
//!   or by its end of input. A done channel holds nothing back; a channel that starts is active at [`Watermark::MIN`].
//! * Some channel active: the minimum over the active ones.
//! * None active, some idle: the maximum that any channel reached before it was done. It is the same whichever channel
//!   became idle first. It is never `MAX` because an idle channel may come back: the end of the others must not make all
//!   of its records late.
//! * All done: `MAX`.
//!
//! The output never decreases. A channel that becomes active again behind the output holds it where it is until that
//! channel has caught up or is idle again.

use crate::base::id::ChannelIndex;
use crate::element::{Control, Watermark};

/// What changed in the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[must_use = "the change has to be forwarded"]
pub struct MergeOutput {
    /// The new watermark, larger than the one before.
    pub watermark: Option<Watermark>,
    /// The output became idle (`true`) or active again (`false`).
    pub idle: Option<bool>,
}

impl MergeOutput {
    /// The control entries that tell it downstream, in the right order: `Active`, the watermark, `Idle`.
    pub fn entries(self) -> impl Iterator<Item = Control> {
        let active = (self.idle == Some(false)).then_some(Control::Active);
        let idle = (self.idle == Some(true)).then_some(Control::Idle);
        active.into_iter().chain(self.watermark.map(Control::Watermark)).chain(idle)
    }
}

/// The merged watermark and idleness of several channels; see the module for the rule.
#[derive(Debug)]
pub struct WatermarkMerge {
    channels: Vec<Channel>,
    output: Watermark,
    output_idle: bool,
}

#[derive(Debug, Clone, Copy)]
struct Channel {
    /// The highest watermark below `MAX`.
    reached: Watermark,
    done: bool,
    idle: bool,
}

impl WatermarkMerge {
    /// The merge of this many channels, all active and at [`Watermark::MIN`].
    #[must_use]
    pub fn new(channels: usize) -> Self {
        let channel = Channel { reached: Watermark::MIN, done: false, idle: false };
        Self { channels: vec![channel; channels], output: Watermark::MIN, output_idle: false }
    }

    /// The channel delivered a watermark. One that is not above its last one changes nothing.
    pub fn watermark(&mut self, channel: ChannelIndex, watermark: Watermark) -> MergeOutput {
        if watermark == Watermark::MAX {
            return self.end_of_input(channel);
        }
        let state = &mut self.channels[channel.index()];
        let before = state.reached;
        if state.done || watermark <= before {
            return MergeOutput::default();
        }
        state.reached = watermark;
        if before > self.output {
            // Another channel holds the output back: with many channels, nearly every watermark ends here.
            return MergeOutput::default();
        }
        self.update()
    }

    /// The channel has no records for now.
    pub fn idle(&mut self, channel: ChannelIndex) -> MergeOutput {
        self.channels[channel.index()].idle = true;
        self.update()
    }

    /// The channel has records again.
    pub fn active(&mut self, channel: ChannelIndex) -> MergeOutput {
        self.channels[channel.index()].idle = false;
        self.update()
    }

    /// The channel delivered its last record: from here on it holds nothing back.
    pub fn end_of_input(&mut self, channel: ChannelIndex) -> MergeOutput {
        self.channels[channel.index()].done = true;
        self.update()
    }

    /// The output watermark so far.
    #[must_use]
    pub fn current(&self) -> Watermark {
        self.output
    }

    /// True if the output is idle.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.output_idle
    }

    fn update(&mut self) -> MergeOutput {
        let (mut slowest_active, mut furthest) = (None, Watermark::MIN);
        let mut all_done = true;
        for channel in &self.channels {
            furthest = furthest.max(channel.reached);
            all_done &= channel.done;
            if !channel.done && !channel.idle {
                slowest_active =
                    Some(slowest_active.map_or(channel.reached, |w: Watermark| w.min(channel.reached)));
            }
        }
        let candidate = if all_done { Watermark::MAX } else { slowest_active.unwrap_or(furthest) };
        let idle = !all_done && slowest_active.is_none();

        let mut change = MergeOutput::default();
        if candidate > self.output {
            self.output = candidate;
            change.watermark = Some(candidate);
        }
        if idle != self.output_idle {
            self.output_idle = idle;
            change.idle = Some(idle);
        }
        change
    }
}

#[cfg(test)]
#[path = "merge_tests.rs"]
mod tests;
