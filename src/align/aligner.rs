//! Barrier alignment of one subtask, exactly-once.
//!
//! When the barrier of a checkpoint arrives on a channel, that channel is parked: nothing more is read from it. When
//! every channel that can still deliver has delivered, the subtask takes its snapshot and the channels go on.
//!
//! Invariants
//! * At most one checkpoint is being aligned at a time.
//! * A parked channel delivers nothing until its checkpoint completes or is abandoned.
//! * A channel that ended counts as having delivered every barrier. It may still deliver barriers; they begin an
//!   alignment, and park the channel, as on any other channel, so that its entries stay in order.
//! * Ids in [`Action::TakeSnapshot`] and [`Action::ForwardCancel`] strictly grow, both taken together: no checkpoint is
//!   both taken and cancelled, and barriers and cancels stand in every output channel in the order of their ids.
//! * Every id not above the newest one begun is settled, except the one being aligned. Whatever arrives for a settled
//!   id is dropped. Nothing else about the past has to be remembered.
//!
//! What the caller owes
//! * It reads each channel in order and hands each control entry over, carries out the actions in order, and only then
//!   reads the next entry of any channel. A watermark that stands before a barrier in its channel then leaves before
//!   that barrier too.
//! * It reads nothing from a parked channel.
//! * It forwards no record between a `TakeSnapshot` and the barrier that it puts into its outputs for it.
//! * It hands over the coordinator's abort of a checkpoint with [`Aligner::abort`], whatever it knows of that checkpoint.
//! * For a cancel whose cause is [`CancelCause::Superseded`] or [`CancelCause::Upstream`], it also declines the
//!   checkpoint towards the coordinator; otherwise the coordinator would learn of it by the timeout only.
//! * A subtask without input channels (a source) has nothing to align: its triggers come in order, and an abort takes back a
//!   trigger that it has not carried out yet.

use std::fmt;
use std::time::Duration;

use super::id_ranges::IdRanges;
use crate::base::clock::Nanos;
use crate::base::id::{ChannelIndex, CheckpointId};

/// What the caller has to do, in the order given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Stop reading this channel.
    Park(ChannelIndex),
    /// Read this channel again. Comes after the `TakeSnapshot` or `ForwardCancel` that released it; channels are
    /// released in the order in which they were parked.
    Unpark {
        /// The channel.
        channel: ChannelIndex,
        /// How long it was parked.
        parked_for: Duration,
    },
    /// Forward the barrier to all outputs and fork the state, before any further record.
    TakeSnapshot(Alignment),
    /// Put a `CancelBarrier` into all outputs. At most once per checkpoint.
    ForwardCancel {
        /// The checkpoint that will not be taken here.
        checkpoint: CheckpointId,
        /// Why not.
        cause: CancelCause,
    },
}

/// A completed alignment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Alignment {
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// When its first barrier arrived.
    pub first_barrier: Nanos,
    /// When the last channel had delivered or ended.
    pub completed: Nanos,
}

impl Alignment {
    /// From the first barrier to the last.
    #[must_use]
    pub fn duration(&self) -> Duration {
        self.completed.since(self.first_barrier)
    }
}

/// Why a checkpoint will not be taken by this subtask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelCause {
    /// A barrier or cancel of a newer checkpoint arrived on a channel that had not delivered this one.
    Superseded {
        /// The newer checkpoint.
        by: CheckpointId,
    },
    /// A channel delivered a cancel for it.
    Upstream,
    /// The coordinator aborted it.
    Coordinator,
}

impl fmt::Display for CancelCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Superseded { by } => write!(f, "checkpoint {by} overtook it"),
            Self::Upstream => f.write_str("it was abandoned upstream"),
            Self::Coordinator => f.write_str("the coordinator aborted it"),
        }
    }
}

/// The alignment of one subtask; see the module for its invariants.
///
/// All methods that take `actions` append to it and leave what is in it alone.
#[derive(Debug)]
pub struct Aligner {
    channels: Vec<Channel>,
    /// The parked channels, in the order in which they were parked.
    parked: Vec<ChannelIndex>,
    current: Option<Current>,
    /// The newest checkpoint that was begun, taken or cancelled.
    newest: Option<CheckpointId>,
    /// Aborted by the coordinator before anything of them arrived here; all above `newest`.
    ///
    /// Their cancel has to wait until they arrive: sent at once it would overtake the barrier of an older checkpoint
    /// that is still under way. The set stays small although checkpoints may be aborted for ever without reaching this
    /// subtask: an id above `newest` was not completed, so gaps between its ranges are checkpoints still in flight.
    aborted_ahead: IdRanges,
}

#[derive(Debug, Clone, Copy, Default)]
struct Channel {
    ended: bool,
    parked_since: Option<Nanos>,
}

impl Channel {
    fn is_waited_for(self) -> bool {
        !self.ended && self.parked_since.is_none()
    }
}

#[derive(Debug, Clone, Copy)]
struct Current {
    checkpoint: CheckpointId,
    first_barrier: Nanos,
    /// Number of channels that are waited for.
    missing: usize,
}

impl Aligner {
    /// An aligner for this many input channels, none of which has ended.
    #[must_use]
    pub fn new(channels: usize) -> Self {
        Self {
            channels: vec![Channel::default(); channels],
            parked: Vec::with_capacity(channels),
            current: None,
            newest: None,
            aborted_ahead: IdRanges::default(),
        }
    }

    /// The channel delivered the barrier of this checkpoint.
    ///
    /// # Panics
    /// If the channel is parked: nothing may be read from it.
    pub fn barrier(
        &mut self,
        channel: ChannelIndex,
        checkpoint: CheckpointId,
        now: Nanos,
        actions: &mut Vec<Action>,
    ) {
        self.assert_readable(channel);
        if !self.is_aligning(checkpoint) {
            if self.is_settled(checkpoint) {
                return;
            }
            self.supersede(checkpoint, now, actions);
            if self.aborted_ahead.contains(checkpoint) {
                self.cancel(checkpoint, CancelCause::Coordinator, now, actions);
                return;
            }
            self.begin(checkpoint, now);
        }
        self.deliver(channel, now, actions);
    }

    /// The channel delivered a cancel for this checkpoint.
    ///
    /// # Panics
    /// If the channel is parked: nothing may be read from it.
    pub fn cancel_barrier(
        &mut self,
        channel: ChannelIndex,
        checkpoint: CheckpointId,
        now: Nanos,
        actions: &mut Vec<Action>,
    ) {
        self.assert_readable(channel);
        if self.is_settled(checkpoint) {
            return;
        }
        self.supersede(checkpoint, now, actions);
        let by_coordinator = self.aborted_ahead.contains(checkpoint);
        let cause = if by_coordinator { CancelCause::Coordinator } else { CancelCause::Upstream };
        self.cancel(checkpoint, cause, now, actions);
    }

    /// The channel delivered its last record; barriers may follow. Has no effect the second time.
    ///
    /// # Panics
    /// If the channel is parked: nothing may be read from it.
    pub fn end_of_input(&mut self, channel: ChannelIndex, now: Nanos, actions: &mut Vec<Action>) {
        self.assert_readable(channel);
        let channel = &mut self.channels[channel.index()];
        if channel.ended {
            return;
        }
        channel.ended = true;
        if let Some(current) = &mut self.current {
            current.missing -= 1;
            if current.missing == 0 {
                self.complete(now, actions);
            }
        }
    }

    /// The coordinator aborted this checkpoint.
    ///
    /// If it is being aligned, it is cancelled at once. If nothing of it has arrived yet, it is cancelled when its first
    /// barrier or cancel arrives. Else it is settled here and nothing happens.
    pub fn abort(&mut self, checkpoint: CheckpointId, now: Nanos, actions: &mut Vec<Action>) {
        if self.is_aligning(checkpoint) {
            self.cancel(checkpoint, CancelCause::Coordinator, now, actions);
        } else if !self.is_settled(checkpoint) {
            self.aborted_ahead.insert(checkpoint);
        }
    }

    /// True if the channel must not be read.
    #[inline]
    #[must_use]
    pub fn is_parked(&self, channel: ChannelIndex) -> bool {
        self.channels[channel.index()].parked_since.is_some()
    }

    /// True if the channel has delivered its last record.
    #[must_use]
    pub fn has_ended(&self, channel: ChannelIndex) -> bool {
        self.channels[channel.index()].ended
    }

    /// True if all channels have delivered their last record.
    #[must_use]
    pub fn all_ended(&self) -> bool {
        self.channels.iter().all(|channel| channel.ended)
    }

    /// The checkpoint that is being aligned.
    #[must_use]
    pub fn aligning(&self) -> Option<CheckpointId> {
        self.current.map(|current| current.checkpoint)
    }

    /// The channels whose barrier the alignment waits for; none if nothing is being aligned.
    pub fn waiting_for(&self) -> impl Iterator<Item = ChannelIndex> + '_ {
        let aligning = self.current.is_some();
        let waited_for = move |(_, channel): &(usize, &Channel)| aligning && channel.is_waited_for();
        self.channels.iter().enumerate().filter(waited_for).map(|(index, _)| channel_index(index))
    }

    fn assert_readable(&self, channel: ChannelIndex) {
        assert!(!self.is_parked(channel), "channel {channel} was read while it is parked");
    }

    fn is_aligning(&self, checkpoint: CheckpointId) -> bool {
        self.aligning() == Some(checkpoint)
    }

    fn is_settled(&self, checkpoint: CheckpointId) -> bool {
        self.newest.is_some_and(|newest| checkpoint <= newest) && !self.is_aligning(checkpoint)
    }

    /// Cancels the current alignment if it is of an older checkpoint: the channel that delivered the newer id without
    /// the older one will never deliver the older one.
    fn supersede(&mut self, by: CheckpointId, now: Nanos, actions: &mut Vec<Action>) {
        if let Some(older) = self.aligning().filter(|older| *older < by) {
            self.cancel(older, CancelCause::Superseded { by }, now, actions);
        }
    }

    fn begin(&mut self, checkpoint: CheckpointId, now: Nanos) {
        debug_assert!(self.current.is_none() && self.parked.is_empty(), "one alignment at a time");
        self.advance_to(checkpoint);
        let missing = self.channels.iter().filter(|channel| channel.is_waited_for()).count();
        self.current = Some(Current { checkpoint, first_barrier: now, missing });
    }

    fn deliver(&mut self, channel: ChannelIndex, now: Nanos, actions: &mut Vec<Action>) {
        let current = self.current.as_mut().expect("a barrier is delivered to an alignment");
        let state = &mut self.channels[channel.index()];
        if !state.ended {
            current.missing -= 1;
        }
        if current.missing == 0 {
            self.complete(now, actions);
        } else {
            state.parked_since = Some(now);
            self.parked.push(channel);
            actions.push(Action::Park(channel));
        }
    }

    fn complete(&mut self, now: Nanos, actions: &mut Vec<Action>) {
        let Current { checkpoint, first_barrier, .. } = self.current.take().expect("an alignment completes");
        actions.push(Action::TakeSnapshot(Alignment { checkpoint, first_barrier, completed: now }));
        self.release(now, actions);
    }

    fn cancel(
        &mut self,
        checkpoint: CheckpointId,
        cause: CancelCause,
        now: Nanos,
        actions: &mut Vec<Action>,
    ) {
        self.advance_to(checkpoint);
        self.current = None;
        actions.push(Action::ForwardCancel { checkpoint, cause });
        self.release(now, actions);
    }

    fn release(&mut self, now: Nanos, actions: &mut Vec<Action>) {
        for channel in self.parked.drain(..) {
            let since = self.channels[channel.index()].parked_since.take().expect("a parked channel");
            actions.push(Action::Unpark { channel, parked_for: now.since(since) });
        }
    }

    fn advance_to(&mut self, checkpoint: CheckpointId) {
        self.newest = self.newest.max(Some(checkpoint));
        self.aborted_ahead.forget_through(checkpoint);
    }

    #[cfg(test)]
    pub(super) fn remembered_ranges(&self) -> usize {
        self.aborted_ahead.ranges()
    }
}

fn channel_index(index: usize) -> ChannelIndex {
    ChannelIndex(u32::try_from(index).expect("fewer channels than 2^32"))
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
