//! Sources that make their records at a given rate.

use std::fmt;
use std::sync::Arc;

use crate::base::clock::{Clock, Nanos};

/// When the next record is due.
#[derive(Clone)]
pub struct Pace {
    clock: Arc<dyn Clock>,
    start: Option<Nanos>,
    nanos_per_record: f64,
    made: u64,
}

impl fmt::Debug for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pace").field("nanos_per_record", &self.nanos_per_record).finish_non_exhaustive()
    }
}

impl Pace {
    /// The pace of so many records per second, from the first question on. `None` for a rate of 0, which means no limit.
    #[must_use]
    pub fn new(records_per_second: f64, clock: &Arc<dyn Clock>) -> Option<Self> {
        (records_per_second > 0.0).then(|| Self {
            clock: Arc::clone(clock),
            start: None,
            nanos_per_record: 1e9 / records_per_second,
            made: 0,
        })
    }

    /// Records that are due by now.
    ///
    /// # Errors
    /// If none is: the time at which the next one will be.
    pub fn due(&mut self) -> Result<usize, Nanos> {
        let now = self.clock.now();
        let start = *self.start.get_or_insert(now);
        let elapsed = now.since(start).as_nanos() as f64;
        let due = ((elapsed / self.nanos_per_record) as u64).saturating_add(1);
        match usize::try_from(due.saturating_sub(self.made)) {
            Ok(0) => Err(Nanos(start.0.saturating_add((self.made as f64 * self.nanos_per_record) as u64))),
            Ok(count) => Ok(count),
            Err(_) => Ok(usize::MAX),
        }
    }

    /// So many records were made.
    pub fn made(&mut self, records: usize) {
        self.made += records as u64;
    }
}
