//! What a snapshot consists of, as its metadata has it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use serde::Serialize;

use crate::base::id::CheckpointId;
use crate::snapshot::{
    CompletedCheckpoint, JobRecord, Location, OperatorSnapshot, RunState, SnapshotDirectory, SnapshotError,
    SnapshotPath, Store, layout,
};

/// Name of the list state in which a source keeps where it is.
pub(super) const SOURCE_POSITIONS: &str = "splits";

/// Name of the list state in which a transactional sink keeps what it has promised.
pub(super) const PENDING_TRANSACTIONS: &str = "transactions";

/// What a path leads to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Inspection {
    /// One snapshot.
    Snapshot(SnapshotDescription),
    /// A run with its completed checkpoints.
    Run(RunDescription),
}

/// A run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RunDescription {
    /// Its directory.
    pub path: String,
    /// What its record says; null without a record.
    pub record: Option<RecordDescription>,
    /// Its completed checkpoints, oldest first.
    pub checkpoints: Vec<SnapshotDescription>,
}

/// The record of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RecordDescription {
    /// Identity of the run.
    pub job_id: String,
    /// Name of the job.
    pub name: String,
    /// The newest run of a name has the highest.
    pub sequence: u64,
    /// When it began: milliseconds since 1970.
    pub started_at_ms: u64,
    /// How many processes have led it.
    pub lives: u32,
    /// `RUNNING` if it runs or can go on, `FINISHED`, or `CANCELED`.
    pub state: &'static str,
}

/// One snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SnapshotDescription {
    /// Its directory.
    pub path: String,
    /// Its number.
    pub checkpoint_id: u64,
    /// The job that wrote it.
    pub job_id: String,
    /// Number of key groups.
    pub max_parallelism: u32,
    /// When it was triggered: milliseconds since 1970.
    pub triggered_at_ms: u64,
    /// When it was completed: milliseconds since 1970.
    pub completed_at_ms: u64,
    /// Bytes of all state, that in lists included.
    pub bytes: u64,
    /// Those of them that the metadata itself holds.
    pub inline_bytes: u64,
    /// Its files with state.
    pub files: Vec<FileDescription>,
    /// The operators, by uid.
    pub operators: Vec<OperatorDescription>,
}

/// One file with state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FileDescription {
    /// Its name in the directory of the snapshot.
    pub name: String,
    /// Its length.
    pub bytes: u64,
}

/// One operator with the state of all of its subtasks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OperatorDescription {
    /// Its stable name.
    pub uid: String,
    /// Number of its subtasks.
    pub parallelism: u32,
    /// How many of them had come to the end of their input.
    pub ended_subtasks: u32,
    /// Bytes of all its state.
    pub bytes: u64,
    /// Where a source was: the number of its splits, each with a position. Null for an operator that is none.
    pub source_positions: Option<u64>,
    /// What a sink has promised and not published: the number of transactions. Null for an operator that has none.
    pub pending_transactions: Option<u64>,
    /// Its keyed states, by name.
    pub keyed_states: Vec<KeyedStateDescription>,
    /// Its list states, by name.
    pub list_states: Vec<ListStateDescription>,
}

/// One keyed state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KeyedStateDescription {
    /// Its name.
    pub name: String,
    /// Its kind, such as `value`.
    pub kind: String,
    /// Id of the serializer of its values.
    pub serializer: String,
    /// Version of that serializer.
    pub serializer_version: u32,
    /// Canonical form of its keys, such as `u64`.
    pub key_form: String,
    /// Bytes as they are stored, frames included.
    pub bytes: u64,
    /// Those of them that the metadata itself holds.
    pub inline_bytes: u64,
    /// Number of key groups that have entries.
    pub key_groups: u64,
    /// The lowest of them.
    pub first_key_group: Option<u16>,
    /// The highest of them.
    pub last_key_group: Option<u16>,
}

/// One list state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ListStateDescription {
    /// Its name.
    pub name: String,
    /// Number of items of all subtasks.
    pub items: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Describes what is at the path. Reads metadata only, not the files with state: [`verify`](super::verify) does.
///
/// # Errors
/// If there is no snapshot and no run, or the metadata of any is missing or damaged.
pub fn inspect(store: Arc<dyn Store>, path: &Path) -> Result<Inspection, SnapshotError> {
    match SnapshotPath::find(store.as_ref(), path)? {
        SnapshotPath::Snapshot(directory) => Ok(Inspection::Snapshot(inspect_snapshot(store, &directory)?)),
        SnapshotPath::Run { directory, checkpoints } => {
            let record = JobRecord::read(store.as_ref(), &directory)?.map(describe_record);
            let inspect = |id: CheckpointId| {
                inspect_snapshot(Arc::clone(&store), &directory.join(layout::checkpoint(id)))
            };
            let checkpoints = checkpoints.into_iter().map(inspect).collect::<Result<_, _>>()?;
            Ok(Inspection::Run(RunDescription { path: directory.display().to_string(), record, checkpoints }))
        }
    }
}

fn describe_record(record: JobRecord) -> RecordDescription {
    RecordDescription {
        job_id: record.job.to_string(),
        name: record.name,
        sequence: record.sequence,
        started_at_ms: record.started_at_ms,
        lives: record.lives,
        state: match record.state {
            RunState::Running => "RUNNING",
            RunState::Finished | RunState::FinishedAndKept => "FINISHED",
            RunState::Cancelled => "CANCELED",
        },
    }
}

fn inspect_snapshot(store: Arc<dyn Store>, directory: &Path) -> Result<SnapshotDescription, SnapshotError> {
    let (checkpoint, _) = SnapshotDirectory::open_unchecked(store, directory)?;
    Ok(describe(directory, &checkpoint))
}

fn describe(directory: &Path, checkpoint: &CompletedCheckpoint) -> SnapshotDescription {
    let mut operators: BTreeMap<&str, OperatorDescription> = BTreeMap::new();
    for subtask in &checkpoint.subtasks {
        for operator in &subtask.operators {
            let uid = operator.uid.as_str();
            let description = operators.entry(uid).or_insert_with(|| OperatorDescription {
                uid: uid.to_owned(),
                parallelism: subtask.parallelism,
                ended_subtasks: 0,
                bytes: 0,
                source_positions: None,
                pending_transactions: None,
                keyed_states: Vec::new(),
                list_states: Vec::new(),
            });
            add(description, operator);
        }
    }
    for operator in operators.values_mut() {
        operator.keyed_states.sort_by(|a, b| a.name.cmp(&b.name));
        operator.list_states.sort_by(|a, b| a.name.cmp(&b.name));
    }
    let operators: Vec<_> = operators.into_values().collect();
    let keyed = operators.iter().flat_map(|operator| &operator.keyed_states);
    let in_lists: u64 =
        operators.iter().flat_map(|operator| &operator.list_states).map(|list| list.bytes).sum();
    let files = checkpoint.files();
    SnapshotDescription {
        path: directory.display().to_string(),
        checkpoint_id: checkpoint.id.0,
        job_id: checkpoint.job.to_string(),
        max_parallelism: checkpoint.max_parallelism,
        triggered_at_ms: checkpoint.triggered_at_ms,
        completed_at_ms: checkpoint.completed_at_ms,
        bytes: operators.iter().map(|operator| operator.bytes).sum(),
        inline_bytes: in_lists + keyed.map(|state| state.inline_bytes).sum::<u64>(),
        files: files.map(|file| FileDescription { name: file.file.clone(), bytes: file.length }).collect(),
        operators,
    }
}

/// Adds what one subtask has of the operator.
fn add(description: &mut OperatorDescription, operator: &OperatorSnapshot) {
    description.ended_subtasks += u32::from(operator.ended);
    for state in &operator.keyed {
        let declaration = &state.declaration;
        let new = KeyedStateDescription {
            name: declaration.name.clone(),
            kind: declaration.kind.to_string(),
            serializer: declaration.serializer.clone(),
            serializer_version: declaration.serializer_version,
            key_form: state.key_form.clone(),
            bytes: 0,
            inline_bytes: 0,
            key_groups: 0,
            first_key_group: None,
            last_key_group: None,
        };
        // All subtasks of a job declare the same; should they not, each declaration is shown.
        let same = |known: &KeyedStateDescription| {
            (&known.name, &known.kind, &known.serializer) == (&new.name, &new.kind, &new.serializer)
                && known.serializer_version == new.serializer_version
                && known.key_form == new.key_form
        };
        let known = find_or_add(&mut description.keyed_states, same, || new.clone());
        for (group, handle) in &state.sections {
            let is_inline = matches!(handle.location, Location::Inline(_));
            known.bytes += handle.length();
            known.inline_bytes += if is_inline { handle.length() } else { 0 };
            known.key_groups += 1;
            known.first_key_group = Some(known.first_key_group.map_or(group.0, |first| first.min(group.0)));
            known.last_key_group = known.last_key_group.max(Some(group.0));
            description.bytes += handle.length();
        }
    }
    for list in &operator.list {
        let items = list.items.len() as u64;
        let bytes: u64 = list.items.iter().map(|item| item.len() as u64).sum();
        let new = || ListStateDescription { name: list.name.clone(), items: 0, bytes: 0 };
        let known = find_or_add(&mut description.list_states, |known| known.name == list.name, new);
        known.items += items;
        known.bytes += bytes;
        description.bytes += bytes;
        let of_note = match list.name.as_str() {
            SOURCE_POSITIONS => &mut description.source_positions,
            PENDING_TRANSACTIONS => &mut description.pending_transactions,
            _ => continue,
        };
        *of_note = Some(of_note.unwrap_or(0) + items);
    }
}

fn find_or_add<T>(all: &mut Vec<T>, wanted: impl Fn(&T) -> bool, new: impl FnOnce() -> T) -> &mut T {
    let at = all.iter().position(wanted).unwrap_or_else(|| {
        all.push(new());
        all.len() - 1
    });
    #[expect(clippy::indexing_slicing, reason = "the position was just found, or made")]
    &mut all[at]
}
