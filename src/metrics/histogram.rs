//! Histograms of durations.

use std::time::Duration;

use hdrhistogram::Histogram;

/// Durations of one kind, in microseconds, three significant digits.
pub type Durations = Histogram<u64>;

/// A histogram that grows as it needs.
#[must_use]
pub fn new_durations() -> Durations {
    Histogram::new(3).expect("three digits are supported")
}

/// Records a duration in microseconds.
pub fn record(durations: &mut Durations, duration: Duration) {
    // Not `saturating_record`: that clamps to the present range instead of growing it.
    let recorded = durations.record(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX));
    debug_assert!(recorded.is_ok(), "a growing histogram takes every value");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_durations_are_not_clamped_to_the_first_range() {
        let mut durations = new_durations();
        record(&mut durations, Duration::from_secs(3));
        assert!(durations.max() >= 3_000_000);
    }
}
