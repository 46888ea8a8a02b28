//! The contracts between the engine and what it runs: call order, what may block, what a refusal means.
//!
//! Everything here runs on a pinned core that serves other subtasks too. A call must not block and should take
//! microseconds; a call that waits for a file, a socket or a lock stops every subtask of that core. Blocking work goes to
//! a helper thread, see [`OpenContext::spawn_helper`](super::context::OpenContext::spawn_helper).

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::context::{CloseContext, OpenContext, SnapshotContext};
use super::recovery::{PreCommitContext, SinkRecovery};
use crate::base::clock::Nanos;
use crate::base::error::{BoxError, Error};
use crate::base::id::CheckpointId;
use crate::base::progress::Flow;
use crate::element::Watermark;

/// Where records go. It always takes the record; an answer other than [`Flow::Continue`] asks the caller to stop soon.
pub trait Output<T> {
    /// Hands on one record.
    fn collect(&mut self, record: T) -> Flow;
}

/// The part of an operator that does not depend on the type of its input.
///
/// Order of calls: `open`, then any of the others, then `close` if and only if the job ends in an orderly way. Between a
/// call that did not answer [`Flow::Continue`] and the `resume` that did, only `resume`, `flush` and the two
/// notifications are called, and `snapshot` right after the `barrier` that blocked.
pub trait OperatorLifecycle: Send + 'static {
    /// Called once, on the core where the operator will run, before anything else.
    ///
    /// # Errors
    /// If the operator cannot start; the job then fails.
    fn open(&mut self, cx: &mut OpenContext<'_>) -> Result<(), Error>;

    /// Goes on with output that was refused before. `Continue` when nothing is held back any more.
    fn resume(&mut self) -> Flow;

    /// Event time has advanced.
    fn watermark(&mut self, watermark: Watermark) -> Flow;

    /// The input has gone idle, or is active again.
    fn idle(&mut self, idle: bool);

    /// No record will follow. Called again (after `resume`) until it answers `Continue`.
    fn end_input(&mut self) -> Flow;

    /// Sends the barrier of a checkpoint to the outputs.
    fn barrier(&mut self, checkpoint: CheckpointId);

    /// Sends word to the outputs that a checkpoint was abandoned.
    fn cancel_barrier(&mut self, checkpoint: CheckpointId);

    /// Forks the operator's state; takes microseconds whatever its size.
    fn snapshot(&mut self, cx: &mut SnapshotContext);

    /// The input has run dry: nothing may be held back for the sake of a fuller batch.
    fn flush(&mut self);

    /// The checkpoint is complete and durable.
    ///
    /// # Errors
    /// If a side effect that waited for it failed; the job then fails.
    fn notify_complete(&mut self, checkpoint: CheckpointId) -> Result<(), Error>;

    /// The checkpoint was abandoned.
    ///
    /// # Errors
    /// If the operator cannot go on; the job then fails.
    fn notify_aborted(&mut self, checkpoint: CheckpointId) -> Result<(), Error>;

    /// The job is finished.
    ///
    /// # Errors
    /// If something that was promised cannot be done; the job then fails.
    fn close(&mut self, cx: &mut CloseContext) -> Result<(), Error>;

    /// `Continue` once all that `notify_complete` and `close` have begun is done. Records go on meanwhile.
    ///
    /// # Errors
    /// If it failed; the job then fails.
    fn published(&mut self) -> Result<Flow, Error>;
}

/// An operator that takes records of type `T`.
pub trait Operator<T>: OperatorLifecycle {
    /// Shows the records that `process` will be handed next, so that memory can be fetched ahead.
    #[inline]
    fn prepare(&mut self, _run: &[T]) {}

    /// Takes one record. On `Blocked` the caller stops; the record is not lost.
    fn process(&mut self, record: T) -> Flow;
}

/// An operator with another one behind it in the same chain: it says what it adds, the rest is passed on.
pub trait ChainedOperator: Send + 'static {
    /// The operator behind.
    type Next: OperatorLifecycle;

    /// The operator behind.
    fn next(&mut self) -> &mut Self::Next;

    /// See [`OperatorLifecycle::open`].
    ///
    /// # Errors
    /// If the operator cannot start.
    fn open_self(&mut self, _cx: &mut OpenContext<'_>) -> Result<(), Error> {
        Ok(())
    }

    /// Hands on what this operator itself holds back; the one behind is not blocked.
    fn resume_self(&mut self) -> Flow {
        Flow::Continue
    }

    /// Hands on what is due at the end of the input. Called again until it answers `Continue`.
    fn end_self(&mut self) -> Flow {
        Flow::Continue
    }

    /// Forks this operator's own state.
    fn snapshot_self(&mut self, _cx: &mut SnapshotContext) {}

    /// See [`OperatorLifecycle::notify_complete`].
    ///
    /// # Errors
    /// If a side effect failed.
    fn notify_complete_self(&mut self, _checkpoint: CheckpointId) -> Result<(), Error> {
        Ok(())
    }

    /// See [`OperatorLifecycle::notify_aborted`].
    ///
    /// # Errors
    /// If the operator cannot go on.
    fn notify_aborted_self(&mut self, _checkpoint: CheckpointId) -> Result<(), Error> {
        Ok(())
    }

    /// See [`OperatorLifecycle::close`].
    ///
    /// # Errors
    /// If something that was promised cannot be done.
    fn close_self(&mut self, _cx: &mut CloseContext) -> Result<(), Error> {
        Ok(())
    }
}

impl<C: ChainedOperator> OperatorLifecycle for C {
    fn open(&mut self, cx: &mut OpenContext<'_>) -> Result<(), Error> {
        self.open_self(cx)?;
        self.next().open(cx)
    }

    #[inline]
    fn resume(&mut self) -> Flow {
        let flow = self.next().resume();
        if flow.is_blocked() {
            return flow;
        }
        self.resume_self()
    }

    fn watermark(&mut self, watermark: Watermark) -> Flow {
        self.next().watermark(watermark)
    }

    fn idle(&mut self, idle: bool) {
        self.next().idle(idle);
    }

    fn end_input(&mut self) -> Flow {
        let flow = self.end_self();
        if flow.is_blocked() {
            return flow;
        }
        self.next().end_input()
    }

    fn barrier(&mut self, checkpoint: CheckpointId) {
        self.next().barrier(checkpoint);
    }

    fn cancel_barrier(&mut self, checkpoint: CheckpointId) {
        self.next().cancel_barrier(checkpoint);
    }

    fn snapshot(&mut self, cx: &mut SnapshotContext) {
        self.snapshot_self(cx);
        self.next().snapshot(cx);
    }

    #[inline]
    fn flush(&mut self) {
        self.next().flush();
    }

    fn notify_complete(&mut self, checkpoint: CheckpointId) -> Result<(), Error> {
        self.notify_complete_self(checkpoint)?;
        self.next().notify_complete(checkpoint)
    }

    fn notify_aborted(&mut self, checkpoint: CheckpointId) -> Result<(), Error> {
        self.notify_aborted_self(checkpoint)?;
        self.next().notify_aborted(checkpoint)
    }

    fn close(&mut self, cx: &mut CloseContext) -> Result<(), Error> {
        self.close_self(cx)?;
        self.next().close(cx)
    }

    fn published(&mut self) -> Result<Flow, Error> {
        self.next().published()
    }
}

/// What a source answers after one call of [`Source::poll`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceStatus {
    /// More can be had at once (also the answer when the output blocked).
    Ready,
    /// Nothing now: ask again when woken, or at this time ([`Nanos::MAX`]: only when woken).
    Idle(Nanos),
    /// Nothing will come any more.
    Ended,
}

/// Reads records, and knows at every moment from where it would have to go on.
///
/// The prototype given to the builder is cloned once per subtask and attempt.
///
/// Its input is divided into *splits*, each with its own position. Splits are made once, at the first start of a job, and
/// then travel in the snapshots: subtasks come and go, splits stay.
pub trait Source: Clone + Send + 'static {
    /// What is read.
    type Out: Send + 'static;
    /// One part of the input together with the position in it.
    type Split: Clone + Send + Serialize + DeserializeOwned + 'static;

    /// Divides the input, for an execution that starts from nothing: the first one, and each restart until a checkpoint is
    /// complete. Called once, before the subtasks are made; split `i` goes to subtask `i % parallelism`.
    ///
    /// # Errors
    /// If the input cannot be found or listed.
    fn create_splits(&mut self, parallelism: u32) -> Result<Vec<Self::Split>, BoxError>;

    /// Called once per subtask with the splits that it has to read, new or restored.
    ///
    /// # Errors
    /// If a split cannot be opened.
    fn open(&mut self, splits: Vec<Self::Split>, cx: &mut OpenContext<'_>) -> Result<(), BoxError>;

    /// Hands on up to `max` records, never waits, and stops soon after the output did not answer [`Flow::Continue`]. Not called
    /// again after it has answered [`SourceStatus::Ended`].
    ///
    /// # Errors
    /// If reading failed; the job then fails and may be restarted.
    fn poll(&mut self, output: &mut impl Output<Self::Out>, max: usize) -> Result<SourceStatus, BoxError>;

    /// The splits with their positions as of the record handed on last.
    fn snapshot(&self) -> Vec<Self::Split>;

    /// False for a source that cannot be put back (a socket): records on their way are lost when the job fails.
    fn is_replayable(&self) -> bool {
        true
    }
}

/// Writes records to somewhere outside the job.
///
/// The prototype given to the builder is cloned once per subtask and attempt. A sink that lets nothing be seen before
/// [`Sink::notify_complete`] is exactly-once; one that writes at once repeats records after a restart. The easy way to the former is
/// [`TwoPhaseCommitSink`](super::two_phase::TwoPhaseCommitSink).
pub trait Sink<T>: Clone + Send + 'static {
    /// Called once per subtask.
    ///
    /// # Errors
    /// If the sink cannot start.
    fn open(&mut self, _cx: &mut OpenContext<'_>) -> Result<(), BoxError> {
        Ok(())
    }

    /// Takes one record. `Blocked` asks for no more until `resume` answers `Continue`.
    ///
    /// # Errors
    /// If writing failed; the job then fails.
    fn write(&mut self, record: T) -> Result<Flow, BoxError>;

    /// Goes on with what is held back.
    ///
    /// # Errors
    /// If writing failed.
    fn resume(&mut self) -> Result<Flow, BoxError> {
        Ok(Flow::Continue)
    }

    /// The input has run dry: hand on what is buffered.
    ///
    /// # Errors
    /// If writing failed.
    fn flush(&mut self) -> Result<(), BoxError> {
        Ok(())
    }

    /// No record will follow. Called again until it answers `Continue`, which says that all is written.
    ///
    /// # Errors
    /// If writing failed.
    fn end_input(&mut self) -> Result<Flow, BoxError> {
        Ok(Flow::Continue)
    }

    /// All records so far belong to this checkpoint, all later ones do not.
    ///
    /// # Errors
    /// If what was written cannot be promised to the checkpoint.
    fn pre_commit(&mut self, _cx: &mut PreCommitContext) -> Result<(), BoxError> {
        Ok(())
    }

    /// The checkpoint is durable: what was pre-committed up to it may be seen. May come for a checkpoint more than once.
    ///
    /// # Errors
    /// If the commit failed.
    fn notify_complete(&mut self, _checkpoint: CheckpointId) -> Result<(), BoxError> {
        Ok(())
    }

    /// The checkpoint was abandoned: its records now belong to the next one.
    ///
    /// # Errors
    /// If the sink cannot go on.
    fn notify_aborted(&mut self, _checkpoint: CheckpointId) -> Result<(), BoxError> {
        Ok(())
    }

    /// The job is finished; with checkpoints off this is when a transactional sink commits.
    ///
    /// # Errors
    /// If something cannot be written.
    fn close(&mut self) -> Result<(), BoxError> {
        Ok(())
    }

    /// `Continue` once all that `notify_complete` and `close` have begun is done; asked again when the subtask is woken. Records go
    /// on meanwhile.
    ///
    /// # Errors
    /// If it failed; the job then fails.
    fn published(&mut self) -> Result<Flow, BoxError> {
        Ok(Flow::Continue)
    }

    /// What the job has to do for a transactional sink while none of its subtasks runs. Called once, on the prototype.
    fn recovery(&self) -> Option<Box<dyn SinkRecovery>> {
        None
    }
}
