//! Reading ahead of the subtask.

use std::fmt;

use super::{hand_over, small_ring};
use crate::base::error::BoxError;
use crate::operator::OpenContext;
use crate::operator::context::{Helper, HelperStatus};
use crate::ring::{Consumer, Peek, Producer};
use crate::sync::wake::Waker;

/// What one read yielded.
#[derive(Debug)]
pub(crate) enum Read<T> {
    /// The next item.
    Item(T),
    /// Nothing yet, though the reader has waited for it.
    Later,
    /// Nothing will come any more.
    End,
}

/// A reader that waits.
pub(crate) trait BlockingRead: Send + 'static {
    /// What is read.
    type Item: Send + 'static;

    /// Reads one item. May wait, but for no longer than about 100 ms.
    ///
    /// # Errors
    /// If reading failed; it is not called again.
    fn read(&mut self) -> Result<Read<Self::Item>, BoxError>;
}

/// The subtask's end of a reader.
pub(crate) struct ReadAhead<T> {
    items: Consumer<Result<T, BoxError>>,
    helper: Waker,
}

impl<T> fmt::Debug for ReadAhead<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadAhead").finish_non_exhaustive()
    }
}

impl<T: Send + 'static> ReadAhead<T> {
    /// Starts the reader, which reads up to `ahead` items (a power of two) before they are taken.
    pub(crate) fn spawn(
        cx: &mut OpenContext<'_>,
        name: &str,
        ahead: usize,
        reader: impl BlockingRead<Item = T>,
    ) -> Result<Self, BoxError> {
        let (producer, items) = small_ring(ahead);
        let helper = ReadHelper { reader, items: Some(producer), subtask: cx.waker.clone() };
        Ok(Self { items, helper: cx.spawn_helper(name, Box::new(helper))? })
    }

    /// The next item; [`Read::Later`] if the subtask will be woken for it.
    pub(crate) fn take(&mut self) -> Result<Read<T>, BoxError> {
        let mut taken = None;
        self.items.drain(1, |item| {
            taken = Some(item);
            true
        });
        match taken {
            Some(item) => {
                self.helper.wake();
                item.map(Read::Item)
            }
            None if self.items.peek(1) == Peek::Closed => Ok(Read::End),
            None => Ok(Read::Later),
        }
    }
}

struct ReadHelper<R: BlockingRead> {
    reader: R,
    /// None once the end was reached.
    items: Option<Producer<Result<R::Item, BoxError>>>,
    subtask: Waker,
}

impl<R: BlockingRead> Helper for ReadHelper<R> {
    fn step(&mut self) -> Result<HelperStatus, BoxError> {
        let Some(items) = self.items.as_mut().filter(|items| !items.is_abandoned()) else {
            return Ok(HelperStatus::Done);
        };
        if !items.has_room() {
            return Ok(HelperStatus::Idle);
        }
        let (item, is_last) = match self.reader.read() {
            Ok(Read::Later) => return Ok(HelperStatus::Worked),
            Ok(Read::Item(item)) => (Some(Ok(item)), false),
            Ok(Read::End) => (None, true),
            // The subtask reports it, for it knows the operator.
            Err(error) => (Some(Err(error)), true),
        };
        if let Some(item) = item {
            hand_over(items, item);
        }
        if is_last {
            self.items = None;
        }
        self.subtask.wake();
        Ok(if is_last { HelperStatus::Done } else { HelperStatus::Worked })
    }
}
