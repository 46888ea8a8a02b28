//! The second half of a snapshot: writing what was forked.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::Reporter;
use super::log::{Place, millis, say};
use crate::base::clock::{Clock, Nanos};
use crate::base::error::{Error, ErrorKind, Recovery};
use crate::base::id::{CheckpointId, OperatorUid, SubtaskId};
use crate::checkpoint::protocol::Message;
use crate::operator::context::OperatorFork;
use crate::operator::failure::{caught, in_operator};
use crate::operator::later::Later;
use crate::operator::recovery::TRANSACTIONS;
use crate::runtime::signal::Signal;
use crate::runtime::under_way::CheckpointsUnderWay;
use crate::snapshot::{
    CheckpointStorage, Compression, ListStateSnapshot, OperatorSnapshot, SnapshotError, StateWriter,
    SubtaskSnapshot, write_state,
};

/// The place of an operator in the snapshot, and the transactions of its sink.
type Awaited = (usize, Later<Vec<Vec<u8>>>);

/// Serialises and writes the fork of one subtask, then acknowledges. Runs on the snapshot pool.
pub(super) struct WriteSnapshot {
    pub(super) checkpoint: CheckpointId,
    pub(super) subtask: SubtaskId,
    pub(super) place: Place,
    pub(super) parallelism: u32,
    pub(super) forks: Vec<OperatorFork>,
    pub(super) forked_at: Nanos,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) storage: Arc<dyn CheckpointStorage>,
    pub(super) compression: Compression,
    pub(super) under_way: Arc<CheckpointsUnderWay>,
    pub(super) report: Reporter,
}

impl WriteSnapshot {
    /// Says nothing if the checkpoint is abandoned meanwhile: nobody waits for an answer.
    pub(super) fn run(mut self) {
        let forks = std::mem::take(&mut self.forks);
        let mut awaited = Vec::new();
        // A serializer of the user's, or the drop of what was forked, may panic: the checkpoint fails, not the process.
        match catch_unwind(AssertUnwindSafe(|| self.write(forks, &mut awaited))) {
            Ok(Ok(Some(snapshot))) => self.await_transactions(snapshot, awaited),
            Ok(Ok(None)) => {
                say!(self.place, checkpoint = %self.checkpoint, "snapshot not written: its checkpoint is abandoned");
            }
            Ok(Err(error)) => self.decline(error),
            Err(payload) => self.decline(caught(payload)),
        }
    }

    /// Acknowledges once all of the sinks' transactions have come, on the thread that sends the last.
    fn await_transactions(self, mut snapshot: SubtaskSnapshot, mut awaited: Vec<Awaited>) {
        let Some((operator, transactions)) = awaited.pop() else {
            let duration = self.clock.now().since(self.forked_at);
            say!(
                self.place, checkpoint = %self.checkpoint,
                bytes = snapshot.bytes, async_ms = millis(duration), "snapshot written"
            );
            return self.report(Message::Acknowledge { checkpoint: self.checkpoint, snapshot });
        };
        transactions.on_ready(move |items| match items {
            Ok(items) => {
                let list = ListStateSnapshot { name: TRANSACTIONS.to_owned(), items };
                snapshot.operators[operator].list.push(list);
                self.await_transactions(snapshot, awaited);
            }
            Err(error) => {
                let uid = &snapshot.operators[operator].uid;
                let error =
                    Error::caused_by(ErrorKind::Connector, Recovery::Restart, &error).in_operator(uid);
                if error.recovery() == Recovery::GiveUp {
                    // The next checkpoint would fail in the same way.
                    let error = error.clone().in_subtask(self.subtask.index);
                    self.report.signals.send(Signal::Failed { attempt: self.report.attempt, error });
                }
                self.decline(error);
            }
        });
    }

    fn report(&self, message: Message<SubtaskSnapshot>) {
        let (checkpoint, duration) = (self.checkpoint, self.clock.now().since(self.forked_at));
        self.report.signals.send(Signal::Written { checkpoint, duration });
        self.report.send(message);
    }

    fn decline(&self, error: Error) {
        let reason = error.in_subtask(self.subtask.index).to_string();
        say!(self.place, checkpoint = %self.checkpoint, "snapshot declined: {reason}");
        self.report(Message::Decline { checkpoint: self.checkpoint, reason });
    }

    /// `None` if the checkpoint is not under way any more. `awaited` gets what the snapshot still lacks, by operator.
    fn write(
        &self,
        forks: Vec<OperatorFork>,
        awaited: &mut Vec<Awaited>,
    ) -> Result<Option<SubtaskSnapshot>, Error> {
        // Without keyed state there is no file: lists are few bytes and stand in the metadata.
        let mut writer = None;
        let mut operators = Vec::with_capacity(forks.len());
        let mut bytes = 0;
        for mut fork in forks {
            awaited.extend(fork.later.take().map(|transactions| (operators.len(), transactions)));
            if !self.under_way.contains(self.checkpoint) {
                return Ok(None);
            }
            let uid = fork.uid.clone();
            let operator = in_operator(&uid, || self.write_operator(fork, &mut writer, &mut bytes));
            operators.push(operator.map_err(|error| in_snapshot(&uid, error))?);
        }
        let (subtask, parallelism) = (self.subtask, self.parallelism);
        let mut snapshot = SubtaskSnapshot { subtask, parallelism, operators, files: Vec::new(), bytes };
        if let Some(writer) = writer {
            let placed = writer.finish().and_then(|written| snapshot.place(written));
            placed
                .map_err(|error| Error::caused_by(ErrorKind::Snapshot, Recovery::Restart, &error.into()))?;
        }
        Ok(Some(snapshot))
    }

    fn write_operator(
        &self,
        fork: OperatorFork,
        writer: &mut Option<Box<dyn StateWriter>>,
        bytes: &mut u64,
    ) -> Result<OperatorSnapshot, SnapshotError> {
        let mut keyed = Vec::with_capacity(fork.keyed.len());
        for frozen in fork.keyed {
            let writer = match writer {
                Some(writer) => writer,
                None => writer.insert(self.storage.begin(self.checkpoint, self.subtask)?),
            };
            let state = write_state(frozen, writer.as_mut(), self.compression)?;
            *bytes += state.bytes();
            keyed.push(state);
        }
        let list = fork.list.into_iter().map(|(name, items)| ListStateSnapshot { name, items }).collect();
        Ok(OperatorSnapshot { uid: fork.uid, keyed, list, ended: fork.ended })
    }
}

fn in_snapshot(uid: &OperatorUid, error: SnapshotError) -> Error {
    Error::caused_by(ErrorKind::Snapshot, Recovery::Restart, &error.into()).in_operator(uid)
}
