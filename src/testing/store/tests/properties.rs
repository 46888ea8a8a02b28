//! Random calls: the disk against a real one, and what is durable against every loss of power.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use proptest::prelude::*;

use super::super::{CrashKind, VirtualStore};
use super::path;
use crate::snapshot::{Store, StoreEntry, StoreFile};

/// The same calls on a real file system.
struct Reference(PathBuf);

/// What a call answers, without the words of an error.
type Answer = Result<String, std::io::ErrorKind>;

fn answer<T: std::fmt::Debug>(result: std::io::Result<T>) -> Answer {
    result.map(|value| format!("{value:?}")).map_err(|error| error.kind())
}

#[derive(Debug, Clone)]
enum Step {
    CreateDirectories(String),
    Create(String),
    /// To one of the files created so far, wherever it is by now.
    Append(usize, Vec<u8>),
    Read(String),
    ReadRange(String, u64, u64),
    Entry(String),
    List(String),
    Rename(String, String),
    RemoveFile(String),
    RemoveDirectory(String),
}

fn some_path() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(vec!["a", "b", ".c"]), 1..4).prop_map(|names| names.join("/"))
}

fn some_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => some_path().prop_map(Step::CreateDirectories),
        3 => some_path().prop_map(Step::Create),
        2 => (0usize..8, prop::collection::vec(any::<u8>(), 0..5)).prop_map(|(file, bytes)| Step::Append(file, bytes)),
        1 => some_path().prop_map(Step::Read),
        1 => (some_path(), 0u64..6, 0u64..6).prop_map(|(path, from, length)| Step::ReadRange(path, from, length)),
        1 => some_path().prop_map(Step::Entry),
        1 => some_path().prop_map(Step::List),
        4 => (some_path(), some_path()).prop_map(|(from, to)| Step::Rename(from, to)),
        2 => some_path().prop_map(Step::RemoveFile),
        2 => some_path().prop_map(Step::RemoveDirectory),
    ]
}

impl Reference {
    fn at(&self, path: &str) -> PathBuf {
        self.0.join(path)
    }

    fn entry(path: &Path) -> std::io::Result<StoreEntry> {
        let metadata = std::fs::metadata(path)?;
        Ok(if metadata.is_dir() {
            StoreEntry::Directory
        } else {
            StoreEntry::File { length: metadata.len() }
        })
    }

    fn list(path: &Path) -> std::io::Result<Vec<(String, StoreEntry)>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(path)? {
            let entry = entry?;
            names.push((entry.file_name().into_string().unwrap(), Self::entry(&entry.path())?));
        }
        names.sort_by(|(a, _), (b, _)| a.cmp(b));
        Ok(names)
    }

    fn read_range(path: &Path, offset: u64, length: u64) -> std::io::Result<Vec<u8>> {
        let bytes = std::fs::read(path)?;
        let range = bytes.get(offset as usize..(offset + length) as usize);
        range.map(<[u8]>::to_vec).ok_or_else(|| std::io::ErrorKind::UnexpectedEof.into())
    }

    fn take(&self, step: &Step, files: &mut Vec<std::fs::File>) -> Answer {
        match step {
            Step::CreateDirectories(path) => answer(std::fs::create_dir_all(self.at(path))),
            Step::Create(path) => {
                let created = std::fs::File::create_new(self.at(path));
                answer(created.map(|file| files.push(file)))
            }
            Step::Append(file, bytes) => {
                answer(files.get_mut(*file).map_or(Ok(()), |file| std::io::Write::write_all(file, bytes)))
            }
            Step::Read(path) => answer(std::fs::read(self.at(path))),
            Step::ReadRange(path, offset, length) => {
                answer(Self::read_range(&self.at(path), *offset, *length))
            }
            Step::Entry(path) => answer(Self::entry(&self.at(path))),
            Step::List(path) => answer(Self::list(&self.at(path))),
            Step::Rename(from, to) => answer(std::fs::rename(self.at(from), self.at(to))),
            Step::RemoveFile(path) => answer(std::fs::remove_file(self.at(path))),
            Step::RemoveDirectory(path) => answer(std::fs::remove_dir(self.at(path))),
        }
    }
}

fn take(store: &VirtualStore, step: &Step, files: &mut Vec<Box<dyn StoreFile>>) -> Answer {
    match step {
        Step::CreateDirectories(at) => answer(store.create_directories(path(at))),
        Step::Create(at) => answer(store.create(path(at)).map(|file| files.push(file))),
        Step::Append(file, bytes) => answer(files.get_mut(*file).map_or(Ok(()), |file| file.append(bytes))),
        Step::Read(at) => answer(store.read(path(at))),
        Step::ReadRange(at, offset, length) => answer(store.read_range(path(at), *offset, *length)),
        Step::Entry(at) => answer(store.entry(path(at))),
        Step::List(at) => answer(store.list(path(at))),
        Step::Rename(from, to) => answer(store.rename(path(from), path(to))),
        Step::RemoveFile(at) => answer(store.remove_file(path(at))),
        Step::RemoveDirectory(at) => answer(store.remove_directory(path(at))),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_running_process_sees_what_a_real_file_system_would_show(
        steps in prop::collection::vec(some_step(), 1..60),
    ) {
        let directory = tempfile::tempdir().unwrap();
        let reference = Reference(directory.path().to_owned());
        let store = VirtualStore::new(1);
        let (mut real, mut virtual_files) = (Vec::new(), Vec::new());
        for step in &steps {
            let expected = reference.take(step, &mut real);
            prop_assert_eq!(take(&store, step, &mut virtual_files), expected, "{:?}", step);
        }
    }

    /// Whatever is done: nothing that was durable is lost or damaged unless the program took it away itself, and when everything is
    /// synced, a loss of power is like a kill.
    #[test]
    fn what_is_durable_survives_whatever_else_was_going_on(
        before in prop::collection::vec(some_step(), 1..25),
        after in prop::collection::vec(some_step(), 0..25),
        seed in any::<u64>(),
    ) {
        let store = VirtualStore::new(1);
        let mut files = Vec::new();
        for step in &before {
            let _ = take(&store, step, &mut files);
        }
        let mut marked = BTreeSet::new();
        for (at, _) in store.files() {
            store.sync_file(path(&at)).unwrap();
        }
        store.sync_directory(path("/")).unwrap();
        for at in store.directories() {
            store.sync_directory(path(&at)).unwrap();
        }
        let synced = store.image(CrashKind::PowerLoss { seed });
        prop_assert_eq!(synced.files(), store.files());
        prop_assert_eq!(synced.directories(), store.directories());
        // Mark each file, so that it is known again under any name.
        for (n, at) in store.files().into_keys().enumerate() {
            let mark = format!("mark {n};").into_bytes();
            let bytes = [mark.clone(), store.read(path(&at)).unwrap()].concat();
            store.remove_file(path(&at)).unwrap();
            let mut file = store.create(path(&at)).unwrap();
            file.append(&bytes).unwrap();
            file.sync().unwrap();
            store.sync_directory(path(&at).parent().unwrap()).unwrap();
            marked.insert((mark, bytes));
        }
        let mut files = Vec::new();
        let is_removing = |step: &Step| matches!(step, Step::RemoveFile(_));
        for step in after.iter().filter(|step| !is_removing(step)) {
            if let Step::Rename(_, to) = step && store.read(path(to)).is_ok() {
                continue;
            }
            let _ = take(&store, step, &mut files);
        }
        let image = store.image(CrashKind::PowerLoss { seed });
        let left: Vec<_> = image.files().into_values().collect();
        for (mark, bytes) in marked {
            let found: Vec<_> = left.iter().filter(|left| left.starts_with(&mark)).collect();
            prop_assert!(!found.is_empty(), "{} is lost:\n{}", String::from_utf8_lossy(&mark), image.log().join("\n"));
            prop_assert!(found.iter().all(|found| **found == bytes));
        }
    }
}
