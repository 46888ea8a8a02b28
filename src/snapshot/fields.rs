//! Numbers, texts and lists in a row: what `_metadata` and `_job` are made of.
//!
//! All numbers are little-endian. A text or a run of bytes is its length (4 bytes), then the bytes; a list is the number of its items
//! (4 bytes), then the items.

use crate::codec::FrameError;
use crate::codec::frame::Reader;

/// A file of a snapshot is not what it must be, or cannot be written as it must be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// The frame around it is damaged.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The frame is whole, its payload is not valid.
    #[error("payload, offset {offset}: {reason}")]
    Payload {
        /// Where in the payload.
        offset: u64,
        /// What is wrong.
        reason: String,
    },
    /// What should be written does not fit the format.
    #[error("cannot be written: {reason}")]
    Unwritable {
        /// What is wrong.
        reason: String,
    },
}

/// Writes fields.
#[derive(Debug, Default)]
pub(super) struct FieldWriter {
    pub(super) bytes: Vec<u8>,
}

impl FieldWriter {
    pub(super) fn u8(&mut self, value: u8) {
        self.bytes.push(value);
    }

    pub(super) fn u16(&mut self, value: u16) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn u32(&mut self, value: u32) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn u64(&mut self, value: u64) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn array<const N: usize>(&mut self, value: [u8; N]) {
        self.bytes.extend_from_slice(&value);
    }

    /// # Errors
    /// If there are more than 4 G.
    pub(super) fn count(&mut self, what: &str, count: usize) -> Result<(), FormatError> {
        let unwritable = |_| FormatError::Unwritable { reason: format!("{what}: {count} is too many") };
        self.u32(u32::try_from(count).map_err(unwritable)?);
        Ok(())
    }

    /// # Errors
    /// If it has more than 4 GiB.
    pub(super) fn run(&mut self, what: &str, value: &[u8]) -> Result<(), FormatError> {
        self.count(what, value.len())?;
        self.bytes.extend_from_slice(value);
        Ok(())
    }
}

/// Reads fields. Trusts nothing: no length and no count is used before it is compared with what is there.
#[derive(Debug)]
pub(super) struct FieldReader<'a> {
    rest: Reader<'a>,
    total: usize,
}

impl<'a> FieldReader<'a> {
    pub(super) fn new(payload: &'a [u8]) -> Self {
        Self { rest: Reader::new(payload), total: payload.len() }
    }

    /// An error at the place that was reached.
    pub(super) fn invalid(&self, reason: impl Into<String>) -> FormatError {
        let offset = (self.total - self.rest.remaining()) as u64;
        FormatError::Payload { offset, reason: reason.into() }
    }

    fn at<T>(&self, what: &str, read: Result<T, FrameError>) -> Result<T, FormatError> {
        read.map_err(|error| self.invalid(format!("{what}: {error}")))
    }

    pub(super) fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N], FormatError> {
        let read = self.rest.array();
        self.at(what, read)
    }

    pub(super) fn u8(&mut self, what: &str) -> Result<u8, FormatError> {
        self.array(what).map(u8::from_le_bytes)
    }

    pub(super) fn u16(&mut self, what: &str) -> Result<u16, FormatError> {
        self.array(what).map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self, what: &str) -> Result<u32, FormatError> {
        self.array(what).map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self, what: &str) -> Result<u64, FormatError> {
        self.array(what).map(u64::from_le_bytes)
    }

    pub(super) fn flag(&mut self, what: &str) -> Result<bool, FormatError> {
        match self.u8(what)? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(self.invalid(format!("{what}: {other} is neither 0 nor 1"))),
        }
    }

    pub(super) fn run(&mut self, what: &str) -> Result<&'a [u8], FormatError> {
        let length = self.u32(what)?;
        let read = self.rest.bytes(u64::from(length));
        self.at(what, read)
    }

    pub(super) fn text(&mut self, what: &str) -> Result<&'a str, FormatError> {
        let run = self.run(what)?;
        std::str::from_utf8(run).map_err(|_| self.invalid(format!("{what}: not UTF-8")))
    }

    /// The items of a list, each of which takes at least `item_bytes`. Memory is taken item by item.
    pub(super) fn list<T>(
        &mut self,
        what: &str,
        item_bytes: usize,
        mut item: impl FnMut(&mut Self) -> Result<T, FormatError>,
    ) -> Result<Vec<T>, FormatError> {
        let count = self.u32(what)?;
        if u64::from(count) * item_bytes as u64 > self.rest.remaining() as u64 {
            let left = self.rest.remaining();
            return Err(self.invalid(format!("{what}: {count} items cannot be in {left} bytes")));
        }
        let mut items = Vec::new();
        for _ in 0..count {
            items.push(item(self)?);
        }
        Ok(items)
    }

    pub(super) fn end(&self) -> Result<(), FormatError> {
        self.at("end", self.rest.end())
    }
}
