//! Reads the blocks of splits, one split after the other, on a helper thread. Of restored splits, it first checks the files.

use std::fs::File;
use std::io::{ErrorKind, Read as _, Seek as _, SeekFrom};

use super::FileError;
use super::check::FileCheck;
use super::split::FileSplit;
use crate::base::error::BoxError;
use crate::connectors::blocking::{BlockingRead, Read};

/// Part of a split.
#[derive(Debug)]
pub(super) struct Block {
    /// Which of the splits.
    pub(super) split: usize,
    /// Where it lies in the file.
    pub(super) offset: u64,
    /// Its content.
    pub(super) bytes: Vec<u8>,
    /// True if the last line of the split ends in it.
    pub(super) is_last: bool,
}

/// Reads splits up to the end of the last line that begins in each.
pub(super) struct BlockReader {
    splits: std::vec::IntoIter<(usize, FileSplit)>,
    block_bytes: usize,
    current: Option<Current>,
    /// What comes before anything is read; none once it is done.
    check: Option<FileCheck>,
}

struct Current {
    index: usize,
    split: FileSplit,
    file: File,
    offset: u64,
}

impl BlockReader {
    /// A reader of those splits that have something left.
    pub(super) fn new(splits: &[FileSplit], block_bytes: usize, check: Option<FileCheck>) -> Self {
        let left: Vec<_> = splits.iter().cloned().enumerate().filter(|(_, split)| !split.is_done()).collect();
        Self { splits: left.into_iter(), block_bytes, current: None, check }
    }
}

impl BlockingRead for BlockReader {
    type Item = Block;

    fn read(&mut self) -> Result<Read<Block>, BoxError> {
        if let Some(check) = &mut self.check {
            if !check.check_next()? {
                let files = check.checked();
                tracing::debug!(target: "stoplog::connectors::file", files, "the files are unchanged");
                self.check = None;
            }
            return Ok(Read::Later);
        }
        let current = match &mut self.current {
            Some(current) => current,
            None => match self.splits.next() {
                Some((index, split)) => self.current.insert(Current::open(index, split)?),
                None => return Ok(Read::End),
            },
        };
        let block = current.read_block(self.block_bytes)?;
        if block.is_last {
            self.current = None;
        }
        Ok(Read::Item(block))
    }
}

impl Current {
    fn open(index: usize, split: FileSplit) -> Result<Self, FileError> {
        let mut file = File::open(&split.path).map_err(FileError::io("open", &split.path))?;
        let offset = split.first_byte();
        tracing::debug!(
            target: "stoplog::connectors::file",
            path = %split.path.display(), from = split.next, to = split.end, "reading a part of a file"
        );
        file.seek(SeekFrom::Start(offset)).map_err(FileError::io("read", &split.path))?;
        Ok(Self { index, split, file, offset })
    }

    fn read_block(&mut self, block_bytes: usize) -> Result<Block, FileError> {
        let mut bytes = vec![0; block_bytes];
        let count = loop {
            match self.file.read(&mut bytes) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                count => break count.map_err(FileError::io("read", &self.split.path))?,
            }
        };
        bytes.truncate(count);
        let (offset, end) = (self.offset, self.split.end);
        self.offset += count as u64;
        let mut is_last = count == 0;
        if is_last && offset < end {
            return Err(FileError::Shortened { path: self.split.path.clone(), length: offset, needed: end });
        }
        // The last line that begins before `end` ends with the first line end at or behind the byte before `end`.
        let from = usize::try_from((end - 1).saturating_sub(offset)).unwrap_or(usize::MAX);
        if let Some(length) = bytes.get(from..).and_then(|rest| memchr::memchr(b'\n', rest)) {
            bytes.truncate(from + length + 1);
            is_last = true;
        }
        Ok(Block { split: self.index, offset, bytes, is_last })
    }
}
