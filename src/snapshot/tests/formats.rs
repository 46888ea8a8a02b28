//! `_metadata` and `_job`: their bytes are as documented, and no other bytes are taken for them.

use proptest::prelude::*;

use super::damage::{Damage, apply, damage};
use super::fixture::{checkpoint, job, subtask};
use crate::base::id::{CheckpointId, OperatorUid};
use crate::base::key_group::KeyGroup;
use crate::codec::frame::{self, FrameKind, HEADER_BYTES};
use crate::snapshot::*;

const PREFIX: &str = "chk-7/";

fn declaration() -> StateDeclaration {
    let (name, serializer) = ("count".to_owned(), "postcard".to_owned());
    StateDeclaration { name, kind: StateKind::Reducing, serializer, serializer_version: 3 }
}

fn in_file(file: &str, offset: u64, length: u64) -> StateHandle {
    let range = FileRange { file: file.to_owned(), offset, length };
    StateHandle { location: Location::File(range), checksum: 0x0403_0201 }
}

/// One of everything.
fn example() -> CompletedCheckpoint {
    let inline = StateHandle { location: Location::Inline(b"in".to_vec()), checksum: 5 };
    let state = KeyedStateSnapshot {
        declaration: declaration(),
        key_form: "u64".to_owned(),
        sections: vec![(KeyGroup(2), in_file("chk-7/2.0-0", 1, 9)), (KeyGroup(3), inline)],
    };
    let list = ListStateSnapshot { name: "splits".to_owned(), items: vec![b"i".to_vec(), vec![]] };
    let operator =
        OperatorSnapshot { uid: OperatorUid::new("op"), keyed: vec![state], list: vec![list], ended: true };
    let files = vec![SnapshotFile { file: "chk-7/2.0-0".to_owned(), length: 10 }];
    let first =
        SubtaskSnapshot { subtask: subtask(0), parallelism: 2, operators: vec![operator], files, bytes: 77 };
    let second = SubtaskSnapshot {
        subtask: subtask(1),
        parallelism: 2,
        operators: Vec::new(),
        files: Vec::new(),
        bytes: 0,
    };
    let mut example = checkpoint(7, vec![first, second]);
    (example.triggered_at_ms, example.completed_at_ms) = (8, 9);
    example
}

fn record() -> JobRecord {
    JobRecord {
        job: job(),
        name: "my job".to_owned(),
        sequence: 2,
        started_at_ms: 3,
        lives: 4,
        next_checkpoint_id: CheckpointId(5),
        newest_completed: Some(CheckpointId(6)),
        state: RunState::Finished,
        began_from: Some("/chk-3".to_owned()),
    }
}

const JOB: &[u8] = b"\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x02";

#[test]
fn the_bytes_of_metadata_are_as_documented() {
    let bytes = metadata::encode(&example(), PREFIX).unwrap();
    let subtask = [
        &b"\x02\0\0\0"[..],               // vertex
        b"\0\0\0\0",                      // index
        b"\x02\0\0\0",                    // parallelism
        b"\x4d\0\0\0\0\0\0\0",            // bytes written
        b"\x01\0\0\0",                    // files
        b"\x05\0\0\x002.0-0",             // name
        b"\x0a\0\0\0\0\0\0\0",            // length
        b"\x01\0\0\0",                    // operators
        b"\x02\0\0\0op",                  // uid
        b"\x01",                          // ended
        b"\x01\0\0\0",                    // keyed states
        b"\x05\0\0\0count",               // name
        b"\x02",                          // kind: reducing
        b"\x08\0\0\0postcard",            // serializer
        b"\x03\0\0\0",                    // its version
        b"\x03\0\0\0u64",                 // key form
        b"\x02\0\0\0",                    // sections
        b"\x02\0",                        // key group
        b"\x01\x02\x03\x04",              // checksum
        b"\0",                            // in a file
        b"\0\0\0\0",                      // its number
        b"\x01\0\0\0\0\0\0\0",            // offset
        b"\x09\0\0\0\0\0\0\0",            // length
        b"\x03\0",                        // key group
        b"\x05\0\0\0",                    // checksum
        b"\x01",                          // inline
        b"\x02\0\0\0in",                  // the section
        b"\x01\0\0\0",                    // list states
        b"\x06\0\0\0splits",              // name
        b"\x02\0\0\0\x01\0\0\0i\0\0\0\0", // items
    ];
    let expected = [
        &b"\x07\0\0\0\0\0\0\0"[..], // id
        JOB,
        b"\x80\0\0\0",         // max parallelism
        b"\x08\0\0\0\0\0\0\0", // triggered
        b"\x09\0\0\0\0\0\0\0", // completed
        b"\x02\0\0\0",         // subtasks
        &subtask.concat(),
        b"\x02\0\0\0\x01\0\0\0\x02\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", // a subtask without anything
    ];
    assert_eq!(bytes[..8], *b"SLF1\x02\0\x01\0");
    assert_eq!(bytes[HEADER_BYTES..], expected.concat());
    assert_eq!(metadata::decode(&bytes, PREFIX).unwrap(), example());
}

#[test]
fn the_bytes_of_a_record_are_as_documented() {
    let bytes = record().encode().unwrap();
    let expected = [
        JOB,
        b"\x02\0\0\0\0\0\0\0", // sequence
        b"\x03\0\0\0\0\0\0\0", // start
        b"\x04\0\0\0",         // lives
        b"\x05\0\0\0\0\0\0\0", // next checkpoint
        b"\x01",               // a checkpoint was completed
        b"\x06\0\0\0\0\0\0\0", // the newest known
        b"\x02",               // finished
        b"\x06\0\0\0my job",   // name
        b"\x06\0\0\0/chk-3",   // snapshot
    ];
    assert_eq!(bytes[..8], *b"SLF1\x03\0\x01\0");
    assert_eq!(bytes[HEADER_BYTES..], expected.concat());
    assert_eq!(JobRecord::decode(&bytes).unwrap(), record());
}

/// The name of the directory is no part of the checkpoint.
#[test]
fn a_checkpoint_reads_back_under_another_directory() {
    let bytes = metadata::encode(&example(), PREFIX).unwrap();
    let moved = metadata::decode(&bytes, "").unwrap();
    assert_eq!(moved.files().next().unwrap().file, "2.0-0");
    assert_eq!(metadata::encode(&moved, "").unwrap(), bytes);
}

/// Each is refused when it would be written, and also when it is read: by its reason, not by chance.
#[test]
fn what_cannot_be_is_neither_written_nor_read() {
    type Change = fn(&mut CompletedCheckpoint);
    fn state(checkpoint: &mut CompletedCheckpoint) -> &mut KeyedStateSnapshot {
        &mut checkpoint.subtasks[0].operators[0].keyed[0]
    }
    fn rename(checkpoint: &mut CompletedCheckpoint, name: &str) {
        let file = format!("{PREFIX}{name}");
        state(checkpoint).sections[0].1 = in_file(&file, 1, 9);
        checkpoint.subtasks[0].files[0].file = file;
    }
    let wrong: [(Change, &str); 17] = [
        (|c| c.max_parallelism = 0, "max parallelism 0"),
        (|c| c.max_parallelism = 32_769, "max parallelism 32769"),
        (|c| c.subtasks[0].parallelism = 129, "parallelism 129 and max parallelism 128"),
        (|c| c.subtasks[0].parallelism = 0, "subtask 2.0 with parallelism 0"),
        (|c| c.subtasks[1].subtask = subtask(2), "subtask 2.2 with parallelism 2"),
        (|c| c.subtasks[1].subtask = subtask(0), "subtask 2.0 stands twice"),
        (|c| c.max_parallelism = 3, "key group 3 of 3"),
        (|c| state(c).sections[1].0 = KeyGroup(2), "out of order"),
        (|c| state(c).sections.swap(0, 1), "out of order"),
        (
            |c| state(c).sections[0].1 = in_file("chk-7/2.0-0", 2, 9),
            "bytes 2..+9 of chk-7/2.0-0, which has 10",
        ),
        (|c| state(c).sections[0].1 = in_file("chk-7/2.0-0", u64::MAX, 2), "which has 10"),
        (|c| state(c).sections[0].1 = in_file("chk-7/other", 1, 9), "is not among the files"),
        (|c| c.subtasks[1].files = c.subtasks[0].files.clone(), "stands twice"),
        (|c| rename(c, "../2.0-0"), "is not the name of a file in this directory"),
        (|c| rename(c, "_metadata"), "is not the name of a file in this directory"),
        (|c| rename(c, ""), "is not the name of a file in this directory"),
        (|c| c.subtasks[0].files[0].file = "/etc/passwd".to_owned(), "is not in the directory"),
    ];
    for (change, reason) in wrong {
        let mut checkpoint = example();
        change(&mut checkpoint);
        let error = metadata::encode(&checkpoint, PREFIX).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}; expected: {reason}");
    }
}

/// The bytes with other payload, the checksum right.
fn reframed(kind: FrameKind, bytes: &[u8], change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut payload = bytes[HEADER_BYTES..].to_vec();
    change(&mut payload);
    let mut framed = Vec::new();
    frame::encode(kind, 1, &payload, &mut framed);
    framed
}

#[test]
fn every_flipped_bit_every_cut_and_every_addition_is_noticed() {
    let metadata = metadata::encode(&example(), PREFIX).unwrap();
    let record = record().encode().unwrap();
    let accepts = |bytes: &[u8]| metadata::decode(bytes, PREFIX).is_ok() || JobRecord::decode(bytes).is_ok();
    for whole in [&metadata, &record] {
        assert!(accepts(whole));
        for bit in 0..whole.len() * 8 {
            let mut damaged = whole.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(!accepts(&damaged), "bit {bit}");
        }
        assert!((0..whole.len()).all(|length| !accepts(&whole[..length])));
        assert!(!accepts(&[whole, &b"\0"[..]].concat()));
    }
    for (kind, whole) in [(FrameKind::Metadata, &metadata), (FrameKind::JobRecord, &record)] {
        for length in 0..whole.len() - HEADER_BYTES {
            assert!(
                !accepts(&reframed(kind, whole, |payload| payload.truncate(length))),
                "payload of {length}"
            );
        }
        assert!(!accepts(&reframed(kind, whole, |payload| payload.push(0))));
    }
}

fn some_bytes() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(any::<u8>(), 0..20)
}

fn some_subtask(index: u32) -> impl Strategy<Value = SubtaskSnapshot> {
    let state = (some_bytes(), proptest::collection::btree_set(0..128u16, 0..5), any::<bool>());
    let operator =
        (".{0,8}", proptest::collection::vec(state, 0..3), proptest::collection::vec(some_bytes(), 0..3));
    proptest::collection::vec(operator, 0..3).prop_map(move |operators| {
        let file = format!("{PREFIX}2.{index}-0");
        let operators = operators.into_iter().map(|(uid, states, items)| OperatorSnapshot {
            uid: OperatorUid::new(&uid),
            keyed: states
                .into_iter()
                .map(|(bytes, groups, inline)| KeyedStateSnapshot {
                    declaration: declaration(),
                    key_form: uid.clone(),
                    sections: groups
                        .into_iter()
                        .map(|group| {
                            let location = Location::Inline(bytes.clone());
                            let inlined = StateHandle { location, checksum: 1 };
                            (KeyGroup(group), if inline { inlined } else { in_file(&file, group.into(), 9) })
                        })
                        .collect(),
                })
                .collect(),
            list: vec![ListStateSnapshot { name: uid, items }],
            ended: false,
        });
        let operators = operators.collect();
        let files = vec![SnapshotFile { file: file.clone(), length: 200 }];
        SubtaskSnapshot { subtask: subtask(index), parallelism: 3, operators, files, bytes: 1 }
    })
}

fn some_checkpoint() -> impl Strategy<Value = CompletedCheckpoint> {
    (some_subtask(0), some_subtask(2)).prop_map(|(a, b)| checkpoint(7, vec![a, b]))
}

fn damaged(bytes: &[u8], damages: &[Damage]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    damages.iter().for_each(|damage| apply(damage, &mut bytes));
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn every_checkpoint_reads_back(checkpoint in some_checkpoint()) {
        let bytes = metadata::encode(&checkpoint, PREFIX).unwrap();
        prop_assert_eq!(metadata::decode(&bytes, PREFIX).unwrap(), checkpoint);
    }

    #[test]
    fn damaged_metadata_is_never_taken_for_something_else(
        checkpoint in some_checkpoint(),
        damages in proptest::collection::vec(damage(), 1..4),
    ) {
        let bytes = metadata::encode(&checkpoint, PREFIX).unwrap();
        let damaged = damaged(&bytes, &damages);
        match metadata::decode(&damaged, PREFIX) {
            Ok(read) => prop_assert!(damaged == bytes && read == checkpoint),
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
    }

    /// With a right checksum damage may say something else that can be, but only in the one form that the format has for it.
    #[test]
    fn a_damaged_payload_is_refused_or_means_what_it_says(
        checkpoint in some_checkpoint(),
        damages in proptest::collection::vec(damage(), 1..4),
    ) {
        let bytes = metadata::encode(&checkpoint, PREFIX).unwrap();
        let framed = reframed(FrameKind::Metadata, &bytes, |payload| *payload = damaged(payload, &damages));
        if let Ok(read) = metadata::decode(&framed, PREFIX) {
            prop_assert_eq!(metadata::encode(&read, PREFIX).unwrap(), framed);
            prop_assert!(read.files().all(|file| layout::split_state_file(&file.file).is_some()));
        }
        let record = record().encode().unwrap();
        let framed = reframed(FrameKind::JobRecord, &record, |payload| *payload = damaged(payload, &damages));
        if let Ok(read) = JobRecord::decode(&framed) {
            prop_assert_eq!(read.encode().unwrap(), framed);
        }
    }

    #[test]
    fn arbitrary_payloads_do_no_harm(payload in proptest::collection::vec(any::<u8>(), 0..200)) {
        for kind in [FrameKind::Metadata, FrameKind::JobRecord] {
            let mut framed = Vec::new();
            frame::encode(kind, 1, &payload, &mut framed);
            let _ = metadata::decode(&framed, PREFIX);
            let _ = JobRecord::decode(&framed);
        }
        let _ = metadata::decode(&payload, PREFIX);
    }
}
