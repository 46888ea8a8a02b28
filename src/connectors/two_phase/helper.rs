//! The transactions of one subtask in one execution, on their helper thread.

use std::collections::VecDeque;
use std::marker::PhantomData;

use serde::{Deserialize, Serialize};

use crate::base::error::{BoxError, Error, ErrorKind, Recovery};
use crate::base::id::CheckpointId;
use crate::codec::{PostcardSerializer, Serializer};
use crate::connectors::blocking::BlockingWork;
use crate::operator::later::LaterSender;
use crate::operator::{TransactionContext, TwoPhaseCommitSink};

/// What the subtask asks for.
pub(super) enum Order<B> {
    /// To write this in the open transaction.
    Write(B),
    /// To pre-commit the open transaction for the checkpoint, and say what the snapshot must remember.
    Cut(CheckpointId, LaterSender<Vec<Vec<u8>>>),
    /// To commit what was pre-committed up to this checkpoint.
    Commit(CheckpointId),
    /// To commit everything: the job is finished, and there are no checkpoints.
    CommitAll,
}

/// What became of an order.
pub(super) enum Answer<B> {
    /// The buffer is written, and empty.
    Written(B),
    Cut,
    Committed,
}

/// A transaction as an item of the list state `TRANSACTIONS`. The order of the variants is part of the format.
#[derive(Serialize, Deserialize)]
pub(super) enum Item<X> {
    PreCommitted(X),
    Open(X),
}

struct Open<X> {
    transaction: X,
    is_empty: bool,
}

struct Pending<X> {
    /// None once checkpoints are off and the job is finished.
    checkpoint: Option<CheckpointId>,
    transaction: X,
}

pub(super) struct Transactions<T, S: TwoPhaseCommitSink<T>> {
    sink: S,
    context: TransactionContext,
    open: Option<Open<S::Transaction>>,
    /// Pre-committed and not committed yet, oldest first.
    pending: VecDeque<Pending<S::Transaction>>,
    record_type: PhantomData<fn(T)>,
}

impl<T, S: TwoPhaseCommitSink<T>> Transactions<T, S> {
    pub(super) fn new(sink: S, context: TransactionContext) -> Self {
        Self { sink, context, open: None, pending: VecDeque::new(), record_type: PhantomData }
    }

    /// Begins a transaction if none is open.
    fn begun<'a>(
        sink: &mut S,
        open: &'a mut Option<Open<S::Transaction>>,
    ) -> Result<&'a mut Open<S::Transaction>, BoxError> {
        match open {
            Some(open) => Ok(open),
            none => Ok(none.insert(Open { transaction: sink.begin()?, is_empty: true })),
        }
    }

    fn write(&mut self, buffer: &mut S::Buffer) -> Result<(), BoxError> {
        let open = Self::begun(&mut self.sink, &mut self.open)?;
        open.is_empty = false;
        self.sink.write(&mut open.transaction, buffer)
    }

    /// One without records stays open. One that cannot be pre-committed is aborted with the execution.
    fn pre_commit(&mut self, checkpoint: Option<CheckpointId>) -> Result<(), BoxError> {
        if let Some(open) = self.open.as_mut().filter(|open| !open.is_empty) {
            self.sink.pre_commit(&mut open.transaction, checkpoint)?;
        }
        let done = self.open.take_if(|open| !open.is_empty);
        self.pending.extend(done.map(|Open { transaction, .. }| Pending { checkpoint, transaction }));
        Ok(())
    }

    fn cut(&mut self, checkpoint: CheckpointId) -> Result<Vec<Vec<u8>>, BoxError> {
        self.pre_commit(Some(checkpoint))?;
        if S::BEGINS_EAGERLY {
            Self::begun(&mut self.sink, &mut self.open)?;
        }
        let serializer = PostcardSerializer::<Item<S::Transaction>>::default();
        let pending = self.pending.iter().map(|pending| Item::PreCommitted(pending.transaction.clone()));
        let open = self.open.iter().map(|open| Item::Open(open.transaction.clone()));
        let encode = |item| {
            let mut bytes = Vec::new();
            serializer.serialize(&item, &mut bytes).map(|()| bytes)
        };
        Ok(pending.chain(open).map(encode).collect::<Result<_, _>>()?)
    }

    fn commit(&mut self, is_due: impl Fn(Option<CheckpointId>) -> bool) -> Result<(), BoxError> {
        while let Some(pending) = self.pending.front().filter(|pending| is_due(pending.checkpoint)) {
            self.sink.commit(&pending.transaction)?;
            self.pending.pop_front();
        }
        Ok(())
    }
}

impl<T: 'static, S: TwoPhaseCommitSink<T>> BlockingWork for Transactions<T, S> {
    type Order = Order<S::Buffer>;
    type Answer = Answer<S::Buffer>;

    /// What no snapshot remembers is written again by the next execution; what one remembers is committed before it begins.
    const CARRIES_OUT_THE_REST: bool = false;

    fn open(&mut self) -> Result<(), BoxError> {
        self.sink.open(&self.context)
    }

    fn carry_out(&mut self, order: Self::Order) -> Result<Self::Answer, BoxError> {
        match order {
            Order::Write(mut buffer) => {
                self.write(&mut buffer)?;
                Ok(Answer::Written(buffer))
            }
            Order::Cut(checkpoint, transactions) => match self.cut(checkpoint) {
                Ok(items) => {
                    transactions.send(Ok(items));
                    Ok(Answer::Cut)
                }
                Err(error) => {
                    // It is told twice, and says both times whether a restart can help.
                    let told = Error::caused_by(ErrorKind::Connector, Recovery::Restart, &error);
                    transactions.send(Err(told.into()));
                    Err(error)
                }
            },
            Order::Commit(checkpoint) => {
                self.commit(|pending| pending.is_some_and(|pending| pending <= checkpoint))?;
                Ok(Answer::Committed)
            }
            Order::CommitAll => {
                self.pre_commit(None)?;
                self.commit(|_| true)?;
                Ok(Answer::Committed)
            }
        }
    }

    /// A checkpoint that waits for its cut may be told sooner than the subtask sees the failure: it then speaks for the job.
    fn refuse(&mut self, order: Self::Order, reason: &str) {
        if let Order::Cut(_, transactions) = order {
            transactions.send(Err(reason.into()));
        }
    }
}

impl<T, S: TwoPhaseCommitSink<T>> Drop for Transactions<T, S> {
    fn drop(&mut self) {
        // However the execution ended, no checkpoint can cover what was not pre-committed. What was is left to those who know the
        // newest checkpoint.
        if let Some(Open { transaction, .. }) = self.open.take()
            && let Err(error) = self.sink.abort(&transaction)
        {
            tracing::warn!(target: "stoplog::connectors", "{transaction:?} is left behind: {error}");
        }
    }
}
