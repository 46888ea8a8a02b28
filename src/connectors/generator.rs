//! Records made by a function of their number.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::pace::Pace;
use crate::base::error::BoxError;
use crate::operator::{OpenContext, Output, Source, SourceStatus};

/// Makes record `n` of `0 .. count` by a function of `n`. Replayable.
///
/// Of `s` splits, split `i` makes the records with `n % s == i`; there are as many splits as subtasks at the first start.
///
/// ```
/// use stoplog::prelude::*;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let env = StreamEnvironment::new(JobConfig::default());
/// env.source("squares", GeneratorSource::new(1000, |n| n * n)).sink("nowhere", DiscardSink);
/// assert_eq!(env.execute()?.records_out, 1000);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct GeneratorSource<F> {
    count: u64,
    make: F,
    /// Records per second of all subtasks together; 0 for as many as possible.
    rate: f64,
    splits: Vec<GeneratorSplit>,
    pace: Option<Pace>,
}

/// One part of the numbers, and how far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct GeneratorSplit {
    next: u64,
    step: u64,
}

impl<F> fmt::Debug for GeneratorSource<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GeneratorSource")
            .field("count", &self.count)
            .field("rate", &self.rate)
            .field("splits", &self.splits)
            .finish_non_exhaustive()
    }
}

impl<T, F: FnMut(u64) -> T + Clone + Send + 'static> GeneratorSource<F> {
    /// A source of `count` records, as fast as they are taken.
    pub fn new(count: u64, make: F) -> Self {
        Self { count, make, rate: 0.0, splits: Vec::new(), pace: None }
    }

    /// Limits the source to so many records per second, all subtasks together; 0 for no limit.
    #[must_use]
    pub fn rate(mut self, records_per_second: f64) -> Self {
        self.rate = records_per_second;
        self
    }
}

impl<T, F> Source for GeneratorSource<F>
where
    T: Send + 'static,
    F: FnMut(u64) -> T + Clone + Send + 'static,
{
    type Out = T;
    type Split = GeneratorSplit;

    fn create_splits(&mut self, parallelism: u32) -> Result<Vec<GeneratorSplit>, BoxError> {
        let step = u64::from(parallelism);
        Ok((0..step).map(|next| GeneratorSplit { next, step }).collect())
    }

    fn open(&mut self, splits: Vec<GeneratorSplit>, cx: &mut OpenContext<'_>) -> Result<(), BoxError> {
        // A split has its share of the rate, so a subtask with several is faster and one without makes nothing.
        let share: f64 = splits.iter().map(|split| self.rate / split.step as f64).sum();
        self.splits = splits;
        self.pace = Pace::new(share, &cx.clock);
        Ok(())
    }

    fn poll(&mut self, output: &mut impl Output<T>, max: usize) -> Result<SourceStatus, BoxError> {
        let count = self.count;
        self.splits.sort_by_key(|split| split.next >= count);
        let live = self.splits.iter().filter(|split| split.next < count).count();
        if live == 0 {
            return Ok(SourceStatus::Ended);
        }
        let allowed = match self.pace.as_mut().map(Pace::due) {
            Some(Err(until)) => return Ok(SourceStatus::Idle(until)),
            Some(Ok(due)) => due.min(max),
            None => max,
        };
        let mut left = allowed;
        // Several splits (after a restore with fewer subtasks) take turns of equal length.
        let turn = left.div_ceil(live);
        for split in &mut self.splits[..live] {
            let GeneratorSplit { mut next, step } = *split;
            let mut blocked = false;
            let mut turn = turn.min(left);
            while turn > 0 && next < count && !blocked {
                blocked = output.collect((self.make)(next)).is_blocked();
                next += step;
                turn -= 1;
                left -= 1;
            }
            split.next = next;
            if blocked {
                break;
            }
        }
        if let Some(pace) = &mut self.pace {
            pace.made(allowed - left);
        }
        Ok(SourceStatus::Ready)
    }

    fn snapshot(&self) -> Vec<GeneratorSplit> {
        self.splits.clone()
    }
}
