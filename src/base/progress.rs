//! What one step of anything achieved.

use super::clock::Nanos;

/// Result of one bounded step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Something moved: step again soon.
    Worked,
    /// Nothing to do until another party acts, or until this point in time ([`Nanos::MAX`]: no such point).
    Idle(Nanos),
    /// Nothing will ever be left to do.
    Done,
}

impl Progress {
    /// Nothing to do until another party acts.
    pub const IDLE: Self = Self::Idle(Nanos::MAX);

    /// The progress of two parts taken together: work in either is work, idle ends with the earlier deadline.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Worked, _) | (_, Self::Worked) => Self::Worked,
            (Self::Idle(a), Self::Idle(b)) => Self::Idle(a.min(b)),
            (Self::Idle(a), Self::Done) | (Self::Done, Self::Idle(a)) => Self::Idle(a),
            (Self::Done, Self::Done) => Self::Done,
        }
    }
}

/// Answer of a part that was handed a record: may the caller go on?
///
/// The record was taken in any case; all answers but `Continue` ask for no more until `resume` answers `Continue`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a blocked output must not be handed more"]
pub enum Flow {
    /// More may come.
    Continue,
    /// The output is full; what was handed over is kept there. Somebody else has to make room.
    Blocked,
    /// There is more to hand on than one step should: `resume` goes on at once, nobody has to do anything first.
    Paused,
}

impl Flow {
    /// True unless more may come.
    #[inline]
    #[must_use]
    pub fn is_blocked(self) -> bool {
        self != Self::Continue
    }

    /// The answer of two outputs taken together.
    #[inline]
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Paused, _) | (_, Self::Paused) => Self::Paused,
            (Self::Blocked, _) | (_, Self::Blocked) => Self::Blocked,
            (Self::Continue, Self::Continue) => Self::Continue,
        }
    }
}
