//! Records as lines of text, in a directory or on standard output.

use std::fmt;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::Arc;

use super::transactions::FileTransactions;
use crate::base::error::BoxError;
use crate::base::id::CheckpointId;
use crate::base::progress::Flow;
use crate::connectors::TwoPhase;
use crate::connectors::blocking::{BlockingWrite, WriteBehind};
use crate::operator::{OpenContext, PreCommitContext, Sink, SinkRecovery};
use crate::snapshot::Store;

/// Bytes that are handed to the writer at once while records keep coming.
const CHUNK_BYTES: usize = 64 * 1024;

/// Writes each record as a line of text; a function of the user's makes the text.
///
/// # In a directory: exactly once
/// Lines are seen when the checkpoint that covers them is complete, in a file `part-<subtask>-<checkpoint>` of their own; with
/// checkpoints off, in `part-<subtask>` once the job is finished. What is not to be seen yet has a name that begins with a dot.
/// A file that can be seen is never changed, replaced or removed. A subtask without a line since the last checkpoint makes no file.
///
/// The directory is the job's own while it runs, marked by a file `.lock`, and is created if it does not exist. A job that begins
/// from nothing is rejected if anything is in it; one that goes on from a checkpoint, if output is in it that was published later
/// and would be repeated.
///
/// ```
/// use std::io::Write as _;
/// use stoplog::prelude::*;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let directory = tempfile::tempdir()?;
/// let env = StreamEnvironment::new(JobConfig { parallelism: 1, ..JobConfig::default() });
/// let format = |n: &u64, line: &mut Vec<u8>| write!(line, "number {n}");
/// env.source("numbers", VecSource::new(vec![1u64, 2]))
///     .sink("lines", LineSink::directory(directory.path(), move |n, line| drop(format(n, line))));
/// env.execute()?;
/// assert_eq!(std::fs::read_to_string(directory.path().join("part-0"))?, "number 1\nnumber 2\n");
/// # Ok(())
/// # }
/// ```
///
/// # On standard output: at least once
/// A plain sink: what it writes can be seen at once, a restart repeats the lines since the checkpoint, and a job that cannot write
/// fails for good.
pub struct LineSink<T: 'static, F: Fn(&T, &mut Vec<u8>) + Clone + Send + 'static> {
    target: Target<T, F>,
}

enum Target<T: 'static, F: Fn(&T, &mut Vec<u8>) + Clone + Send + 'static> {
    Directory(TwoPhase<T, FileTransactions<F>>),
    StandardOutput(Plain<F>),
    Nowhere,
}

struct Plain<F> {
    format: F,
    buffer: Vec<u8>,
    writer: Option<WriteBehind>,
}

impl<T, F> LineSink<T, F>
where
    T: 'static,
    F: Fn(&T, &mut Vec<u8>) + Clone + Send + 'static,
{
    /// A sink that writes to files in this directory. `format` appends the text of a record, without a line end; it is called
    /// on the core of the subtask.
    pub fn directory(path: impl Into<PathBuf>, format: F) -> Self {
        Self { target: Target::Directory(TwoPhase::new(FileTransactions::new(path.into(), format))) }
    }

    /// A sink that writes to the standard output of the process, whole lines at a time.
    pub fn stdout(format: F) -> Self {
        Self { target: Target::StandardOutput(Plain { format, buffer: Vec::new(), writer: None }) }
    }

    /// A sink that drops every record, for a job whose output is optional.
    pub fn nowhere(_format: F) -> Self {
        Self { target: Target::Nowhere }
    }

    /// For a directory from which files are taken away once they are seen: that a file cannot be found, neither hidden nor visible,
    /// is then no reason to give up, since it must have been seen. Without it (the default) the job fails, since lines may be lost.
    #[must_use]
    pub fn accept_missing(self, accept: bool) -> Self {
        self.map_files(|files| files.accept_missing(accept))
    }

    /// Writes files to this store instead of the machine's file system.
    #[must_use]
    pub fn with_store(self, store: Arc<dyn Store>) -> Self {
        self.map_files(|files| files.with_store(store))
    }

    fn map_files(self, change: impl FnOnce(FileTransactions<F>) -> FileTransactions<F>) -> Self {
        let target = match self.target {
            Target::Directory(sink) => Target::Directory(sink.map_sink(change)),
            other => other,
        };
        Self { target }
    }
}

/// A sink that is not open yet, whatever the state of this one.
impl<T, F> Clone for LineSink<T, F>
where
    F: Fn(&T, &mut Vec<u8>) + Clone + Send + 'static,
{
    fn clone(&self) -> Self {
        let target = match &self.target {
            Target::Directory(sink) => Target::Directory(sink.clone()),
            Target::StandardOutput(plain) => {
                let format = plain.format.clone();
                Target::StandardOutput(Plain { format, buffer: Vec::new(), writer: None })
            }
            Target::Nowhere => Target::Nowhere,
        };
        Self { target }
    }
}

impl<T, F> fmt::Debug for LineSink<T, F>
where
    F: Fn(&T, &mut Vec<u8>) + Clone + Send + 'static,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("LineSink");
        match &self.target {
            Target::Directory(sink) => shown.field("directory", &sink.sink().directory()),
            Target::StandardOutput(_) => shown.field("to", &"standard output"),
            Target::Nowhere => shown.field("to", &"nowhere"),
        };
        shown.finish_non_exhaustive()
    }
}

impl<T, F> Sink<T> for LineSink<T, F>
where
    T: 'static,
    F: Fn(&T, &mut Vec<u8>) + Clone + Send + 'static,
{
    fn open(&mut self, cx: &mut OpenContext<'_>) -> Result<(), BoxError> {
        match &mut self.target {
            Target::Directory(sink) => sink.open(cx)?,
            Target::StandardOutput(plain) => {
                plain.writer = Some(WriteBehind::spawn(cx, "write", StandardOutput)?);
            }
            Target::Nowhere => {}
        }
        Ok(())
    }

    #[inline]
    fn write(&mut self, record: T) -> Result<Flow, BoxError> {
        match &mut self.target {
            Target::Directory(sink) => sink.write(record),
            Target::StandardOutput(plain) => plain.write(|format, line| format(&record, line)),
            Target::Nowhere => Ok(Flow::Continue),
        }
    }

    fn resume(&mut self) -> Result<Flow, BoxError> {
        match &mut self.target {
            Target::Directory(sink) => sink.resume(),
            Target::StandardOutput(plain) => plain.writer()?.poll(),
            Target::Nowhere => Ok(Flow::Continue),
        }
    }

    fn flush(&mut self) -> Result<(), BoxError> {
        match &mut self.target {
            Target::Directory(sink) => sink.flush(),
            Target::StandardOutput(plain) => plain.flush(),
            Target::Nowhere => Ok(()),
        }
    }

    fn end_input(&mut self) -> Result<Flow, BoxError> {
        match &mut self.target {
            Target::Directory(sink) => sink.end_input(),
            Target::StandardOutput(plain) => {
                plain.hand_over()?;
                plain.writer()?.end()
            }
            Target::Nowhere => Ok(Flow::Continue),
        }
    }

    fn pre_commit(&mut self, cx: &mut PreCommitContext) -> Result<(), BoxError> {
        match &mut self.target {
            Target::Directory(sink) => sink.pre_commit(cx),
            // What the helper was given is written even if this execution fails; if it cannot be written, the job is not restarted.
            Target::StandardOutput(plain) => plain.hand_over(),
            Target::Nowhere => Ok(()),
        }
    }

    fn notify_complete(&mut self, checkpoint: CheckpointId) -> Result<(), BoxError> {
        match &mut self.target {
            Target::Directory(sink) => sink.notify_complete(checkpoint),
            _ => Ok(()),
        }
    }

    fn notify_aborted(&mut self, checkpoint: CheckpointId) -> Result<(), BoxError> {
        match &mut self.target {
            Target::Directory(sink) => sink.notify_aborted(checkpoint),
            _ => Ok(()),
        }
    }

    fn close(&mut self) -> Result<(), BoxError> {
        match &mut self.target {
            Target::Directory(sink) => sink.close(),
            _ => Ok(()),
        }
    }

    fn published(&mut self) -> Result<Flow, BoxError> {
        match &mut self.target {
            Target::Directory(sink) => sink.published(),
            _ => Ok(Flow::Continue),
        }
    }

    fn recovery(&self) -> Option<Box<dyn SinkRecovery>> {
        match &self.target {
            Target::Directory(sink) => sink.recovery(),
            _ => None,
        }
    }
}

impl<F> Plain<F> {
    fn writer(&mut self) -> Result<&mut WriteBehind, BoxError> {
        self.writer.as_mut().ok_or_else(|| "the sink is not open".into())
    }

    #[inline]
    fn write(&mut self, format: impl FnOnce(&F, &mut Vec<u8>)) -> Result<Flow, BoxError> {
        format(&self.format, &mut self.buffer);
        self.buffer.push(b'\n');
        if self.buffer.len() >= CHUNK_BYTES {
            self.hand_over()?;
            return self.writer()?.poll();
        }
        Ok(if self.writer()?.is_full() { Flow::Blocked } else { Flow::Continue })
    }

    fn flush(&mut self) -> Result<(), BoxError> {
        let writer = self.writer()?;
        let _ = writer.poll()?;
        if writer.is_full() { Ok(()) } else { self.hand_over() }
    }

    fn hand_over(&mut self) -> Result<(), BoxError> {
        if !self.buffer.is_empty() {
            let writer = self.writer.as_mut().ok_or("the sink is not open")?;
            writer.write(&mut self.buffer);
        }
        Ok(())
    }
}

/// Writes to standard output, each chunk under the lock, so that lines of several subtasks do not mix.
struct StandardOutput;

impl StandardOutput {
    fn failed(error: &io::Error) -> BoxError {
        format!("cannot write to standard output: {error}").into()
    }
}

impl BlockingWrite for StandardOutput {
    fn write(&mut self, chunk: &[u8]) -> Result<(), BoxError> {
        let mut stdout = io::stdout().lock();
        let written = stdout.write_all(chunk).and_then(|()| stdout.flush());
        written.map_err(|error| Self::failed(&error))
    }
}
