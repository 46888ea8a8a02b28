//! Records as lines of text, in a directory or on standard output.

use std::fmt;
use std::fs::{File, OpenOptions, create_dir_all};
use std::io::{self, Write as _};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use super::FileError;
use crate::base::error::BoxError;
use crate::base::progress::Flow;
use crate::connectors::blocking::{BlockingWrite, WriteBehind};
use crate::operator::{OpenContext, PreCommitContext, Sink};

/// Bytes that are handed to the writer at once while records keep coming.
const CHUNK_BYTES: usize = 64 * 1024;

/// Writes each record as a line of text; a function of the user's makes the text.
///
/// In a directory, which is created if it does not exist, each subtask appends to the file `part-<subtask>`. A plain sink: what it
/// writes can be seen at once, and a restart repeats the records since the checkpoint.
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
pub struct LineSink<T, F> {
    target: Target,
    format: F,
    buffer: Vec<u8>,
    writer: Option<WriteBehind>,
    record_type: PhantomData<fn(T)>,
}

#[derive(Debug, Clone)]
enum Target {
    Directory(PathBuf),
    StandardOutput,
    Nowhere,
}

impl<T, F> LineSink<T, F>
where
    T: 'static,
    F: Fn(&T, &mut Vec<u8>) + Clone + Send + 'static,
{
    /// A sink that writes to files in this directory. `format` appends the text of a record, without a line end; it is called
    /// on the core of the subtask.
    pub fn directory(path: impl Into<PathBuf>, format: F) -> Self {
        Self::new(Target::Directory(path.into()), format)
    }

    /// A sink that writes to the standard output of the process, whole lines at a time.
    pub fn stdout(format: F) -> Self {
        Self::new(Target::StandardOutput, format)
    }

    /// A sink that drops every record, for a job whose output is optional.
    pub fn nowhere(format: F) -> Self {
        Self::new(Target::Nowhere, format)
    }

    fn new(target: Target, format: F) -> Self {
        Self { target, format, buffer: Vec::new(), writer: None, record_type: PhantomData }
    }
}

impl<T, F: Clone> Clone for LineSink<T, F> {
    fn clone(&self) -> Self {
        Self {
            target: self.target.clone(),
            format: self.format.clone(),
            buffer: Vec::new(),
            writer: None,
            record_type: PhantomData,
        }
    }
}

impl<T, F> fmt::Debug for LineSink<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LineSink").field("target", &self.target).finish_non_exhaustive()
    }
}

impl<T, F> Sink<T> for LineSink<T, F>
where
    T: 'static,
    F: Fn(&T, &mut Vec<u8>) + Clone + Send + 'static,
{
    fn open(&mut self, cx: &mut OpenContext<'_>) -> Result<(), BoxError> {
        self.writer = match &self.target {
            Target::Directory(directory) => {
                let path = directory.join(format!("part-{}", cx.subtask));
                let writer = FileWriter { directory: directory.clone(), path, file: None, whole_bytes: 0 };
                Some(WriteBehind::spawn(cx, "write", writer)?)
            }
            Target::StandardOutput => Some(WriteBehind::spawn(cx, "write", StandardOutput)?),
            Target::Nowhere => None,
        };
        Ok(())
    }

    #[inline]
    fn write(&mut self, record: T) -> Result<Flow, BoxError> {
        let Some(writer) = &mut self.writer else { return Ok(Flow::Continue) };
        (self.format)(&record, &mut self.buffer);
        self.buffer.push(b'\n');
        if self.buffer.len() >= CHUNK_BYTES {
            writer.write(&mut self.buffer);
            return writer.poll();
        }
        Ok(if writer.is_full() { Flow::Blocked } else { Flow::Continue })
    }

    fn resume(&mut self) -> Result<Flow, BoxError> {
        self.writer.as_mut().map_or(Ok(Flow::Continue), WriteBehind::poll)
    }

    fn flush(&mut self) -> Result<(), BoxError> {
        let Some(writer) = &mut self.writer else { return Ok(()) };
        let _ = writer.poll()?;
        if !self.buffer.is_empty() && !writer.is_full() {
            writer.write(&mut self.buffer);
        }
        Ok(())
    }

    fn end_input(&mut self) -> Result<Flow, BoxError> {
        let Some(writer) = &mut self.writer else { return Ok(Flow::Continue) };
        if !self.buffer.is_empty() {
            writer.write(&mut self.buffer);
        }
        writer.end()
    }

    fn pre_commit(&mut self, _cx: &mut PreCommitContext) -> Result<(), BoxError> {
        // What the helper was given is written even if this execution fails; if it cannot be written, the job is not restarted.
        if let Some(writer) = self.writer.as_mut().filter(|_| !self.buffer.is_empty()) {
            writer.write(&mut self.buffer);
        }
        Ok(())
    }
}

/// Appends to one file.
struct FileWriter {
    directory: PathBuf,
    path: PathBuf,
    file: Option<File>,
    /// Length of the file up to the last chunk that was written as a whole.
    whole_bytes: u64,
}

impl FileWriter {
    fn file(&mut self) -> Result<(&mut File, &Path), BoxError> {
        match &mut self.file {
            Some(file) => Ok((file, &self.path)),
            None => Err("the file is not open".into()),
        }
    }
}

impl BlockingWrite for FileWriter {
    fn open(&mut self) -> Result<(), BoxError> {
        create_dir_all(&self.directory).map_err(FileError::io("create the directory", &self.directory))?;
        let opened = OpenOptions::new().create(true).append(true).open(&self.path);
        let file = opened.map_err(FileError::io("write", &self.path))?;
        self.whole_bytes = file.metadata().map_err(FileError::io("read", &self.path))?.len();
        self.file = Some(file);
        Ok(())
    }

    fn write(&mut self, chunk: &[u8]) -> Result<(), BoxError> {
        let whole_bytes = self.whole_bytes;
        let (file, path) = self.file()?;
        if let Err(error) = file.write_all(chunk) {
            // Half a line must not stand before the lines of the next execution.
            let _ = file.set_len(whole_bytes);
            return Err(FileError::io("write", path)(error).into());
        }
        self.whole_bytes += chunk.len() as u64;
        Ok(())
    }

    fn sync(&mut self) -> Result<(), BoxError> {
        let (file, path) = self.file()?;
        Ok(file.sync_data().map_err(FileError::io("write", path))?)
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
    fn open(&mut self) -> Result<(), BoxError> {
        Ok(())
    }

    fn write(&mut self, chunk: &[u8]) -> Result<(), BoxError> {
        let mut stdout = io::stdout().lock();
        let written = stdout.write_all(chunk).and_then(|()| stdout.flush());
        written.map_err(|error| Self::failed(&error))
    }

    fn sync(&mut self) -> Result<(), BoxError> {
        Ok(())
    }
}
