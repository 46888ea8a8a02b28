//! Two-phase commit: output that is seen exactly once, whatever fails.

use std::fmt::Debug;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::recovery::SinkClaim;
use crate::base::error::BoxError;
use crate::base::id::{CheckpointId, SubtaskIndex};

/// A sink whose output is gathered in transactions and seen only when the checkpoint that covers it is complete.
///
/// The engine runs it, wrapped in [`TwoPhase`](crate::connectors::TwoPhase). Per subtask:
///
/// ```text
///                 records          barrier of checkpoint N           checkpoint N is durable
/// begin ──> write, write, … ──> pre_commit(N), part of snapshot N ──> commit
///   └──────────────┴── the execution ends before the barrier ──> abort
/// ```
///
/// A transaction that was pre-committed outlives its execution and its process: it stands in the snapshot, and if the commit was not
/// heard of, [`recover_and_commit`](Self::recover_and_commit) is called before records flow again. A checkpoint that is abandoned
/// takes nothing back: its transactions are committed with the next one that completes.
///
/// With checkpoints off, everything is one transaction per subtask, committed when the job is finished.
///
/// # Clones
/// The prototype is cloned, and what the clones must share stands in an `Arc`. For each subtask and execution, one clone has its
/// [`buffer`](Self::buffer) called on a pinned core; another one does everything else on a helper thread, where it may block.
/// One clone for the whole job is called while no record flows: first [`claim`](Self::claim), then, before each execution and at
/// the end, the two `recover` functions and [`remove_leftovers`](Self::remove_leftovers). It is never opened, and dropped when the
/// job is over, which should give up what was claimed.
///
/// # Errors
/// An error of [`claim`](Self::claim) rejects the job; any other one fails the execution, which goes back to the newest checkpoint:
/// nothing is lost or repeated. An error of the type [`Error`](crate::base::error::Error) says itself whether a restart can help.
///
/// # Example
/// Whole books of numbers, in memory:
///
/// ```
/// use std::collections::BTreeMap;
/// use std::sync::{Arc, Mutex};
/// use stoplog::prelude::*;
///
/// #[derive(Clone, Default)]
/// struct Books {
///     drafts: Arc<Mutex<BTreeMap<String, Vec<u64>>>>,
///     printed: Arc<Mutex<BTreeMap<String, Vec<u64>>>>,
///     prefix: String,
///     begun: u32,
/// }
///
/// impl TwoPhaseCommitSink<u64> for Books {
///     type Buffer = Vec<u64>;
///     type Transaction = String;
///
///     fn buffer(&mut self, record: u64, buffer: &mut Vec<u64>) -> Result<usize, BoxError> {
///         buffer.push(record);
///         Ok(buffer.len() * size_of::<u64>())
///     }
///
///     fn open(&mut self, cx: &TransactionContext) -> Result<(), BoxError> {
///         self.prefix = format!("{}-{}", cx.token, cx.subtask);
///         Ok(())
///     }
///
///     fn begin(&mut self) -> Result<String, BoxError> {
///         self.begun += 1;
///         Ok(format!("{}-{}", self.prefix, self.begun))
///     }
///
///     fn write(&mut self, title: &mut String, buffer: &mut Vec<u64>) -> Result<(), BoxError> {
///         self.drafts.lock().unwrap().entry(title.clone()).or_default().append(buffer);
///         Ok(())
///     }
///
///     fn pre_commit(&mut self, _: &mut String, _: Option<CheckpointId>) -> Result<(), BoxError> {
///         Ok(()) // A real one sees to it here that the draft survives a crash.
///     }
///
///     fn commit(&mut self, title: &String) -> Result<(), BoxError> {
///         match self.drafts.lock().unwrap().remove(title) {
///             Some(draft) => drop(self.printed.lock().unwrap().insert(title.clone(), draft)),
///             None if self.printed.lock().unwrap().contains_key(title) => {} // Not for the first time.
///             None => return Err(format!("{title} is lost").into()),
///         }
///         Ok(())
///     }
///
///     fn abort(&mut self, title: &String) -> Result<(), BoxError> {
///         self.drafts.lock().unwrap().remove(title);
///         Ok(())
///     }
///
///     fn remove_leftovers(&mut self) -> Result<(), BoxError> {
///         self.drafts.lock().unwrap().clear();
///         Ok(())
///     }
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let env = StreamEnvironment::new(JobConfig { parallelism: 1, ..JobConfig::default() });
/// let books = Books::default();
/// env.source("numbers", VecSource::new(vec![1u64, 2, 3])).sink("books", TwoPhase::new(books.clone()));
/// env.execute()?;
/// assert_eq!(books.printed.lock().unwrap().values().flatten().copied().collect::<Vec<_>>(), [1, 2, 3]);
/// # Ok(())
/// # }
/// ```
pub trait TwoPhaseCommitSink<T>: Clone + Send + 'static {
    /// Records on their way from the core to the helper thread.
    type Buffer: Default + Send + 'static;
    /// Names a transaction for all time: stands in snapshots and is read by later processes.
    type Transaction: Serialize + DeserializeOwned + Clone + Debug + Send + 'static;

    /// True to have a transaction begun with every checkpoint, before there is a record for it, so that the snapshot knows it and
    /// [`recover_and_abort`](Self::recover_and_abort) is called for it after a failure. For systems in which
    /// [`remove_leftovers`](Self::remove_leftovers) cannot find what was left unfinished. Otherwise the first records after a
    /// checkpoint begin a transaction, and without records there is none.
    const BEGINS_EAGERLY: bool = false;

    /// Adds a record to the buffer and answers how many bytes are in it, roughly: at 64 KiB the buffer is handed to the helper
    /// thread. Called on a pinned core for each record: must not block.
    ///
    /// # Errors
    /// If the record cannot be written.
    fn buffer(&mut self, record: T, buffer: &mut Self::Buffer) -> Result<usize, BoxError>;

    /// Called once per subtask and execution, before anything else but `buffer`. What earlier executions have left behind may still
    /// be there, and will be removed before anything is begun.
    ///
    /// # Errors
    /// If nothing can be written.
    fn open(&mut self, _cx: &TransactionContext) -> Result<(), BoxError> {
        Ok(())
    }

    /// Begins a transaction. The one before, if any, was pre-committed.
    ///
    /// # Errors
    /// If none can be begun.
    fn begin(&mut self) -> Result<Self::Transaction, BoxError>;

    /// Writes what is in the buffer, and leaves it empty.
    ///
    /// # Errors
    /// If it cannot be written; the transaction is aborted.
    fn write(
        &mut self,
        transaction: &mut Self::Transaction,
        buffer: &mut Self::Buffer,
    ) -> Result<(), BoxError>;

    /// Nothing more will be written to the transaction. Sees to it that whatever happens from now on, the transaction as it then
    /// stands can be committed, also by another process. The checkpoint waits for it; there is none if checkpoints are off and the
    /// job is finished.
    ///
    /// # Errors
    /// If that cannot be promised; the checkpoint is declined and the transaction aborted.
    fn pre_commit(
        &mut self,
        transaction: &mut Self::Transaction,
        checkpoint: Option<CheckpointId>,
    ) -> Result<(), BoxError>;

    /// Lets the transaction be seen. Must do no harm if it was committed before: a commit whose success was not heard of is
    /// repeated.
    ///
    /// # Errors
    /// If it is not seen, or might not stay.
    fn commit(&mut self, transaction: &Self::Transaction) -> Result<(), BoxError>;

    /// Removes a transaction that was not pre-committed. Not called when the process dies.
    ///
    /// # Errors
    /// If something is left behind; that is noted, and fails nothing.
    fn abort(&mut self, transaction: &Self::Transaction) -> Result<(), BoxError>;

    /// Commits a transaction of the snapshot that the job goes on from. Most often it was committed already.
    ///
    /// # Errors
    /// If it is not seen, or might not stay.
    fn recover_and_commit(&mut self, transaction: &Self::Transaction) -> Result<(), BoxError> {
        self.commit(transaction)
    }

    /// Removes a transaction that was begun, but not pre-committed, when the snapshot was taken. Later it may have been removed, and,
    /// if the job goes back behind a later checkpoint, committed: both must be left alone.
    ///
    /// # Errors
    /// If it might still be committed.
    fn recover_and_abort(&mut self, transaction: &Self::Transaction) -> Result<(), BoxError> {
        self.abort(transaction)
    }

    /// Takes the place where output goes for this job alone; called once, before anything is begun.
    ///
    /// # Errors
    /// If it is in use, or holds what must not be added to. The job is then rejected.
    fn claim(&mut self, _claim: &SinkClaim) -> Result<(), BoxError> {
        Ok(())
    }

    /// All transactions of the snapshot were recovered: whatever is unpublished now belongs to executions that are over, of any
    /// subtask, and is to be removed. May be repeated, also after it failed half way.
    ///
    /// # Errors
    /// If something is left that could be seen later.
    fn remove_leftovers(&mut self) -> Result<(), BoxError> {
        Ok(())
    }
}

/// Whose transactions these are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransactionContext {
    /// The subtask.
    pub subtask: SubtaskIndex,
    /// How many subtasks the sink has.
    pub parallelism: u32,
    /// Letters, digits and hyphens that no other execution has, in this process or another one. Together with `subtask` and a count
    /// it names a transaction.
    pub token: String,
}
