//! What happens to transactions while no record flows.

use std::marker::PhantomData;

use super::helper::Item;
use crate::base::error::{BoxError, Error, ErrorKind, Recovery};
use crate::codec::{CodecError, PostcardSerializer, Serializer};
use crate::operator::{SinkClaim, SinkRecovery, TwoPhaseCommitSink};

pub(super) struct TwoPhaseRecovery<T, S> {
    sink: S,
    /// All output is there, even if consumers have moved it away since.
    is_finished: bool,
    record_type: PhantomData<fn(T)>,
}

impl<T, S: TwoPhaseCommitSink<T>> TwoPhaseRecovery<T, S> {
    pub(super) fn new(sink: S) -> Self {
        Self { sink, is_finished: false, record_type: PhantomData }
    }

    fn recover(&mut self, item: &Item<S::Transaction>) -> Result<(), BoxError> {
        match item {
            Item::PreCommitted(transaction) => self.sink.recover_and_commit(transaction),
            Item::Open(transaction) => self.sink.recover_and_abort(transaction),
        }
    }
}

impl<T, S: TwoPhaseCommitSink<T>> SinkRecovery for TwoPhaseRecovery<T, S> {
    fn claim(&mut self, claim: &SinkClaim) -> Result<(), BoxError> {
        self.is_finished = claim.is_finished;
        self.sink.claim(claim).map_err(|error| {
            let error = Error::caused_by(ErrorKind::Connector, Recovery::RejectJob, &error);
            error.into()
        })
    }

    fn settle(&mut self, transactions: &[Vec<u8>]) -> Result<(), BoxError> {
        if !self.is_finished {
            let decoded: Result<Vec<_>, _> = transactions.iter().map(|bytes| decode(bytes)).collect();
            let items = decoded.map_err(|error| {
                let message = format!("the snapshot's transactions cannot be read: {error}");
                BoxError::from(Error::new(ErrorKind::Snapshot, Recovery::GiveUp, message))
            })?;
            // One that fails is no reason to keep back the others.
            let failures = items.iter().filter_map(|item| self.recover(item).err()).collect::<Vec<_>>();
            if let Some(first) = failures.into_iter().next() {
                // What is unpublished may still be needed.
                return Err(first);
            }
        }
        self.sink.remove_leftovers()
    }
}

fn decode<X: serde::Serialize + serde::de::DeserializeOwned>(
    mut bytes: &[u8],
) -> Result<Item<X>, CodecError> {
    let item = PostcardSerializer::<Item<X>>::default().deserialize(&mut bytes)?;
    if bytes.is_empty() { Ok(item) } else { Err(CodecError::Trailing { bytes: bytes.len() }) }
}
