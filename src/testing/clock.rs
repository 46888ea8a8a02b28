//! Time that moves only when told.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::base::clock::{Clock, Nanos};

/// A clock that stands still until it is moved.
#[derive(Debug)]
pub struct VirtualClock {
    now: AtomicU64,
    started_at_ms: u64,
}

/// 2001-09-09, so that dates look like dates.
pub(super) const STARTED_AT_MS: u64 = 1_000_000_000_000;

impl Default for VirtualClock {
    fn default() -> Self {
        Self::starting_at(STARTED_AT_MS)
    }
}

impl VirtualClock {
    /// A clock that begins at so many milliseconds since 1970.
    #[must_use]
    pub fn starting_at(started_at_ms: u64) -> Self {
        Self { now: AtomicU64::new(0), started_at_ms }
    }

    /// Moves the clock forward; an earlier time leaves it as it is.
    pub fn move_to(&self, time: Nanos) {
        self.now.fetch_max(time.0, Ordering::Relaxed);
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Nanos {
        Nanos(self.now.load(Ordering::Relaxed))
    }

    fn epoch_millis(&self) -> u64 {
        self.started_at_ms + self.now().0 / 1_000_000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moves_only_when_told_and_never_back() {
        let clock = VirtualClock::default();
        assert_eq!(clock.now(), Nanos(0));
        clock.move_to(Nanos(7_000_000));
        clock.move_to(Nanos(3));
        assert_eq!(clock.now(), Nanos(7_000_000));
        assert_eq!(clock.epoch_millis(), 1_000_000_000_007);
    }
}
