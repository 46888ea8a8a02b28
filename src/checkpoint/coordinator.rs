//! The checkpoint coordinator of one job: `(event, now) -> actions`.
//!
//! ```text
//!            all acknowledged              Stored
//! triggered ------------------> storing ----------> completed
//!     |                            |
//!     | Decline, timeout,          | StoreFailed
//!     | newer one completed,       v
//!     | attempt over ----------> aborted
//! ```
//!
//! Invariants
//! * Ids grow for ever, across attempts too.
//! * A checkpoint is completed only after [`Event::Stored`]. Nobody is told of it earlier.
//! * At most one checkpoint is being stored at a time, and that one is never aborted from outside: its outcome is
//!   awaited, whatever else happens. So it is always definite which completed checkpoint is the newest.
//! * Each checkpoint has one outcome: completed or aborted, never both.
//! * No more than `max_concurrent` are under way, no more than `num_retained` completed ones are kept.
//! * A checkpoint completes after all that are older: whatever is older and still under way is subsumed.
//!
//! Choices
//! * A trigger that finds the limit reached waits. Requests by hand all wait, in order; a periodic one waits as a due
//!   tick, and further ticks fall together with it. Requests by hand go first.
//! * `min_pause` holds back periodic checkpoints only, and counts from the last completion of any checkpoint.
//! * The timeout runs until all acknowledgements are there.
//! * A request by hand whose checkpoint is subsumed is answered with the newer one: that covers everything it asked for.
//! * Failures count towards `tolerable_failures` if a periodic or final checkpoint was declined, timed out or could not
//!   be stored. Any completed checkpoint and a new attempt set the count back.
//! * When an attempt is over, a checkpoint that is being stored may still complete: all of its parts are written. It is
//!   then what the next attempt restores, and its subtasks are told by that restore, not by a notification.
//! * When all subtasks have reported their end of input, one final checkpoint is taken as soon as a place is free, ahead
//!   of everything else; it answers all requests that wait. A failed one is repeated after `interval`, at most one
//!   second later, as long as failures are tolerated. After it no checkpoint begins.
//! * With checkpointing off the job is finished when all subtasks have reported their end of input; requests by hand
//!   that are still open are refused, except the one that is being stored.
//! * An attempt may still fail after [`Action::Finish`], while its subtasks close. The next one ends again in the same way.
//!
//! What the caller owes
//! * It carries out the actions in order and reports [`Event::Stored`] or [`Event::StoreFailed`] once for every
//!   [`Action::Store`], also after the attempt failed and after the shutdown.
//! * It sends [`Event::Timer`] at [`Coordinator::next_deadline`], or later.
//! * It starts the next attempt only when [`Coordinator::storing`] is `None`.

use std::collections::VecDeque;
use std::sync::Arc;

use super::event::{Action, CheckpointCounts, DiscardCause, Event, LastCheckpoint};
use super::execution::{End, Execution};
use super::pending::{Kind, Pending};
use super::protocol::{AbortReason, Message, Report, RequestId};
use crate::base::clock::Nanos;
use crate::base::id::{Attempt, CheckpointId, SubtaskId};
use crate::config::CheckpointConfig;

/// The coordinator of one job; see the module for its rules.
#[derive(Debug)]
pub struct Coordinator<S> {
    settings: CheckpointConfig,
    first_id: CheckpointId,
    next_id: CheckpointId,
    /// The attempt that runs.
    execution: Option<Execution>,
    /// Set once nothing will begin again, unless another attempt follows although the job was finished.
    closed: Option<AbortReason>,
    /// Oldest first.
    pending: VecDeque<Pending<S>>,
    /// Requests by hand that wait for their turn.
    requests: VecDeque<RequestId>,
    /// Oldest first.
    retained: VecDeque<CheckpointId>,
    last_completion: Option<Nanos>,
    failures_in_a_row: u32,
    counts: CheckpointCounts,
}

impl<S> Coordinator<S> {
    /// A coordinator whose first checkpoint has this id.
    ///
    /// `retained` are the completed checkpoints that it takes over, oldest first: they count towards `num_retained` and
    /// are discarded in their turn.
    ///
    /// # Panics
    /// If the settings are not valid, or if a checkpoint taken over is not older than `first_id`.
    pub fn new(
        settings: CheckpointConfig,
        first_id: CheckpointId,
        retained: impl IntoIterator<Item = CheckpointId>,
    ) -> Self {
        assert_eq!(settings.validate(), Ok(()), "settings are validated before");
        let retained: VecDeque<_> = retained.into_iter().collect();
        assert!(retained.iter().is_sorted(), "retained checkpoints come oldest first");
        assert!(retained.back().is_none_or(|newest| *newest < first_id), "ids grow across lives of a job");
        Self {
            settings,
            first_id,
            next_id: first_id,
            execution: None,
            closed: None,
            pending: VecDeque::new(),
            requests: VecDeque::new(),
            retained,
            last_completion: None,
            failures_in_a_row: 0,
            counts: CheckpointCounts::default(),
        }
    }

    /// Takes an event and appends what has to be done.
    ///
    /// # Panics
    /// If an attempt starts without subtasks or while a checkpoint is being stored.
    pub fn handle(&mut self, event: Event<S>, now: Nanos, actions: &mut Vec<Action<S>>) {
        match event {
            Event::Started { attempt, subtasks } => self.start(attempt, &subtasks, now, actions),
            Event::Timer => {}
            Event::TriggerRequested(request) => self.request(request, actions),
            Event::Report(report) => self.report(report, now, actions),
            Event::Stored { checkpoint } => self.complete(checkpoint, now, actions),
            Event::StoreFailed { checkpoint, reason } => {
                if self.storing() == Some(checkpoint) {
                    self.fail(checkpoint, AbortReason::StoreFailed { reason }, now, actions);
                }
            }
            Event::AttemptFailed { attempt } => {
                if self.runs(attempt) {
                    self.end_attempt(&AbortReason::AttemptFailed, actions);
                }
            }
            Event::Shutdown => self.close(AbortReason::ShuttingDown, actions),
        }
        self.advance(now, actions);
    }

    /// When [`Event::Timer`] is needed next, if nothing else happens before.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Nanos> {
        let expiry = self.pending.iter().filter(|p| p.is_collecting()).map(|p| self.expires(p)).min();
        let trigger = self.next_trigger().filter(|_| self.has_place());
        // What overflowed never comes.
        expiry.into_iter().chain(trigger).min().filter(|deadline| *deadline < Nanos::MAX)
    }

    /// The checkpoint that is being made durable. While there is one, it is open which completed one is the newest.
    #[must_use]
    pub fn storing(&self) -> Option<CheckpointId> {
        self.pending.iter().find(|p| p.is_storing()).map(Pending::id)
    }

    /// The newest completed checkpoint, those taken over included: what a new attempt restores.
    #[must_use]
    pub fn newest_completed(&self) -> Option<CheckpointId> {
        self.retained.back().copied()
    }

    /// The completed checkpoints that are kept, oldest first.
    pub fn retained(&self) -> impl Iterator<Item = CheckpointId> + '_ {
        self.retained.iter().copied()
    }

    /// The checkpoints under way, oldest first.
    pub fn in_flight(&self) -> impl Iterator<Item = &Pending<S>> {
        self.pending.iter()
    }

    /// How many checkpoints there were.
    #[must_use]
    pub fn counts(&self) -> CheckpointCounts {
        self.counts
    }

    fn start(
        &mut self,
        attempt: Attempt,
        subtasks: &[(SubtaskId, bool)],
        now: Nanos,
        actions: &mut Vec<Action<S>>,
    ) {
        match self.closed {
            // An operator failed to close after everything was done: the job goes on from its final checkpoint.
            Some(AbortReason::JobFinished) => self.closed = None,
            Some(_) => return,
            None => {}
        }
        self.end_attempt(&AbortReason::AttemptFailed, actions);
        assert!(self.storing().is_none(), "an attempt starts only when the last store is answered");
        self.failures_in_a_row = 0;
        self.execution = Some(Execution::new(attempt, subtasks, self.settings.interval, now));
    }

    fn request(&mut self, request: RequestId, actions: &mut Vec<Action<S>>) {
        if let Some(last) = self.pending.iter_mut().find(|p| p.kind == Kind::Final) {
            last.requests.push(request);
        } else if let Some(reason) = self.refusal() {
            actions.push(Action::Answer { request, result: Err(reason) });
        } else {
            self.requests.push_back(request);
        }
    }

    /// Why no further checkpoint begins.
    fn refusal(&self) -> Option<AbortReason> {
        let end = self.execution.as_ref().map(|execution| &execution.end);
        match end {
            Some(End::WithoutCheckpoint | End::Publishing { .. }) => Some(AbortReason::JobFinished),
            _ => self.closed.clone(),
        }
    }

    fn report(&mut self, report: Report<S>, now: Nanos, actions: &mut Vec<Action<S>>) {
        let Report { attempt, subtask, message } = report;
        let current = self.runs(attempt);
        match message {
            Message::Acknowledge { checkpoint, snapshot } => {
                if let Some(pending) = self.pending.iter_mut().find(|p| p.id() == checkpoint) {
                    if current {
                        pending.acknowledge(subtask, snapshot);
                    }
                } else {
                    self.discard_late(checkpoint, snapshot, actions);
                }
            }
            Message::Decline { checkpoint, reason } => {
                let known = self.pending.iter().any(|p| p.id() == checkpoint && !p.is_storing());
                if current && known {
                    self.fail(checkpoint, AbortReason::Declined { subtask, reason }, now, actions);
                }
            }
            Message::EndOfInput => {
                let checkpointing = self.settings.interval.is_some();
                if let Some(execution) = self.execution.as_mut().filter(|_| current) {
                    execution.end_of_input(subtask, checkpointing, now);
                }
            }
            Message::Notified { checkpoint } => {
                if let Some(execution) = self.execution.as_mut().filter(|_| current) {
                    execution.notified(subtask, checkpoint);
                }
            }
        }
    }

    /// A part of a checkpoint that is not under way: it was aborted, unless the part is a copy of one that was stored.
    fn discard_late(&self, checkpoint: CheckpointId, snapshot: S, actions: &mut Vec<Action<S>>) {
        let given = self.first_id <= checkpoint && checkpoint < self.next_id;
        if given && !self.retained.contains(&checkpoint) {
            let cause = DiscardCause::Late;
            actions.push(Action::Discard { checkpoint, cause, snapshots: vec![snapshot] });
        }
    }

    fn complete(&mut self, checkpoint: CheckpointId, now: Nanos, actions: &mut Vec<Action<S>>) {
        if self.storing() != Some(checkpoint) {
            return;
        }
        let pending = self.take(checkpoint);
        let duration = now.since(pending.triggered());
        self.counts.completed += 1;
        self.counts.last = Some(LastCheckpoint { id: checkpoint, duration });
        self.last_completion = Some(now);
        self.failures_in_a_row = 0;
        self.retained.push_back(checkpoint);

        if let Some(execution) = &mut self.execution {
            if pending.kind == Kind::Final {
                execution.publish(checkpoint);
            }
            actions.push(Action::NotifyComplete { checkpoint });
        }
        answer_all(pending.requests, &Ok(checkpoint), actions);
        while self.pending.front().is_some_and(|p| p.id() < checkpoint) {
            let older = self.pending.pop_front().expect("there is one");
            self.abort(older, AbortReason::Subsumed { by: checkpoint }, actions);
        }
        while self.retained.len() > self.settings.num_retained as usize {
            let oldest = self.retained.pop_front().expect("there is one");
            let cause = DiscardCause::Retired;
            actions.push(Action::Discard { checkpoint: oldest, cause, snapshots: Vec::new() });
        }
    }

    /// Aborts a checkpoint that failed by itself, and the attempt with it if that was one too many.
    fn fail(
        &mut self,
        checkpoint: CheckpointId,
        reason: AbortReason,
        now: Nanos,
        actions: &mut Vec<Action<S>>,
    ) {
        let pending = self.take(checkpoint);
        let kind = pending.kind;
        self.abort(pending, reason.clone(), actions);
        let Some(execution) = &mut self.execution else { return };
        if kind == Kind::ByHand {
            return;
        }
        if let (Kind::Final, Some(interval)) = (kind, self.settings.interval) {
            execution.repeat_final(interval, now);
        }
        self.failures_in_a_row += 1;
        if self.failures_in_a_row > self.settings.tolerable_failures {
            self.end_attempt(&AbortReason::AttemptFailed, actions);
            actions.push(Action::FailJob { reason });
        }
    }

    /// The part common to all ways in which a checkpoint ends without being completed.
    fn abort(&mut self, pending: Pending<S>, reason: AbortReason, actions: &mut Vec<Action<S>>) {
        let checkpoint = pending.id();
        let result = if let AbortReason::Subsumed { by } = reason {
            self.counts.subsumed += 1;
            Ok(by)
        } else {
            self.counts.failed += 1;
            Err(reason.clone())
        };
        let mut pending = pending;
        answer_all(std::mem::take(&mut pending.requests), &result, actions);
        actions.push(Action::NotifyAborted { checkpoint, reason });
        let (cause, snapshots) = (DiscardCause::Aborted, pending.into_parts());
        actions.push(Action::Discard { checkpoint, cause, snapshots });
    }

    fn end_attempt(&mut self, reason: &AbortReason, actions: &mut Vec<Action<S>>) {
        self.execution = None;
        self.abort_all(reason, actions);
    }

    /// Aborts all but the one that is being stored.
    fn abort_all(&mut self, reason: &AbortReason, actions: &mut Vec<Action<S>>) {
        for pending in std::mem::take(&mut self.pending) {
            if pending.is_storing() {
                self.pending.push_back(pending);
            } else {
                self.abort(pending, reason.clone(), actions);
            }
        }
    }

    fn close(&mut self, reason: AbortReason, actions: &mut Vec<Action<S>>) {
        self.end_attempt(&reason, actions);
        answer_all(self.requests.drain(..), &Err(reason.clone()), actions);
        self.closed.get_or_insert(reason);
    }

    /// Does what the new state and time allow: expire, store, finish, trigger.
    fn advance(&mut self, now: Nanos, actions: &mut Vec<Action<S>>) {
        while let Some((id, missing)) = (self.pending.iter())
            .find(|p| p.is_collecting() && self.expires(p) <= now)
            .map(|p| (p.id(), p.missing()))
        {
            self.fail(id, AbortReason::TimedOut { missing }, now, actions);
        }
        if self.storing().is_none()
            && let Some(ready) = self.pending.iter_mut().find(|p| p.is_ready_to_store())
        {
            let checkpoint = ready.id();
            actions.push(Action::Store { checkpoint, snapshots: ready.start_storing() });
        }
        self.finish_if_done(actions);
        while self.has_place() && self.next_trigger().is_some_and(|due| due <= now) {
            self.trigger(now, actions);
        }
    }

    fn finish_if_done(&mut self, actions: &mut Vec<Action<S>>) {
        match self.execution.as_ref().map(|execution| &execution.end) {
            Some(End::WithoutCheckpoint) => {
                self.abort_all(&AbortReason::JobFinished, actions);
                answer_all(self.requests.drain(..), &Err(AbortReason::JobFinished), actions);
                if !self.pending.is_empty() {
                    return;
                }
            }
            Some(End::Publishing { waiting, .. }) if waiting.is_empty() => {}
            _ => return,
        }
        self.close(AbortReason::JobFinished, actions);
        actions.push(Action::Finish);
    }

    /// When a checkpoint may begin, if there is a place for it.
    fn next_trigger(&self) -> Option<Nanos> {
        let execution = self.execution.as_ref()?;
        match execution.end {
            End::NotYet if !self.requests.is_empty() => Some(Nanos(0)),
            End::NotYet => {
                let pause_over = self.last_completion.map(|last| last.after(self.settings.min_pause));
                execution.next_tick.max(pause_over.filter(|_| execution.next_tick.is_some()))
            }
            End::FinalCheckpoint { not_before } => {
                (!self.pending.iter().any(|p| p.kind == Kind::Final)).then_some(not_before)
            }
            End::WithoutCheckpoint | End::Publishing { .. } => None,
        }
    }

    fn trigger(&mut self, now: Nanos, actions: &mut Vec<Action<S>>) {
        let execution = self.execution.as_mut().expect("an attempt runs");
        let (kind, requests) = match execution.end {
            End::FinalCheckpoint { .. } => (Kind::Final, self.requests.drain(..).collect()),
            _ => match self.requests.pop_front() {
                Some(request) => (Kind::ByHand, vec![request]),
                None => (Kind::Periodic, Vec::new()),
            },
        };
        if let (Kind::Periodic, Some(interval)) = (kind, self.settings.interval) {
            execution.use_tick(interval, now);
        }
        let checkpoint = self.next_id;
        self.next_id = checkpoint.next();
        self.counts.triggered += 1;
        self.pending.push_back(Pending::new(checkpoint, kind, now, requests, &execution.subtasks));
        actions.push(Action::Trigger { checkpoint, sources: Arc::clone(&execution.sources) });
    }

    fn has_place(&self) -> bool {
        self.pending.len() < self.settings.max_concurrent as usize
    }

    fn runs(&self, attempt: Attempt) -> bool {
        self.execution.as_ref().is_some_and(|execution| execution.attempt == attempt)
    }

    fn expires(&self, pending: &Pending<S>) -> Nanos {
        pending.triggered().after(self.settings.timeout)
    }

    fn take(&mut self, checkpoint: CheckpointId) -> Pending<S> {
        let at = self.pending.iter().position(|p| p.id() == checkpoint).expect("the checkpoint is under way");
        self.pending.remove(at).expect("the position is valid")
    }
}

fn answer_all<S>(
    requests: impl IntoIterator<Item = RequestId>,
    result: &Result<CheckpointId, AbortReason>,
    actions: &mut Vec<Action<S>>,
) {
    actions.extend(requests.into_iter().map(|request| Action::Answer { request, result: result.clone() }));
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
