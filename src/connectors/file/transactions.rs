//! Lines in files that are seen when their checkpoint is complete.
//!
//! A transaction is one file. It is written under a hidden name, made durable at the barrier (its bytes, then its name), and renamed
//! within the directory when the checkpoint is complete. Under which name it will be seen is fixed at the barrier and stands in the
//! snapshot, so that a commit can be repeated at any time: whatever crash came between, either the hidden file is there or the
//! visible one.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};

use super::FileError;
use super::output::{
    HIDDEN, absolute, claim, length, published_with, remove, remove_hidden, sync_directory, visible_name,
};
use crate::base::error::{BoxError, Error, ErrorKind, Recovery};
use crate::base::id::CheckpointId;
use crate::operator::{SinkClaim, TransactionContext, TwoPhaseCommitSink};
use crate::snapshot::{LocalStore, Store, StoreFile, StoreLock};

/// Bytes that are read at once to compare a file.
const COMPARED_BYTES: u64 = 1 << 20;

/// One file. Stands in snapshots.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileTransaction {
    /// Seen from the root: the job may be configured with another one when the transaction is recovered.
    pub(super) directory: PathBuf,
    pub(super) hidden: String,
    /// The name under which it will be seen. Empty until the barrier.
    pub(super) visible: String,
    pub(super) bytes: u64,
    pub(super) crc32c: u32,
}

impl FileTransaction {
    fn hidden_path(&self) -> PathBuf {
        self.directory.join(&self.hidden)
    }

    fn visible_path(&self) -> PathBuf {
        self.directory.join(&self.visible)
    }

    /// A snapshot may come from anywhere: its names lead to output files in the directory, and to nothing else.
    fn check_names(&self) -> Result<(), Error> {
        let is_plain = |name: &str| !name.contains(['/', '\\', '\0']);
        let is_hidden = self.hidden.starts_with(HIDDEN) && is_plain(&self.hidden);
        let is_visible = self.visible.is_empty() || published_with(&self.visible).is_some();
        if self.directory.is_absolute() && is_hidden && is_visible {
            return Ok(());
        }
        let message = format!("the snapshot's transaction names {self:?}, which is no file of this sink's");
        Err(Error::new(ErrorKind::Snapshot, Recovery::GiveUp, message))
    }
}

/// Formats records as lines and writes them to files.
pub(super) struct FileTransactions<F> {
    directory: PathBuf,
    store: Arc<dyn Store>,
    accepts_missing: bool,
    format: F,
    shared: Arc<Shared>,
    context: Option<TransactionContext>,
    /// Files begun so far.
    begun: u64,
    file: Option<Box<dyn StoreFile>>,
    /// Held for the job by the clone that claimed the directory.
    lock: Option<Box<dyn StoreLock>>,
}

/// What the claim tells the subtasks.
#[derive(Debug, Default)]
struct Shared {
    /// The directory was there when the job began.
    is_claimed: AtomicBool,
    allows_repeated_output: AtomicBool,
}

impl<F> FileTransactions<F> {
    pub(super) fn new(directory: PathBuf, format: F) -> Self {
        Self {
            directory: absolute(directory),
            store: Arc::new(LocalStore),
            accepts_missing: false,
            format,
            shared: Arc::default(),
            context: None,
            begun: 0,
            file: None,
            lock: None,
        }
    }

    pub(super) fn accept_missing(self, accepts_missing: bool) -> Self {
        Self { accepts_missing, ..self }
    }

    pub(super) fn with_store(self, store: Arc<dyn Store>) -> Self {
        Self { store, ..self }
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// The name under which the lines up to this checkpoint will be seen.
    fn free_name(&self, checkpoint: Option<CheckpointId>) -> Result<String, FileError> {
        let subtask = self.context.as_ref().map(|context| context.subtask).unwrap_or_default();
        let mut repeat = 1;
        loop {
            let name = visible_name(subtask, checkpoint, repeat);
            let path = self.directory.join(&name);
            if length(self.store.as_ref(), &path)?.is_none() {
                return Ok(name);
            }
            // Without that permission nobody else's lines can have this name: they would be replaced by the commit.
            if !self.shared.allows_repeated_output.load(Ordering::Relaxed) {
                return Err(FileError::Exists { path });
            }
            repeat += 1;
        }
    }

    fn create(&mut self) -> Result<FileTransaction, FileError> {
        let directory = &self.directory;
        // A directory that was claimed and has vanished took published output with it: that is not to be covered up.
        if self.begun == 0 && !self.shared.is_claimed.load(Ordering::Relaxed) {
            let created = self.store.create_directories(directory);
            created.map_err(FileError::io("create the directory", directory))?;
        }
        let context = self.context.as_ref();
        let (subtask, token) =
            context.map(|context| (context.subtask, context.token.as_str())).unwrap_or_default();
        let hidden = format!("{HIDDEN}{subtask}-{token}-{}", self.begun);
        let path = directory.join(&hidden);
        self.file = Some(self.store.create(&path).map_err(FileError::io("create the file", &path))?);
        self.begun += 1;
        let (directory, visible) = (directory.clone(), String::new());
        Ok(FileTransaction { directory, hidden, visible, bytes: 0, crc32c: 0 })
    }

    /// Renames the file, unless that was done. Whatever it answers, it can be asked again.
    fn publish(&self, transaction: &FileTransaction) -> Result<(), FileError> {
        let store = self.store.as_ref();
        let (hidden, visible) = (transaction.hidden_path(), transaction.visible_path());
        match (length(store, &hidden)?, length(store, &visible)?) {
            (Some(bytes), None) => {
                compare_lengths(&hidden, bytes, transaction)?;
                store.rename(&hidden, &visible).map_err(FileError::io("publish", &visible))?;
            }
            (None, Some(_)) if self.accepts_missing => {}
            (None, Some(bytes)) => compare_lengths(&visible, bytes, transaction)?,
            (Some(_), Some(bytes)) => {
                // Somebody has copied files. If nothing is lost by it, it does no harm.
                compare_lengths(&visible, bytes, transaction)?;
                compare_content(store, &visible, transaction)?;
                remove(store, &hidden)?;
            }
            (None, None) if self.accepts_missing => return Ok(()),
            (None, None) => {
                return Err(FileError::Missing { path: visible, hidden: transaction.hidden.clone() });
            }
        }
        // Also if it was renamed before: the crash that interrupted the commit may have come before this.
        sync_directory(store, &transaction.directory)
    }
}

fn compare_lengths(path: &Path, bytes: u64, transaction: &FileTransaction) -> Result<(), FileError> {
    if bytes == transaction.bytes {
        return Ok(());
    }
    let difference = format!("it has {bytes} bytes, {} were written", transaction.bytes);
    Err(FileError::Different { path: path.to_owned(), difference })
}

fn compare_content(store: &dyn Store, path: &Path, transaction: &FileTransaction) -> Result<(), FileError> {
    let mut crc32c = 0;
    let mut offset = 0;
    while offset < transaction.bytes {
        let bytes = COMPARED_BYTES.min(transaction.bytes - offset);
        let piece = store.read_range(path, offset, bytes).map_err(FileError::io("read", path))?;
        crc32c = crc32c::crc32c_append(crc32c, &piece);
        offset += bytes;
    }
    if crc32c == transaction.crc32c {
        return Ok(());
    }
    let difference = format!("its checksum is {crc32c:08x}, not {:08x}", transaction.crc32c);
    Err(FileError::Different { path: path.to_owned(), difference })
}

/// The error with what the engine should do about it: what the system refused may work another time, a file that is missing or
/// another one stays so.
fn failed(error: FileError) -> BoxError {
    let recovery = match &error {
        FileError::Io { .. } => Recovery::Restart,
        _ => Recovery::GiveUp,
    };
    Error::caused_by(ErrorKind::Connector, recovery, &error.into()).into()
}

impl<F: Clone> Clone for FileTransactions<F> {
    fn clone(&self) -> Self {
        Self {
            directory: self.directory.clone(),
            store: Arc::clone(&self.store),
            accepts_missing: self.accepts_missing,
            format: self.format.clone(),
            shared: Arc::clone(&self.shared),
            context: None,
            begun: 0,
            file: None,
            lock: None,
        }
    }
}

impl<F> fmt::Debug for FileTransactions<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileTransactions").field("directory", &self.directory).finish_non_exhaustive()
    }
}

impl<T, F> TwoPhaseCommitSink<T> for FileTransactions<F>
where
    F: Fn(&T, &mut Vec<u8>) + Clone + Send + 'static,
{
    type Buffer = Vec<u8>;
    type Transaction = FileTransaction;

    #[inline]
    fn buffer(&mut self, record: T, buffer: &mut Vec<u8>) -> Result<usize, BoxError> {
        (self.format)(&record, buffer);
        buffer.push(b'\n');
        Ok(buffer.len())
    }

    fn open(&mut self, cx: &TransactionContext) -> Result<(), BoxError> {
        self.context = Some(cx.clone());
        Ok(())
    }

    fn begin(&mut self) -> Result<FileTransaction, BoxError> {
        self.create().map_err(failed)
    }

    fn write(&mut self, transaction: &mut FileTransaction, buffer: &mut Vec<u8>) -> Result<(), BoxError> {
        let file = self.file.as_mut().ok_or("no file is open")?;
        file.append(buffer)
            .map_err(|error| failed(FileError::io("write", &transaction.hidden_path())(error)))?;
        transaction.bytes += buffer.len() as u64;
        transaction.crc32c = crc32c::crc32c_append(transaction.crc32c, buffer);
        buffer.clear();
        Ok(())
    }

    fn pre_commit(
        &mut self,
        transaction: &mut FileTransaction,
        checkpoint: Option<CheckpointId>,
    ) -> Result<(), BoxError> {
        transaction.visible = self.free_name(checkpoint).map_err(failed)?;
        let mut file = self.file.take().ok_or("no file is open")?;
        let synced = file.sync().map_err(FileError::io("write", &transaction.hidden_path()));
        synced.and_then(|()| sync_directory(self.store.as_ref(), &self.directory)).map_err(failed)
    }

    fn commit(&mut self, transaction: &FileTransaction) -> Result<(), BoxError> {
        self.publish(transaction).map_err(failed)
    }

    fn recover_and_commit(&mut self, transaction: &FileTransaction) -> Result<(), BoxError> {
        transaction.check_names()?;
        self.commit(transaction)
    }

    fn recover_and_abort(&mut self, transaction: &FileTransaction) -> Result<(), BoxError> {
        transaction.check_names()?;
        self.abort(transaction)
    }

    fn abort(&mut self, transaction: &FileTransaction) -> Result<(), BoxError> {
        self.file = None;
        remove(self.store.as_ref(), &transaction.hidden_path()).map_err(failed)
    }

    fn claim(&mut self, cx: &SinkClaim) -> Result<(), BoxError> {
        self.lock = claim(self.store.as_ref(), &self.directory, cx)?;
        self.shared.is_claimed.store(self.lock.is_some(), Ordering::Relaxed);
        self.shared.allows_repeated_output.store(cx.allows_repeated_output, Ordering::Relaxed);
        Ok(())
    }

    fn remove_leftovers(&mut self) -> Result<(), BoxError> {
        let removed = remove_hidden(self.store.as_ref(), &self.directory);
        match removed {
            Err(error) if super::output::is_missing(&error) && self.lock.is_none() => Ok(()),
            removed => removed.map_err(failed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A snapshot with valid checksums can be made by anybody: it could name any file of the user's.
    #[test]
    fn a_transaction_that_names_another_file_moves_and_removes_nothing() {
        let scratch = tempfile::tempdir().unwrap();
        let (directory, theirs) = (scratch.path().join("out"), scratch.path().join("theirs"));
        std::fs::create_dir(&directory).unwrap();
        std::fs::write(&theirs, "precious").unwrap();
        let format = |_: &u64, _: &mut Vec<u8>| {};
        let mut sink = FileTransactions::new(directory.clone(), format);
        let absolute = theirs.to_str().unwrap();
        for (hidden, visible) in [
            ("../theirs", "part-0-1"),
            (absolute, "part-0-1"),
            (".part-0/../../theirs", "part-0-1"),
            (".part-0-1", "../theirs"),
            (".part-0-1", absolute),
            ("", ""),
        ] {
            let (hidden, visible) = (hidden.to_owned(), visible.to_owned());
            let transaction =
                FileTransaction { directory: directory.clone(), hidden, visible, bytes: 8, crc32c: 0 };
            let refused = |result: Result<(), BoxError>| {
                let error = Error::caused_by(ErrorKind::Connector, Recovery::Restart, &result.unwrap_err());
                assert_eq!(error.recovery(), Recovery::GiveUp, "{error}");
            };
            refused(TwoPhaseCommitSink::<u64>::recover_and_commit(&mut sink, &transaction));
            refused(TwoPhaseCommitSink::<u64>::recover_and_abort(&mut sink, &transaction));
        }
        assert_eq!(std::fs::read_to_string(&theirs).unwrap(), "precious");
        assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0);
    }
}
