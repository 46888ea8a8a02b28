//! The end of a chain that writes to a sink.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::Arc;

use super::context::{CloseContext, OpenContext, OperatorFork, SnapshotContext};
use super::contract::{Operator, OperatorLifecycle, Sink};
use super::failure::{fail, in_operator};
use super::recovery::PreCommitContext;
use crate::base::error::{BoxError, Error, ErrorKind, Recovery};
use crate::base::id::{CheckpointId, OperatorUid};
use crate::base::progress::Flow;
use crate::element::Watermark;
use crate::metrics::SubtaskCounters;

/// A sink at the end of a chain.
#[derive(Debug)]
pub struct SinkOperator<T, S> {
    uid: OperatorUid,
    sink: S,
    records: u64,
    counters: Arc<SubtaskCounters>,
    record_type: PhantomData<fn(T)>,
}

impl<T, S: Clone> Clone for SinkOperator<T, S> {
    fn clone(&self) -> Self {
        Self::new(self.uid.clone(), self.sink.clone())
    }
}

impl<T, S> SinkOperator<T, S> {
    /// The operator of a sink.
    pub fn new(uid: OperatorUid, sink: S) -> Self {
        Self { uid, sink, records: 0, counters: Arc::default(), record_type: PhantomData }
    }

    #[inline]
    fn call<R>(&mut self, function: impl FnOnce(&mut S) -> Result<R, BoxError>) -> R {
        match in_operator(&self.uid, || function(&mut self.sink)) {
            Ok(result) => result,
            Err(error) => fail(&self.uid, ErrorKind::Connector, &error),
        }
    }

    fn try_call<R>(&mut self, function: impl FnOnce(&mut S) -> Result<R, BoxError>) -> Result<R, Error> {
        in_operator(&self.uid, || function(&mut self.sink)).map_err(|error| {
            Error::caused_by(ErrorKind::Connector, Recovery::Restart, &error).in_operator(&self.uid)
        })
    }
}

impl<T: 'static, S: Sink<T>> Operator<T> for SinkOperator<T, S> {
    #[inline]
    fn process(&mut self, record: T) -> Flow {
        self.records += 1;
        self.call(|sink| sink.write(record))
    }
}

impl<T: 'static, S: Sink<T>> OperatorLifecycle for SinkOperator<T, S> {
    fn open(&mut self, cx: &mut OpenContext<'_>) -> Result<(), Error> {
        self.counters = Arc::clone(&cx.counters);
        self.try_call(|sink| sink.open(cx))
    }

    fn resume(&mut self) -> Flow {
        self.call(Sink::resume)
    }

    fn watermark(&mut self, _watermark: Watermark) -> Flow {
        Flow::Continue
    }

    fn idle(&mut self, _idle: bool) {}

    fn end_input(&mut self) -> Flow {
        self.flush();
        self.call(Sink::end_input)
    }

    fn barrier(&mut self, _checkpoint: CheckpointId) {}

    fn cancel_barrier(&mut self, _checkpoint: CheckpointId) {}

    fn snapshot(&mut self, cx: &mut SnapshotContext) {
        let mut promise = PreCommitContext::new(cx.checkpoint);
        if let Err(error) = in_operator(&self.uid, || self.sink.pre_commit(&mut promise)) {
            cx.decline(&self.uid, &error);
        } else if promise.later.is_some() {
            cx.forks.push(OperatorFork {
                uid: self.uid.clone(),
                keyed: Vec::new(),
                list: BTreeMap::new(),
                later: promise.later,
                ended: false,
            });
        }
    }

    fn flush(&mut self) {
        SubtaskCounters::add(&self.counters.records_out, std::mem::take(&mut self.records));
        self.call(Sink::flush);
    }

    fn notify_complete(&mut self, checkpoint: CheckpointId) -> Result<(), Error> {
        self.try_call(|sink| sink.notify_complete(checkpoint))
    }

    fn notify_aborted(&mut self, checkpoint: CheckpointId) -> Result<(), Error> {
        self.try_call(|sink| sink.notify_aborted(checkpoint))
    }

    fn close(&mut self, _cx: &mut CloseContext) -> Result<(), Error> {
        self.flush();
        self.try_call(Sink::close)
    }

    fn published(&mut self) -> Result<Flow, Error> {
        self.try_call(Sink::published)
    }
}
