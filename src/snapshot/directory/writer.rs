//! The files of checkpoints under way.
//!
//! Names in their directories are made under one mutex, together with the question whether the checkpoint still takes files. So once a
//! checkpoint is closed no name appears in its directory any more, however late a writer comes. Bytes are written and made durable outside
//! of the mutex.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::super::error::SnapshotError;
use super::super::layout::{self, JobPaths};
use super::super::manifest::{SnapshotFile, Written};
use super::super::storage::StateWriter;
use super::super::store::{Store, StoreFile};
use super::{at, if_found};
use crate::base::id::{CheckpointId, SubtaskId};

/// The outcomes of so many checkpoints are remembered, to refuse writers that come late. Older ones are all refused.
const REMEMBERED_OUTCOMES: usize = 1024;

/// Bytes are collected up to this number before they go to the file system.
const WRITE_BYTES: usize = 128 << 10;

/// Why a checkpoint takes no more files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Completed,
    Discarded,
}

/// The checkpoints under way of one run.
#[derive(Debug)]
pub(super) struct Writers {
    store: Arc<dyn Store>,
    paths: JobPaths,
    inline_threshold: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    is_open: bool,
    under_way: BTreeMap<CheckpointId, UnderWay>,
    closed: BTreeMap<CheckpointId, Outcome>,
    /// All up to this one are closed.
    closed_up_to: Option<CheckpointId>,
}

/// A checkpoint that has its directory.
#[derive(Debug, Default)]
struct UnderWay {
    files_begun: BTreeMap<SubtaskId, u64>,
    /// The durable files with their lengths.
    finished: BTreeMap<String, u64>,
}

impl Writers {
    pub(super) fn new(store: Arc<dyn Store>, paths: JobPaths, inline_threshold: usize) -> Arc<Self> {
        Arc::new(Self { store, paths, inline_threshold, state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each change is one step, after the file operation that it reports.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes files from now on, or never again.
    pub(super) fn set_open(&self, is_open: bool) {
        self.state().is_open = is_open;
    }

    /// Starts a file. It gets a name in the file system only if it outgrows the metadata.
    pub(super) fn begin(
        self: &Arc<Self>,
        checkpoint: CheckpointId,
        subtask: SubtaskId,
    ) -> Result<FileWriter, SnapshotError> {
        let mut state = self.state();
        // Even if no file follows: the directory shows, should this process die, that the id was given away.
        let under_way = self.directory(&mut state, checkpoint)?;
        let number = under_way.files_begun.entry(subtask).or_default();
        let name = layout::state_file(subtask, *number);
        *number += 1;
        let file = format!("{}/{name}", layout::checkpoint(checkpoint));
        let path = self.paths.under_way(checkpoint).join(&name);
        let writers = Arc::clone(self);
        let (pending, length) = (Vec::new(), 0);
        Ok(FileWriter { writers, checkpoint, file, name, path, pending, length, stage: Stage::Buffered })
    }

    /// Makes sure that the checkpoint has its directory. Answers the finished files in it with their lengths.
    pub(super) fn finished(&self, checkpoint: CheckpointId) -> Result<BTreeMap<String, u64>, SnapshotError> {
        let mut state = self.state();
        self.directory(&mut state, checkpoint).map(|under_way| under_way.finished.clone())
    }

    /// The checkpoint takes no more files.
    pub(super) fn close(&self, checkpoint: CheckpointId, outcome: Outcome) {
        let mut state = self.state();
        state.under_way.remove(&checkpoint);
        state.closed.insert(checkpoint, outcome);
        if state.closed.len() > REMEMBERED_OUTCOMES {
            state.closed_up_to = state.closed.pop_first().map(|(oldest, _)| oldest);
        }
    }

    fn directory<'a>(
        &self,
        state: &'a mut State,
        checkpoint: CheckpointId,
    ) -> Result<&'a mut UnderWay, SnapshotError> {
        self.refuse_closed(state, checkpoint)?;
        match state.under_way.entry(checkpoint) {
            std::collections::btree_map::Entry::Occupied(entry) => Ok(entry.into_mut()),
            std::collections::btree_map::Entry::Vacant(entry) => {
                // Somebody may have removed the run's directory. Creating it anew would hide that: without its record nobody would
                // find the run again, and without its lock another process might lead it too.
                let record = self.paths.record();
                at(&record, self.store.entry(&record))?;
                let path = self.paths.under_way(checkpoint);
                at(&path, self.store.create_directories(&path))?;
                Ok(entry.insert(UnderWay::default()))
            }
        }
    }

    fn refuse_closed(&self, state: &State, checkpoint: CheckpointId) -> Result<(), SnapshotError> {
        if !state.is_open {
            let path = self.paths.directory.display().to_string();
            return Err(SnapshotError::NotOpen { path });
        }
        match state.closed.get(&checkpoint) {
            Some(Outcome::Completed) => Err(SnapshotError::Completed { checkpoint }),
            Some(Outcome::Discarded) => Err(SnapshotError::Discarded { checkpoint }),
            None if state.closed_up_to.is_some_and(|closed| checkpoint <= closed) => {
                Err(SnapshotError::Discarded { checkpoint })
            }
            None => Ok(()),
        }
    }
}

/// Writes one file of a checkpoint.
#[derive(Debug)]
pub(super) struct FileWriter {
    writers: Arc<Writers>,
    checkpoint: CheckpointId,
    /// Name for handles.
    file: String,
    /// Name in the directory.
    name: String,
    path: PathBuf,
    /// Bytes that the file does not have yet.
    pending: Vec<u8>,
    /// Bytes in all.
    length: u64,
    stage: Stage,
}

enum Stage {
    /// There is no file so far.
    Buffered,
    Open(Box<dyn StoreFile>),
    /// Writing failed: nobody knows what the file has.
    Failed,
    Finished,
}

impl std::fmt::Debug for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Buffered => "Buffered",
            Self::Open(_) => "Open",
            Self::Failed => "Failed",
            Self::Finished => "Finished",
        })
    }
}

impl FileWriter {
    /// Hands the pending bytes to the file, which is created if need be.
    fn flush(&mut self) -> Result<(), SnapshotError> {
        let mut file = match std::mem::replace(&mut self.stage, Stage::Failed) {
            Stage::Buffered => self.create()?,
            Stage::Open(file) => {
                let writers = &self.writers;
                writers.refuse_closed(&writers.state(), self.checkpoint)?;
                file
            }
            Stage::Failed | Stage::Finished => {
                let error = io::Error::other("writing to the file failed before");
                return Err(SnapshotError::io(&self.path, error));
            }
        };
        at(&self.path, file.append(&self.pending))?;
        self.pending.clear();
        self.stage = Stage::Open(file);
        Ok(())
    }

    fn create(&self) -> Result<Box<dyn StoreFile>, SnapshotError> {
        let state = self.writers.state();
        self.writers.refuse_closed(&state, self.checkpoint)?;
        at(&self.path, self.writers.store.create(&self.path))
    }
}

impl StateWriter for FileWriter {
    fn file(&self) -> &str {
        &self.file
    }

    fn append(&mut self, bytes: &[u8]) -> Result<u64, SnapshotError> {
        let offset = self.length;
        self.pending.extend_from_slice(bytes);
        self.length += bytes.len() as u64;
        let limit = match self.stage {
            Stage::Buffered => self.writers.inline_threshold,
            _ => WRITE_BYTES,
        };
        if self.pending.len() > limit {
            self.flush()?;
        }
        Ok(offset)
    }

    fn finish(mut self: Box<Self>) -> Result<Written, SnapshotError> {
        if let Stage::Buffered = self.stage {
            self.writers.refuse_closed(&self.writers.state(), self.checkpoint)?;
            return Ok(Written::Inline(std::mem::take(&mut self.pending)));
        }
        self.flush()?;
        if let Stage::Open(file) = &mut self.stage {
            at(&self.path, file.sync())?;
        }
        let mut state = self.writers.state();
        self.writers.refuse_closed(&state, self.checkpoint)?;
        if let Some(under_way) = state.under_way.get_mut(&self.checkpoint) {
            under_way.finished.insert(self.name.clone(), self.length);
        }
        drop(state);
        self.stage = Stage::Finished;
        Ok(Written::File(SnapshotFile { file: std::mem::take(&mut self.file), length: self.length }))
    }
}

impl Drop for FileWriter {
    fn drop(&mut self) {
        if let Stage::Open(_) | Stage::Failed = self.stage {
            let state = self.writers.state();
            // If it is closed, the file is removed with the rest, or is gone already.
            if self.writers.refuse_closed(&state, self.checkpoint).is_ok() {
                // What stays is hidden, named by nobody, and removed with the rest at the latest.
                let _ = if_found(self.writers.store.remove_file(&self.path));
            }
        }
    }
}
