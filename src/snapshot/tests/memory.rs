use super::fixture::{SUBTASK, checkpoint, read_back, take, write_subtask};
use crate::base::id::CheckpointId;
use crate::snapshot::*;

#[test]
fn a_committed_checkpoint_is_found_until_it_is_discarded() {
    let storage = MemoryStorage::new();
    assert_eq!(storage.newest().unwrap(), None);
    let fourth = take(&storage, 4).unwrap();
    let fifth = take(&storage, 5).unwrap();
    assert_eq!(storage.list().unwrap(), [CheckpointId(4), CheckpointId(5)]);
    assert_eq!(storage.newest().unwrap(), Some(fifth));
    storage.discard(CheckpointId(5)).unwrap();
    assert_eq!(storage.newest().unwrap().as_ref(), Some(&fourth));
    read_back(&storage, &fourth).unwrap();
    storage.discard(CheckpointId(4)).unwrap();
    assert_eq!((storage.files(), storage.bytes()), (0, 0), "nothing is left");
    assert!(matches!(read_back(&storage, &fourth), Err(SnapshotError::MissingFile { .. })));
}

#[test]
fn an_aborted_checkpoint_leaves_nothing_and_late_writers_are_refused() {
    let storage = MemoryStorage::new();
    let finished = write_subtask(&storage, 1, SUBTASK, vec![vec![1; 10]], Compression::None).unwrap();
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
    assert!(storage.commit(&checkpoint(1, vec![finished])).is_err());
    assert_eq!((storage.files(), storage.bytes()), (0, 0), "nothing is left");
    assert_eq!(storage.newest().unwrap(), None);
}

#[test]
fn a_checkpoint_with_an_unfinished_file_cannot_be_committed() {
    let storage = MemoryStorage::new();
    let mut snapshot = write_subtask(&storage, 1, SUBTASK, vec![vec![1; 10]], Compression::None).unwrap();
    let mut writer = storage.begin(CheckpointId(1), SUBTASK).unwrap();
    let state = super::fixture::Fixed::new(vec![vec![1; 10]]);
    snapshot.operators[0].keyed.push(write_state(state, &mut *writer, Compression::None).unwrap());
    let checkpoint = checkpoint(1, vec![snapshot]);
    assert!(matches!(storage.commit(&checkpoint), Err(SnapshotError::MissingFile { .. })));
    assert_eq!(storage.newest().unwrap(), None);
    writer.finish().unwrap();
    storage.commit(&checkpoint).unwrap();
    assert_eq!(storage.newest().unwrap(), Some(checkpoint));
}

#[test]
fn a_handle_beyond_its_file_is_an_error() {
    let storage = MemoryStorage::new();
    let snapshot = write_subtask(&storage, 1, SUBTASK, vec![vec![1; 10]], Compression::None).unwrap();
    let file = snapshot.files[0].file.clone();
    for (offset, length) in [(0, u64::MAX), (u64::MAX, 1), (30, 100), (u64::MAX, u64::MAX)] {
        let location = Location::File(FileRange { file: file.clone(), offset, length });
        let handle = StateHandle { location, checksum: 0 };
        assert!(matches!(storage.read(&handle), Err(SnapshotError::OutOfFile { .. })));
    }
}
