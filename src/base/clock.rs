//! Time as a trait, so that a scheduler with virtual time can drive the same code.

use std::fmt;

/// A point in time: nanoseconds since the clock's own start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Nanos(pub u64);

impl Nanos {
    /// The latest point there is.
    pub const MAX: Self = Self(u64::MAX);

    /// This point moved forward; stops at [`Nanos::MAX`].
    #[must_use]
    pub fn after(self, duration: std::time::Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// How long ago `earlier` was; zero if it lies ahead.
    #[must_use]
    pub fn since(self, earlier: Self) -> std::time::Duration {
        std::time::Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// Monotonic time, and the wall clock's date.
pub trait Clock: Send + Sync + fmt::Debug {
    /// Monotonic time since this clock was made.
    fn now(&self) -> Nanos;

    /// Milliseconds since 1970, for people and for file names, never for measuring.
    fn epoch_millis(&self) -> u64;
}

/// The machine's clocks.
#[derive(Debug)]
pub struct SystemClock {
    clock: quanta::Clock,
    start: u64,
}

impl SystemClock {
    /// A clock that starts now.
    #[must_use]
    pub fn new() -> Self {
        let clock = quanta::Clock::new();
        let start = clock.raw();
        Self { clock, start }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Nanos {
        Nanos(self.clock.delta_as_nanos(self.start, self.clock.raw()))
    }

    fn epoch_millis(&self) -> u64 {
        let since_epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        since_epoch.map_or(0, |d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX))
    }
}
