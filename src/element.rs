//! What travels through a channel.
//!
//! A channel carries records of one type and, between them, control entries. Their legal order:
//!
//! ```text
//! channel := (record | Watermark | Idle | Active | Barrier | CancelBarrier)*  EndOfInput  (Barrier | CancelBarrier)*
//! ```
//!
//! * Watermarks never decrease.
//! * Barrier ids grow; an id that was cancelled on a channel does not appear on it again.
//! * After `EndOfInput` no record and no watermark follows. Barriers may: a subtask that has read all of its input
//!   still takes part in checkpoints until the job is finished.

use std::num::NonZeroU8;

use crate::base::id::CheckpointId;

/// Event time in milliseconds: no record with an earlier timestamp is expected any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Watermark(pub i64);

impl Watermark {
    /// Before all time: nothing is known yet.
    pub const MIN: Self = Self(i64::MIN);
    /// After all time: the input has ended.
    pub const MAX: Self = Self(i64::MAX);
}

/// A control entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Control {
    /// Event time has advanced.
    Watermark(Watermark),
    /// All records before it belong to the checkpoint, all after it do not.
    Barrier(CheckpointId),
    /// The checkpoint was abandoned upstream: its barrier will not come on this channel.
    CancelBarrier(CheckpointId),
    /// The channel has no records for now and holds back no watermark.
    Idle,
    /// The channel has records again.
    Active,
    /// No record will follow.
    EndOfInput,
}

const fn tag(value: u8) -> NonZeroU8 {
    NonZeroU8::new(value).expect("tags are not zero")
}

const WATERMARK: NonZeroU8 = tag(1);
const BARRIER: NonZeroU8 = tag(2);
const CANCEL_BARRIER: NonZeroU8 = tag(3);
const IDLE: NonZeroU8 = tag(4);
const ACTIVE: NonZeroU8 = tag(5);
const END_OF_INPUT: NonZeroU8 = tag(6);

impl Control {
    /// The tag and word of this entry.
    #[must_use]
    pub fn to_mark(self) -> (NonZeroU8, u64) {
        match self {
            Self::Watermark(watermark) => (WATERMARK, watermark.0.cast_unsigned()),
            Self::Barrier(id) => (BARRIER, id.0),
            Self::CancelBarrier(id) => (CANCEL_BARRIER, id.0),
            Self::Idle => (IDLE, 0),
            Self::Active => (ACTIVE, 0),
            Self::EndOfInput => (END_OF_INPUT, 0),
        }
    }

    /// The entry with this tag and word.
    ///
    /// # Panics
    /// If no entry has the tag: only [`Control::to_mark`] makes tags.
    #[must_use]
    pub fn from_mark(tag: NonZeroU8, word: u64) -> Self {
        match tag {
            WATERMARK => Self::Watermark(Watermark(word.cast_signed())),
            BARRIER => Self::Barrier(CheckpointId(word)),
            CANCEL_BARRIER => Self::CancelBarrier(CheckpointId(word)),
            IDLE => Self::Idle,
            ACTIVE => Self::Active,
            END_OF_INPUT => Self::EndOfInput,
            other => panic!("no control entry has the tag {other}"),
        }
    }
}

/// Watches one channel for the order of its entries; see the grammar above.
#[derive(Debug, Clone, Copy, Default)]
pub struct ChannelOrder {
    newest: Option<CheckpointId>,
    watermark: Option<Watermark>,
    ended: bool,
}

impl ChannelOrder {
    /// Takes the next control entry.
    ///
    /// # Errors
    /// If it may not follow what came before it.
    pub fn control(&mut self, control: Control) -> Result<(), (Self, Control)> {
        let legal = match control {
            Control::Watermark(watermark) => !self.ended && self.watermark <= Some(watermark),
            Control::Barrier(id) | Control::CancelBarrier(id) => self.newest < Some(id),
            Control::Idle | Control::Active | Control::EndOfInput => !self.ended,
        };
        if !legal {
            return Err((*self, control));
        }
        match control {
            Control::Watermark(watermark) => self.watermark = Some(watermark),
            Control::Barrier(id) | Control::CancelBarrier(id) => self.newest = Some(id),
            Control::EndOfInput => self.ended = true,
            Control::Idle | Control::Active => {}
        }
        Ok(())
    }

    /// True if records may follow.
    #[must_use]
    pub fn takes_records(&self) -> bool {
        !self.ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn barriers_grow_watermarks_do_not_fall_and_only_barriers_follow_the_end() {
        let barrier = |id| Control::Barrier(CheckpointId(id));
        let cancel = |id| Control::CancelBarrier(CheckpointId(id));
        let watermark = |time| Control::Watermark(Watermark(time));
        let mut order = ChannelOrder::default();
        for legal in [watermark(3), barrier(1), watermark(3), cancel(2), barrier(4), Control::Idle] {
            assert_eq!(order.control(legal).map_err(|(_, control)| control), Ok(()));
        }
        for illegal in [watermark(2), barrier(4), cancel(4), barrier(2)] {
            assert_eq!(order.control(illegal).map_err(|(_, control)| control), Err(illegal));
        }
        assert!(order.takes_records() && order.control(Control::EndOfInput).is_ok());
        assert!(!order.takes_records() && order.control(watermark(9)).is_err());
        assert!(order.control(Control::EndOfInput).is_err() && order.control(barrier(5)).is_ok());
    }

    #[test]
    fn a_control_entry_survives_the_ring() {
        for entry in [
            Control::Watermark(Watermark::MIN),
            Control::Watermark(Watermark(-1)),
            Control::Barrier(CheckpointId(u64::MAX)),
            Control::CancelBarrier(CheckpointId(3)),
            Control::Idle,
            Control::Active,
            Control::EndOfInput,
        ] {
            let (tag, word) = entry.to_mark();
            assert_eq!(Control::from_mark(tag, word), entry);
        }
    }
}
