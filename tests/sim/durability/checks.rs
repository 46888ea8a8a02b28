//! What must hold of the disk between two lives and at the end, and of the lives one after the other.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use stoplog::testing::VirtualStore;

use super::crashes::Life;

/// Lines `key,1` to `key,n` for each key, each once, over all visible files of a directory.
#[derive(Debug, Clone)]
pub(crate) struct ExpectedOutput {
    pub(crate) directory: PathBuf,
    pub(crate) counts: BTreeMap<String, u64>,
}

/// What a program leaves when it is finished.
#[derive(Clone)]
pub(crate) struct Expected {
    pub(crate) outputs: Vec<ExpectedOutput>,
    /// True for the path of a file or directory outside of the outputs that may be there at the end.
    pub(crate) may_stay: Arc<dyn Fn(&str) -> bool>,
}

impl Expected {
    /// No visible file was changed or taken back by the program, and no line was published twice.
    pub(crate) fn check_so_far(&self, store: &VirtualStore) -> Result<(), String> {
        for output in &self.outputs {
            if let Some(wrong) =
                store.visible_history(&output.directory).iter().find_map(|file| file.violation())
            {
                return Err(format!("a visible file has changed: {wrong}"));
            }
            output.published(store)?;
        }
        Ok(())
    }

    /// Everything is published, and nothing else is left.
    pub(crate) fn check_finished(&self, store: &VirtualStore) -> Result<(), String> {
        for output in &self.outputs {
            let published = output.published(store)?;
            for (key, count) in &output.counts {
                let found = published.iter().filter(|((other, _), ())| other == key).count() as u64;
                if found != *count {
                    return Err(format!("{found} of {count} lines of key {key:?} are published"));
                }
            }
            let history = store.visible_history(&output.directory);
            if let Some(gone) = history.iter().find(|file| !file.is_there) {
                return Err(format!("{} was seen once, and is gone", gone.path));
            }
        }
        self.check_nothing_else(store, |_| false)
    }

    /// Of each key the first lines are published, and nothing else is left but lock files, which nobody removes after a crash.
    pub(crate) fn check_given_up(&self, store: &VirtualStore) -> Result<(), String> {
        for output in &self.outputs {
            let published = output.published(store)?;
            let missing =
                published.keys().find(|(key, n)| *n > 1 && !published.contains_key(&(key.clone(), n - 1)));
            if let Some((key, n)) = missing {
                return Err(format!("the line \"{key},{n}\" is published, but the one before is not"));
            }
        }
        self.check_nothing_else(store, |path| path.ends_with("/.lock"))
    }

    fn check_nothing_else(
        &self,
        store: &VirtualStore,
        is_excused: impl Fn(&str) -> bool,
    ) -> Result<(), String> {
        if let Some(lock) = store.locks().first() {
            return Err(format!("the lock {lock} is still held"));
        }
        let paths = store.files().into_keys().chain(store.directories());
        match paths.into_iter().find(|path| !self.is_expected(path) && !is_excused(path)) {
            Some(path) => Err(format!("{path} is left behind")),
            None => Ok(()),
        }
    }

    fn is_expected(&self, path: &str) -> bool {
        let is_output = |output: &ExpectedOutput| {
            let below = Path::new(path).strip_prefix(&output.directory);
            let leads_there = output.directory.starts_with(path);
            leads_there || below.is_ok_and(|below| !below.to_string_lossy().starts_with('.'))
        };
        self.outputs.iter().any(is_output) || (self.may_stay)(path)
    }
}

impl ExpectedOutput {
    /// The lines in visible files; an error if one stands there twice, or should not stand there at all.
    fn published(&self, store: &VirtualStore) -> Result<BTreeMap<(String, u64), ()>, String> {
        let mut lines = BTreeMap::new();
        for (path, bytes) in store.files() {
            let Ok(name) = Path::new(&path).strip_prefix(&self.directory) else { continue };
            if name.to_string_lossy().starts_with('.') {
                continue;
            }
            let damaged = || format!("{path} is damaged: {:?}", String::from_utf8_lossy(&bytes));
            let text = std::str::from_utf8(&bytes).map_err(|_| damaged())?;
            if !text.is_empty() && !text.ends_with('\n') {
                return Err(damaged());
            }
            for line in text.lines() {
                let (key, n) = line.split_once(',').ok_or_else(damaged)?;
                let n: u64 = n.parse().map_err(|_| damaged())?;
                if n == 0 || self.counts.get(key).is_none_or(|count| n > *count) {
                    return Err(format!("{path} has the line {line:?}, which nobody counted"));
                }
                if lines.insert((key.to_owned(), n), ()).is_some() {
                    return Err(format!("the line {line:?} is published twice, the second time in {path}"));
                }
            }
        }
        Ok(lines)
    }
}

/// What is known of the lives so far.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    newest_id: Option<u64>,
    newest_completed: Option<u64>,
    is_finished: bool,
}

impl Facts {
    /// Takes the next life; an error if it does not follow from those before.
    pub(crate) fn add(&mut self, life: Life) -> Result<(), String> {
        if let Some((first, last)) = life.ids {
            if Some(first) <= self.newest_id {
                return Err(format!("id {first} is given after {:?}", self.newest_id));
            }
            self.newest_id = Some(last);
        }
        if life.has_begun || life.records_read > 0 {
            if self.is_finished {
                return Err("a finished program reads its input again".to_owned());
            }
            if life.restored < self.newest_completed {
                let (restored, completed) = (life.restored, self.newest_completed);
                return Err(format!("goes on from {restored:?}, although {completed:?} was complete"));
            }
        }
        self.newest_completed = self.newest_completed.max(life.completed);
        self.is_finished |= life.is_finished;
        Ok(())
    }
}

#[test]
fn lives_must_follow_from_each_other() {
    let fresh = Life { ids: Some((1, 3)), completed: Some(2), records_read: 9, ..Life::default() };
    let next = Life { restored: Some(2), ids: Some((4, 4)), records_read: 3, ..Life::default() };
    let idle = Life { is_finished: true, ..Life::default() };
    for (lives, expected) in [
        (vec![fresh, next, idle, idle], None),
        // A checkpoint that nobody was told of may have been completed.
        (vec![fresh, Life { restored: Some(3), ..next }], None),
        // One that died before it had read anything has gone on from nowhere.
        (vec![fresh, Life { restored: None, ids: None, records_read: 0, ..next }, next], None),
        (vec![fresh, Life { ids: Some((3, 5)), ..next }], Some("id 3 is given after Some(3)")),
        (vec![fresh, Life { restored: Some(1), ..next }], Some("goes on from Some(1)")),
        (vec![fresh, idle, next], Some("reads its input again")),
    ] {
        let mut facts = Facts::default();
        let wrong = lives.iter().find_map(|life| facts.add(*life).err());
        match (&wrong, expected) {
            (None, None) => {}
            (Some(wrong), Some(expected)) => assert!(wrong.contains(expected), "{wrong}"),
            _ => panic!("{wrong:?}, not {expected:?}: {lives:?}"),
        }
    }
}
