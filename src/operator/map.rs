//! One record in, one record out.

use super::contract::{ChainedOperator, Operator};
use super::failure::in_operator;
use crate::base::id::OperatorUid;
use crate::base::progress::Flow;

/// Applies a function to each record.
#[derive(Debug, Clone)]
pub struct MapOperator<F, C> {
    pub(crate) uid: OperatorUid,
    pub(crate) function: F,
    pub(crate) next: C,
}

impl<T, U, F, C> Operator<T> for MapOperator<F, C>
where
    F: FnMut(T) -> U + Send + 'static,
    C: Operator<U>,
{
    #[inline]
    fn process(&mut self, record: T) -> Flow {
        let mapped = in_operator(&self.uid, || (self.function)(record));
        self.next.process(mapped)
    }
}

impl<F: Send + 'static, C: super::OperatorLifecycle> ChainedOperator for MapOperator<F, C> {
    type Next = C;

    #[inline]
    fn next(&mut self) -> &mut C {
        &mut self.next
    }
}
