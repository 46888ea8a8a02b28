//! A small program that publishes lines exactly once, and the ways to get it wrong.
//!
//! It counts the keys of its input. After every few records it writes what it has counted as `.part-N`, then what it knows as
//! checkpoint `chk-N`, and only then gives the part its visible name.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use stoplog::base::rng::{Rng, splitmix64};
use stoplog::snapshot::{LockError, Store, StoreLock};
use stoplog::testing::VirtualStore;

use super::checks::{Expected, ExpectedOutput};
use super::crashes::{Life, Program};

/// A mistake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// The bytes of a part are not durable when the checkpoint is.
    PartNotSynced,
    /// The hidden name of a part is not durable when the checkpoint is.
    HiddenNameNotSynced,
    /// The visible name of a part is not durable when the next checkpoint is.
    VisibleNameNotSynced,
    /// A visible name that is found is taken for a durable one.
    TrustsVisibleName,
    /// The directories that are found are taken for durable ones.
    TrustsDirectories,
    /// The bytes of a checkpoint are not durable when it gets its name.
    CheckpointNotSynced,
    /// The name of a checkpoint is not durable when it is said to be complete.
    CheckpointNameNotSynced,
    /// The name of a checkpoint that is found, or of the end, is taken for a durable one.
    TrustsNames,
    /// A part becomes visible before its checkpoint is complete.
    PublishesEarly,
    /// The old checkpoint goes before the new one is complete.
    RemovesEarly,
    /// Ids of checkpoints that were not completed are given again.
    ForgetsIds,
    /// That the end was reached is not durable when the last checkpoint goes.
    EndNotSynced,
    /// What an earlier life has begun stays.
    LeavesHidden,
    /// The last checkpoint stays.
    LeavesCheckpoint,
    /// After the end it writes something.
    WritesAfterTheEnd,
}

impl Flaw {
    /// All of them, with what can be said about them.
    pub(crate) const ALL: [(Self, &'static [&'static str]); 15] = [
        (Self::PartNotSynced, &["amaged"]),
        (Self::HiddenNameNotSynced, &["part is lost"]),
        (Self::VisibleNameNotSynced, &["lines of key"]),
        (Self::TrustsVisibleName, &["lines of key"]),
        (Self::TrustsDirectories, &["lines of key"]),
        (Self::CheckpointNotSynced, &["checkpoint is damaged"]),
        (Self::CheckpointNameNotSynced, &["although"]),
        (Self::TrustsNames, &["is gone", "entity not found", "is not there"]),
        (Self::PublishesEarly, &["published twice"]),
        (Self::RemovesEarly, &["although", "entity not found"]),
        (Self::ForgetsIds, &["is given after"]),
        (Self::EndNotSynced, &["reads its input again", "entity not found"]),
        (Self::LeavesHidden, &["left behind"]),
        (Self::LeavesCheckpoint, &["left behind"]),
        (Self::WritesAfterTheEnd, &["changed something"]),
    ];
}

/// The program.
#[derive(Debug)]
pub(crate) struct Ledger {
    input: Vec<u8>,
    records_per_checkpoint: usize,
    flaw: Option<Flaw>,
}

/// What a checkpoint says.
#[derive(Debug, Default, Clone, PartialEq)]
struct State {
    position: usize,
    counts: BTreeMap<char, u64>,
}

fn state(name: &str) -> PathBuf {
    Path::new("/state").join(name)
}

fn out(name: &str) -> PathBuf {
    Path::new("/out").join(name)
}

impl Ledger {
    pub(crate) fn new(seed: u64, flaw: Option<Flaw>) -> Self {
        let mut rng = Rng::new(splitmix64(seed ^ 0x1ED6E5));
        let input = (0..7 + rng.below(4)).map(|_| b'a' + rng.below(3) as u8).collect();
        Self { input, records_per_checkpoint: 2 + rng.below(2) as usize, flaw }
    }

    fn has(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    fn process(&self, store: &VirtualStore, life: &mut Life) -> Result<(), ProgramError> {
        let _locks = self.claim(store)?;
        // What an earlier life has left may be seen, and yet not be durable.
        if !self.has(Flaw::TrustsNames) {
            store.sync_directory(&state(""))?;
        }
        if store.entry(&state("done")).is_ok() {
            self.tidy_up(store)?;
            if self.has(Flaw::WritesAfterTheEnd) {
                store.create(&out("more"))?;
            }
            return Ok(());
        }
        let (mut known, mut newest, highest) = self.recover(store)?;
        life.restored = newest;
        let mut id = if self.has(Flaw::ForgetsIds) { newest.unwrap_or(0) } else { highest };
        while known.position < self.input.len() {
            id += 1;
            // From now on the id cannot be given again.
            store.create_directories(&state(&format!(".chk-{id}")))?;
            life.ids = Some((life.ids.map_or(id, |(first, _)| first), id));
            let end = self.input.len().min(known.position + self.records_per_checkpoint);
            let records = &self.input[known.position..end];
            life.records_read += records.len() as u64;
            known.position = end;
            self.write_part(store, id, records, &mut known.counts)?;
            if self.has(Flaw::PublishesEarly) {
                self.publish(store, id)?;
            }
            if self.has(Flaw::RemovesEarly)
                && let Some(old) = newest
            {
                remove_checkpoint(store, &format!("chk-{old}"))?;
            }
            self.write_checkpoint(store, id, &known)?;
            life.completed = Some(id);
            if !self.has(Flaw::PublishesEarly) {
                self.publish(store, id)?;
            }
            if let Some(old) = newest.replace(id).filter(|_| !self.has(Flaw::RemovesEarly)) {
                remove_checkpoint(store, &format!("chk-{old}"))?;
            }
        }
        store.create(&state(".done"))?.sync()?;
        store.rename(&state(".done"), &state("done"))?;
        if !self.has(Flaw::EndNotSynced) {
            store.sync_directory(&state(""))?;
        }
        self.tidy_up(store)
    }

    fn claim(&self, store: &VirtualStore) -> Result<[Box<dyn StoreLock>; 2], ProgramError> {
        for directory in ["/state", "/out"] {
            store.create_directories(Path::new(directory))?;
        }
        if !self.has(Flaw::TrustsDirectories) {
            store.sync_directory(Path::new("/"))?;
        }
        let lock = |path: PathBuf| {
            store.lock(&path, "the ledger").map_err(|error| match error {
                LockError::Io(error) => ProgramError::from(error),
                LockError::Held { owner } => ProgramError::Wrong(format!("held by {owner}")),
            })
        };
        Ok([lock(state(".lock"))?, lock(out(".lock"))?])
    }

    /// What the newest checkpoint says, its id, and the highest id ever given.
    fn recover(&self, store: &VirtualStore) -> Result<(State, Option<u64>, u64), ProgramError> {
        let mut newest = None;
        let mut highest = 0;
        let entries = store.list(&state(""))?;
        for (name, _) in &entries {
            let Some(id) = name.trim_start_matches('.').strip_prefix("chk-") else { continue };
            let id: u64 = id.parse().map_err(|_| ProgramError::Wrong(format!("the name {name}")))?;
            highest = highest.max(id);
            if !name.starts_with('.') {
                newest = newest.max(Some(id));
            }
        }
        let known = newest.map_or(Ok(State::default()), |id| read_checkpoint(store, id))?;
        if let Some(id) = newest {
            self.finish_part(store, id)?;
        }
        for (name, _) in store.list(&out(""))? {
            if let Some(id) = name.strip_prefix("part-").and_then(|id| id.parse::<u64>().ok())
                && Some(id) > newest
                && !self.has(Flaw::PublishesEarly)
            {
                return Err(ProgramError::Wrong(format!("{name} is of a checkpoint that is not there")));
            }
            if name.starts_with(".part-") && !self.has(Flaw::LeavesHidden) {
                store.remove_file(&out(&name))?;
            }
        }
        if !self.has(Flaw::TrustsVisibleName) {
            store.sync_directory(&out(""))?;
        }
        for (name, _) in entries {
            if name == ".done" {
                store.remove_file(&state(&name))?;
            }
            let is_old =
                name.starts_with("chk-") && Some(&name) != newest.map(|id| format!("chk-{id}")).as_ref();
            // The newest hidden one stays until a newer one shows how far the ids have come.
            let is_newest = name == format!(".chk-{highest}") && !self.has(Flaw::ForgetsIds);
            let is_given_up = name.starts_with(".chk-") && !is_newest;
            if is_old || is_given_up {
                remove_checkpoint(store, &name)?;
            }
        }
        Ok((known, newest, highest))
    }

    /// Gives the part of a complete checkpoint its visible name, unless it has it.
    fn finish_part(&self, store: &VirtualStore, id: u64) -> Result<(), ProgramError> {
        if store.entry(&out(&format!("part-{id}"))).is_ok() {
            return Ok(());
        }
        if store.entry(&out(&format!(".part-{id}"))).is_err() && !store.is_dead() {
            return Err(ProgramError::Wrong(format!("part is lost: {id}")));
        }
        self.publish(store, id)
    }

    fn write_part(
        &self,
        store: &VirtualStore,
        id: u64,
        records: &[u8],
        counts: &mut BTreeMap<char, u64>,
    ) -> Result<(), ProgramError> {
        let mut file = store.create(&out(&format!(".part-{id}")))?;
        for record in records {
            let count = counts.entry(char::from(*record)).or_default();
            *count += 1;
            file.append(format!("{},{count}\n", char::from(*record)).as_bytes())?;
        }
        if !self.has(Flaw::PartNotSynced) {
            file.sync()?;
        }
        if !self.has(Flaw::HiddenNameNotSynced) {
            store.sync_directory(&out(""))?;
        }
        Ok(())
    }

    fn publish(&self, store: &VirtualStore, id: u64) -> Result<(), ProgramError> {
        store.rename(&out(&format!(".part-{id}")), &out(&format!("part-{id}")))?;
        if !self.has(Flaw::VisibleNameNotSynced) {
            store.sync_directory(&out(""))?;
        }
        Ok(())
    }

    fn write_checkpoint(&self, store: &VirtualStore, id: u64, known: &State) -> Result<(), ProgramError> {
        let (hidden, visible) = (format!(".chk-{id}"), format!("chk-{id}"));
        let mut file = store.create(&state(&hidden).join("state"))?;
        let counts: Vec<String> = known.counts.iter().map(|(key, count)| format!("{key}{count}")).collect();
        file.append(format!("{} {}.", known.position, counts.join(" ")).as_bytes())?;
        if !self.has(Flaw::CheckpointNotSynced) {
            file.sync()?;
        }
        store.sync_directory(&state(&hidden))?;
        store.rename(&state(&hidden), &state(&visible))?;
        if !self.has(Flaw::CheckpointNameNotSynced) {
            store.sync_directory(&state(""))?;
        }
        Ok(())
    }

    /// Once the end is recorded: removes all that nobody needs any more.
    fn tidy_up(&self, store: &VirtualStore) -> Result<(), ProgramError> {
        for (name, _) in store.list(&state(""))? {
            let is_hidden = name.starts_with(".chk-") && !self.has(Flaw::LeavesHidden);
            if is_hidden || (name.starts_with("chk-") && !self.has(Flaw::LeavesCheckpoint)) {
                remove_checkpoint(store, &name)?;
            }
        }
        if store.entry(&state(".done")).is_ok() {
            store.remove_file(&state(".done"))?;
        }
        store.sync_directory(&state(""))?;
        Ok(())
    }
}

fn remove_checkpoint(store: &VirtualStore, name: &str) -> Result<(), ProgramError> {
    for (file, _) in store.list(&state(name))? {
        store.remove_file(&state(name).join(file))?;
    }
    store.remove_directory(&state(name))?;
    store.sync_directory(&state(""))?;
    Ok(())
}

fn read_checkpoint(store: &VirtualStore, id: u64) -> Result<State, ProgramError> {
    let bytes = store.read(&state(&format!("chk-{id}")).join("state"))?;
    let parse = || {
        let text = std::str::from_utf8(&bytes).ok()?.strip_suffix('.')?;
        let mut words = text.split_whitespace();
        let position = words.next()?.parse().ok()?;
        let count = |word: &str| Some((word.chars().next()?, word.get(1..)?.parse().ok()?));
        Some(State { position, counts: words.map(count).collect::<Option<_>>()? })
    };
    parse().ok_or_else(|| ProgramError::Wrong(format!("checkpoint is damaged: {id}")))
}

enum ProgramError {
    Io(io::Error),
    Wrong(String),
}

impl From<io::Error> for ProgramError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl Program for Ledger {
    fn live(&mut self, store: &VirtualStore) -> Result<Life, String> {
        let mut life = Life::default();
        match self.process(store, &mut life) {
            _ if store.is_dead() => {}
            Ok(()) => life.is_finished = true,
            Err(ProgramError::Io(error)) => return Err(error.to_string()),
            Err(ProgramError::Wrong(error)) => return Err(error),
        }
        Ok(life)
    }

    fn expected(&self) -> Expected {
        let mut counts = BTreeMap::new();
        for record in &self.input {
            *counts.entry(char::from(*record).to_string()).or_default() += 1;
        }
        Expected {
            outputs: vec![ExpectedOutput { directory: PathBuf::from("/out"), counts }],
            may_stay: Arc::new(|path| matches!(path, "/state" | "/state/done")),
        }
    }
}
