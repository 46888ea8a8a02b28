//! What stands in snapshots of the files that are read.

use std::fmt;
use std::fs::Metadata;
use std::io;
use std::path::PathBuf;
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};

/// One part of a file and the position in it.
///
/// A line belongs to the part in which its first byte lies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSplit {
    /// Absolute, so that it means the same wherever the job goes on.
    pub(super) path: PathBuf,
    pub(super) start: u64,
    /// First byte behind the part.
    pub(super) end: u64,
    /// Where the next line begins. `start` before the first line was handed on; a line may begin there or not.
    pub(super) next: u64,
    /// What the whole file was when the job began.
    pub(super) stamp: FileStamp,
}

impl FileSplit {
    /// True once all lines that begin in the part were handed on.
    pub(super) fn is_done(&self) -> bool {
        self.next >= self.end
    }

    /// True if the line at the position may have begun before the part: it is another part's.
    pub(super) fn begins_amid_a_line(&self) -> bool {
        self.next == self.start && self.start > 0
    }

    /// The byte from which to read: the one before the part says whether a line begins with it.
    pub(super) fn first_byte(&self) -> u64 {
        self.next - u64::from(self.begins_amid_a_line())
    }
}

/// What is remembered of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileStamp {
    /// Its length in bytes.
    pub length: u64,
    /// When it was last modified, in nanoseconds since 1970; negative if before.
    pub modified_ns: i64,
}

impl FileStamp {
    pub(super) fn of(about: &Metadata) -> io::Result<Self> {
        let nanos = |nanos: u128| i64::try_from(nanos).unwrap_or(i64::MAX);
        let modified_ns = match about.modified()?.duration_since(UNIX_EPOCH) {
            Ok(since) => nanos(since.as_nanos()),
            Err(before) => -nanos(before.duration().as_nanos()),
        };
        Ok(Self { length: about.len(), modified_ns })
    }
}

/// The time is in the form that `touch -d` takes.
impl fmt::Display for FileStamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, nanos) =
            (self.modified_ns.div_euclid(1_000_000_000), self.modified_ns.rem_euclid(1_000_000_000));
        write!(f, "{} bytes, modified at @{seconds}.{nanos:09}", self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes stand in snapshots; `src/docs/formats.md` has their map.
    #[test]
    fn the_bytes_of_a_split_are_as_documented() {
        let stamp = FileStamp { length: 300, modified_ns: -2 };
        let split = FileSplit { path: PathBuf::from("/in"), start: 1, end: 200, next: 129, stamp };
        let expected = b"\x03/in\x01\xc8\x01\x81\x01\xac\x02\x03";
        assert_eq!(postcard::to_stdvec(&split).unwrap(), expected);
        assert_eq!(postcard::from_bytes::<FileSplit>(expected).unwrap(), split);
    }
}
