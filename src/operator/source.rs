//! The head of a chain that begins with a source.

use std::sync::Arc;

use super::context::{CloseContext, OpenContext, OperatorFork, SnapshotContext};
use super::contract::{Operator, OperatorLifecycle, Source, SourceStatus};
use super::failure::{fail, in_operator};
use super::head::{ChainHead, Polled, Stop};
use super::held::Held;
use crate::base::error::{BoxError, Error, ErrorKind, Recovery};
use crate::base::id::{ChannelIndex, CheckpointId, OperatorUid};
use crate::base::progress::Flow;
use crate::codec::{CodecError, PostcardSerializer, Serializer};
use crate::element::Watermark;
use crate::metrics::SubtaskCounters;

/// Name of the list state in which the splits and their positions stand.
pub const SPLITS: &str = "splits";

/// A source and the chain behind it.
#[derive(Debug)]
pub struct SourceHead<S: Source, C> {
    uid: OperatorUid,
    source: S,
    /// Splits for a start from nothing; a restored position wins.
    first_splits: Vec<S::Split>,
    held: Held<S::Out>,
    /// The source is not asked any more.
    ended: bool,
    next: C,
    counters: Arc<SubtaskCounters>,
}

impl<S: Source, C> SourceHead<S, C> {
    /// A head that reads `first_splits` unless the job is restored.
    pub fn new(uid: OperatorUid, source: S, first_splits: Vec<S::Split>, next: C) -> Self {
        Self {
            uid,
            source,
            first_splits,
            held: Held::default(),
            ended: false,
            next,
            counters: Arc::default(),
        }
    }

    fn error(&self, error: &BoxError) -> Error {
        Error::caused_by(ErrorKind::Connector, Recovery::Restart, error).in_operator(&self.uid)
    }
}

impl<S: Source, C: Operator<S::Out>> OperatorLifecycle for SourceHead<S, C> {
    fn open(&mut self, cx: &mut OpenContext<'_>) -> Result<(), Error> {
        self.counters = Arc::clone(&cx.counters);
        let serializer = PostcardSerializer::<S::Split>::default();
        // A restored job reads the splits of the snapshot and no others, even if this subtask has none of them.
        let splits = if cx.restored.is_some() {
            let items = cx.restored_operator(&self.uid).and_then(|operator| operator.list.get(SPLITS));
            let decode = |bytes: &Vec<u8>| {
                let mut rest = bytes.as_slice();
                let split = serializer.deserialize(&mut rest)?;
                if rest.is_empty() { Ok(split) } else { Err(CodecError::Trailing { bytes: rest.len() }) }
            };
            let decoded: Result<Vec<_>, _> = items.into_iter().flatten().map(decode).collect();
            decoded.map_err(|error| {
                let message = format!("the snapshot's source positions are not this source's: {error}");
                Error::new(ErrorKind::Snapshot, Recovery::GiveUp, message).in_operator(&self.uid)
            })?
        } else {
            std::mem::take(&mut self.first_splits)
        };
        let opened = in_operator(&self.uid, || self.source.open(splits, cx));
        opened.map_err(|error| self.error(&error))?;
        self.next.open(cx)
    }

    fn resume(&mut self) -> Flow {
        let flow = self.next.resume();
        if flow.is_blocked() {
            return flow;
        }
        self.held.resume(&mut self.next)
    }

    fn watermark(&mut self, watermark: Watermark) -> Flow {
        self.next.watermark(watermark)
    }

    fn idle(&mut self, idle: bool) {
        self.next.idle(idle);
    }

    fn end_input(&mut self) -> Flow {
        self.next.end_input()
    }

    fn barrier(&mut self, checkpoint: CheckpointId) {
        self.next.barrier(checkpoint);
    }

    fn cancel_barrier(&mut self, checkpoint: CheckpointId) {
        self.next.cancel_barrier(checkpoint);
    }

    fn snapshot(&mut self, cx: &mut SnapshotContext) {
        let serializer = PostcardSerializer::<S::Split>::default();
        let encode = |split: &S::Split| {
            let mut bytes = Vec::new();
            serializer.serialize(split, &mut bytes).map(|()| bytes)
        };
        let splits = in_operator(&self.uid, || self.source.snapshot());
        match splits.iter().map(encode).collect() {
            Ok(items) => cx.forks.push(OperatorFork {
                uid: self.uid.clone(),
                keyed: Vec::new(),
                list: [(SPLITS.to_owned(), items)].into(),
                later: None,
                ended: false,
            }),
            Err(error) => cx.decline(&self.uid, &error.into()),
        }
        self.next.snapshot(cx);
    }

    fn flush(&mut self) {
        self.next.flush();
    }

    fn notify_complete(&mut self, checkpoint: CheckpointId) -> Result<(), Error> {
        self.next.notify_complete(checkpoint)
    }

    fn notify_aborted(&mut self, checkpoint: CheckpointId) -> Result<(), Error> {
        self.next.notify_aborted(checkpoint)
    }

    fn close(&mut self, cx: &mut CloseContext) -> Result<(), Error> {
        self.next.close(cx)
    }

    fn published(&mut self) -> Result<Flow, Error> {
        self.next.published()
    }
}

impl<S: Source, C: Operator<S::Out>> ChainHead for SourceHead<S, C> {
    fn channels(&self) -> usize {
        0
    }

    fn poll(&mut self, _channel: ChannelIndex, max: usize) -> Polled {
        if self.ended {
            // It ended while its last record was held up.
            return Polled { records: 0, stop: Stop::Ended };
        }
        let mut output = self.held.output(&mut self.next);
        let status = in_operator(&self.uid, || self.source.poll(&mut output, max));
        let (records, flow) = (output.records, output.flow);
        SubtaskCounters::add(&self.counters.records_in, records as u64);
        match status {
            Ok(SourceStatus::Ready) => Polled::after(records, flow, Stop::Budget),
            Ok(SourceStatus::Idle(until)) => Polled::after(records, flow, Stop::Empty(until)),
            Ok(SourceStatus::Ended) => {
                self.ended = true;
                Polled::after(records, flow, Stop::Ended)
            }
            Err(error) => fail(&self.uid, ErrorKind::Connector, &error),
        }
    }

    fn set_parked(&mut self, _channel: ChannelIndex, _parked: bool) {
        unreachable!("a source has no channel to park")
    }
}
