//! Records that are in memory already.

use std::fmt;
use std::sync::Arc;

use crate::base::error::BoxError;
use crate::operator::{OpenContext, Output, Source, SourceStatus};

/// Hands on the records of a vector, which is divided evenly among the subtasks. Replayable.
#[derive(Clone)]
pub struct VecSource<T> {
    records: Arc<Vec<T>>,
    splits: Vec<(u64, u64)>,
}

impl<T> VecSource<T> {
    /// A source of these records.
    #[must_use]
    pub fn new(records: Vec<T>) -> Self {
        Self { records: Arc::new(records), splits: Vec::new() }
    }
}

impl<T> fmt::Debug for VecSource<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VecSource").field("records", &self.records.len()).finish_non_exhaustive()
    }
}

impl<T: Clone + Send + Sync + 'static> Source for VecSource<T> {
    type Out = T;
    /// Index of the next record and of the one past the last.
    type Split = (u64, u64);

    fn create_splits(&mut self, parallelism: u32) -> Result<Vec<(u64, u64)>, BoxError> {
        let (count, parts) = (self.records.len() as u64, u64::from(parallelism));
        Ok((0..parts).map(|part| (count * part / parts, count * (part + 1) / parts)).collect())
    }

    fn open(&mut self, splits: Vec<(u64, u64)>, _cx: &mut OpenContext<'_>) -> Result<(), BoxError> {
        self.splits = splits;
        Ok(())
    }

    fn poll(&mut self, output: &mut impl Output<T>, max: usize) -> Result<SourceStatus, BoxError> {
        let mut left = max;
        for (next, end) in &mut self.splits {
            while next < end {
                if left == 0 {
                    return Ok(SourceStatus::Ready);
                }
                left -= 1;
                let record = usize::try_from(*next).ok().and_then(|index| self.records.get(index));
                let record = record.ok_or("the vector has fewer records than when the job began")?;
                *next += 1;
                if output.collect(record.clone()).is_blocked() {
                    return Ok(SourceStatus::Ready);
                }
            }
        }
        Ok(SourceStatus::Ended)
    }

    fn snapshot(&self) -> Vec<(u64, u64)> {
        self.splits.clone()
    }
}
