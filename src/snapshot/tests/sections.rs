use proptest::prelude::*;

use super::damage::{apply, damage};
use super::fixture::{Fixed, SUBTASK};
use crate::base::id::CheckpointId;
use crate::base::key_group::KeyGroup;
use crate::codec::frame::{self, FrameKind, HEADER_BYTES};
use crate::snapshot::*;

const EVERY: [Compression; 4] =
    [Compression::None, Compression::Zstd { level: 1 }, Compression::Zstd { level: 9 }, Compression::Lz4];

fn write(groups: Vec<Vec<u8>>, compression: Compression) -> (MemoryStorage, KeyedStateSnapshot) {
    let storage = MemoryStorage::new();
    let mut writer = storage.begin(CheckpointId(1), SUBTASK).unwrap();
    let snapshot = write_state(Fixed::new(groups), &mut *writer, compression).unwrap();
    writer.finish().unwrap();
    (storage, snapshot)
}

/// A section with this payload, its checksum right.
fn section(compression: u8, length: u64, stored: &[u8]) -> (StateHandle, Vec<u8>) {
    framed(&[&[0, 0, compression][..], &length.to_le_bytes(), stored].concat())
}

fn framed(payload: &[u8]) -> (StateHandle, Vec<u8>) {
    let mut bytes = Vec::new();
    let checksum = frame::encode(FrameKind::KeyGroupSection, 1, payload, &mut bytes);
    let range = FileRange { file: "f".to_owned(), offset: 9, length: bytes.len() as u64 };
    (StateHandle { location: Location::File(range), checksum }, bytes)
}

fn check(section: &(StateHandle, Vec<u8>)) -> Result<Vec<u8>, SnapshotError> {
    check_section("f", KeyGroup(0), &section.0, &section.1)
}

#[test]
fn empty_groups_have_no_section_and_the_others_read_back() {
    let groups = vec![vec![], vec![5; 100_000], vec![], b"incompressible".to_vec(), vec![]];
    for compression in EVERY {
        let (storage, snapshot) = write(groups.clone(), compression);
        let written: Vec<u16> = snapshot.sections.iter().map(|(group, _)| group.0).collect();
        assert_eq!(written, [1, 3]);
        for (group, handle) in &snapshot.sections {
            assert_eq!(read_section(&storage, *group, handle).unwrap(), groups[usize::from(group.0)]);
        }
        let small = snapshot.sections[0].1.length() < 1000;
        assert_eq!(small, compression != Compression::None);
    }
}

/// The bytes of a section are part of the snapshot format.
#[test]
fn the_bytes_are_as_documented() {
    let (storage, snapshot) = write(vec![vec![], b"ab".to_vec()], Compression::Lz4);
    let (_, handle) = &snapshot.sections[0];
    let bytes = storage.read(handle).unwrap();
    assert_eq!(bytes[..16], *b"SLF1\x01\0\x01\0\x0d\0\0\0\0\0\0\0");
    assert_eq!(bytes[16..20], handle.checksum.to_le_bytes());
    assert_eq!(bytes[20..], *b"\x01\0\x00\x02\0\0\0\0\0\0\0ab");
    for (compression, code) in EVERY.into_iter().zip([0, 1, 1, 2]) {
        let (storage, snapshot) = write(vec![vec![7; 100]], compression);
        let bytes = storage.read(&snapshot.sections[0].1).unwrap();
        assert_eq!(bytes[22], code, "{compression:?}");
    }
    let lz4 = section(2, 10, b"\x1ax\x01\0"); // One literal; at distance 1 a match of 10 + 4 bytes.
    assert!(check(&lz4).is_err(), "an lz4 block ends with literals");
    let lz4 = section(2, 16, b"\x1ax\x01\0\x10y");
    assert_eq!(check(&lz4).unwrap(), b"xxxxxxxxxxxxxxxy");
}

#[test]
fn the_section_of_another_group_is_refused() {
    let (storage, snapshot) = write(vec![b"same".to_vec(), b"same".to_vec()], Compression::None);
    let handle = &snapshot.sections[0].1;
    let error = read_section(&storage, KeyGroup(1), handle).unwrap_err();
    assert_eq!(error.to_string(), "chk-1/2.1-0, offset 0: invalid section: key group 0 where 1 is expected");
    let bytes = storage.read(handle).unwrap();
    let error = check_section("f", KeyGroup(1), &snapshot.sections[1].1, &bytes).unwrap_err();
    assert!(matches!(error, SnapshotError::OtherSection { .. }), "{error}");
}

/// A section that claims more contents than it has: with a right checksum, so a bug or an attack rather than a bad disk.
#[test]
fn a_wrong_length_or_compression_is_refused_without_taking_memory() {
    for (compression, length) in [(0, u64::MAX), (1, u64::MAX), (2, u64::MAX), (7, 3)] {
        let error = check(&section(compression, length, b"abc")).unwrap_err();
        assert!(matches!(error, SnapshotError::Content { .. }), "{error}");
    }
    let zeros = vec![0; 1 << 24];
    let bombs = [(1, zstd::bulk::compress(&zeros, 1).unwrap()), (2, lz4_flex::block::compress(&zeros))];
    for (compression, bomb) in &bombs {
        assert_eq!(check(&section(*compression, 1 << 24, bomb)).unwrap().len(), 1 << 24);
        for length in [0, 10, (1 << 24) - 1, (1 << 24) + 1, 1 << 50, u64::MAX] {
            let error = check(&section(*compression, length, bomb)).unwrap_err();
            assert!(matches!(error, SnapshotError::Content { .. }), "{error}");
        }
    }
}

#[test]
fn sections_held_inline_read_back_like_those_in_files() {
    let (storage, in_file) = write(vec![b"a".to_vec(), b"bc".to_vec()], Compression::None);
    let mut file = Vec::new();
    for (_, handle) in &in_file.sections {
        file.extend(storage.read(handle).unwrap());
    }
    let mut inline = in_file.clone();
    inline.place_inline(&file).unwrap();
    assert_eq!(inline.bytes(), in_file.bytes());
    for ((group, inline), (_, in_file)) in inline.sections.iter().zip(&in_file.sections) {
        let nowhere = MemoryStorage::new();
        let read = read_section(&nowhere, *group, inline).unwrap();
        assert_eq!(read, read_section(&storage, *group, in_file).unwrap());
    }
    let mut too_short = in_file;
    let error = too_short.place_inline(&file[..file.len() - 1]).unwrap_err();
    assert!(matches!(error, SnapshotError::OutOfFile { .. }), "{error}");
}

fn compression() -> impl Strategy<Value = Compression> {
    prop::sample::select(EVERY.to_vec())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn damaged_sections_are_errors_and_never_decode_to_something_else(
        contents in proptest::collection::vec(0..4u8, 1..300),
        damages in proptest::collection::vec(damage(), 1..4),
        compression in compression(),
    ) {
        let (storage, snapshot) = write(vec![contents.clone()], compression);
        let (group, handle) = &snapshot.sections[0];
        let bytes = storage.read(handle).unwrap();
        let mut damaged = bytes.clone();
        for damage in &damages {
            apply(damage, &mut damaged);
        }
        match check_section("chk-1/2.1-0", *group, handle, &damaged) {
            Ok(read) => {
                prop_assert_eq!(&damaged, &bytes, "only undamaged bytes may be accepted");
                prop_assert_eq!(read, contents);
            }
            Err(error) => prop_assert!(error.to_string().starts_with("chk-1/2.1-0, offset 0: ")),
        }
    }

    /// Here the decompressor sees the damage.
    #[test]
    fn a_damaged_payload_under_a_right_checksum_never_panics(
        contents in proptest::collection::vec(0..4u8, 1..300),
        damages in proptest::collection::vec(damage(), 1..4),
        compression in compression(),
    ) {
        let (storage, snapshot) = write(vec![contents], compression);
        let mut payload = storage.read(&snapshot.sections[0].1).unwrap().split_off(HEADER_BYTES);
        for damage in &damages {
            apply(damage, &mut payload);
        }
        let announced = payload.get(3..11).map(|bytes| u64::from_le_bytes(bytes.try_into().unwrap()));
        match check(&framed(&payload)) {
            Ok(read) => prop_assert_eq!(Some(read.len() as u64), announced),
            Err(error) => prop_assert!(error.to_string().starts_with("f, offset 9: ")),
        }
    }

    #[test]
    fn whatever_is_written_reads_back(
        groups in proptest::collection::vec(proptest::collection::vec(0..9u8, 0..2000), 1..5),
        compression in compression(),
    ) {
        let (storage, snapshot) = write(groups.clone(), compression);
        for (group, handle) in &snapshot.sections {
            let read = read_section(&storage, *group, handle).unwrap();
            prop_assert_eq!(&read, &groups[usize::from(group.0)]);
        }
    }
}
