//! From settings to the origin of a job: which run it is, and from what it goes on.

use std::path::Path;
use std::sync::Arc;

use super::origin::{JobOrigin, Restorable};
use crate::base::error::{Error, ErrorKind, Recovery};
use crate::base::id::JobId;
use crate::config::JobConfig;
use crate::snapshot::{
    CheckpointStorage, JobStorage, JobStorageSettings, MemoryStorage, Runs, SnapshotDirectory, SnapshotError,
    SnapshotPath, Store,
};

/// Which run a job is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunIdentity {
    /// A new one, under this identity or a random one.
    Fresh(Option<JobId>),
    /// The run of this identity, or else the newest of the job's name, under the checkpoint directory. If there is none of that name,
    /// a new one.
    Resumed(Option<JobId>),
    /// The newest run of the job's name under the checkpoint directory. If there is none of that name, a new one under this identity.
    ResumedOrNew(JobId),
}

impl JobOrigin {
    /// The origin that the settings describe. `now_ms` is the time in milliseconds since 1970. Takes the run's lock if it is resumed;
    /// writes nothing else.
    ///
    /// # Errors
    /// If the run cannot be claimed, or the snapshot in the settings cannot be read: nothing was started.
    pub fn from_settings(
        config: &JobConfig,
        identity: RunIdentity,
        store: &Arc<dyn Store>,
        now_ms: u64,
    ) -> Result<Self, Error> {
        let snapshot = match (&config.recovery.path, identity) {
            (Some(_), RunIdentity::Resumed(_) | RunIdentity::ResumedOrNew(_)) => {
                let message =
                    "the job is resumed from its own checkpoints; leave execution.state-recovery.path out";
                return Err(Error::new(ErrorKind::Plan, Recovery::RejectJob, message));
            }
            (Some(path), RunIdentity::Fresh(_)) => Some(snapshot_at(path, store).map_err(rejected)?),
            (None, _) => None,
        };
        let began_from = snapshot.as_ref().map(|snapshot| snapshot.path.clone());
        let mut origin = match (&config.checkpoints.dir, identity) {
            (Some(root), _) => {
                in_directory(config, root, identity, store, now_ms, began_from).map_err(rejected)?
            }
            (None, RunIdentity::Fresh(job)) => {
                let storage = Arc::new(MemoryStorage::new());
                Self::in_storage(job.unwrap_or_else(JobId::random), storage)
            }
            (None, RunIdentity::Resumed(_) | RunIdentity::ResumedOrNew(_)) => {
                let message =
                    "a job is resumed from its checkpoint directory; set execution.checkpointing.dir";
                return Err(Error::new(ErrorKind::Plan, Recovery::RejectJob, message));
            }
        };
        origin.snapshot = origin.snapshot.or(snapshot);
        origin.allows_repeated_output = config.recovery.allows_repeated_output;
        origin.owner = owner(config, origin.job_id);
        Ok(origin)
    }
}

fn in_directory(
    config: &JobConfig,
    root: &Path,
    identity: RunIdentity,
    store: &Arc<dyn Store>,
    now_ms: u64,
    began_from: Option<String>,
) -> Result<JobOrigin, SnapshotError> {
    let settings = |job| JobStorageSettings {
        inline_threshold: config.checkpoints.inline_threshold,
        owner: owner(config, job),
        began_from,
    };
    let mut name_lock = None;
    let (job, is_known) = match identity {
        RunIdentity::Fresh(job) => (job.unwrap_or_else(JobId::random), false),
        RunIdentity::Resumed(Some(job)) => (job, true),
        RunIdentity::Resumed(None) | RunIdentity::ResumedOrNew(_) => {
            let runs = Runs::new(Arc::clone(store), root);
            let fresh = match identity {
                RunIdentity::ResumedOrNew(job) => job,
                _ => JobId::random(),
            };
            // Until the run is claimed: of two processes that find none, the second must find that of the first.
            name_lock = Some(runs.lock_name(&config.name, &owner(config, fresh))?);
            runs.remove_abandoned()?;
            runs.newest_of(&config.name)?.map_or((fresh, false), |record| (record.job, true))
        }
    };
    let storage = if is_known {
        JobStorage::resume(Arc::clone(store), root, job, settings(job))?
    } else {
        JobStorage::fresh(Arc::clone(store), root, job, &config.name, now_ms, settings(job))?
    };
    let is_finished = storage.is_finished();
    // A run that began from a snapshot has nothing else until its first checkpoint.
    let began_from =
        storage.record().and_then(|record| record.began_from).filter(|_| is_known && !is_finished);
    let snapshot = match began_from {
        Some(path) if storage.list()?.is_empty() => Some(snapshot_at(Path::new(&path), store)?),
        _ => None,
    };
    let mut origin = JobOrigin::in_storage(job, Arc::new(storage) as Arc<dyn CheckpointStorage>);
    origin.resumes = is_known;
    origin.is_finished = is_finished;
    origin.name_lock = name_lock;
    origin.snapshot = snapshot;
    Ok(origin)
}

fn snapshot_at(path: &Path, store: &Arc<dyn Store>) -> Result<Restorable, SnapshotError> {
    let shown = match SnapshotPath::find(store.as_ref(), path)? {
        SnapshotPath::Snapshot(directory) => directory,
        SnapshotPath::Run { directory, .. } => directory,
    };
    let (checkpoint, files) = SnapshotDirectory::open(Arc::clone(store), path)?;
    Ok(Restorable { checkpoint, files, path: shown.display().to_string() })
}

/// What this process says about itself to others that want the same run or the same output.
fn owner(config: &JobConfig, job: JobId) -> String {
    format!("process {} (job {:?}, {job})", std::process::id(), config.name)
}

fn rejected(error: SnapshotError) -> Error {
    Error::caused_by(ErrorKind::Snapshot, Recovery::RejectJob, &error.into())
}
