//! The runs under one root.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::super::error::SnapshotError;
use super::super::layout::{self, JobPaths};
use super::super::store::{LockError, Store, StoreEntry, StoreLock, create_durably};
use super::external::visible_checkpoints;
use super::record::{JobRecord, RunState};
use super::{at, if_found};
use crate::base::id::JobId;

/// Finds runs by name or identity. A root that does not exist has none.
#[derive(Debug, Clone)]
pub struct Runs {
    store: Arc<dyn Store>,
    root: PathBuf,
}

impl Runs {
    /// The runs under `root`, which each have a directory of the name of their job id.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, root: &Path) -> Self {
        Self { store, root: layout::absolute(root) }
    }

    /// The run of this name that was begun last. One that was cancelled, and of which something is left, counts as gone.
    ///
    /// Hold [`lock_name`](Self::lock_name) until the run is claimed with [`JobStorage`](super::JobStorage).
    ///
    /// # Errors
    /// If the record of any run is damaged, since that may be the one, or the storage fails.
    pub fn newest_of(&self, name: &str) -> Result<Option<JobRecord>, SnapshotError> {
        let mut newest: Option<JobRecord> = None;
        for job in self.jobs()? {
            let Some(record) = self.record_of(job)? else {
                self.refuse_without_record(job)?;
                continue;
            };
            let is_candidate = record.name == name && record.state != RunState::Cancelled;
            if is_candidate && newest.as_ref().is_none_or(|newest| newest.order() < record.order()) {
                newest = Some(record);
            }
        }
        Ok(newest)
    }

    /// Removes what processes have left that died, or failed, before they had recorded the run that they were to begin. What is in use,
    /// or holds anything else, stays; so does what cannot be removed now.
    ///
    /// Hold [`lock_name`](Self::lock_name) meanwhile.
    ///
    /// # Errors
    /// If the storage fails to show what is there.
    pub fn remove_abandoned(&self) -> Result<(), SnapshotError> {
        for job in self.jobs()? {
            let paths = JobPaths::new(&self.root, job);
            let entries =
                at(&paths.directory, if_found(self.store.list(&paths.directory)))?.unwrap_or_default();
            let (record, lock_file) = (paths.new_record(), paths.lock());
            let is_leftover = |name: &str| [&record, &lock_file].iter().any(|path| path.ends_with(name));
            if !entries.iter().all(|(name, _)| is_leftover(name)) {
                continue;
            }
            if !entries.is_empty() {
                // Whoever is just beginning a run there holds it.
                let Ok(held) = self.store.lock(&lock_file, "a process that tidies up") else { continue };
                let is_unrecorded =
                    if_found(self.store.entry(&paths.record())).is_ok_and(|found| found.is_none());
                if !is_unrecorded {
                    continue;
                }
                let _ = self.store.remove_file(&record);
                drop(held);
            }
            let _ = self.store.remove_directory(&paths.directory);
        }
        Ok(())
    }

    /// Checkpoints without a record are those of a run that lost it: nothing that this engine does leaves them so. Whoever looks for
    /// the newest run must not find an older one, or none, instead.
    fn refuse_without_record(&self, job: JobId) -> Result<(), SnapshotError> {
        let paths = JobPaths::new(&self.root, job);
        let entries = at(&paths.directory, if_found(self.store.list(&paths.directory)))?.unwrap_or_default();
        if visible_checkpoints(&entries).is_empty() {
            return Ok(());
        }
        Err(SnapshotError::MissingFile { file: paths.record().display().to_string() })
    }

    /// What is recorded of the run; `None` if there is no such run.
    ///
    /// # Errors
    /// If the record is damaged, or the storage fails.
    pub fn record_of(&self, job: JobId) -> Result<Option<JobRecord>, SnapshotError> {
        JobRecord::read(self.store.as_ref(), &JobPaths::new(&self.root, job).directory)
    }

    /// Keeps other processes from looking for a run of this name until the answer is dropped. So of two that find none and start one
    /// the second finds that of the first. Creates the root.
    ///
    /// # Errors
    /// [`SnapshotError::Held`] if another process is just doing that, or if the storage fails.
    pub fn lock_name(&self, name: &str, owner: &str) -> Result<Box<dyn StoreLock>, SnapshotError> {
        at(&self.root, create_durably(self.store.as_ref(), &self.root))?;
        lock(self.store.as_ref(), &self.root.join(layout::name_lock(name)), owner)
    }

    /// The highest sequence of the runs of this name. Damaged records count for nothing here: another run's damage must not keep
    /// a new one from starting, and whoever looks for the newest run is told of it.
    pub(super) fn highest_sequence(&self, name: &str) -> Result<u64, SnapshotError> {
        let mut highest = 0;
        for job in self.jobs()? {
            match self.record_of(job) {
                Ok(Some(record)) if record.name == name => highest = highest.max(record.sequence),
                Ok(_) | Err(SnapshotError::Damaged { .. } | SnapshotError::Misplaced { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(highest)
    }

    /// The directories whose names are identities of jobs.
    fn jobs(&self) -> Result<Vec<JobId>, SnapshotError> {
        let entries = at(&self.root, if_found(self.store.list(&self.root)))?.unwrap_or_default();
        let directories = entries.iter().filter(|(_, entry)| *entry == StoreEntry::Directory);
        // Only the form that is printed: `JobPaths` must find the same directory again.
        let job = |name: &str| name.parse::<JobId>().ok().filter(|job| job.to_string() == name);
        Ok(directories.filter_map(|(name, _)| job(name)).collect())
    }
}

pub(super) fn lock(store: &dyn Store, path: &Path, owner: &str) -> Result<Box<dyn StoreLock>, SnapshotError> {
    store.lock(path, owner).map_err(|error| match error {
        LockError::Held { owner } => SnapshotError::Held { path: path.display().to_string(), owner },
        LockError::Io(source) => SnapshotError::io(path, source),
    })
}
