//! Whether the files of a restored source are still those with which the job began.
//!
//! A position in a file means something only as long as the file is the same. Its length and modification time stand for its
//! content: to read it again in order to compare it would cost as much as the job did.

use std::fmt;
use std::fs::{self, Metadata};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};

use super::FileError;
use super::source::FileSplit;
use crate::base::error::{self, BoxError, Error, Recovery};

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

/// Checks the files of restored splits, one at a time.
#[derive(Debug)]
pub(super) struct FileCheck {
    files: std::vec::IntoIter<(PathBuf, FileStamp)>,
    checked: usize,
    inputs: Inputs,
}

#[derive(Debug)]
enum Inputs {
    Given(Vec<PathBuf>),
    Resolved(Vec<PathBuf>),
}

impl FileCheck {
    /// A check of the files of these splits, of those that are read to their end too. `inputs` are the files and directories that
    /// the source is given now.
    pub(super) fn new(splits: &[FileSplit], inputs: &[PathBuf]) -> Self {
        let mut files: Vec<_> = splits.iter().map(|split| (split.path.clone(), split.stamp)).collect();
        // The splits of one file are usually neighbours.
        files.dedup();
        Self { files: files.into_iter(), checked: 0, inputs: Inputs::Given(inputs.to_vec()) }
    }

    /// How many files have turned out to be unchanged.
    pub(super) fn checked(&self) -> usize {
        self.checked
    }

    /// Checks one file; false if there is none left.
    pub(super) fn check_next(&mut self) -> Result<bool, BoxError> {
        let Some((path, was)) = self.files.next() else { return Ok(false) };
        self.checked += 1;
        let checked = self.check_input(&path).and_then(|()| check_file(&path, was));
        checked.map(|()| true).map_err(|error| match error {
            // The disk may answer next time.
            FileError::Io { .. } => error.into(),
            // What has changed stays changed.
            _ => Error::new(error::ErrorKind::Connector, Recovery::GiveUp, error.to_string()).into(),
        })
    }

    fn check_input(&mut self, path: &Path) -> Result<(), FileError> {
        if let Inputs::Given(given) = &self.inputs {
            self.inputs = Inputs::Resolved(given.iter().map(|input| resolve(input)).collect());
        }
        let (Inputs::Given(inputs) | Inputs::Resolved(inputs)) = &self.inputs;
        if inputs.iter().any(|input| input == path || Some(input.as_path()) == path.parent()) {
            Ok(())
        } else {
            Err(FileError::OtherInputs { path: path.to_owned(), inputs: inputs.clone() })
        }
    }
}

fn check_file(path: &Path, was: FileStamp) -> Result<(), FileError> {
    let about = match fs::metadata(path) {
        Ok(about) => about,
        // Its directory may have gone too, or may be something else now.
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Err(FileError::Vanished { path: path.to_owned(), was });
        }
        Err(error) => return Err(FileError::io("read", path)(error)),
    };
    if !about.is_file() {
        return Err(FileError::Replaced {
            path: path.to_owned(),
            was,
            by: if about.is_dir() { "a directory" } else { "no regular file" },
        });
    }
    let is = FileStamp::of(&about).map_err(FileError::io("read the time of", path))?;
    if is == was { Ok(()) } else { Err(FileError::Changed { path: path.to_owned(), was, is }) }
}

/// The absolute path without links of an input, which may have vanished.
fn resolve(input: &Path) -> PathBuf {
    if let Ok(path) = fs::canonicalize(input) {
        return path;
    }
    let absolute = std::path::absolute(input).unwrap_or_else(|_| input.to_owned());
    match (absolute.parent().map(fs::canonicalize), absolute.file_name()) {
        (Some(Ok(parent)), Some(name)) => parent.join(name),
        _ => absolute,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_told_as_touch_takes_it() {
        let told = |modified_ns| FileStamp { length: 3, modified_ns }.to_string();
        assert_eq!(told(1_700_000_000_000_000_042), "3 bytes, modified at @1700000000.000000042");
        assert_eq!(told(-1), "3 bytes, modified at @-1.999999999");
    }
}
