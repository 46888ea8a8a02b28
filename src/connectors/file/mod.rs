//! Files of lines.

mod reader;
mod sink;
mod source;
#[cfg(test)]
mod tests;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

pub use sink::LineSink;
pub use source::{FileSource, FileSplit};

/// A file or directory cannot be used as it was meant.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// The system refused.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Only regular files have positions to go back to.
    #[error("{} is not a regular file; name a file or a directory of files", path.display())]
    NotRegular {
        /// What was named.
        path: PathBuf,
    },
    /// Positions are stored as text.
    #[error("the name of {} is not UTF-8; rename the file", path.display())]
    Name {
        /// The file.
        path: PathBuf,
    },
    /// The file ends before a position that it once had.
    #[error(
        "{} ends at byte {length}, but {needed} bytes were there when the job began; put the whole file back, or start the job \
         from nothing",
        path.display()
    )]
    Shortened {
        /// The file.
        path: PathBuf,
        /// Its length now.
        length: u64,
        /// The length it must have.
        needed: u64,
    },
    /// Output of another run is there.
    #[error("the output directory {} is not empty; name another one or empty it", path.display())]
    NotEmpty {
        /// The directory.
        path: PathBuf,
    },
}

impl FileError {
    fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }
}

/// All files that are meant by the paths, with their lengths: a file itself, of a directory the regular files whose names do
/// not begin with a dot, in the order of their names.
fn list(paths: &[PathBuf]) -> Result<Vec<(PathBuf, u64)>, FileError> {
    let mut files = Vec::new();
    for path in paths {
        let about = fs::metadata(path).map_err(FileError::io("read", path))?;
        if about.is_file() {
            files.push((path.clone(), about.len()));
        } else if about.is_dir() {
            list_directory(path, &mut files)?;
        } else {
            return Err(FileError::NotRegular { path: path.clone() });
        }
    }
    match files.iter().find(|(path, _)| path.to_str().is_none()) {
        Some((path, _)) => Err(FileError::Name { path: path.clone() }),
        None => Ok(files),
    }
}

fn list_directory(directory: &Path, files: &mut Vec<(PathBuf, u64)>) -> Result<(), FileError> {
    let mut inside = Vec::new();
    for entry in fs::read_dir(directory).map_err(FileError::io("list the directory", directory))? {
        let path = entry.map_err(FileError::io("list the directory", directory))?.path();
        let is_hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().first() == Some(&b'.'));
        if is_hidden {
            continue;
        }
        // Follows links: what counts is where they lead.
        let about = fs::metadata(&path).map_err(FileError::io("read", &path))?;
        if about.is_file() {
            inside.push((path, about.len()));
        }
    }
    inside.sort();
    files.append(&mut inside);
    Ok(())
}

/// Checks that output can go to the directory: it is empty, or does not exist yet. Creates nothing.
///
/// # Errors
/// If it is not empty, is no directory, or cannot be read.
pub fn check_empty(directory: &Path) -> Result<(), FileError> {
    let mut entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(FileError::io("use the output directory", directory))?,
    };
    match entries.next() {
        None => Ok(()),
        Some(_) => Err(FileError::NotEmpty { path: directory.to_owned() }),
    }
}
