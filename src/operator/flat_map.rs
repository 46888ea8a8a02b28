//! One record in, any number out.

use std::fmt;

use super::contract::{ChainedOperator, Operator};
use super::failure::in_operator;
use crate::base::id::OperatorUid;
use crate::base::progress::Flow;

/// Items that one step hands on at most, so that barriers, commands and the other subtasks of the core get their turn however many
/// an iterator has.
const STEP_ITEMS: usize = 1024;

/// Records still to be handed on, as an iterator that is advanced only while the output takes more. However many records
/// one input yields, none is buffered here.
pub(crate) struct Pending<I> {
    iterator: Option<I>,
}

impl<I> Default for Pending<I> {
    fn default() -> Self {
        Self { iterator: None }
    }
}

impl<I> fmt::Debug for Pending<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending").field("is_some", &self.iterator.is_some()).finish()
    }
}

impl<I: Iterator> Pending<I> {
    /// Hands on the records of `iterator`; what the output does not take stays here.
    #[inline]
    pub(crate) fn start(
        &mut self,
        mut iterator: I,
        uid: &OperatorUid,
        next: &mut impl Operator<I::Item>,
    ) -> Flow {
        debug_assert!(self.iterator.is_none(), "no record is handed over while output is pending");
        for left in (0..STEP_ITEMS).rev() {
            let Some(record) = in_operator(uid, || iterator.next()) else { return Flow::Continue };
            let flow = next.process(record);
            if flow.is_blocked() || left == 0 {
                self.iterator = Some(iterator);
                return if flow.is_blocked() { flow } else { Flow::Paused };
            }
        }
        unreachable!("the last round returns")
    }

    /// Goes on where it stopped.
    pub(crate) fn resume(&mut self, uid: &OperatorUid, next: &mut impl Operator<I::Item>) -> Flow {
        match self.iterator.take() {
            Some(iterator) => self.start(iterator, uid, next),
            None => Flow::Continue,
        }
    }
}

/// Hands on each item of the iterator that a function makes of a record.
#[derive(Debug)]
pub struct FlatMapOperator<F, I, C> {
    pub(crate) uid: OperatorUid,
    pub(crate) function: F,
    pub(crate) pending: Pending<I>,
    pub(crate) next: C,
}

impl<F: Clone, I, C: Clone> Clone for FlatMapOperator<F, I, C> {
    fn clone(&self) -> Self {
        Self {
            uid: self.uid.clone(),
            function: self.function.clone(),
            // Only prototypes are cloned, and a prototype has processed nothing.
            pending: Pending::default(),
            next: self.next.clone(),
        }
    }
}

impl<T, U, F, C> Operator<T> for FlatMapOperator<F, U::IntoIter, C>
where
    U: IntoIterator<IntoIter: Send + 'static>,
    F: FnMut(T) -> U + Send + 'static,
    C: Operator<U::Item>,
{
    #[inline]
    fn process(&mut self, record: T) -> Flow {
        let items = in_operator(&self.uid, || (self.function)(record).into_iter());
        self.pending.start(items, &self.uid, &mut self.next)
    }
}

impl<F, I, C> ChainedOperator for FlatMapOperator<F, I, C>
where
    F: Send + 'static,
    I: Iterator + Send + 'static,
    C: Operator<I::Item>,
{
    type Next = C;

    #[inline]
    fn next(&mut self) -> &mut C {
        &mut self.next
    }

    fn resume_self(&mut self) -> Flow {
        self.pending.resume(&self.uid, &mut self.next)
    }
}
