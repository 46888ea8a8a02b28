//! State to be written, and checkpoints made of it.

use crate::base::id::{CheckpointId, JobId, OperatorUid, SubtaskId, SubtaskIndex, VertexId};
use crate::base::key_group::{KeyGroup, KeyGroupRange};
use crate::codec::CodecError;
use crate::snapshot::*;

/// State whose groups have arbitrary contents.
#[derive(Clone)]
pub(crate) struct Fixed {
    declaration: StateDeclaration,
    groups: Vec<Vec<u8>>,
}

impl Fixed {
    pub(crate) fn new(groups: Vec<Vec<u8>>) -> Box<Self> {
        let (name, serializer) = ("fixed".to_owned(), "raw".to_owned());
        let declaration =
            StateDeclaration { name, kind: StateKind::Value, serializer, serializer_version: 1 };
        Box::new(Self { declaration, groups })
    }
}

impl FrozenState for Fixed {
    fn key_form(&self) -> String {
        "u64".to_owned()
    }

    fn declaration(&self) -> &StateDeclaration {
        &self.declaration
    }

    fn key_groups(&self) -> KeyGroupRange {
        KeyGroupRange { start: 0, end: self.groups.len() as u32 }
    }

    fn encode_group(&self, group: KeyGroup, out: &mut Vec<u8>) -> Result<u64, CodecError> {
        let contents = &self.groups[usize::from(group.0)];
        out.extend_from_slice(contents);
        Ok(contents.len() as u64)
    }
}

pub(crate) const SUBTASK: SubtaskId = subtask(1);

pub(crate) const fn subtask(index: u32) -> SubtaskId {
    SubtaskId { vertex: VertexId(2), index: SubtaskIndex(index) }
}

pub(crate) fn job() -> JobId {
    JobId::from_words(1, 2)
}

/// Writes the groups as the state of one operator of the subtask.
pub(crate) fn write_subtask(
    storage: &dyn CheckpointStorage,
    id: u64,
    subtask: SubtaskId,
    groups: Vec<Vec<u8>>,
    compression: Compression,
) -> Result<SubtaskSnapshot, SnapshotError> {
    let mut writer = storage.begin(CheckpointId(id), subtask)?;
    let state = write_state(Fixed::new(groups), &mut *writer, compression)?;
    let bytes = state.bytes();
    let list = ListStateSnapshot { name: "splits".to_owned(), items: vec![vec![1, 2, 3], vec![]] };
    let operator =
        OperatorSnapshot { uid: OperatorUid::new("op"), keyed: vec![state], list: vec![list], ended: false };
    let operators = vec![operator];
    let mut snapshot = SubtaskSnapshot { subtask, parallelism: 2, operators, files: Vec::new(), bytes };
    snapshot.place(writer.finish()?)?;
    Ok(snapshot)
}

pub(crate) fn checkpoint(id: u64, subtasks: Vec<SubtaskSnapshot>) -> CompletedCheckpoint {
    CompletedCheckpoint {
        id: CheckpointId(id),
        job: job(),
        max_parallelism: 128,
        triggered_at_ms: 1_700_000_000_000 + id,
        completed_at_ms: 1_700_000_000_500 + id,
        subtasks,
    }
}

/// Contents of the groups that [`take`] writes for a subtask: one small group, one that is large after compression too.
pub(crate) fn groups(id: u64, subtask: SubtaskId) -> Vec<Vec<u8>> {
    let mut rng = crate::base::rng::Rng::new(id * 100 + u64::from(subtask.index.0));
    let large = (0..3000).map(|_| rng.next_u64() as u8).collect();
    vec![vec![id as u8; 10], vec![], large]
}

/// Writes and commits a checkpoint of two subtasks.
pub(crate) fn take(storage: &dyn CheckpointStorage, id: u64) -> Result<CompletedCheckpoint, SnapshotError> {
    let write = |index| {
        write_subtask(storage, id, subtask(index), groups(id, subtask(index)), Compression::default())
    };
    let checkpoint = checkpoint(id, vec![write(0)?, write(1)?]);
    storage.commit(&checkpoint)?;
    Ok(checkpoint)
}

/// Reads all that [`take`] has written.
pub(crate) fn read_back(
    files: &dyn StateFiles,
    checkpoint: &CompletedCheckpoint,
) -> Result<(), SnapshotError> {
    for subtask in &checkpoint.subtasks {
        let expected = groups(checkpoint.id.0, subtask.subtask);
        let mut found = 0;
        for state in subtask.operators.iter().flat_map(|operator| &operator.keyed) {
            let range = KeyGroupRange { start: 0, end: 128 };
            read_state(files, state, range, |group, contents| {
                assert_eq!(contents, expected[usize::from(group.0)]);
                found += 1;
                Ok::<_, SnapshotError>(())
            })?;
        }
        assert_eq!(found, 2);
    }
    Ok(())
}
