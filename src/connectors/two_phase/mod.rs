//! Runs a [`TwoPhaseCommitSink`]: records are buffered on the subtask's core, everything else happens on a helper thread.
//!
//! Whatever the engine asks for (a barrier's cut, a commit) becomes an order that stands behind the buffers handed over before, in
//! one queue that never refuses. So a barrier does not wait for a writer that is behind, and a commit finds its transaction. Only
//! records are held back while the writer is behind.

mod helper;
mod recovery;
#[cfg(all(test, not(loom)))]
mod tests;

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use self::helper::{Answer, Order, Transactions};
use self::recovery::TwoPhaseRecovery;
use super::blocking::Orders;
use crate::base::error::BoxError;
use crate::base::id::CheckpointId;
use crate::base::progress::Flow;
use crate::operator::{
    OpenContext, PreCommitContext, Sink, SinkRecovery, TransactionContext, TwoPhaseCommitSink,
};

/// A buffer of this size is handed over while records keep coming.
const BUFFER_BYTES: usize = 64 * 1024;
/// Buffers that may wait to be written before the subtask is blocked.
const BUFFERS_MAX: usize = 8;

/// A [`TwoPhaseCommitSink`] as a [`Sink`]: exactly-once output.
///
/// Records are seen once the checkpoint that covers them is complete; with checkpoints off, once the job is finished.
pub struct TwoPhase<T, S: TwoPhaseCommitSink<T>> {
    sink: S,
    /// Subtasks opened so far, of all clones.
    opened: Arc<AtomicU64>,
    buffer: S::Buffer,
    has_records: bool,
    checkpointing: bool,
    link: Option<Link<S::Buffer>>,
    record_type: PhantomData<fn(T)>,
}

impl<T, S: TwoPhaseCommitSink<T>> TwoPhase<T, S> {
    /// Runs this sink.
    pub fn new(sink: S) -> Self {
        Self::sharing(sink, Arc::default())
    }

    fn sharing(sink: S, opened: Arc<AtomicU64>) -> Self {
        Self {
            sink,
            opened,
            buffer: S::Buffer::default(),
            has_records: false,
            checkpointing: true,
            link: None,
            record_type: PhantomData,
        }
    }

    /// The sink.
    pub fn sink(&self) -> &S {
        &self.sink
    }

    /// Replaces the sink, before the job is declared.
    #[must_use]
    pub fn map_sink(self, change: impl FnOnce(S) -> S) -> Self {
        Self::sharing(change(self.sink), self.opened)
    }

    /// Hands the buffer over, whether or not the helper is behind.
    fn hand_over(&mut self) {
        if let Some(link) = self.link.as_mut().filter(|_| self.has_records) {
            let empty = link.spare.pop().unwrap_or_default();
            link.write(std::mem::replace(&mut self.buffer, empty));
            self.has_records = false;
        }
    }

    fn opened_link(&mut self) -> Result<&mut Link<S::Buffer>, BoxError> {
        self.link.as_mut().ok_or_else(|| "the sink is not open".into())
    }
}

/// A sink that is not open yet, whatever the state of this one.
impl<T, S: TwoPhaseCommitSink<T>> Clone for TwoPhase<T, S> {
    fn clone(&self) -> Self {
        Self::sharing(self.sink.clone(), Arc::clone(&self.opened))
    }
}

impl<T, S: TwoPhaseCommitSink<T>> fmt::Debug for TwoPhase<T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TwoPhase").field("link", &self.link).finish_non_exhaustive()
    }
}

impl<T: 'static, S: TwoPhaseCommitSink<T>> Sink<T> for TwoPhase<T, S> {
    fn open(&mut self, cx: &mut OpenContext<'_>) -> Result<(), BoxError> {
        // Two processes may begin in the same millisecond, two executions at the same time of one clock.
        let opened = self.opened.fetch_add(1, Ordering::Relaxed);
        let context = TransactionContext {
            subtask: cx.subtask,
            parallelism: cx.parallelism(),
            token: format!("{:x}-{:x}-{opened:x}", cx.clock.epoch_millis(), cx.clock.now().0),
        };
        self.checkpointing = cx.checkpointing;
        let transactions = Transactions::new(self.sink.clone(), context);
        self.link = Some(Link {
            orders: Orders::spawn(cx, "transactions", transactions)?,
            spare: Vec::new(),
            writes: 0,
            commits: 0,
        });
        Ok(())
    }

    #[inline]
    fn write(&mut self, record: T) -> Result<Flow, BoxError> {
        let bytes = self.sink.buffer(record, &mut self.buffer)?;
        self.has_records = true;
        if bytes >= BUFFER_BYTES {
            self.hand_over();
            return self.opened_link()?.poll();
        }
        Ok(self.link.as_ref().map_or(Flow::Continue, Link::flow))
    }

    fn resume(&mut self) -> Result<Flow, BoxError> {
        self.opened_link()?.poll()
    }

    fn flush(&mut self) -> Result<(), BoxError> {
        let link = self.opened_link()?;
        let _ = link.poll()?;
        // Nobody sees the records any sooner: a helper that has enough to do is given whole buffers.
        if link.writes == 0 {
            self.hand_over();
        }
        Ok(())
    }

    fn end_input(&mut self) -> Result<Flow, BoxError> {
        self.hand_over();
        let _ = self.opened_link()?.poll()?;
        Ok(Flow::Continue)
    }

    fn pre_commit(&mut self, cx: &mut PreCommitContext) -> Result<(), BoxError> {
        self.hand_over();
        let transactions = cx.transactions_later();
        self.opened_link()?.orders.give(Order::Cut(cx.checkpoint, transactions));
        Ok(())
    }

    fn notify_complete(&mut self, checkpoint: CheckpointId) -> Result<(), BoxError> {
        self.opened_link()?.commit(Order::Commit(checkpoint));
        Ok(())
    }

    fn close(&mut self) -> Result<(), BoxError> {
        // With checkpoints on, the final one has covered everything, and its completion commits it.
        if !self.checkpointing {
            self.hand_over();
            self.opened_link()?.commit(Order::CommitAll);
        }
        Ok(())
    }

    fn published(&mut self) -> Result<Flow, BoxError> {
        let link = self.opened_link()?;
        let _ = link.poll()?;
        Ok(if link.commits > 0 { Flow::Blocked } else { Flow::Continue })
    }

    fn recovery(&self) -> Option<Box<dyn SinkRecovery>> {
        Some(Box::new(TwoPhaseRecovery::new(self.sink.clone())))
    }
}

/// The subtask's end of the helper.
struct Link<B> {
    orders: Orders<Order<B>, Answer<B>>,
    /// Empty buffers that came back.
    spare: Vec<B>,
    /// Buffers that are not written yet.
    writes: usize,
    /// Commits that are not done yet.
    commits: usize,
}

impl<B> fmt::Debug for Link<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link")
            .field("writes", &self.writes)
            .field("commits", &self.commits)
            .finish_non_exhaustive()
    }
}

impl<B> Link<B> {
    fn write(&mut self, buffer: B) {
        self.writes += 1;
        self.orders.give(Order::Write(buffer));
    }

    fn commit(&mut self, order: Order<B>) {
        self.commits += 1;
        self.orders.give(order);
    }

    /// Takes the answers that have come.
    fn poll(&mut self) -> Result<Flow, BoxError> {
        let Self { orders, spare, writes, commits } = self;
        orders.take_answers(|answer| match answer {
            Answer::Written(buffer) => {
                *writes -= 1;
                spare.push(buffer);
            }
            Answer::Cut => {}
            Answer::Committed => *commits -= 1,
        })?;
        Ok(self.flow())
    }

    fn flow(&self) -> Flow {
        if self.writes >= BUFFERS_MAX { Flow::Blocked } else { Flow::Continue }
    }
}
