//! From the decision to run to the first record: restore, open, settle the sinks, start.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Execution, Supervisor, SupervisorEvent, snapshot_error};
use crate::base::clock::Nanos;
use crate::base::error::{Error, ErrorKind, Recovery};
use crate::base::id::{Attempt, SubtaskId};
use crate::checkpoint::Event;
use crate::config::SnapshotCompression;
use crate::job::executor::Executor;
use crate::job::lifecycle::JobEvent;
use crate::job::origin::Restorable;
use crate::operator::SinkClaim;
use crate::runtime::deploy::deploy;
use crate::runtime::mailbox::SubtaskCommand;
use crate::runtime::signal::SignalSink;
use crate::runtime::subtask::SubtaskEnvironment;
use crate::snapshot::Compression;

impl<E: Executor> Supervisor<E> {
    /// Takes what the job needs for itself and deploys the first execution.
    pub(super) fn begin(&mut self, now: Nanos) {
        let begun = self.claim().and_then(|()| {
            // A finished run is only tidied up.
            let opened = if self.origin.is_finished { Ok(()) } else { self.origin.storage.open() };
            opened.map_err(snapshot_error)
        });
        drop(self.origin.name_lock.take());
        match begun {
            Ok(()) if self.origin.is_finished => self.end(JobEvent::Finished, now),
            Ok(()) => self.deploy(now),
            // Not to be restarted, whatever it is: that would go on without what could not be claimed.
            Err(error) => self.fail(error.with_recovery(Recovery::RejectJob), now),
        }
    }

    /// Checks that the snapshot fits the job, and takes the places where output goes.
    fn claim(&mut self) -> Result<(), Error> {
        let newest =
            if self.origin.is_finished { None } else { self.origin.newest().map_err(snapshot_error)? };
        if let Some(snapshot) = &newest {
            self.adopt_max_parallelism(snapshot)?;
            let operators = self.uids.iter().flatten().collect();
            snapshot.check_claimed(&operators, &self.sinks.uids().iter().collect())?;
        } else {
            self.check_parallelism("the job has")?;
        }
        self.sinks.claim(&SinkClaim {
            restored: newest.map(|snapshot| snapshot.checkpoint.id),
            resumes: self.origin.resumes,
            is_finished: self.origin.is_finished,
            allows_repeated_output: self.origin.allows_repeated_output,
            owner: self.origin.owner.clone(),
        })
    }

    /// The number of key groups is that of the snapshot for ever.
    fn adopt_max_parallelism(&mut self, snapshot: &Restorable) -> Result<(), Error> {
        let stored = snapshot.checkpoint.max_parallelism;
        let reject = |message| Err(Error::new(ErrorKind::Plan, Recovery::RejectJob, message));
        if let Some(given) = self.config.max_parallelism.filter(|given| *given != stored) {
            return reject(format!(
                "{}: max parallelism is {stored} in the snapshot and {given} in the job; a job keeps the one that it began with: \
                 leave pipeline.max-parallelism out or set it to {stored}",
                snapshot.path
            ));
        }
        self.plan.max_parallelism = stored;
        self.check_parallelism(&format!("{}: the job began with", snapshot.path))
    }

    /// Not all of it could be checked before it was known from what the job goes on.
    fn check_parallelism(&self, whose: &str) -> Result<(), Error> {
        let max_parallelism = self.plan.max_parallelism;
        match self.plan.vertices.iter().find(|vertex| vertex.parallelism > max_parallelism) {
            None => Ok(()),
            Some(vertex) => {
                let message = format!(
                    "{whose} max parallelism {max_parallelism}, but the operator {} has parallelism {}",
                    self.uids[vertex.id.index()][0],
                    vertex.parallelism
                );
                Err(Error::new(ErrorKind::Plan, Recovery::RejectJob, message))
            }
        }
    }

    pub(super) fn deploy(&mut self, now: Nanos) {
        if let Err(error) = self.try_deploy(now) {
            self.fail(error, now);
        }
    }

    fn try_deploy(&mut self, now: Nanos) -> Result<(), Error> {
        let restored = self.origin.newest().map_err(snapshot_error)?;
        let wakers = self.executor.prepare();
        let env = SubtaskEnvironment {
            job: self.job_id(),
            attempt: self.attempt,
            clock: Arc::clone(&self.clock),
            signals: Arc::new(self.events.clone()) as Arc<dyn SignalSink>,
            pool: self.executor.pool(),
            storage: Arc::clone(&self.origin.storage),
            compression: match self.config.checkpoints.compression {
                SnapshotCompression::None => Compression::None,
                SnapshotCompression::Zstd => Compression::default(),
                SnapshotCompression::Lz4 => Compression::Lz4,
            },
            under_way: Arc::clone(&self.under_way),
            async_snapshots: self.config.async_snapshots,
            checkpointing: self.config.checkpoints.interval.is_some(),
        };
        let from = restored.as_ref().map(|snapshot| (&snapshot.checkpoint, &snapshot.files));
        let deployment = deploy(&mut self.plan, &self.uids, &wakers, &self.config, from, &env)?;
        if let Some(snapshot) = &restored {
            tracing::info!(
                target: "stoplog::job",
                job = %self.job_id(), attempt = %self.attempt, checkpoint = %snapshot.checkpoint.id, path = snapshot.path,
                "goes on from a snapshot"
            );
        }
        self.restored_from = restored.as_ref().map(|snapshot| snapshot.path.clone());
        self.status.set_counters(deployment.counters);
        self.execution = Some(Execution {
            mailboxes: deployment.mailboxes,
            subtasks: deployment.subtasks,
            launched_at: now,
            restored,
            opened: BTreeSet::new(),
            finished: BTreeSet::new(),
            accumulators: BTreeMap::new(),
        });
        self.executor.launch(deployment.workers).map_err(|error| {
            Error::new(ErrorKind::Resource, Recovery::Restart, format!("cannot start the workers: {error}"))
        })
    }

    pub(super) fn opened(&mut self, subtask: SubtaskId, now: Nanos) {
        let Some(execution) = self.execution.as_mut() else { return };
        execution.opened.insert(subtask);
        if execution.opened.len() < execution.subtasks.len() {
            return;
        }
        let restored = execution.restored.take();
        if self.sinks.is_empty() {
            self.start_records(now);
            return;
        }
        self.settling = true;
        let transactions = self.sinks.transactions(restored.as_ref());
        let (sinks, events, attempt) = (self.sinks.clone(), self.events.clone(), self.attempt);
        self.executor.pool().spawn_ahead(Box::new(move || {
            let _ = events.send(SupervisorEvent::Settled(attempt, sinks.settle(&transactions)));
        }));
    }

    pub(super) fn settled(&mut self, attempt: Attempt, result: Result<(), Error>, now: Nanos) {
        self.settling = false;
        match result {
            Ok(()) if self.runs(attempt) => self.start_records(now),
            Err(error) if self.runs(attempt) => self.fail(error, now),
            Ok(()) => {}
            Err(error) => {
                tracing::warn!(target: "stoplog::job", job = %self.job_id(), %attempt, "{error}");
            }
        }
    }

    /// Everything is restored and in line: records may flow.
    fn start_records(&mut self, now: Nanos) {
        let Some(execution) = self.execution.as_mut() else { return };
        execution.mailboxes.broadcast(SubtaskCommand::Start);
        self.restore = now.since(execution.launched_at);
        self.started_at.get_or_insert(now);
        let started = Event::Started { attempt: self.attempt, subtasks: execution.subtasks.clone() };
        self.transition(JobEvent::Deployed);
        self.coordinate(started, now);
    }

    /// A snapshot that cannot be read, found before any record flowed, is a mistake in what was asked for.
    pub(super) fn rejected_if_not_begun(&self, error: Error) -> Error {
        if error.kind() == ErrorKind::Snapshot && self.started_at.is_none() {
            error.with_recovery(Recovery::RejectJob)
        } else {
            error
        }
    }
}
