//! The file system of this machine.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use super::store::{LockError, Store, StoreEntry, StoreFile, StoreLock};

/// So much of a lock file is shown to people.
const OWNER_BYTES_SHOWN: u64 = 1024;

/// Files as the operating system has them. Relative paths start at the working directory of the process.
///
/// Links are followed. What is neither a file nor a directory is an error where it is asked for, and a file without bytes in a list.
#[derive(Debug, Clone, Copy, Default)]
pub struct LocalStore;

impl Store for LocalStore {
    fn create_directories(&self, path: &Path) -> io::Result<()> {
        let mut missing = Vec::new();
        let mut at = path;
        while !at.as_os_str().is_empty() && !at.is_dir() {
            missing.push(at);
            at = parent(at);
        }
        for directory in missing.into_iter().rev() {
            match fs::create_dir(directory) {
                // Somebody else was faster; whether the name is durable nobody knows, so it is made so here too.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && directory.is_dir() => {}
                other => other?,
            }
            self.sync_directory(parent(directory))?;
        }
        Ok(())
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn StoreFile>> {
        Ok(Box::new(LocalFile(OpenOptions::new().write(true).create_new(true).open(path)?)))
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let (file, length) = open(path)?;
        // No more than there was when it was opened: a file that grows without end must not fill the memory.
        let mut bytes = Vec::new();
        file.take(length).read_to_end(&mut bytes)?;
        if bytes.len() as u64 == length { Ok(bytes) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    fn read_range(&self, path: &Path, offset: u64, length: u64) -> io::Result<Vec<u8>> {
        let (mut file, size) = open(path)?;
        if offset.checked_add(length).is_none_or(|end| end > size) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        file.seek(SeekFrom::Start(offset))?;
        let length = usize::try_from(length).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let mut bytes = vec![0; length];
        file.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn entry(&self, path: &Path) -> io::Result<StoreEntry> {
        let found = fs::metadata(path)?;
        if found.is_dir() {
            Ok(StoreEntry::Directory)
        } else if found.is_file() {
            Ok(StoreEntry::File { length: found.len() })
        } else {
            Err(neither())
        }
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<(String, StoreEntry)>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            let name = entry.file_name().into_string().map_err(|name| {
                io::Error::new(io::ErrorKind::InvalidData, format!("the name {name:?} is not UTF-8"))
            })?;
            match fs::metadata(entry.path()) {
                Ok(of) if of.is_dir() => found.push((name, StoreEntry::Directory)),
                Ok(of) => {
                    found.push((name, StoreEntry::File { length: if of.is_file() { of.len() } else { 0 } }))
                }
                // Removed meanwhile, or a link to nowhere.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        found.sort_by(|(a, _), (b, _)| a.cmp(b));
        Ok(found)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }

    fn sync_file(&self, path: &Path) -> io::Result<()> {
        open(path)?.0.sync_all()
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn lock(&self, path: &Path, owner: &str) -> Result<Box<dyn StoreLock>, LockError> {
        loop {
            let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => match owner_of(path)? {
                    Some(owner) => return Err(LockError::Held { owner }),
                    // Given up just now.
                    None => continue,
                },
                Err(TryLockError::Error(error)) => return Err(error.into()),
            }
            // Between opening and locking an owner may have removed the file: then this is the lock of a file that nobody else will
            // find, and others may lock the one that has the name now.
            if !has_name(&file, path)? {
                continue;
            }
            let lock = LocalLock { file, path: path.to_owned() };
            lock.file.set_len(0)?;
            (&lock.file).write_all(owner.as_bytes())?;
            return Ok(Box::new(lock));
        }
    }
}

/// The directory in which the path is a name.
fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        Some(_) => Path::new("."),
        None => path,
    }
}

/// The file with its length. Asks first what it is: opening a pipe would wait for somebody to write into it.
fn open(path: &Path) -> io::Result<(File, u64)> {
    let found = fs::metadata(path)?;
    if found.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if !found.is_file() {
        return Err(neither());
    }
    let file = File::open(path)?;
    let length = file.metadata()?.len();
    Ok((file, length))
}

fn neither() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "neither a file nor a directory")
}

/// What the owner of the lock wrote about itself; `None` if the file is gone.
fn owner_of(path: &Path) -> io::Result<Option<String>> {
    let mut text = Vec::new();
    match File::open(path) {
        Ok(file) => file.take(OWNER_BYTES_SHOWN).read_to_end(&mut text)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let text = String::from_utf8_lossy(&text).trim().to_owned();
    // Locked a moment ago, and not yet described.
    Ok(Some(if text.is_empty() { "another process".to_owned() } else { text }))
}

/// True if the path is a name of this very file.
#[cfg(unix)]
fn has_name(file: &File, path: &Path) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt as _;
    let mine = file.metadata()?;
    match fs::metadata(path) {
        Ok(found) => Ok((found.dev(), found.ino()) == (mine.dev(), mine.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// A file that is open keeps its name on other systems.
#[cfg(not(unix))]
fn has_name(_file: &File, path: &Path) -> io::Result<bool> {
    fs::exists(path)
}

#[derive(Debug)]
struct LocalFile(File);

impl StoreFile for LocalFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.0.sync_all()
    }
}

/// Ends when the file is closed, by whatever end of the process.
#[derive(Debug)]
struct LocalLock {
    file: File,
    path: PathBuf,
}

impl StoreLock for LocalLock {}

impl Drop for LocalLock {
    fn drop(&mut self) {
        // The name goes while the lock is held: afterwards it may be the name of another owner's lock. A file left behind does no harm.
        if has_name(&self.file, &self.path).unwrap_or(false) {
            let _ = fs::remove_file(&self.path);
        }
    }
}
