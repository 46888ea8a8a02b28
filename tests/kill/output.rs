//! What is seen of an output directory from outside, from one look to the next.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The visible files of an output directory. None is ever changed or taken back.
#[derive(Debug, Default)]
pub(crate) struct Visible {
    files: BTreeMap<String, Vec<u8>>,
    /// Lines in all of them.
    pub(crate) lines: usize,
}

impl Visible {
    /// Compares with what was there at the last look.
    pub(crate) fn look_at(&mut self, directory: &Path) {
        for name in files_below(directory).into_iter().filter(|name| !name.starts_with('.')) {
            let content = fs::read(directory.join(&name)).unwrap();
            assert!(content.is_empty() || content.ends_with(b"\n"), "{name} ends amid a line");
            if let Some(before) = self.files.get(&name) {
                assert!(*before == content, "{name} was changed after it became visible");
            } else {
                self.lines += content.iter().filter(|byte| **byte == b'\n').count();
                self.files.insert(name, content);
            }
        }
        for name in self.files.keys() {
            assert!(directory.join(name).exists(), "{name} was taken back");
        }
    }

    /// All lines of all files.
    pub(crate) fn all_lines(&self, directory: &Path) -> Vec<String> {
        let names = files_below(directory).into_iter().filter(|name| !name.starts_with('.'));
        let text = names.map(|name| fs::read_to_string(directory.join(name)).unwrap());
        text.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>()).collect()
    }
}

/// The paths of all files below the directory, relative to it, in order. None if there is no such directory.
pub(crate) fn files_below(directory: &Path) -> Vec<String> {
    fn walk(directory: &Path, prefix: &str, found: &mut Vec<String>) {
        let Ok(entries) = fs::read_dir(directory) else { return };
        for entry in entries {
            let entry = entry.unwrap();
            let name = format!("{prefix}{}", entry.file_name().to_str().unwrap());
            if entry.file_type().unwrap().is_dir() {
                walk(&entry.path(), &format!("{name}/"), found);
            } else {
                found.push(name);
            }
        }
    }
    let mut found = Vec::new();
    walk(directory, "", &mut found);
    found.sort();
    found
}
