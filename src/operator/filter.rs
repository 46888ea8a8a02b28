//! Drops the records that a predicate does not hold for.

use super::contract::{ChainedOperator, Operator};
use super::failure::in_operator;
use crate::base::id::OperatorUid;
use crate::base::progress::Flow;

/// Hands on the records for which the predicate holds.
#[derive(Debug, Clone)]
pub struct FilterOperator<F, C> {
    pub(crate) uid: OperatorUid,
    pub(crate) predicate: F,
    pub(crate) next: C,
}

impl<T, F, C> Operator<T> for FilterOperator<F, C>
where
    F: FnMut(&T) -> bool + Send + 'static,
    C: Operator<T>,
{
    #[inline]
    fn process(&mut self, record: T) -> Flow {
        if in_operator(&self.uid, || (self.predicate)(&record)) {
            self.next.process(record)
        } else {
            Flow::Continue
        }
    }
}

impl<F: Send + 'static, C: super::OperatorLifecycle> ChainedOperator for FilterOperator<F, C> {
    type Next = C;

    #[inline]
    fn next(&mut self) -> &mut C {
        &mut self.next
    }
}
