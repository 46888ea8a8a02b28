//! The record of a run beside its checkpoints, the file `_job`: who it is, and what must be known of it although no checkpoint says it.
//!
//! It is a frame of the kind [`FrameKind::JobRecord`]; `src/docs/formats.md` has the map of its payload.

use std::path::Path;

use super::super::error::SnapshotError;
use super::super::fields::{FieldReader, FieldWriter, FormatError};
use super::super::layout::{self, JobPaths};
use super::super::store::Store;
use super::{at, if_found, remove_file};
use crate::base::id::{CheckpointId, JobId};
use crate::codec::frame::{self, FrameKind};

/// Version of the payload.
pub const JOB_RECORD_VERSION: u16 = 1;

/// Whether a run can go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunState {
    /// It runs, or can go on from its newest checkpoint.
    Running,
    /// All of its input was read and all of its output is published. It never runs again, and its checkpoints are removed.
    Finished,
    /// The same, but its checkpoints are kept.
    FinishedAndKept,
    /// It was cancelled, and what it left is being removed.
    Cancelled,
}

impl RunState {
    const ALL: [Self; 4] = [Self::Running, Self::Finished, Self::Cancelled, Self::FinishedAndKept];

    /// True if it is never run again since everything is done.
    #[must_use]
    pub fn is_finished(self) -> bool {
        matches!(self, Self::Finished | Self::FinishedAndKept)
    }

    fn code(self) -> u8 {
        match self {
            Self::Running => 1,
            Self::Finished => 2,
            Self::Cancelled => 3,
            Self::FinishedAndKept => 4,
        }
    }
}

/// What is recorded of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobRecord {
    /// The run.
    pub job: JobId,
    /// Name of the job.
    pub name: String,
    /// Higher than that of every run of this name that was there when this one began, from 1 on. The newest run has the highest.
    pub sequence: u64,
    /// When the run began: milliseconds since 1970, by the clock of that time.
    pub started_at_ms: u64,
    /// How many processes have led the run, from 1 on.
    pub lives: u32,
    /// No checkpoint of the next life has an id below this one. Checkpoints on the disk may have higher ones.
    pub next_checkpoint_id: CheckpointId,
    /// This checkpoint or a newer one must be there. Checkpoints on the disk may be newer.
    pub newest_completed: Option<CheckpointId>,
    /// Whether it can go on.
    pub state: RunState,
    /// The path of the snapshot from which the run began, if it did not begin from nothing. It goes on from there as long as it has no
    /// checkpoint of its own.
    pub began_from: Option<String>,
}

impl JobRecord {
    /// The order of runs of one name, the newest last.
    pub(super) fn order(&self) -> (u64, u64, JobId) {
        (self.sequence, self.started_at_ms, self.job)
    }

    /// The bytes of `_job`.
    ///
    /// # Errors
    /// If the name or the path has more than 4 GiB.
    pub fn encode(&self) -> Result<Vec<u8>, FormatError> {
        let mut out = FieldWriter::default();
        out.array(self.job.to_bytes());
        out.u64(self.sequence);
        out.u64(self.started_at_ms);
        out.u32(self.lives);
        out.u64(self.next_checkpoint_id.0);
        out.u8(u8::from(self.newest_completed.is_some()));
        out.u64(self.newest_completed.unwrap_or_default().0);
        out.u8(self.state.code());
        out.run("name", self.name.as_bytes())?;
        out.run("snapshot", self.began_from.as_deref().unwrap_or_default().as_bytes())?;
        let mut bytes = Vec::new();
        frame::encode(FrameKind::JobRecord, JOB_RECORD_VERSION, &out.bytes, &mut bytes);
        Ok(bytes)
    }

    /// The record of which these are the bytes.
    ///
    /// # Errors
    /// If they are not exactly such bytes, or what they say cannot be.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let frame = frame::decode(FrameKind::JobRecord, JOB_RECORD_VERSION, bytes)?;
        let mut input = FieldReader::new(frame.payload);
        let job = JobId::from_bytes(input.array("job id")?);
        let sequence = input.u64("sequence")?;
        let started_at_ms = input.u64("start")?;
        let lives = input.u32("lives")?;
        let next_checkpoint_id = CheckpointId(input.u64("next checkpoint")?);
        let has_completed = input.flag("whether a checkpoint was completed")?;
        let newest = CheckpointId(input.u64("newest completed checkpoint")?);
        let state = input.u8("state")?;
        let known = RunState::ALL.into_iter().find(|known| known.code() == state);
        let state = known.ok_or_else(|| input.invalid(format!("unknown state {state}")))?;
        let name = input.text("name")?.to_owned();
        let began_from = Some(input.text("snapshot")?.to_owned()).filter(|path| !path.is_empty());
        input.end()?;
        if sequence == 0 || lives == 0 || (!has_completed && newest.0 != 0) {
            let reason = format!("sequence {sequence}, {lives} lives, newest checkpoint {newest}");
            return Err(input.invalid(reason));
        }
        let newest_completed = has_completed.then_some(newest);
        Ok(Self {
            job,
            name,
            sequence,
            started_at_ms,
            lives,
            next_checkpoint_id,
            newest_completed,
            state,
            began_from,
        })
    }

    /// The record in the directory of a run; `None` if it has none.
    ///
    /// # Errors
    /// If the record is damaged or that of another run, or the storage fails.
    pub fn read(store: &dyn Store, directory: &Path) -> Result<Option<Self>, SnapshotError> {
        let path = directory.join(layout::JOB_RECORD);
        let Some(bytes) = at(&path, if_found(store.read(&path)))? else { return Ok(None) };
        let damaged = |source| SnapshotError::Damaged { file: path.display().to_string(), source };
        let record = Self::decode(&bytes).map_err(damaged)?;
        match directory.file_name().and_then(|name| name.to_str()) {
            Some(name) if name == record.job.to_string() => Ok(Some(record)),
            name => Err(SnapshotError::Misplaced {
                file: path.display().to_string(),
                expected: format!("run {}", name.unwrap_or_default()),
                found: format!("run {}", record.job),
            }),
        }
    }

    /// Compares the newest checkpoint that is there with what the record knows.
    ///
    /// # Errors
    /// [`SnapshotError::Gone`] if the run can go on, and a checkpoint was completed, but neither that nor a newer one is there.
    pub fn check_newest(&self, directory: &Path, newest: Option<CheckpointId>) -> Result<(), SnapshotError> {
        match self.newest_completed {
            Some(known) if self.state == RunState::Running && newest < Some(known) => {
                Err(SnapshotError::Gone { directory: directory.display().to_string(), newest: known })
            }
            _ => Ok(()),
        }
    }

    /// Puts this record into the place of the one that may be there, in one step, and makes it durable.
    pub(super) fn write(&self, store: &dyn Store, paths: &JobPaths) -> Result<(), SnapshotError> {
        let (path, new) = (paths.record(), paths.new_record());
        let unwritable = |source| SnapshotError::Unwritable { file: path.display().to_string(), source };
        let bytes = self.encode().map_err(unwritable)?;
        // An earlier attempt may have left one behind.
        remove_file(store, &new)?;
        let mut file = at(&new, store.create(&new))?;
        at(&new, file.append(&bytes))?;
        at(&new, file.sync())?;
        at(&path, store.rename(&new, &path))?;
        at(&paths.directory, store.sync_directory(&paths.directory))
    }
}
