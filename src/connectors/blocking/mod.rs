//! Reading and writing that blocks, on a helper thread, linked to the subtask by rings.
//!
//! [`ReadAhead`] fetches what the subtask will need next; [`WriteBehind`] writes what the subtask has handed over; [`Orders`] hands
//! over work of any kind. Neither side ever waits for the other: a full or empty ring puts the helper to sleep until the subtask wakes it, and blocks the subtask
//! until the helper wakes it.
//!
//! What an item means for the position of a source travels in the item. The helper is ahead by as much as the ring holds, so its
//! own position means nothing to a checkpoint.

mod orders;

use std::fmt;

use crate::base::error::{BoxError, Error, ErrorKind, Recovery};
use crate::base::progress::Flow;
use crate::operator::OpenContext;
use crate::operator::context::{Helper, HelperStatus};
use crate::ring::{Budget, Consumer, Peek, Producer, RingConfig, ring};
use crate::sync::wake::Waker;

pub(crate) use orders::{BlockingWork, Orders};

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

/// A writer that waits.
pub(crate) trait BlockingWrite: Send + 'static {
    /// Makes ready to write; called once, before anything else.
    ///
    /// # Errors
    /// If nothing can be written there.
    fn open(&mut self) -> Result<(), BoxError>;

    /// Writes all of the chunk.
    ///
    /// # Errors
    /// If writing failed; the writer is not called again.
    fn write(&mut self, chunk: &[u8]) -> Result<(), BoxError>;

    /// Sees to it that what was written stays.
    ///
    /// # Errors
    /// If that cannot be promised.
    fn sync(&mut self) -> Result<(), BoxError>;
}

fn small_ring<T>(capacity: usize) -> (Producer<T>, Consumer<T>) {
    ring(&RingConfig { capacity, first_segment: capacity, parking: Budget::new(0) })
}

/// Puts an item into a ring in which there must be room for it, unless the other side is gone: then nobody wants it.
fn hand_over<T>(ring: &mut Producer<T>, item: T) {
    if ring.push(item).is_err() {
        assert!(ring.is_abandoned(), "a helper and its subtask lost count of what is on its way");
    }
    ring.publish();
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

/// Chunks that may wait to be written before the subtask is blocked.
const CHUNKS_MAX: usize = 8;
/// Slots for chunks. More than `CHUNKS_MAX`: a barrier and the end of the input hand over what there is without asking.
const CHUNK_SLOTS: usize = 4 * CHUNKS_MAX;

enum Order {
    Write(Vec<u8>),
    Sync,
}

/// The subtask's end of a writer.
pub(crate) struct WriteBehind {
    orders: Producer<Order>,
    /// Answers to orders, each with the chunk's memory for the next one.
    done: Consumer<Result<Vec<u8>, BoxError>>,
    helper: Waker,
    unanswered: usize,
    spare: Vec<Vec<u8>>,
    ending: bool,
}

impl fmt::Debug for WriteBehind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriteBehind").field("unanswered", &self.unanswered).finish_non_exhaustive()
    }
}

impl WriteBehind {
    /// Starts the writer.
    pub(crate) fn spawn(
        cx: &mut OpenContext<'_>,
        name: &str,
        writer: impl BlockingWrite,
    ) -> Result<Self, BoxError> {
        let (orders, to_do) = small_ring(CHUNK_SLOTS);
        let (answers, done) = small_ring(CHUNK_SLOTS);
        let subtask = cx.waker.clone();
        let helper = WriteHelper { writer, state: WriterState::Closed, orders: to_do, answers, subtask };
        let helper = cx.spawn_helper(name, Box::new(helper))?;
        Ok(Self { orders, done, helper, unanswered: 0, spare: Vec::new(), ending: false })
    }

    /// True if no chunk should be handed over that can wait.
    pub(crate) fn is_full(&self) -> bool {
        self.unanswered >= CHUNKS_MAX
    }

    /// Hands the bytes over and leaves an empty buffer behind. Takes them even if it is full.
    pub(crate) fn write(&mut self, bytes: &mut Vec<u8>) {
        let empty = self.spare.pop().unwrap_or_default();
        self.order(Order::Write(std::mem::replace(bytes, empty)));
    }

    /// Learns what was written. Blocked while it is full and, once the end was announced, until everything is written.
    ///
    /// # Errors
    /// If the writer failed.
    pub(crate) fn poll(&mut self) -> Result<Flow, BoxError> {
        let (unanswered, spare) = (&mut self.unanswered, &mut self.spare);
        let mut failed = None;
        while self.done.drain(CHUNK_SLOTS, |answer| {
            match answer {
                Ok(buffer) => {
                    *unanswered -= 1;
                    spare.push(buffer);
                }
                // It may come without an order, and nothing follows it.
                Err(error) => failed = Some(error),
            }
            true
        }) > 0
        {}
        if let Some(error) = failed {
            return Err(error);
        }
        let waits = if self.ending { self.unanswered > 0 } else { self.is_full() };
        Ok(if waits { Flow::Blocked } else { Flow::Continue })
    }

    /// Nothing more will be handed over. Continue once everything is written and safe.
    ///
    /// # Errors
    /// If the writer failed.
    pub(crate) fn end(&mut self) -> Result<Flow, BoxError> {
        if !self.ending {
            self.ending = true;
            self.order(Order::Sync);
        }
        self.poll()
    }

    fn order(&mut self, order: Order) {
        // A writer that has failed is gone; its last answer says so.
        hand_over(&mut self.orders, order);
        self.unanswered += 1;
        self.helper.wake();
    }
}

#[derive(PartialEq, Eq)]
enum WriterState {
    Closed,
    Open,
    Failed,
}

struct WriteHelper<W: BlockingWrite> {
    writer: W,
    state: WriterState,
    orders: Consumer<Order>,
    answers: Producer<Result<Vec<u8>, BoxError>>,
    subtask: Waker,
}

/// What was handed over and could not be written may belong to a checkpoint that is complete: a restart would go on behind it.
/// So the job fails for good instead of losing it silently.
fn unwritten(error: &BoxError) -> BoxError {
    Error::caused_by(ErrorKind::Connector, Recovery::GiveUp, error).into()
}

impl<W: BlockingWrite> WriteHelper<W> {
    fn next_order(&mut self) -> Option<Order> {
        let mut order = None;
        self.orders.drain(1, |next| {
            order = Some(next);
            true
        });
        order
    }

    fn open(&mut self) -> Result<(), BoxError> {
        if self.state == WriterState::Closed {
            self.writer.open()?;
            self.state = WriterState::Open;
        }
        Ok(())
    }

    fn carry_out(&mut self, order: Order) -> Result<Vec<u8>, BoxError> {
        self.open()?;
        match order {
            Order::Write(mut bytes) => {
                self.writer.write(&bytes)?;
                bytes.clear();
                Ok(bytes)
            }
            Order::Sync => self.writer.sync().map(|()| Vec::new()),
        }
    }

    fn answer(&mut self, answer: Result<Vec<u8>, BoxError>) {
        if answer.is_err() {
            self.state = WriterState::Failed;
        }
        let answer = answer.map_err(|error| unwritten(&error));
        hand_over(&mut self.answers, answer);
        self.subtask.wake();
    }

    fn write_the_rest(&mut self) -> Result<(), BoxError> {
        while self.state != WriterState::Failed
            && let Some(order) = self.next_order()
        {
            if let Err(error) = self.carry_out(order) {
                self.state = WriterState::Failed;
                return Err(error);
            }
        }
        Ok(())
    }
}

impl<W: BlockingWrite> Helper for WriteHelper<W> {
    fn step(&mut self) -> Result<HelperStatus, BoxError> {
        if self.state == WriterState::Failed {
            return Ok(HelperStatus::Done);
        }
        if self.state == WriterState::Closed
            && let Err(error) = self.open()
        {
            // In place of the answer to the first order, which may not have come yet.
            self.answer(Err(error));
            return Ok(HelperStatus::Done);
        }
        let Some(order) = self.next_order() else {
            let is_over = self.orders.peek(1) == Peek::Closed;
            return Ok(if is_over { HelperStatus::Done } else { HelperStatus::Idle });
        };
        let answer = self.carry_out(order);
        self.answer(answer);
        Ok(HelperStatus::Worked)
    }

    fn stop(&mut self) -> Result<(), BoxError> {
        self.write_the_rest()
            .and_then(|()| if self.state == WriterState::Open { self.writer.sync() } else { Ok(()) })
            .map_err(|error| unwritten(&error))
    }
}

impl<W: BlockingWrite> Drop for WriteHelper<W> {
    fn drop(&mut self) {
        // When an execution fails, a checkpoint may have completed that counts on these bytes. Whoever dropped the subtask did
        // so before, so nothing is added any more.
        if let Err(error) = self.write_the_rest() {
            tracing::warn!(target: "stoplog::connectors", "{error}");
        }
    }
}
