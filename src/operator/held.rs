//! Output of one call that the next operator does not take yet.

use std::collections::VecDeque;

use super::contract::{Operator, Output};
use crate::base::progress::Flow;

/// Keeps what a user's function goes on emitting after its output has blocked.
#[derive(Debug)]
pub(crate) struct Held<T> {
    records: VecDeque<T>,
}

impl<T> Default for Held<T> {
    fn default() -> Self {
        Self { records: VecDeque::new() }
    }
}

impl<T> Held<T> {
    /// Hands on what is kept, until the next operator blocks again.
    pub(crate) fn resume(&mut self, next: &mut impl Operator<T>) -> Flow {
        while let Some(record) = self.records.pop_front() {
            let flow = next.process(record);
            if flow.is_blocked() {
                return flow;
            }
        }
        Flow::Continue
    }

    /// An output for one call of a user's function.
    #[inline]
    pub(crate) fn output<'a, C: Operator<T>>(&'a mut self, next: &'a mut C) -> HoldingOutput<'a, T, C> {
        HoldingOutput { held: self, next, records: 0, flow: Flow::Continue }
    }
}

/// Hands records to the next operator, and keeps them once it has blocked.
#[derive(Debug)]
pub(crate) struct HoldingOutput<'a, T, C> {
    held: &'a mut Held<T>,
    next: &'a mut C,
    /// Records collected.
    pub(crate) records: usize,
    /// Answer to the record collected last.
    pub(crate) flow: Flow,
}

impl<T, C: Operator<T>> Output<T> for HoldingOutput<'_, T, C> {
    #[inline]
    fn collect(&mut self, record: T) -> Flow {
        self.records += 1;
        if self.flow.is_blocked() {
            self.held.records.push_back(record);
        } else {
            self.flow = self.next.process(record);
        }
        self.flow
    }
}
