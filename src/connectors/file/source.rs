//! Lines of files, replayable from any line on.

use std::collections::HashSet;
use std::fs;
use std::path::PathBuf;

use super::check::FileCheck;
use super::reader::{Block, BlockReader};
use super::split::FileSplit;
use super::{FileError, list};
use crate::base::clock::Nanos;
use crate::base::error::BoxError;
use crate::connectors::blocking::{Read, ReadAhead};
use crate::connectors::lines::{LineCutter, text_of};
use crate::operator::{OpenContext, Output, Source, SourceStatus};
use crate::sync::{Arc, Mutex};

/// Bytes that are read at once.
const BLOCK_BYTES: usize = 256 * 1024;
/// Blocks that are read before they are needed, per subtask.
const BLOCKS_AHEAD: usize = 4;

/// Reads the lines of files. Replayable.
///
/// A line ends with `\n` or `\r\n`, which are not part of it; a last line without an end counts. Bytes that are not UTF-8 are
/// replaced by U+FFFD, with one warning per file. The order of lines is kept within a part of a file only: files are divided
/// among the subtasks.
///
/// Which files are read is settled when the job begins: of a directory, those that are in it then. What is added to a directory later
/// is not read, not even after a restart of the job.
///
/// A file must not change while the job lives. Whenever the job goes on from a checkpoint, in this process or another, each of its
/// files, those that were read to their end too, must be a regular file of the same path, length and modification time as when
/// it began, and in the input that the source is given; otherwise the job fails for good with a [`FileError`] that names the file
/// and tells what it was and is. While the job runs without a restart that is not watched: what is appended to a file meanwhile is not
/// read, except for the rest of a last line, and a file that gets too short is an error.
///
/// ```
/// use stoplog::prelude::*;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let directory = tempfile::tempdir()?;
/// std::fs::write(directory.path().join("a.txt"), "to be\nor not\nto be")?;
///
/// let env = StreamEnvironment::new(JobConfig { parallelism: 2, ..JobConfig::default() });
/// let lines = CollectSink::new();
/// env.source("lines", FileSource::lines([directory.path()])).uid("read").sink("out", lines.clone());
/// env.execute()?;
/// let mut lines = lines.take();
/// lines.sort();
/// assert_eq!(lines, ["or not", "to be", "to be"]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct FileSource {
    paths: Vec<PathBuf>,
    block_bytes: usize,
    splits: Vec<FileSplit>,
    blocks: Option<ReadAhead<Block>>,
    /// The block whose lines are being handed on.
    current: Option<Piece>,
    /// The split that the last block was a part of.
    last_split: Option<usize>,
    /// True until the end of a line was found that belongs to the part before.
    is_skipping: bool,
    cutter: LineCutter,
    /// In whose name lines are logged.
    span: tracing::Span,
    /// Files in which bytes were found that are not UTF-8, for all subtasks.
    not_utf8: Arc<Mutex<HashSet<PathBuf>>>,
}

#[derive(Debug, Clone, Copy)]
struct Piece {
    split: usize,
    offset: u64,
    is_last: bool,
}

/// A source that is not open yet, whatever the state of this one.
impl Clone for FileSource {
    fn clone(&self) -> Self {
        Self {
            block_bytes: self.block_bytes,
            not_utf8: Arc::clone(&self.not_utf8),
            ..Self::lines(self.paths.iter().cloned())
        }
    }
}

impl FileSource {
    /// A source of the lines of these files. A directory means its regular files whose names do not begin with a dot, in the
    /// order of their names.
    pub fn lines<P: Into<PathBuf>>(paths: impl IntoIterator<Item = P>) -> Self {
        Self {
            paths: paths.into_iter().map(Into::into).collect(),
            block_bytes: BLOCK_BYTES,
            splits: Vec::new(),
            blocks: None,
            current: None,
            last_split: None,
            is_skipping: false,
            cutter: LineCutter::default(),
            span: tracing::Span::none(),
            not_utf8: Arc::default(),
        }
    }

    /// Checks that all files are there and can be read.
    ///
    /// # Errors
    /// Names the first that is not.
    pub fn check(&self) -> Result<(), FileError> {
        for (path, _) in list(&self.paths)? {
            fs::File::open(&path).map_err(FileError::io("read", &path))?;
        }
        Ok(())
    }

    #[cfg(test)]
    pub(super) fn with_block_bytes(mut self, block_bytes: usize) -> Self {
        self.block_bytes = block_bytes;
        self
    }

    /// Divides the files, as they are now, into about `parallelism` parts of the same size.
    pub(super) fn divide(&self, parallelism: u32) -> Result<Vec<FileSplit>, FileError> {
        let files = list(&self.paths)?;
        let total: u64 = files.iter().map(|(_, stamp)| stamp.length).sum();
        let share = total.div_ceil(u64::from(parallelism)).max(1);
        let mut splits = Vec::new();
        for (path, stamp) in files {
            let length = stamp.length;
            // Rounded: a file that is a little larger than a share is not worth a second part.
            let parts = ((length + share / 2) / share).max(1);
            let at = |part: u64| (u128::from(length) * u128::from(part) / u128::from(parts)) as u64;
            for part in 0..parts {
                let (start, end) = (at(part), at(part + 1));
                // An empty file has a part too: it must stay empty.
                if start < end || length == 0 {
                    splits.push(FileSplit { path: path.clone(), start, end, next: start, stamp });
                }
            }
        }
        Ok(splits)
    }

    /// Takes the next block; what to answer if there is none.
    fn next_block(&mut self) -> Result<Option<SourceStatus>, BoxError> {
        let Some(blocks) = &mut self.blocks else { return Ok(Some(SourceStatus::Ended)) };
        match blocks.take()? {
            Read::Item(Block { split, offset, bytes, is_last }) => {
                if self.last_split != Some(split) {
                    self.last_split = Some(split);
                    self.is_skipping = self.splits[split].begins_amid_a_line();
                }
                self.cutter.feed(bytes);
                self.current = Some(Piece { split, offset, is_last });
                Ok(None)
            }
            Read::Later => Ok(Some(SourceStatus::Idle(Nanos::MAX))),
            Read::End => {
                self.blocks = None;
                Ok(Some(SourceStatus::Ended))
            }
        }
    }

    /// The next line of the block, or the last one of the file if the block ends it, and moves the position behind it.
    #[inline]
    fn next_line(&mut self, piece: Piece) -> Option<String> {
        let split = &mut self.splits[piece.split];
        if self.is_skipping {
            if self.cutter.next(|_| ()).is_some() {
                self.is_skipping = false;
                split.next = split.next.max(piece.offset + self.cutter.taken() as u64);
            } else {
                self.cutter.forget();
            }
        }
        let at = split.next;
        let line = if let Some(line) = self.cutter.next(text_of) {
            split.next = piece.offset + self.cutter.taken() as u64;
            Some(line)
        } else {
            self.current = None;
            if !piece.is_last {
                return None;
            }
            split.next = split.end.max(at);
            self.cutter.last(text_of)
        };
        let (text, was_replaced) = line?;
        if was_replaced {
            self.warn_not_utf8(piece.split, at);
        }
        Some(text)
    }

    #[cold]
    fn warn_not_utf8(&self, split: usize, offset: u64) {
        let path = &self.splits[split].path;
        let mut known = self.not_utf8.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if known.insert(path.clone()) {
            tracing::warn!(
                target: "stoplog::connectors::file",
                parent: &self.span,
                "{}: the line at byte {offset} is not UTF-8; such bytes are replaced by U+FFFD", path.display()
            );
        }
    }
}

impl Source for FileSource {
    type Out = String;
    type Split = FileSplit;

    fn create_splits(&mut self, parallelism: u32) -> Result<Vec<FileSplit>, BoxError> {
        Ok(self.divide(parallelism)?)
    }

    fn open(&mut self, splits: Vec<FileSplit>, cx: &mut OpenContext<'_>) -> Result<(), BoxError> {
        self.splits = splits;
        self.span = tracing::Span::current();
        let check = cx.restored.map(|_| FileCheck::new(&self.splits, &self.paths));
        // Files that were read to their end are checked all the same.
        let is_checked = check.is_some() && !self.splits.is_empty();
        if is_checked || self.splits.iter().any(|split| !split.is_done()) {
            let reader = BlockReader::new(&self.splits, self.block_bytes, check);
            self.blocks = Some(ReadAhead::spawn(cx, "read", BLOCKS_AHEAD, reader)?);
        }
        Ok(())
    }

    fn poll(&mut self, output: &mut impl Output<String>, max: usize) -> Result<SourceStatus, BoxError> {
        let mut left = max;
        while left > 0 {
            let Some(piece) = self.current else {
                match self.next_block()? {
                    None => continue,
                    Some(status) => return Ok(status),
                }
            };
            if let Some(line) = self.next_line(piece) {
                left -= 1;
                if output.collect(line).is_blocked() {
                    break;
                }
            }
        }
        Ok(SourceStatus::Ready)
    }

    fn snapshot(&self) -> Vec<FileSplit> {
        self.splits.clone()
    }
}
