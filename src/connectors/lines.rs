//! Cuts lines out of blocks of bytes.

use std::borrow::Cow;

/// Cuts the blocks that it is fed into lines. A line may span any number of blocks.
///
/// A line ends with `\n` or `\r\n`, which are not part of it; what stands behind the last one is a line too unless it is empty.
#[derive(Debug, Clone, Default)]
pub(crate) struct LineCutter {
    /// The beginning of a line that was not complete in the blocks before.
    carried: Vec<u8>,
    block: Vec<u8>,
    /// Where the next line begins in the block.
    at: usize,
}

impl LineCutter {
    /// Adds a block. All lines of the one before must have been taken.
    pub(crate) fn feed(&mut self, block: Vec<u8>) {
        debug_assert_eq!(self.at, self.block.len(), "lines of the last block were not taken");
        self.block = block;
        self.at = 0;
    }

    /// Bytes of the block that belong to lines already taken.
    pub(crate) fn taken(&self) -> usize {
        self.at
    }

    /// Hands the next complete line to `use_it`. `None` if there is none before the next block.
    #[inline]
    pub(crate) fn next<R>(&mut self, use_it: impl FnOnce(&[u8]) -> R) -> Option<R> {
        let rest = self.block.get(self.at..)?;
        let Some(length) = memchr::memchr(b'\n', rest) else {
            self.carried.extend_from_slice(rest);
            self.at = self.block.len();
            return None;
        };
        let mut line = &rest[..length];
        self.at += length + 1;
        if !self.carried.is_empty() {
            self.carried.extend_from_slice(line);
            line = &self.carried;
        }
        let result = use_it(line.strip_suffix(b"\r").unwrap_or(line));
        self.carried.clear();
        Some(result)
    }

    /// Hands what stands behind the last line end to `use_it`: nothing will be fed any more.
    pub(crate) fn last<R>(&mut self, use_it: impl FnOnce(&[u8]) -> R) -> Option<R> {
        let result = (!self.carried.is_empty()).then(|| use_it(&self.carried));
        self.carried.clear();
        result
    }

    /// Forgets the beginning of the line at hand.
    pub(crate) fn forget(&mut self) {
        self.carried.clear();
    }
}

/// The line as text, and whether bytes that are not UTF-8 were replaced by U+FFFD.
#[inline]
pub(crate) fn text_of(line: &[u8]) -> (String, bool) {
    match String::from_utf8_lossy(line) {
        Cow::Borrowed(text) => (text.to_owned(), false),
        Cow::Owned(text) => (text, true),
    }
}
