//! Things that go wrong, chosen by a seed.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::base::error::BoxError;
use crate::base::id::{CheckpointId, SubtaskId};
use crate::base::rng::Rng;
use crate::snapshot::{
    CheckpointStorage, CompletedCheckpoint, MemoryStorage, SnapshotError, StateFiles, StateHandle,
    StateWriter, Written,
};

/// Every message of an injected fault contains this.
pub const INJECTED: &str = "injected fault";

/// Where something can go wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fault {
    /// A user's function panics.
    UserFunction,
    /// An operator cannot be opened.
    Open,
    /// A sink cannot write a record.
    Write,
    /// A sink cannot promise what it wrote: the snapshot is declined.
    PreCommit,
    /// A sink cannot commit.
    Notify,
    /// A sink cannot be closed.
    Close,
    /// A helper fails.
    Helper,
    /// A snapshot file cannot be begun.
    Begin,
    /// A snapshot file cannot be written.
    Append,
    /// A snapshot file cannot be finished.
    Finish,
    /// A checkpoint cannot be made durable.
    Commit,
    /// A checkpoint cannot be removed.
    Discard,
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::UserFunction,
        Self::Open,
        Self::Write,
        Self::PreCommit,
        Self::Notify,
        Self::Close,
        Self::Helper,
        Self::Begin,
        Self::Append,
        Self::Finish,
        Self::Commit,
        Self::Discard,
    ];
}

/// Decides which calls fail. Clones share the decision.
#[derive(Debug, Clone)]
pub struct Faults {
    shared: Arc<Mutex<Plan>>,
}

#[derive(Debug)]
struct Plan {
    rng: Rng,
    /// So many calls may still fail.
    budget: u32,
    /// One in so many calls fails; 0 for none. In the order of [`Fault::ALL`].
    one_in: [u64; Fault::ALL.len()],
    struck: u32,
}

impl Faults {
    /// Nothing fails until [`Faults::allow`] is called.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let plan = Plan { rng: Rng::new(seed), budget: 0, one_in: [0; Fault::ALL.len()], struck: 0 };
        Self { shared: Arc::new(Mutex::new(plan)) }
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One in `one_in` calls of this kind fails; 0 for none.
    pub fn set_rate(&self, fault: Fault, one_in: u64) {
        self.plan().one_in[fault as usize] = one_in;
    }

    /// So many calls may fail from now on.
    pub fn allow(&self, budget: u32) {
        self.plan().budget = budget;
    }

    /// How many calls have failed.
    #[must_use]
    pub fn struck(&self) -> u32 {
        self.plan().struck
    }

    /// True if this call has to fail.
    #[must_use]
    pub fn strikes(&self, fault: Fault) -> bool {
        let mut plan = self.plan();
        let one_in = plan.one_in[fault as usize];
        let strikes = plan.budget > 0 && one_in > 0 && plan.rng.one_in(one_in);
        if strikes {
            plan.budget -= 1;
            plan.struck += 1;
        }
        strikes
    }

    /// An error if this call has to fail.
    ///
    /// # Errors
    /// If it has.
    pub fn check(&self, fault: Fault) -> Result<(), BoxError> {
        if self.strikes(fault) { Err(format!("{INJECTED}: {fault:?}").into()) } else { Ok(()) }
    }

    /// Panics if this call has to fail, without the noise of the panic hook.
    pub fn check_or_panic(&self, fault: Fault) {
        if self.strikes(fault) {
            std::panic::resume_unwind(Box::new(format!("{INJECTED}: {fault:?}")));
        }
    }

    fn check_storage(&self, fault: Fault) -> Result<(), SnapshotError> {
        if self.strikes(fault) {
            let source = std::io::Error::other(format!("{INJECTED}: {fault:?}"));
            return Err(SnapshotError::Io { file: "simulated".to_owned(), source });
        }
        Ok(())
    }
}

/// Checkpoints in memory, with faults, and a record of all that were ever committed. Clones share the contents.
#[derive(Debug, Clone)]
pub struct FaultyStorage {
    inner: MemoryStorage,
    faults: Faults,
    log: Arc<Mutex<Log>>,
}

#[derive(Debug, Default)]
struct Log {
    /// Committed and not yet taken by [`FaultyStorage::take_committed`].
    committed: Vec<CompletedCheckpoint>,
    durable: BTreeSet<CheckpointId>,
    not_discarded: BTreeSet<CheckpointId>,
}

impl FaultyStorage {
    /// An empty storage.
    #[must_use]
    pub fn new(faults: Faults) -> Self {
        Self { inner: MemoryStorage::new(), faults, log: Arc::default() }
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The storage without faults.
    #[must_use]
    pub fn inner(&self) -> &MemoryStorage {
        &self.inner
    }

    /// The checkpoints committed since the last call.
    #[must_use]
    pub fn take_committed(&self) -> Vec<CompletedCheckpoint> {
        std::mem::take(&mut self.log().committed)
    }

    /// True if the checkpoint was ever made durable.
    #[must_use]
    pub fn was_committed(&self, checkpoint: CheckpointId) -> bool {
        self.log().durable.contains(&checkpoint)
    }

    /// The checkpoints that could not be removed: what is left of them is nobody's fault.
    #[must_use]
    pub fn not_discarded(&self) -> BTreeSet<CheckpointId> {
        self.log().not_discarded.clone()
    }
}

impl StateFiles for FaultyStorage {
    fn read(&self, handle: &StateHandle) -> Result<Vec<u8>, SnapshotError> {
        self.inner.read(handle)
    }
}

impl CheckpointStorage for FaultyStorage {
    fn begin(
        &self,
        checkpoint: CheckpointId,
        subtask: SubtaskId,
    ) -> Result<Box<dyn StateWriter>, SnapshotError> {
        self.faults.check_storage(Fault::Begin)?;
        let inner = self.inner.begin(checkpoint, subtask)?;
        Ok(Box::new(FaultyWriter { inner, faults: self.faults.clone() }))
    }

    fn commit(&self, checkpoint: &CompletedCheckpoint) -> Result<(), SnapshotError> {
        self.faults.check_storage(Fault::Commit)?;
        self.inner.commit(checkpoint)?;
        let mut log = self.log();
        log.committed.push(checkpoint.clone());
        log.durable.insert(checkpoint.id);
        Ok(())
    }

    fn discard(&self, checkpoint: CheckpointId) -> Result<(), SnapshotError> {
        if let Err(error) = self.faults.check_storage(Fault::Discard) {
            self.log().not_discarded.insert(checkpoint);
            return Err(error);
        }
        self.inner.discard(checkpoint)
    }

    fn newest(&self) -> Result<Option<CompletedCheckpoint>, SnapshotError> {
        self.inner.newest()
    }

    fn highest_id(&self) -> Result<Option<CheckpointId>, SnapshotError> {
        self.inner.highest_id()
    }

    fn list(&self) -> Result<Vec<CheckpointId>, SnapshotError> {
        self.inner.list()
    }
}

struct FaultyWriter {
    inner: Box<dyn StateWriter>,
    faults: Faults,
}

impl StateWriter for FaultyWriter {
    fn file(&self) -> &str {
        self.inner.file()
    }

    fn append(&mut self, bytes: &[u8]) -> Result<u64, SnapshotError> {
        self.faults.check_storage(Fault::Append)?;
        self.inner.append(bytes)
    }

    fn finish(self: Box<Self>) -> Result<Written, SnapshotError> {
        self.faults.check_storage(Fault::Finish)?;
        self.inner.finish()
    }
}
