//! The part of transactional sinks that belongs to the whole job.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use super::origin::Restorable;
use crate::base::error::{BoxError, Error, ErrorKind, Recovery};
use crate::base::id::OperatorUid;
use crate::operator::failure::caught;
use crate::operator::recovery::{SinkClaim, SinkRecovery};

/// The transactional sinks of a job. Clones share them: one task at a time acts on them.
#[derive(Debug, Clone, Default)]
pub(super) struct JobSinks {
    uids: Arc<[OperatorUid]>,
    sinks: Arc<Mutex<Vec<JobSink>>>,
}

#[derive(Debug)]
struct JobSink {
    uid: OperatorUid,
    recovery: Box<dyn SinkRecovery>,
}

/// What every sink has to settle, in the order of the sinks.
pub(super) type Transactions = Vec<Vec<Vec<u8>>>;

impl JobSinks {
    pub(super) fn new(sinks: Vec<(OperatorUid, Box<dyn SinkRecovery>)>) -> Self {
        let uids = sinks.iter().map(|(uid, _)| uid.clone()).collect();
        let sinks = sinks.into_iter().map(|(uid, recovery)| JobSink { uid, recovery }).collect();
        Self { uids, sinks: Arc::new(Mutex::new(sinks)) }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.uids.is_empty()
    }

    pub(super) fn uids(&self) -> &[OperatorUid] {
        &self.uids
    }

    /// Takes the places where output goes.
    pub(super) fn claim(&self, claim: &SinkClaim) -> Result<(), Error> {
        self.for_each(Recovery::RejectJob, |_, sink| sink.claim(claim))
    }

    /// What there is to settle for a snapshot; nothing without one.
    pub(super) fn transactions(&self, snapshot: Option<&Restorable>) -> Transactions {
        let of = |uid| snapshot.map(|snapshot| snapshot.transactions(uid)).unwrap_or_default();
        self.uids.iter().map(of).collect()
    }

    /// Publishes what the snapshot promises and removes what is not published.
    pub(super) fn settle(&self, transactions: &Transactions) -> Result<(), Error> {
        self.for_each(Recovery::Restart, |index, sink| sink.settle(&transactions[index]))
    }

    /// Gives up what was claimed.
    pub(super) fn release(&self) {
        let sinks = std::mem::take(&mut *self.sinks.lock().unwrap_or_else(PoisonError::into_inner));
        for sink in sinks {
            // The sink is the user's: a panic while it is dropped is noted, and ends nothing else.
            if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(sink))) {
                tracing::warn!(target: "stoplog::job", "a sink could not be given up: {}", caught(payload));
            }
        }
    }

    fn for_each(
        &self,
        recovery: Recovery,
        mut call: impl FnMut(usize, &mut dyn SinkRecovery) -> Result<(), BoxError>,
    ) -> Result<(), Error> {
        let mut sinks = self.sinks.lock().unwrap_or_else(PoisonError::into_inner);
        for (index, JobSink { uid, recovery: sink }) in sinks.iter_mut().enumerate() {
            let called = catch_unwind(AssertUnwindSafe(|| call(index, sink.as_mut())));
            let error = match called {
                Ok(Ok(())) => continue,
                Ok(Err(error)) => Error::caused_by(ErrorKind::Connector, recovery, &error),
                Err(payload) => caught(payload),
            };
            return Err(error.in_operator(uid));
        }
        Ok(())
    }
}
