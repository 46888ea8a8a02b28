//! Whether the files of a restored source are still those with which the job began.
//!
//! A position in a file means something only as long as the file is the same. Its length and modification time stand for its
//! content: to read it again in order to compare it would cost as much as the job did.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::FileError;
use super::split::{FileSplit, FileStamp};
use crate::base::error::{self, BoxError, Error, Recovery};

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
