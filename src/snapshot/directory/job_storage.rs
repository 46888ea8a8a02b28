//! The checkpoints of one run, in its directory.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::super::error::SnapshotError;
use super::super::fields::FormatError;
use super::super::layout::{self, JobEntry, JobPaths};
use super::super::manifest::{CompletedCheckpoint, Location, StateHandle};
use super::super::metadata;
use super::super::storage::{CheckpointStorage, Conclusion, StateFiles, StateWriter};
use super::super::store::{Store, StoreEntry, StoreLock, create_durably};
use super::external::visible_checkpoints;
use super::record::{JobRecord, RunState};
use super::runs::{Runs, lock};
use super::writer::{Outcome, Writers};
use super::{at, check_files, if_found, read_metadata, read_range, remove_file, remove_with_files};
use crate::base::id::{CheckpointId, JobId, SubtaskId};

/// How a [`JobStorage`] works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobStorageSettings {
    /// The state of a subtask goes into the metadata if it has no more bytes than this. Default: 20 KiB.
    pub inline_threshold: usize,
    /// What this process says about itself to others that want the same run. Default: its process id.
    pub owner: String,
    /// The path of the snapshot from which a fresh run begins. Default: none.
    pub began_from: Option<String>,
}

impl Default for JobStorageSettings {
    fn default() -> Self {
        Self {
            inline_threshold: 20 << 10,
            owner: format!("process {}", std::process::id()),
            began_from: None,
        }
    }
}

/// Keeps the checkpoints of one run in `<root>/<job id>`, and keeps other processes out while the run is led by this one.
#[derive(Debug)]
pub struct JobStorage {
    store: Arc<dyn Store>,
    paths: JobPaths,
    origin: Origin,
    owner: String,
    writers: Arc<Writers>,
    /// Held through operations on the names in the run's directory. Taken before the mutex of `writers`.
    directory: Mutex<Directory>,
}

#[derive(Debug)]
enum Origin {
    Fresh { job: JobId, name: String, started_at_ms: u64, began_from: Option<String> },
    Resumed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// `open` was not called.
    New,
    /// `open` was called, and failed so far.
    Opening,
    Open,
    Concluded,
}

#[derive(Debug)]
struct Directory {
    stage: Stage,
    lock: Option<Box<dyn StoreLock>>,
    /// As it is, or should be, on the disk. A fresh run has none before it is opened.
    record: Option<JobRecord>,
    /// The newest checkpoint that this life has completed.
    newest_committed: Option<CheckpointId>,
    /// Whether the record knows of any of them.
    is_completion_recorded: bool,
    /// Of this life.
    first_id: CheckpointId,
    /// Whether the leftovers of earlier lives are gone. Not before this one has a checkpoint of its own: nothing is removed for a
    /// run that turns out to be damaged.
    is_swept: bool,
    /// Checkpoints that failed at a moment when they may have become visible. Each must be withdrawn before anything is read or committed.
    doubtful: BTreeSet<CheckpointId>,
    /// Checkpoints that could not be removed when they should have been.
    undiscarded: BTreeSet<CheckpointId>,
}

impl Directory {
    fn is_finished(&self) -> bool {
        self.record.as_ref().is_some_and(|record| record.state.is_finished())
    }
}

impl JobStorage {
    /// A run that begins. Nothing is written before [`open`](CheckpointStorage::open). `now_ms` is the time in milliseconds since 1970.
    ///
    /// # Errors
    /// [`SnapshotError::Exists`] if the run has a directory already with anything visible in it; otherwise if the storage fails.
    pub fn fresh(
        store: Arc<dyn Store>,
        root: &Path,
        job: JobId,
        name: &str,
        now_ms: u64,
        settings: JobStorageSettings,
    ) -> Result<Self, SnapshotError> {
        let paths = JobPaths::new(&layout::absolute(root), job);
        refuse_visible(store.as_ref(), &paths)?;
        let began_from = settings.began_from.clone();
        let origin = Origin::Fresh { job, name: name.to_owned(), started_at_ms: now_ms, began_from };
        Ok(Self::new(store, paths, origin, settings, None, None))
    }

    /// A run that goes on, or that is finished. Other processes are kept out from now on; nothing else is written before
    /// [`open`](CheckpointStorage::open).
    ///
    /// # Errors
    /// [`SnapshotError::Held`] if another live process leads it, [`SnapshotError::NoRun`] if there is none,
    /// [`SnapshotError::Over`] if it was cancelled: then what is left of it is removed; otherwise if its record is damaged or the storage fails.
    pub fn resume(
        store: Arc<dyn Store>,
        root: &Path,
        job: JobId,
        settings: JobStorageSettings,
    ) -> Result<Self, SnapshotError> {
        let paths = JobPaths::new(&layout::absolute(root), job);
        let path = || paths.directory.display().to_string();
        // Before the lock, whose file would be the first in a directory of somebody else's.
        if at(&paths.record(), if_found(store.entry(&paths.record())))?.is_none() {
            return Err(SnapshotError::NoRun { path: path() });
        }
        let held = lock(store.as_ref(), &paths.lock(), &settings.owner)?;
        let record = JobRecord::read(store.as_ref(), &paths.directory)?;
        let record = record.ok_or_else(|| SnapshotError::NoRun { path: path() })?;
        let is_cancelled = record.state == RunState::Cancelled;
        let storage = Self::new(store, paths, Origin::Resumed, settings, Some(held), Some(record));
        if is_cancelled {
            // Whoever comes next tries again.
            let _ = storage.remove_cancelled();
            return Err(SnapshotError::Over { path: storage.paths.directory.display().to_string() });
        }
        Ok(storage)
    }

    fn new(
        store: Arc<dyn Store>,
        paths: JobPaths,
        origin: Origin,
        settings: JobStorageSettings,
        lock: Option<Box<dyn StoreLock>>,
        record: Option<JobRecord>,
    ) -> Self {
        let writers = Writers::new(Arc::clone(&store), paths.clone(), settings.inline_threshold);
        let directory = Mutex::new(Directory {
            stage: Stage::New,
            lock,
            record,
            newest_committed: None,
            is_completion_recorded: false,
            first_id: CheckpointId(1),
            is_swept: false,
            doubtful: BTreeSet::new(),
            undiscarded: BTreeSet::new(),
        });
        Self { store, paths, origin, owner: settings.owner, writers, directory }
    }

    /// What is recorded of the run; `None` before a fresh run is opened.
    #[must_use]
    pub fn record(&self) -> Option<JobRecord> {
        self.directory().record.clone()
    }

    /// True if the run was finished by an earlier process: it must not be run again.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.directory().is_finished()
    }

    /// The directory of the run.
    #[must_use]
    pub fn job_directory(&self) -> &Path {
        &self.paths.directory
    }

    fn directory(&self) -> MutexGuard<'_, Directory> {
        // A panic of the store leaves at most a doubtful checkpoint behind, which is noted before it can be one.
        self.directory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn opened(&self) -> Result<MutexGuard<'_, Directory>, SnapshotError> {
        let directory = self.directory();
        match directory.stage {
            Stage::Open => Ok(directory),
            _ => Err(SnapshotError::NotOpen { path: self.paths.directory.display().to_string() }),
        }
    }

    fn sync_directory(&self, path: &Path) -> Result<(), SnapshotError> {
        at(path, self.store.sync_directory(path))
    }

    /// The names in the run's directory; none if there is no directory.
    fn entries(&self) -> Result<Vec<(String, StoreEntry)>, SnapshotError> {
        let path = &self.paths.directory;
        Ok(at(path, if_found(self.store.list(path)))?.unwrap_or_default())
    }

    /// Makes a changed record durable. After an error the one or the other is on the disk, and both are true.
    fn rewrite_record(
        &self,
        directory: &mut Directory,
        change: impl FnOnce(&mut JobRecord),
    ) -> Result<(), SnapshotError> {
        if let Some(record) = &mut directory.record {
            let mut changed = record.clone();
            change(&mut changed);
            changed.write(self.store.as_ref(), &self.paths)?;
            *record = changed;
        }
        Ok(())
    }

    /// Makes sure that the ids of this life can be told from those of the next, before their traces are removed.
    fn protect_ids(
        &self,
        directory: &mut Directory,
        kept: Option<CheckpointId>,
    ) -> Result<(), SnapshotError> {
        let highest = self.highest_known(directory)?.max(directory.undiscarded.last().copied());
        let next = directory.record.as_ref().map(|record| record.next_checkpoint_id);
        match highest {
            Some(highest) if kept < Some(highest) && next <= Some(highest) => {
                self.rewrite_record(directory, |record| record.next_checkpoint_id = highest.next())
            }
            _ => Ok(()),
        }
    }

    /// The record of the run as this life begins it. The same at every attempt to open.
    fn begin_life(&self, directory: &mut Directory) -> Result<(), SnapshotError> {
        let first_attempt = directory.stage == Stage::New;
        match (&self.origin, &mut directory.record) {
            (Origin::Resumed, Some(record)) if record.state != RunState::Running => {
                return Err(SnapshotError::Over { path: self.paths.directory.display().to_string() });
            }
            (Origin::Resumed, Some(record)) if first_attempt => record.lives = record.lives.saturating_add(1),
            (Origin::Fresh { job, name, started_at_ms, began_from }, None) => {
                let runs = Runs::new(Arc::clone(&self.store), &self.paths.root);
                directory.record = Some(JobRecord {
                    job: *job,
                    name: name.clone(),
                    sequence: runs.highest_sequence(name)?.saturating_add(1),
                    started_at_ms: *started_at_ms,
                    lives: 1,
                    next_checkpoint_id: CheckpointId(1),
                    newest_completed: None,
                    state: RunState::Running,
                    began_from: began_from.clone(),
                });
            }
            _ => {}
        }
        Ok(())
    }

    /// Withdraws what may have become visible although its commit failed.
    fn withdraw(&self, directory: &mut Directory) -> Result<(), SnapshotError> {
        while let Some(id) = directory.doubtful.first().copied() {
            let path = self.paths.checkpoint(id);
            let hidden = || {
                if if_found(self.store.entry(&path))?.is_some() {
                    self.store.rename(&path, &self.paths.removed(id))?;
                }
                self.store.sync_directory(&self.paths.directory)
            };
            hidden()
                .map_err(|source| SnapshotError::NotWithdrawn { file: path.display().to_string(), source })?;
            directory.doubtful.remove(&id);
        }
        Ok(())
    }

    /// Checks that the checkpoint's files are finished and there, and removes whatever else was written for it.
    fn check_parts(&self, checkpoint: &CompletedCheckpoint) -> Result<(), SnapshotError> {
        let finished = self.writers.finished(checkpoint.id)?;
        let path = self.paths.under_way(checkpoint.id);
        let mut entries: Vec<_> = at(&path, self.store.list(&path))?;
        for file in checkpoint.files() {
            let named = match layout::split_state_file(&file.file) {
                Some((id, name)) if id == checkpoint.id => Some(name),
                _ => None,
            };
            let name = named.filter(|name| finished.get(*name) == Some(&file.length));
            let Some(name) = name else {
                return Err(SnapshotError::MissingFile { file: self.full_name(&file.file) });
            };
            super::check_file(self.store.as_ref(), &path.join(name), file.length)?;
            entries.retain(|(entry, _)| entry != name);
        }
        let strays = entries.iter().filter(|(_, entry)| *entry != StoreEntry::Directory);
        strays.map(|(name, _)| path.join(name)).try_for_each(|path| remove_file(self.store.as_ref(), &path))
    }

    fn write_metadata(&self, checkpoint: &CompletedCheckpoint) -> Result<(), SnapshotError> {
        let directory = self.paths.under_way(checkpoint.id);
        let path = directory.join(layout::METADATA);
        let prefix = format!("{}/", layout::checkpoint(checkpoint.id));
        let unwritable = |source| SnapshotError::Unwritable { file: path.display().to_string(), source };
        let bytes = metadata::encode(checkpoint, &prefix).map_err(unwritable)?;
        let mut file = at(&path, self.store.create(&path))?;
        at(&path, file.append(&bytes))?;
        at(&path, file.sync())?;
        self.sync_directory(&directory)
    }

    /// Takes the visible names of checkpoints away, for good, and then their contents.
    fn remove_visible(&self, ids: &[CheckpointId]) -> Result<(), SnapshotError> {
        for id in ids {
            let (path, removed) = (self.paths.checkpoint(*id), self.paths.removed(*id));
            remove_with_files(self.store.as_ref(), &removed)?;
            at(&path, self.store.rename(&path, &removed))?;
        }
        if !ids.is_empty() {
            // Otherwise a crash could bring back a visible checkpoint of which a part is gone.
            self.sync_directory(&self.paths.directory)?;
        }
        ids.iter().try_for_each(|id| remove_with_files(self.store.as_ref(), &self.paths.removed(*id)))
    }

    /// Removes what is hidden of checkpoints before this one: of those that were under way, of removals; and a record that was being
    /// written.
    fn sweep(&self, before: CheckpointId) -> Result<(), SnapshotError> {
        let entries = self.entries()?;
        if entries.iter().any(|(name, _)| matches!(JobEntry::of(name), JobEntry::Hidden(_))) {
            // Of a removal that was interrupted, the visible name could come back with only a part of the checkpoint behind it.
            self.sync_directory(&self.paths.directory)?;
        }
        for (name, _) in entries {
            let path = self.paths.directory.join(&name);
            match JobEntry::of(&name) {
                JobEntry::Hidden(id) if id >= before => {}
                JobEntry::Hidden(_) => remove_with_files(self.store.as_ref(), &path)?,
                JobEntry::Temporary => remove_file(self.store.as_ref(), &path)?,
                JobEntry::Checkpoint(_) | JobEntry::Other => {}
            }
        }
        Ok(())
    }

    /// Removes what the conclusion does not keep. The record says already what became of the run.
    fn clean_up(&self, directory: &mut Directory, conclusion: Conclusion) -> Result<(), SnapshotError> {
        let visible = visible_checkpoints(&self.entries()?);
        let keeps = match conclusion {
            Conclusion::Ended { keeps_checkpoints } | Conclusion::Finished { keeps_checkpoints } => {
                keeps_checkpoints
            }
            Conclusion::Rejected => return Ok(()),
        };
        let unwanted = |id: &CheckpointId| {
            !keeps || directory.undiscarded.contains(id) || directory.doubtful.contains(id)
        };
        let (unwanted, kept): (Vec<_>, Vec<_>) = visible.into_iter().partition(unwanted);
        let goes_on = directory.record.as_ref().is_some_and(|record| record.state == RunState::Running);
        if goes_on {
            self.protect_ids(directory, kept.last().copied())?;
            let newest = kept.last().copied();
            if directory.record.as_ref().is_some_and(|record| record.newest_completed < newest) {
                // The next life must not take an older one for the newest.
                self.rewrite_record(directory, |record| record.newest_completed = newest)?;
            }
        }
        self.remove_visible(&unwanted)?;
        self.sweep(CheckpointId(u64::MAX))?;
        if conclusion == (Conclusion::Ended { keeps_checkpoints: false }) {
            // What is left can be found as long as the record is there: the record goes last, also for the disk.
            self.sync_directory(&self.paths.directory)?;
            remove_file(self.store.as_ref(), &self.paths.record())?;
        }
        Ok(())
    }

    /// Removes what is left of a run whose process died after it had recorded that the run is cancelled.
    fn remove_cancelled(&self) -> Result<(), SnapshotError> {
        let mut directory = self.directory();
        // That was found, and need not be durable yet.
        self.sync_directory(&self.paths.directory)?;
        self.clean_up(&mut directory, Conclusion::Ended { keeps_checkpoints: false })?;
        directory.lock = None;
        self.remove_directory()
    }

    /// Removes the directory once the lock in it is gone. Whatever somebody else has put there stays, and the directory with it.
    fn remove_directory(&self) -> Result<(), SnapshotError> {
        match self.store.remove_directory(&self.paths.directory) {
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
            other => at(&self.paths.directory, if_found(other)).map(|_| ()),
        }?;
        self.sync_directory(&self.paths.root)
    }

    /// Undoes as much as possible of a fresh run that could not be opened: it must not be found as the newest one.
    fn undo_open(&self) {
        for path in [self.paths.record(), self.paths.new_record()] {
            let _ = remove_file(self.store.as_ref(), &path);
        }
    }
}

/// # Errors
/// If anything visible is in the directory of a run that is to begin.
fn refuse_visible(store: &dyn Store, paths: &JobPaths) -> Result<(), SnapshotError> {
    let path = &paths.directory;
    let entries = at(path, if_found(store.list(path)))?.unwrap_or_default();
    if entries.iter().any(|(name, _)| !name.starts_with('.')) {
        return Err(SnapshotError::Exists { path: path.display().to_string() });
    }
    Ok(())
}

impl StateFiles for JobStorage {
    fn read(&self, handle: &StateHandle) -> Result<Vec<u8>, SnapshotError> {
        let range = match &handle.location {
            Location::Inline(bytes) => return Ok(bytes.clone()),
            Location::File(range) => range,
        };
        if layout::split_state_file(&range.file).is_none() {
            return Err(SnapshotError::MissingFile { file: self.full_name(&range.file) });
        }
        read_range(self.store.as_ref(), &self.paths.directory, range)
    }

    fn full_name(&self, file: &str) -> String {
        self.paths.directory.join(file).display().to_string()
    }
}

impl CheckpointStorage for JobStorage {
    /// After an error it may be called again.
    fn open(&self) -> Result<(), SnapshotError> {
        let mut guard = self.directory();
        let directory = &mut *guard;
        match directory.stage {
            Stage::New | Stage::Opening => {}
            Stage::Open => return Ok(()),
            Stage::Concluded => {
                return Err(SnapshotError::NotOpen { path: self.paths.directory.display().to_string() });
            }
        }
        if let (Origin::Fresh { .. }, None) = (&self.origin, &directory.lock) {
            let (root, path) = (&self.paths.root, &self.paths.directory);
            at(root, self.store.create_directories(root))?;
            at(path, create_durably(self.store.as_ref(), path))?;
            let held = match lock(self.store.as_ref(), &self.paths.lock(), &self.owner) {
                // Somebody who tidies up has taken the empty directory for abandoned.
                Err(SnapshotError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                    at(path, create_durably(self.store.as_ref(), path))?;
                    lock(self.store.as_ref(), &self.paths.lock(), &self.owner)?
                }
                held => held?,
            };
            // Again, now that nobody else can begin the same run.
            refuse_visible(self.store.as_ref(), &self.paths)?;
            directory.lock = Some(held);
        }
        self.begin_life(directory)?;
        directory.stage = Stage::Opening;
        let highest = self.highest_known(directory)?.map_or(CheckpointId(1), CheckpointId::next);
        self.rewrite_record(directory, |record| record.next_checkpoint_id = highest)?;
        directory.first_id = highest;
        directory.stage = Stage::Open;
        self.writers.set_open(true);
        Ok(())
    }

    fn conclude(&self, conclusion: Conclusion) -> Result<(), SnapshotError> {
        let mut guard = self.directory();
        let directory = &mut *guard;
        self.writers.set_open(false);
        let stage = std::mem::replace(&mut directory.stage, Stage::Concluded);
        let lock = directory.lock.take();
        let is_rejected = conclusion == Conclusion::Rejected;
        match (stage, &self.origin) {
            (Stage::Open, _) if !is_rejected => {}
            // An earlier process finished the run, and may have died before it had removed everything.
            (Stage::New, Origin::Resumed) if directory.is_finished() && !is_rejected => {
                // That it is finished was found, and need not be durable yet.
                self.sync_directory(&self.paths.directory)?;
                let state = directory.record.as_ref().map(|record| record.state);
                let keeps_checkpoints = state == Some(RunState::FinishedAndKept);
                return self.clean_up(directory, Conclusion::Finished { keeps_checkpoints });
            }
            (Stage::New | Stage::Opening | Stage::Open, Origin::Fresh { .. }) if lock.is_some() => {
                self.undo_open();
                drop(lock);
                let _ = self.store.remove_directory(&self.paths.directory);
                return Ok(());
            }
            _ => return Ok(()),
        }
        let state = match conclusion {
            Conclusion::Finished { keeps_checkpoints: false } => Some(RunState::Finished),
            Conclusion::Finished { keeps_checkpoints: true } => Some(RunState::FinishedAndKept),
            Conclusion::Ended { keeps_checkpoints: false } => Some(RunState::Cancelled),
            Conclusion::Ended { keeps_checkpoints: true } | Conclusion::Rejected => None,
        };
        if let Some(state) = state {
            // Before anything is removed: if the process dies between the two, the run must not look as if it could go on.
            let recorded = self.rewrite_record(directory, |record| record.state = state);
            recorded.map_err(|source| SnapshotError::EndNotRecorded { source: Box::new(source) })?;
        }
        self.clean_up(directory, conclusion)?;
        drop(lock);
        if state == Some(RunState::Cancelled) {
            self.remove_directory()?;
        }
        Ok(())
    }

    fn path(&self, checkpoint: CheckpointId) -> String {
        self.paths.checkpoint(checkpoint).display().to_string()
    }

    fn begin(
        &self,
        checkpoint: CheckpointId,
        subtask: SubtaskId,
    ) -> Result<Box<dyn StateWriter>, SnapshotError> {
        Ok(Box::new(self.writers.begin(checkpoint, subtask)?))
    }

    fn commit(&self, checkpoint: &CompletedCheckpoint) -> Result<(), SnapshotError> {
        let mut guard = self.opened()?;
        let directory = &mut *guard;
        self.withdraw(directory)?;
        let id = checkpoint.id;
        let (hidden, visible) = (self.paths.under_way(id), self.paths.checkpoint(id));
        if let Some(record) = directory.record.as_ref().filter(|record| record.job != checkpoint.job) {
            let reason = format!("a checkpoint of run {} in that of run {}", checkpoint.job, record.job);
            let source = FormatError::Unwritable { reason };
            return Err(SnapshotError::Unwritable { file: visible.display().to_string(), source });
        }
        if at(&visible, if_found(self.store.entry(&visible)))?.is_some() {
            return Err(SnapshotError::Exists { path: visible.display().to_string() });
        }
        if !directory.is_swept {
            directory.is_swept = self.sweep(directory.first_id).is_ok();
        }
        self.check_parts(checkpoint)?;
        self.write_metadata(checkpoint)?;
        // From here on until its name is durable, one way or the other, nobody knows what a crash would leave.
        directory.doubtful.insert(id);
        let shown = at(&visible, self.store.rename(&hidden, &visible))
            .and_then(|()| self.sync_directory(&self.paths.directory));
        if let Err(error) = shown {
            // If this fails too, whoever wants to read or commit next has to begin with it.
            let _ = self.withdraw(directory);
            return Err(error);
        }
        directory.doubtful.remove(&id);
        self.writers.close(id, Outcome::Completed);
        directory.newest_committed = directory.newest_committed.max(Some(id));
        if !directory.is_completion_recorded {
            // The checkpoint is complete, whatever becomes of this. The next one tries again.
            let recorded = self.rewrite_record(directory, |record| record.newest_completed = Some(id));
            directory.is_completion_recorded = recorded.is_ok();
        }
        Ok(())
    }

    fn discard(&self, checkpoint: CheckpointId) -> Result<(), SnapshotError> {
        let mut guard = self.opened()?;
        let directory = &mut *guard;
        self.writers.close(checkpoint, Outcome::Discarded);
        // Until the end of this function has been reached.
        directory.undiscarded.insert(checkpoint);
        let next = directory.record.as_ref().map(|record| record.next_checkpoint_id);
        if directory.newest_committed < Some(checkpoint) && next <= Some(checkpoint) {
            // Nothing else would show that the id was given away.
            self.rewrite_record(directory, |record| record.next_checkpoint_id = checkpoint.next())?;
        }
        let visible = self.paths.checkpoint(checkpoint);
        if at(&visible, if_found(self.store.entry(&visible)))?.is_some() {
            self.remove_visible(&[checkpoint])?;
        } else if directory.doubtful.contains(&checkpoint) {
            self.sync_directory(&self.paths.directory)?;
        }
        directory.doubtful.remove(&checkpoint);
        for hidden in [self.paths.under_way(checkpoint), self.paths.removed(checkpoint)] {
            remove_with_files(self.store.as_ref(), &hidden)?;
        }
        directory.undiscarded.remove(&checkpoint);
        Ok(())
    }

    /// What it answers is durable, whoever wrote it: the answer is acted upon, and must not be taken back by a crash.
    fn newest(&self) -> Result<Option<CompletedCheckpoint>, SnapshotError> {
        let mut guard = self.directory();
        let directory = &mut *guard;
        self.withdraw(directory)?;
        let newest = visible_checkpoints(&self.entries()?).last().copied();
        let record = directory.record.as_ref();
        if let Some(known) = directory.newest_committed.filter(|known| newest < Some(*known)) {
            let directory = self.paths.directory.display().to_string();
            return Err(SnapshotError::Gone { directory, newest: known });
        }
        record.map_or(Ok(()), |record| record.check_newest(&self.paths.directory, newest))?;
        if directory.stage == Stage::Open {
            let path = self.paths.record();
            if at(&path, if_found(self.store.entry(&path)))?.is_none() {
                return Err(SnapshotError::NoRun { path: self.paths.directory.display().to_string() });
            }
        }
        let Some(id) = newest else { return Ok(None) };
        let path = self.paths.checkpoint(id);
        let prefix = format!("{}/", layout::checkpoint(id));
        let checkpoint = read_metadata(self.store.as_ref(), &path, &prefix)?;
        let job = record.map_or(checkpoint.job, |record| record.job);
        if (checkpoint.id, checkpoint.job) != (id, job) {
            return Err(SnapshotError::Misplaced {
                file: path.join(layout::METADATA).display().to_string(),
                expected: format!("checkpoint {id} of run {job}"),
                found: format!("checkpoint {} of run {}", checkpoint.id, checkpoint.job),
            });
        }
        check_files(self.store.as_ref(), &self.paths.directory, &checkpoint)?;
        let metadata = path.join(layout::METADATA);
        at(&metadata, self.store.sync_file(&metadata))?;
        for directory in [&path, &self.paths.directory, &self.paths.root] {
            self.sync_directory(directory)?;
        }
        Ok(Some(checkpoint))
    }

    fn highest_id(&self) -> Result<Option<CheckpointId>, SnapshotError> {
        self.highest_known(&self.directory())
    }

    fn list(&self) -> Result<Vec<CheckpointId>, SnapshotError> {
        let mut directory = self.directory();
        self.withdraw(&mut directory)?;
        Ok(visible_checkpoints(&self.entries()?))
    }
}

impl JobStorage {
    /// The highest id of which the disk or the record knows.
    fn highest_known(&self, directory: &Directory) -> Result<Option<CheckpointId>, SnapshotError> {
        let id = |name: &str| match JobEntry::of(name) {
            JobEntry::Checkpoint(id) | JobEntry::Hidden(id) => Some(id),
            JobEntry::Temporary | JobEntry::Other => None,
        };
        let on_disk = self.entries()?.iter().filter_map(|(name, _)| id(name)).max();
        let given = directory.record.as_ref().and_then(|record| record.next_checkpoint_id.0.checked_sub(1));
        Ok(on_disk.max(given.filter(|id| *id > 0).map(CheckpointId)))
    }
}
