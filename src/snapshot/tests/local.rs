use std::fs;
use std::io;
use std::path::Path;

use crate::snapshot::{LocalStore, LockError, Store, StoreEntry};

fn kind<T: std::fmt::Debug>(result: io::Result<T>) -> io::ErrorKind {
    result.unwrap_err().kind()
}

#[test]
fn files_and_directories_are_what_they_were_made() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("a/b/c");
    LocalStore.create_directories(&directory).unwrap();
    LocalStore.create_directories(&directory).unwrap();
    let path = directory.join("file");
    let mut file = LocalStore.create(&path).unwrap();
    file.append(b"some ").unwrap();
    file.append(b"bytes").unwrap();
    file.sync().unwrap();
    assert_eq!(kind(LocalStore.create(&path).map(|_| ())), io::ErrorKind::AlreadyExists);
    assert_eq!(LocalStore.read(&path).unwrap(), b"some bytes");
    assert_eq!(LocalStore.entry(&path).unwrap(), StoreEntry::File { length: 10 });
    LocalStore.create_directories(&directory.join("A")).unwrap();
    let listed = LocalStore.list(&directory).unwrap();
    let expected =
        [("A".to_owned(), StoreEntry::Directory), ("file".to_owned(), StoreEntry::File { length: 10 })];
    assert_eq!(listed, expected);
    let other = directory.join("other");
    LocalStore.rename(&path, &other).unwrap();
    LocalStore.sync_file(&other).unwrap();
    LocalStore.sync_directory(&directory).unwrap();
    assert_eq!(kind(LocalStore.entry(&path)), io::ErrorKind::NotFound);
    assert_eq!(kind(LocalStore.remove_directory(&directory)), io::ErrorKind::DirectoryNotEmpty);
    LocalStore.remove_file(&other).unwrap();
    LocalStore.remove_directory(&directory.join("A")).unwrap();
    LocalStore.remove_directory(&directory).unwrap();
    assert_eq!(kind(LocalStore.list(&directory)), io::ErrorKind::NotFound);
}

#[test]
fn a_piece_beyond_the_end_of_a_file_is_refused_before_memory_is_taken() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("file");
    fs::write(&path, b"0123456789").unwrap();
    assert_eq!(LocalStore.read_range(&path, 3, 4).unwrap(), b"3456");
    assert_eq!(LocalStore.read_range(&path, 10, 0).unwrap(), b"");
    for (offset, length) in [(0, 11), (10, 1), (11, 0), (0, u64::MAX), (u64::MAX, 1), (u64::MAX, u64::MAX)] {
        assert_eq!(kind(LocalStore.read_range(&path, offset, length)), io::ErrorKind::UnexpectedEof);
    }
}

#[test]
fn what_is_neither_file_nor_directory_is_not_read() {
    let endless = Path::new("/dev/zero");
    if endless.exists() {
        assert!(LocalStore.read(endless).is_err());
        assert!(LocalStore.read_range(endless, 0, 1).is_err());
        assert!(LocalStore.entry(endless).is_err());
    }
    let root = tempfile::tempdir().unwrap();
    assert_eq!(kind(LocalStore.read(root.path())), io::ErrorKind::IsADirectory);
}

#[cfg(unix)]
#[test]
fn links_are_followed_and_one_to_nowhere_is_nothing() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir(root.path().join("real")).unwrap();
    std::os::unix::fs::symlink("real", root.path().join("link")).unwrap();
    std::os::unix::fs::symlink("nothing", root.path().join("nowhere")).unwrap();
    let names: Vec<_> = LocalStore.list(root.path()).unwrap();
    assert_eq!(
        names,
        [("link".to_owned(), StoreEntry::Directory), ("real".to_owned(), StoreEntry::Directory)]
    );
}

#[test]
fn a_lock_is_held_by_one_and_tells_others_by_whom() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join(".lock");
    let first = LocalStore.lock(&path, "process 17 on here").unwrap();
    match LocalStore.lock(&path, "somebody else") {
        Err(LockError::Held { owner }) => assert_eq!(owner, "process 17 on here"),
        other => panic!("{other:?}"),
    }
    drop(first);
    assert!(!path.exists());
    drop(LocalStore.lock(&path, "somebody else").unwrap());
    assert!(!path.exists());
}

/// What a process that was killed leaves behind.
#[test]
fn a_lock_file_without_an_owner_is_taken_over() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join(".lock");
    fs::write(&path, "a process with a rather long name that is gone").unwrap();
    let lock = LocalStore.lock(&path, "new").unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "new");
    drop(lock);
    assert!(!path.exists());
}

#[test]
fn a_lock_whose_file_was_replaced_leaves_the_new_one_alone() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join(".lock");
    let old = LocalStore.lock(&path, "old").unwrap();
    fs::remove_file(&path).unwrap();
    let new = LocalStore.lock(&path, "new").unwrap();
    drop(old);
    assert!(path.exists());
    assert!(matches!(LocalStore.lock(&path, "third"), Err(LockError::Held { .. })));
    drop(new);
    assert!(!path.exists());
}

/// The file disappears between the opening and the locking of others all the time: still only one has the lock at any moment.
#[test]
fn many_that_lock_and_unlock_never_have_it_together() {
    use std::sync::atomic::{AtomicU32, Ordering};
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join(".lock");
    let (inside, taken) = (AtomicU32::new(0), AtomicU32::new(0));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..300 {
                    if let Ok(lock) = LocalStore.lock(&path, "me") {
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "somebody else has it too");
                        taken.fetch_add(1, Ordering::SeqCst);
                        inside.fetch_sub(1, Ordering::SeqCst);
                        drop(lock);
                    }
                }
            });
        }
    });
    assert!(taken.load(Ordering::SeqCst) > 0);
    assert!(!path.exists());
}

/// Does nothing by itself: the next test runs it in a process of its own.
#[test]
fn holds_a_lock_if_the_environment_names_one() {
    if let Ok(path) = std::env::var("STOPLOG_TEST_LOCK") {
        let _lock = LocalStore.lock(Path::new(&path), "the child").unwrap();
        println!("locked");
        // Until the parent goes away or kills this process.
        let _ = io::Read::read(&mut io::stdin(), &mut [0]);
    }
}

#[test]
fn a_killed_process_has_no_lock_any_more() {
    use std::io::BufRead as _;
    use std::process::{Command, Stdio};
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join(".lock");
    let test = "snapshot::tests::local::holds_a_lock_if_the_environment_names_one";
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env("STOPLOG_TEST_LOCK", &path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = io::BufReader::new(child.stdout.take().unwrap());
    assert!(output.lines().map_while(Result::ok).any(|line| line.ends_with("locked")));
    match LocalStore.lock(&path, "the parent") {
        Err(LockError::Held { owner }) => assert_eq!(owner, "the child"),
        other => panic!("{other:?}"),
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(path.exists(), "a killed process removes nothing");
    drop(LocalStore.lock(&path, "the parent").unwrap());
    assert!(!path.exists());
}
