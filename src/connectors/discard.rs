//! A sink for what nobody wants.

use crate::base::error::BoxError;
use crate::base::progress::Flow;
use crate::operator::Sink;

/// Drops every record.
#[derive(Debug, Clone, Copy, Default)]
pub struct DiscardSink;

impl<T> Sink<T> for DiscardSink {
    #[inline]
    fn write(&mut self, _record: T) -> Result<Flow, BoxError> {
        Ok(Flow::Continue)
    }
}
