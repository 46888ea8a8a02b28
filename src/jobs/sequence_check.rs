//! `sequence-check`: does every key's state see 1, 2, 3, …, each number once, whatever fails on the way?

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use clap::Args;
use serde::{Deserialize, Serialize};

use super::keyed_count::format;
use super::registry::JobSetup;
use crate::base::error::BoxError;
use crate::connectors::{LineSink, Pace};
use crate::operator::process::{StatesOf, TablesOf};
use crate::operator::{
    CloseContext, OpenContext, Output, ProcessContext, ProcessFunction, Source, SourceStatus,
};
use crate::state::ValueStateDescriptor;

/// Options of `sequence-check`.
#[derive(Debug, Clone, Args)]
pub struct SequenceCheckOptions {
    /// Different keys
    #[arg(long, default_value_t = 1_000)]
    pub keys: u64,
    /// Records of all keys together
    #[arg(long, default_value_t = 1_000_000)]
    pub records: u64,
    /// Records per second in all; 0 for as many as possible
    #[arg(long, default_value_t = 0.0)]
    pub rate: f64,
    /// Fail once a checking subtask has taken this many records since the start or restart; 0 for never
    #[arg(long, value_name = "RECORDS", default_value_t = 0)]
    pub fail_after: u64,
    /// How often to fail in all
    #[arg(long, value_name = "TIMES", default_value_t = 1)]
    pub fail_times: u32,
    /// Directory for a line `key,number` per record, empty unless the job goes on from a checkpoint; without it the lines go to standard output
    #[arg(long, value_name = "DIR")]
    pub output: Option<PathBuf>,
}

type Format = fn(&(u64, u64), &mut Vec<u8>);
type NumberSink = LineSink<(u64, u64), Format>;

/// Known to all subtasks in all executions of the job: it is not state, and no restart takes it back.
#[derive(Debug)]
struct Shared {
    totals: Totals,
    /// Gaps and repeats found.
    alerts: AtomicU64,
    /// Keys that the closed subtasks of the running execution have seen.
    keys_closed: AtomicU64,
    /// Failures still to come.
    failures_left: AtomicU32,
    /// True if the running execution has not failed on purpose yet.
    is_armed: AtomicBool,
}

impl Shared {
    /// An execution begins. Called by every source subtask while it is opened, before any record flows.
    fn begin(&self) {
        self.is_armed.store(true, Ordering::Relaxed);
        self.keys_closed.store(0, Ordering::Relaxed);
    }

    #[cold]
    fn alert(&self, key: u64, expected: u64, found: u64) {
        if self.alerts.fetch_add(1, Ordering::Relaxed) < 10 {
            tracing::warn!(target: "stoplog::jobs", key, expected, found, "out of sequence");
        }
    }

    /// Panics if a failure is due.
    #[cold]
    fn fail(&self, processed: u64) {
        if !self.is_armed.swap(false, Ordering::Relaxed) {
            return;
        }
        let take_one = |left: u32| left.checked_sub(1);
        if self.failures_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take_one).is_ok() {
            panic!("failed on purpose after {processed} records");
        }
    }

    fn total_alerts(&self, is_finished: bool) -> u64 {
        let keys = self.totals.keys.min(self.totals.records);
        let missing = keys.saturating_sub(self.keys_closed.load(Ordering::Relaxed));
        self.alerts.load(Ordering::Relaxed) + if is_finished { missing } else { 0 }
    }
}

/// How many numbers each key has.
#[derive(Debug, Clone, Copy)]
struct Totals {
    keys: u64,
    records: u64,
}

impl Totals {
    fn of_key(self, key: u64) -> u64 {
        self.records / self.keys + u64::from(key < self.records % self.keys)
    }

    /// Records of the keys `first`, `first + step`, …
    fn of_split(self, first: u64, step: u64) -> u64 {
        let keys_below = |bound: u64| bound.saturating_sub(first).div_ceil(step);
        self.records / self.keys * keys_below(self.keys) + keys_below(self.records % self.keys)
    }
}

pub(super) fn declare(options: SequenceCheckOptions, job: &mut JobSetup) {
    if options.keys == 0 {
        job.mistake("--keys is 0; at least one key is needed");
    }
    job.check_rate(options.rate);
    let sink = job.lines(options.output.as_deref(), format as Format, NumberSink::stdout);
    if !job.mistakes().is_empty() {
        return;
    }
    let totals = Totals { keys: options.keys, records: options.records };
    let shared = Arc::new(Shared {
        totals,
        alerts: AtomicU64::new(0),
        keys_closed: AtomicU64::new(0),
        failures_left: AtomicU32::new(options.fail_times),
        is_armed: AtomicBool::new(true),
    });
    let source =
        SequenceSource { shared: Arc::clone(&shared), rate: options.rate, splits: Vec::new(), pace: None };
    let check = Check { shared: Arc::clone(&shared), fail_after: options.fail_after, processed: 0 };
    job.env()
        .source("sequences", source)
        .uid("sequences")
        .key_by_parts(|(key, number)| (key, number))
        .process(check)
        .uid("check")
        .sink("numbers", sink)
        .uid("output");
    job.count_alerts(move |is_finished| shared.total_alerts(is_finished));
}

/// Numbers the records of each key. Each key belongs to one split, so its numbers stay in order.
#[derive(Debug, Clone)]
struct SequenceSource {
    shared: Arc<Shared>,
    rate: f64,
    splits: Vec<SequenceSplit>,
    pace: Option<Pace>,
}

/// The keys `first`, `first + step`, …; they take turns.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct SequenceSplit {
    first: u64,
    step: u64,
    /// Records made.
    made: u64,
}

impl SequenceSplit {
    /// Key and number of the next record.
    fn next(&self, totals: Totals) -> (u64, u64) {
        let keys = totals.keys.saturating_sub(self.first).div_ceil(self.step);
        (self.first + self.step * (self.made % keys), self.made / keys + 1)
    }

    fn is_done(&self, totals: Totals) -> bool {
        self.made >= totals.of_split(self.first, self.step)
    }
}

impl Source for SequenceSource {
    type Out = (u64, u64);
    type Split = SequenceSplit;

    fn create_splits(&mut self, parallelism: u32) -> Result<Vec<SequenceSplit>, BoxError> {
        let step = u64::from(parallelism);
        Ok((0..step).map(|first| SequenceSplit { first, step, made: 0 }).collect())
    }

    fn open(&mut self, splits: Vec<SequenceSplit>, cx: &mut OpenContext<'_>) -> Result<(), BoxError> {
        self.shared.begin();
        let share: f64 = splits.iter().map(|split| self.rate / split.step as f64).sum();
        self.pace = Pace::new(share, &cx.clock);
        self.splits = splits;
        Ok(())
    }

    fn poll(&mut self, output: &mut impl Output<(u64, u64)>, max: usize) -> Result<SourceStatus, BoxError> {
        let totals = self.shared.totals;
        let allowed = match self.pace.as_mut().map(Pace::due) {
            Some(Err(until)) if !self.splits.iter().all(|split| split.is_done(totals)) => {
                return Ok(SourceStatus::Idle(until));
            }
            Some(Ok(due)) => due.min(max),
            _ => max,
        };
        let mut left = allowed;
        let mut status = SourceStatus::Ended;
        'splits: for split in &mut self.splits {
            while !split.is_done(totals) {
                if left == 0 {
                    status = SourceStatus::Ready;
                    break 'splits;
                }
                let record = split.next(totals);
                split.made += 1;
                left -= 1;
                if output.collect(record).is_blocked() {
                    status = SourceStatus::Ready;
                    break 'splits;
                }
            }
        }
        if let Some(pace) = &mut self.pace {
            pace.made(allowed - left);
        }
        Ok(status)
    }

    fn snapshot(&self) -> Vec<SequenceSplit> {
        self.splits.clone()
    }
}

/// Compares each number with the last one of its key, which is the state.
#[derive(Debug, Clone)]
struct Check {
    shared: Arc<Shared>,
    fail_after: u64,
    /// Records since the start or restart.
    processed: u64,
}

impl ProcessFunction for Check {
    type Key = u64;
    type In = u64;
    type Out = (u64, u64);
    type States = ValueStateDescriptor<u64>;

    fn states(&self) -> Self::States {
        ValueStateDescriptor::new("last")
    }

    #[inline]
    fn process(
        &mut self,
        number: u64,
        mut last: StatesOf<'_, Self>,
        cx: &ProcessContext<'_, u64>,
        output: &mut impl Output<(u64, u64)>,
    ) -> Result<(), BoxError> {
        if self.processed == self.fail_after && self.fail_after > 0 {
            self.shared.fail(self.processed);
        }
        self.processed += 1;
        let before = last.modify(|| 0, |last| std::mem::replace(last, number));
        if number != before + 1 {
            self.shared.alert(*cx.key(), before + 1, number);
        }
        let _ = output.collect((*cx.key(), number));
        Ok(())
    }

    fn close(&mut self, table: &mut TablesOf<Self>, _cx: &mut CloseContext) -> Result<(), BoxError> {
        let mut keys = 0;
        for (key, (), last) in table.fork().entries() {
            keys += 1;
            let expected = self.shared.totals.of_key(key);
            if last != expected {
                self.shared.alert(key, expected, last);
            }
        }
        self.shared.keys_closed.fetch_add(keys, Ordering::Relaxed);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_make_the_numbers_of_every_key_in_order() {
        for (keys, records, parts) in [(1, 5, 3), (7, 100, 2), (10, 7, 4), (3, 9, 8), (5, 0, 2)] {
            let totals = Totals { keys, records };
            let mut last = vec![0; keys as usize];
            for first in 0..parts {
                let mut split = SequenceSplit { first, step: parts, made: 0 };
                while !split.is_done(totals) {
                    let (key, number) = split.next(totals);
                    last[key as usize] += 1;
                    assert_eq!(number, last[key as usize]);
                    split.made += 1;
                }
            }
            let expected: Vec<_> = (0..keys).map(|key| totals.of_key(key)).collect();
            assert_eq!(last, expected);
            assert_eq!(expected.iter().sum::<u64>(), records);
        }
    }
}
