//! Files of lines.

mod check;
mod output;
mod reader;
mod sink;
mod source;
mod split;
#[cfg(all(test, not(loom)))]
mod tests;
mod transactions;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::base::id::CheckpointId;

pub use sink::LineSink;
pub use source::FileSource;
pub use split::{FileSplit, FileStamp};

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
    /// A file with which the job began is not there any more.
    #[error(
        "{} has vanished (it had {was}) and the job cannot go on without it; put it back as it was, with that time (touch -d), or start \
         the job from nothing",
        path.display()
    )]
    Vanished {
        /// The file.
        path: PathBuf,
        /// What it was when the job began.
        was: FileStamp,
    },
    /// A file is not what it was when the job began.
    #[error(
        "{} has changed since the job began: it had {was}, now it has {is}; put it back as it was, with that time (touch -d), or \
         start the job from nothing",
        path.display()
    )]
    Changed {
        /// The file.
        path: PathBuf,
        /// What it was when the job began.
        was: FileStamp,
        /// What it is now.
        is: FileStamp,
    },
    /// Something else is in the place of a file with which the job began.
    #[error(
        "{} is {by} now; when the job began it was a file of {was}; put that back, with that time (touch -d), or start the job from \
         nothing",
        path.display()
    )]
    Replaced {
        /// The file.
        path: PathBuf,
        /// What it was when the job began.
        was: FileStamp,
        /// What is there now.
        by: &'static str,
    },
    /// The job began with other files than it is given now.
    #[error(
        "the job began with {}, which is not in its input now ({}); give it the input with which it began, or start it from nothing",
        path.display(),
        names(inputs)
    )]
    OtherInputs {
        /// The file.
        path: PathBuf,
        /// The files and directories that are its input now.
        inputs: Vec<PathBuf>,
    },
    /// Output of another run is there.
    #[error("the output directory {} is not empty; name another one or empty it", path.display())]
    NotEmpty {
        /// The directory.
        path: PathBuf,
    },
    /// Another job writes there.
    #[error("the output directory {} is in use by {owner}; name another one or end that job", path.display())]
    InUse {
        /// The directory.
        path: PathBuf,
        /// What that job says about itself.
        owner: String,
    },
    /// Output is there although the job has completed no checkpoint.
    #[error(
        "the output directory {} has {file}, which none of this job's checkpoints accounts for; name another one or empty it",
        path.display()
    )]
    Unaccounted {
        /// The directory.
        path: PathBuf,
        /// One file of that output.
        file: String,
    },
    /// Output is there that the job, going on from an older checkpoint, would write again.
    #[error(
        "{file} in the output directory {} was published after checkpoint {restored}, from which the job is to go on: it would \
         repeat these lines; name another directory, remove what was published later, or set \
         execution.state-recovery.allow-repeated-output (--allow-repeated-output)",
        path.display()
    )]
    PublishedLater {
        /// The directory.
        path: PathBuf,
        /// One file of that output.
        file: String,
        /// The checkpoint from which the job is to go on.
        restored: CheckpointId,
    },
    /// A file of the name under which output is to be seen is there already.
    #[error("{} is there already, and output replaces nothing; move it away", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// Output that a checkpoint promises cannot be found.
    #[error(
        "the output file {} is missing, and so is {hidden}, from which it is made: lines that a checkpoint promises are lost. Put \
         the file back; where files are moved away once they are seen, allow it with LineSink::accept_missing",
        path.display()
    )]
    Missing {
        /// The file.
        path: PathBuf,
        /// Its name before it was to be seen.
        hidden: String,
    },
    /// A file is not the one that a checkpoint promises.
    #[error("{} is not the output that was written to it: {difference}; put the right file back", path.display())]
    Different {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        difference: String,
    },
}

impl FileError {
    fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }
}

fn names(paths: &[PathBuf]) -> String {
    let names: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
    if names.is_empty() { "nothing".to_owned() } else { names.join(", ") }
}

/// All files that are meant by the paths: a file itself, of a directory the regular files whose names do not begin with a dot, in
/// the order of their names. Their paths are absolute, and lead to them whatever becomes of the links in the paths given.
fn list(paths: &[PathBuf]) -> Result<Vec<(PathBuf, FileStamp)>, FileError> {
    let mut files = Vec::new();
    for path in paths {
        let about = fs::metadata(path).map_err(FileError::io("read", path))?;
        let absolute = fs::canonicalize(path).map_err(FileError::io("read", path))?;
        if about.is_file() {
            files.push(stamped(absolute, &about)?);
        } else if about.is_dir() {
            list_directory(&absolute, &mut files)?;
        } else {
            return Err(FileError::NotRegular { path: path.clone() });
        }
    }
    match files.iter().find(|(path, _)| path.to_str().is_none()) {
        Some((path, _)) => Err(FileError::Name { path: path.clone() }),
        None => Ok(files),
    }
}

fn list_directory(directory: &Path, files: &mut Vec<(PathBuf, FileStamp)>) -> Result<(), FileError> {
    let mut inside = Vec::new();
    for entry in fs::read_dir(directory).map_err(FileError::io("list the directory", directory))? {
        let path = entry.map_err(FileError::io("list the directory", directory))?.path();
        let is_hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().first() == Some(&b'.'));
        if is_hidden {
            continue;
        }
        // Follows links: what counts is where they lead. The name in the directory is kept, for it is what is looked for later.
        let about = fs::metadata(&path).map_err(FileError::io("read", &path))?;
        if about.is_file() {
            inside.push(stamped(path, &about)?);
        }
    }
    inside.sort_by(|(a, _), (b, _)| a.cmp(b));
    files.append(&mut inside);
    Ok(())
}

fn stamped(path: PathBuf, about: &fs::Metadata) -> Result<(PathBuf, FileStamp), FileError> {
    let stamp = FileStamp::of(about).map_err(FileError::io("read the time of", &path))?;
    Ok((path, stamp))
}
