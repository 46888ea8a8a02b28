//! From what a job goes on.

use std::collections::HashSet;
use std::sync::Arc;

use crate::base::error::{Error, ErrorKind, Recovery};
use crate::base::id::{JobId, OperatorUid};
use crate::operator::recovery::TRANSACTIONS;
use crate::snapshot::{
    CheckpointStorage, CompletedCheckpoint, OperatorSnapshot, SnapshotError, StateFiles, StoreLock,
};

/// The identity of a job in this process, where it keeps its checkpoints, and from what it goes on.
#[derive(Debug)]
pub struct JobOrigin {
    /// Identity of the job.
    pub job_id: JobId,
    /// Where its checkpoints are kept. If a completed one is there, the job goes on from the newest.
    pub storage: Arc<dyn CheckpointStorage>,
    /// The snapshot of another job from which it goes on as long as it has none of its own.
    pub snapshot: Option<Restorable>,
    /// True if an earlier process began the job.
    pub resumes: bool,
    /// True if an earlier process finished the job: nothing is read any more.
    pub is_finished: bool,
    /// True if output that was published after the snapshot may be repeated.
    pub allows_repeated_output: bool,
    /// This process, for whoever finds its locks.
    pub owner: String,
    /// Held until the run can be found by others.
    pub name_lock: Option<Box<dyn StoreLock>>,
}

/// A snapshot from which a job can go on.
#[derive(Debug, Clone)]
pub struct Restorable {
    /// What it consists of.
    pub checkpoint: CompletedCheckpoint,
    /// Where its files are.
    pub files: Arc<dyn StateFiles>,
    /// Where it is, for people.
    pub path: String,
}

impl JobOrigin {
    /// A job that keeps its checkpoints in this storage, and goes on from the newest if there is one.
    #[must_use]
    pub fn in_storage(job_id: JobId, storage: Arc<dyn CheckpointStorage>) -> Self {
        Self {
            job_id,
            resumes: matches!(storage.highest_id(), Ok(Some(_))),
            storage,
            snapshot: None,
            is_finished: false,
            allows_repeated_output: false,
            owner: format!("job {job_id}"),
            name_lock: None,
        }
    }

    /// The newest snapshot from which the job can go on now.
    ///
    /// # Errors
    /// If the storage cannot be read, or its newest checkpoint is damaged: never an older one instead.
    pub fn newest(&self) -> Result<Option<Restorable>, SnapshotError> {
        let own = self.storage.newest()?.map(|checkpoint| Restorable {
            path: self.storage.path(checkpoint.id),
            files: Arc::clone(&self.storage) as Arc<dyn StateFiles>,
            checkpoint,
        });
        Ok(own.or_else(|| self.snapshot.clone()))
    }
}

impl Restorable {
    /// The transactions that the sink of this operator had not published when the checkpoint was taken.
    pub fn transactions(&self, uid: &OperatorUid) -> Vec<Vec<u8>> {
        let operators = self.operators().filter(|operator| operator.uid == *uid);
        operators.flat_map(transactions_of).cloned().collect()
    }

    /// Refuses the snapshot if it holds state that none of these operators, or transactions that none of these sinks, takes over.
    ///
    /// # Errors
    /// Names the first operator that is missing.
    pub fn check_claimed(
        &self,
        operators: &HashSet<&OperatorUid>,
        sinks: &HashSet<&OperatorUid>,
    ) -> Result<(), Error> {
        let refuse = |operator: &OperatorSnapshot, what: &str| {
            let message = format!(
                "{}: holds {what} of the operator {}, which the job does not have under this uid; start the job that wrote it",
                self.path, operator.uid
            );
            Err(Error::new(ErrorKind::Snapshot, Recovery::RejectJob, message))
        };
        for operator in self.operators() {
            let has_lists = operator.list.iter().any(|list| !list.items.is_empty());
            if (has_lists || !operator.keyed.is_empty()) && !operators.contains(&operator.uid) {
                return refuse(operator, "state");
            }
            if transactions_of(operator).next().is_some() && !sinks.contains(&operator.uid) {
                return refuse(operator, "unpublished output");
            }
        }
        Ok(())
    }

    fn operators(&self) -> impl Iterator<Item = &OperatorSnapshot> {
        self.checkpoint.subtasks.iter().flat_map(|subtask| &subtask.operators)
    }
}

fn transactions_of(operator: &OperatorSnapshot) -> impl Iterator<Item = &Vec<u8>> {
    operator.list.iter().filter(|list| list.name == TRANSACTIONS).flat_map(|list| &list.items)
}
