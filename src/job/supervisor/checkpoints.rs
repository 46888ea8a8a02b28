//! Feeds the checkpoint coordinator and carries out what it wants.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use super::{Supervisor, SupervisorEvent};
use crate::base::clock::Nanos;
use crate::base::error::{Error, ErrorKind, Recovery};
use crate::base::id::{CheckpointId, SubtaskId};
use crate::checkpoint::protocol::Command;
use crate::checkpoint::{Action, Event};
use crate::job::executor::Executor;
use crate::runtime::mailbox::SubtaskCommand;
use crate::snapshot::{CompletedCheckpoint, SubtaskSnapshot};

impl<E: Executor> Supervisor<E> {
    pub(super) fn coordinate(&mut self, event: Event<SubtaskSnapshot>, now: Nanos) {
        let mut actions = Vec::new();
        let last = self.coordinator.counts().last;
        self.coordinator.handle(event, now, &mut actions);
        // Not where subtasks are told: a checkpoint may complete after its execution has ended.
        if let Some(completed) = self.coordinator.counts().last.filter(|completed| Some(*completed) != last) {
            let summary = self.measured.completed(completed);
            self.under_way.end(completed.id);
            tracing::debug!(
                target: "stoplog::checkpoint::coordinator",
                job = %self.job_id(), checkpoint = %summary.id, duration_ms = summary.duration.as_millis() as u64, bytes = summary.bytes, "completed"
            );
        }
        for action in actions {
            self.carry_out(action, now);
        }
        let in_flight = self.coordinator.in_flight().next().map(|pending| pending.id());
        let measured = &self.measured;
        self.status.set_checkpoints(
            self.coordinator.counts(),
            in_flight,
            measured.last,
            measured.worst_alignment,
        );
    }

    fn carry_out(&mut self, action: Action<SubtaskSnapshot>, now: Nanos) {
        match action {
            Action::Trigger { checkpoint, sources } => {
                self.under_way.begin(checkpoint);
                tracing::debug!(
                    target: "stoplog::checkpoint::coordinator",
                    job = %self.job_id(), %checkpoint, sources = sources.len(), "triggered"
                );
                for source in sources.iter() {
                    self.send(*source, SubtaskCommand::Checkpoint(Command::Trigger(checkpoint)));
                }
            }
            Action::Store { checkpoint, snapshots } => self.store(checkpoint, snapshots),
            Action::NotifyComplete { checkpoint } => {
                self.broadcast(SubtaskCommand::Checkpoint(Command::Complete(checkpoint)));
            }
            Action::NotifyAborted { checkpoint, reason } => {
                tracing::warn!(
                    target: "stoplog::checkpoint::coordinator",
                    job = %self.job_id(), %checkpoint, "checkpoint aborted: {reason}"
                );
                self.measured.aborted(checkpoint);
                self.under_way.end(checkpoint);
                self.broadcast(SubtaskCommand::Checkpoint(Command::Abort(checkpoint)));
            }
            Action::Discard { checkpoint, .. } => {
                let (storage, job) = (Arc::clone(&self.origin.storage), self.job_id());
                let events = self.events.clone();
                self.discarding += 1;
                self.executor.pool().spawn_ahead(Box::new(move || {
                    let discarded = catch_unwind(AssertUnwindSafe(|| storage.discard(checkpoint)));
                    let _ = events.send(SupervisorEvent::Discarded(checkpoint));
                    if let Err(error) = discarded.unwrap_or_else(|payload| resume_unwind(payload)) {
                        tracing::warn!(target: "stoplog::checkpoint::coordinator", %job, %checkpoint, "cannot be removed: {error}");
                    }
                }));
            }
            Action::Answer { request, result } => {
                if let Some(answer) = self.requests.remove(&request) {
                    let _ = answer.send(result);
                }
            }
            Action::FailJob { reason } => {
                let message = format!("too many checkpoints failed in a row, the last one because {reason}");
                self.fail(Error::new(ErrorKind::Checkpoint, Recovery::Restart, message), now);
            }
            Action::Finish => self.broadcast(SubtaskCommand::Finish),
        }
    }

    fn store(&mut self, id: CheckpointId, snapshots: Vec<(SubtaskId, SubtaskSnapshot)>) {
        let subtasks: Vec<_> = snapshots.into_iter().map(|(_, snapshot)| snapshot).collect();
        self.measured.stored(id, subtasks.iter().map(|subtask| subtask.bytes).sum());
        let now_ms = self.clock.epoch_millis();
        let pending = self.coordinator.in_flight().find(|pending| pending.id() == id);
        let age = pending.map_or(Duration::ZERO, |pending| self.clock.now().since(pending.triggered()));
        let checkpoint = CompletedCheckpoint {
            id,
            job: self.job_id(),
            max_parallelism: self.plan.max_parallelism,
            triggered_at_ms: now_ms.saturating_sub(u64::try_from(age.as_millis()).unwrap_or(u64::MAX)),
            completed_at_ms: now_ms,
            subtasks,
        };
        let (storage, events) = (Arc::clone(&self.origin.storage), self.events.clone());
        self.executor.pool().spawn_ahead(Box::new(move || {
            let stored = match catch_unwind(AssertUnwindSafe(|| storage.commit(&checkpoint))) {
                Ok(Ok(())) => SupervisorEvent::Stored(checkpoint.id),
                Ok(Err(error)) => SupervisorEvent::StoreFailed(checkpoint.id, error.to_string()),
                Err(_) => SupervisorEvent::StoreFailed(checkpoint.id, "the storage panicked".to_owned()),
            };
            let _ = events.send(stored);
        }));
    }
}
