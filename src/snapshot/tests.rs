use proptest::prelude::*;

use super::*;
use crate::base::id::{CheckpointId, JobId, OperatorUid, SubtaskId, SubtaskIndex, VertexId};
use crate::base::key_group::{KeyGroup, KeyGroupRange};
use crate::codec::CodecError;

/// State whose groups have arbitrary contents.
#[derive(Clone)]
struct Fixed {
    declaration: StateDeclaration,
    groups: Vec<Vec<u8>>,
}

impl Fixed {
    fn new(groups: Vec<Vec<u8>>) -> Box<Self> {
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

const SUBTASK: SubtaskId = SubtaskId { vertex: VertexId(2), index: SubtaskIndex(1) };

fn write(
    storage: &MemoryStorage,
    id: u64,
    groups: Vec<Vec<u8>>,
    compression: Compression,
) -> KeyedStateSnapshot {
    let mut writer = storage.begin(CheckpointId(id), SUBTASK).unwrap();
    let snapshot = write_state(Fixed::new(groups), &mut *writer, compression).unwrap();
    writer.finish().unwrap();
    snapshot
}

fn checkpoint(id: u64, state: KeyedStateSnapshot) -> CompletedCheckpoint {
    let operator =
        OperatorSnapshot { uid: OperatorUid::new("op"), keyed: vec![state], list: vec![], ended: false };
    let subtask = SubtaskSnapshot { subtask: SUBTASK, parallelism: 2, operators: vec![operator], bytes: 0 };
    CompletedCheckpoint {
        id: CheckpointId(id),
        job: JobId::from_words(1, 2),
        max_parallelism: 128,
        triggered_at_ms: 0,
        completed_at_ms: 0,
        subtasks: vec![subtask],
    }
}

#[test]
fn empty_groups_have_no_section_and_the_others_read_back() {
    let groups = vec![vec![], vec![5; 100_000], vec![], b"incompressible".to_vec(), vec![]];
    for compression in [Compression::None, Compression::default(), Compression::Zstd { level: 9 }] {
        let storage = MemoryStorage::new();
        let snapshot = write(&storage, 1, groups.clone(), compression);
        let written: Vec<u16> = snapshot.sections.iter().map(|(group, _)| group.0).collect();
        assert_eq!(written, [1, 3]);
        for (group, handle) in &snapshot.sections {
            let bytes = storage.read(handle).unwrap();
            assert_eq!(read_section(handle, *group, &bytes).unwrap(), groups[usize::from(group.0)]);
        }
        let small = snapshot.sections[0].1.length < 1000;
        assert_eq!(small, compression != Compression::None);
    }
}

#[test]
fn the_section_of_another_group_is_refused() {
    let storage = MemoryStorage::new();
    let snapshot = write(&storage, 1, vec![b"same".to_vec(), b"same".to_vec()], Compression::None);
    let handle = &snapshot.sections[0].1;
    let bytes = storage.read(handle).unwrap();
    let error = read_section(handle, KeyGroup(1), &bytes).unwrap_err();
    assert_eq!(error.to_string(), "chk-1/2.1-0, offset 0: invalid section: key group 0 where 1 is expected");
    let error = read_section(&snapshot.sections[1].1, KeyGroup(1), &bytes).unwrap_err();
    assert!(matches!(error, SnapshotError::OtherSection { .. }), "{error}");
}

/// A section that claims more contents than it has: with a right checksum, so a bug or an attack rather than a bad disk.
#[test]
fn a_wrong_length_or_compression_is_refused_without_taking_memory() {
    use crate::codec::frame::{self, FrameKind};
    for (compression, length, stored) in [(0u8, u64::MAX, &b"abc"[..]), (1, u64::MAX, b"abc"), (7, 3, b"abc")]
    {
        let payload = [&[0, 0, compression][..], &length.to_le_bytes(), stored].concat();
        let mut bytes = Vec::new();
        let checksum = frame::encode(FrameKind::KeyGroupSection, 1, &payload, &mut bytes);
        let handle = StateHandle { file: "f".to_owned(), offset: 9, length: bytes.len() as u64, checksum };
        let error = read_section(&handle, KeyGroup(0), &bytes).unwrap_err();
        assert!(matches!(error, SnapshotError::Content { .. }), "{error}");
    }
    let bomb = zstd::bulk::compress(&vec![0; 1 << 24], 1).unwrap();
    let payload = [&[0, 0, 1][..], &10u64.to_le_bytes(), &bomb].concat();
    let mut bytes = Vec::new();
    let checksum = frame::encode(FrameKind::KeyGroupSection, 1, &payload, &mut bytes);
    let handle = StateHandle { file: "f".to_owned(), offset: 0, length: bytes.len() as u64, checksum };
    assert!(read_section(&handle, KeyGroup(0), &bytes).is_err(), "more contents than announced");
}

#[derive(Debug, Clone)]
enum Damage {
    Flip(usize, u8),
    Cut(usize),
    Insert(usize, u8),
    /// The bytes from the first place on, as many as the second number says, once more.
    Duplicate(usize, usize),
    Swap(usize, usize),
}

fn damage() -> impl Strategy<Value = Damage> {
    let at = 0..usize::MAX;
    prop_oneof![
        (at.clone(), 1..=255u8).prop_map(|(at, mask)| Damage::Flip(at, mask)),
        at.clone().prop_map(Damage::Cut),
        (at.clone(), any::<u8>()).prop_map(|(at, byte)| Damage::Insert(at, byte)),
        (at.clone(), 1..40usize).prop_map(|(at, count)| Damage::Duplicate(at, count)),
        (at.clone(), at).prop_map(|(a, b)| Damage::Swap(a, b)),
    ]
}

fn apply(damage: &Damage, bytes: &mut Vec<u8>) {
    let length = bytes.len();
    if length == 0 {
        return;
    }
    match *damage {
        Damage::Flip(at, mask) => bytes[at % length] ^= mask,
        Damage::Cut(at) => bytes.truncate(at % length),
        Damage::Insert(at, byte) => bytes.insert(at % length, byte),
        Damage::Duplicate(at, count) => {
            let at = at % length;
            let end = (at + count).min(length);
            let piece = bytes[at..end].to_vec();
            bytes.splice(end..end, piece);
        }
        Damage::Swap(a, b) => bytes.swap(a % length, b % length),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn damaged_sections_are_errors_and_never_decode_to_something_else(
        contents in proptest::collection::vec(0..4u8, 1..300),
        damages in proptest::collection::vec(damage(), 1..4),
        compressed in any::<bool>(),
    ) {
        let storage = MemoryStorage::new();
        let compression = if compressed { Compression::default() } else { Compression::None };
        let snapshot = write(&storage, 1, vec![contents.clone()], compression);
        let (group, handle) = &snapshot.sections[0];
        let bytes = storage.read(handle).unwrap();
        let mut damaged = bytes.clone();
        for damage in &damages {
            apply(damage, &mut damaged);
        }
        match read_section(handle, *group, &damaged) {
            Ok(read) => {
                prop_assert_eq!(&damaged, &bytes, "only undamaged bytes may be accepted");
                prop_assert_eq!(read, contents);
            }
            Err(error) => prop_assert!(error.to_string().starts_with("chk-1/2.1-0, offset 0: ")),
        }
    }
}

#[test]
fn a_committed_checkpoint_is_found_until_it_is_discarded() {
    let storage = MemoryStorage::new();
    assert_eq!(storage.newest().unwrap(), None);
    for id in [4, 5] {
        let state = write(&storage, id, vec![vec![id as u8; 10]], Compression::None);
        storage.commit(&checkpoint(id, state)).unwrap();
    }
    assert_eq!(storage.list().unwrap(), [CheckpointId(4), CheckpointId(5)]);
    assert_eq!(storage.newest().unwrap().unwrap().id, CheckpointId(5));
    storage.discard(CheckpointId(5)).unwrap();
    let newest = storage.newest().unwrap().unwrap();
    assert_eq!(newest.id, CheckpointId(4));
    assert!(newest.handles().all(|handle| storage.read(handle).is_ok()));
    storage.discard(CheckpointId(4)).unwrap();
    assert_eq!((storage.files(), storage.bytes()), (0, 0), "nothing is left");
    assert!(matches!(storage.read(newest.handles().next().unwrap()), Err(SnapshotError::MissingFile { .. })));
}

#[test]
fn an_aborted_checkpoint_leaves_nothing_and_late_writers_are_refused() {
    let storage = MemoryStorage::new();
    let finished = write(&storage, 1, vec![vec![1; 10]], Compression::None);
    let mut open = storage.begin(CheckpointId(1), SUBTASK).unwrap();
    open.append(b"partial").unwrap();
    let dropped = storage.begin(CheckpointId(1), SUBTASK).unwrap();
    assert_eq!(storage.files(), 3);
    drop(dropped);
    assert_eq!(storage.files(), 2);
    storage.discard(CheckpointId(1)).unwrap();
    open.append(b"late").unwrap();
    assert!(matches!(open.finish(), Err(SnapshotError::Discarded { checkpoint: CheckpointId(1) })));
    assert!(storage.begin(CheckpointId(1), SUBTASK).is_err());
    assert!(storage.commit(&checkpoint(1, finished)).is_err());
    assert_eq!((storage.files(), storage.bytes()), (0, 0), "nothing is left");
    assert_eq!(storage.newest().unwrap(), None);
}

#[test]
fn a_checkpoint_with_an_unfinished_file_cannot_be_committed() {
    let storage = MemoryStorage::new();
    let mut writer = storage.begin(CheckpointId(1), SUBTASK).unwrap();
    let state = write_state(Fixed::new(vec![vec![1; 10]]), &mut *writer, Compression::None).unwrap();
    let checkpoint = checkpoint(1, state);
    assert!(matches!(storage.commit(&checkpoint), Err(SnapshotError::MissingFile { .. })));
    assert_eq!(storage.newest().unwrap(), None);
    writer.finish().unwrap();
    storage.commit(&checkpoint).unwrap();
    assert_eq!(storage.newest().unwrap(), Some(checkpoint));
}

#[test]
fn a_handle_beyond_its_file_is_an_error() {
    let storage = MemoryStorage::new();
    let snapshot = write(&storage, 1, vec![vec![1; 10]], Compression::None);
    for (offset, length) in [(0, u64::MAX), (u64::MAX, 1), (30, 100), (u64::MAX, u64::MAX)] {
        let handle = StateHandle { offset, length, ..snapshot.sections[0].1.clone() };
        assert!(matches!(storage.read(&handle), Err(SnapshotError::OutOfFile { .. })));
    }
}
