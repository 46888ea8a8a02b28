//! Whatever a file says, reading it takes memory only in proportion to its bytes: a length is never believed.
#![allow(unsafe_code, reason = "an allocator that counts can only be had this way")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use stoplog::base::id::{CheckpointId, JobId, OperatorUid, SubtaskId, SubtaskIndex, VertexId};
use stoplog::base::key_group::KeyGroup;
use stoplog::base::rng::Rng;
use stoplog::codec::frame::{self, FrameKind, HEADER_BYTES};
use stoplog::snapshot::{
    CompletedCheckpoint, FileRange, JobRecord, KeyedStateSnapshot, ListStateSnapshot, Location,
    OperatorSnapshot, RunState, SnapshotFile, StateDeclaration, StateHandle, StateKind, SubtaskSnapshot,
    check_section, metadata,
};

static TAKEN: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: All that matters is left to the system's allocator, with the same arguments.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let taken = TAKEN.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(taken, Ordering::Relaxed);
        // SAFETY: The caller's promise about the layout is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        TAKEN.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: The pointer came from `alloc` above, with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The most memory that was taken at a time during the call.
fn peak<T>(call: impl FnOnce() -> T) -> usize {
    let before = TAKEN.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    drop(call());
    PEAK.load(Ordering::Relaxed) - before
}

fn checkpoint() -> CompletedCheckpoint {
    let file = "2.0-0".to_owned();
    let in_file = Location::File(FileRange { file: file.clone(), offset: 1, length: 9 });
    let handle = |location| StateHandle { location, checksum: 1 };
    let sections = (0..50).map(|group| {
        let location = if group % 2 == 0 { in_file.clone() } else { Location::Inline(vec![7; 30]) };
        (KeyGroup(group), handle(location))
    });
    let declaration = StateDeclaration {
        name: "count".to_owned(),
        kind: StateKind::Value,
        serializer: "postcard".to_owned(),
        serializer_version: 1,
    };
    let state = KeyedStateSnapshot { declaration, key_form: "u64".to_owned(), sections: sections.collect() };
    let list = ListStateSnapshot { name: "splits".to_owned(), items: vec![vec![1; 9]; 20] };
    let operator =
        OperatorSnapshot { uid: OperatorUid::new("op"), keyed: vec![state], list: vec![list], ended: false };
    let subtask = SubtaskSnapshot {
        subtask: SubtaskId { vertex: VertexId(2), index: SubtaskIndex(0) },
        parallelism: 1,
        operators: vec![operator],
        files: vec![SnapshotFile { file, length: 10 }],
        bytes: 0,
    };
    CompletedCheckpoint {
        id: CheckpointId(7),
        job: JobId::from_words(1, 2),
        max_parallelism: 128,
        triggered_at_ms: 1,
        completed_at_ms: 2,
        subtasks: vec![subtask],
    }
}

fn record() -> JobRecord {
    JobRecord {
        job: JobId::from_words(1, 2),
        name: "a job with a name".to_owned(),
        sequence: 1,
        started_at_ms: 1,
        lives: 1,
        next_checkpoint_id: CheckpointId(1),
        newest_completed: None,
        state: RunState::Running,
        began_from: None,
    }
}

fn framed(kind: FrameKind, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame::encode(kind, 1, payload, &mut bytes);
    bytes
}

/// Everything is put on the scales in one test: the scales are those of the whole process.
#[test]
fn no_input_makes_a_reader_take_memory_out_of_proportion() {
    let bound = |bytes: usize| 4096 + 64 * bytes;
    let metadata = metadata::encode(&checkpoint(), "").unwrap().split_off(HEADER_BYTES);
    let record = record().encode().unwrap().split_off(HEADER_BYTES);
    let mut rng = Rng::new(1);
    for (kind, payload) in [(FrameKind::Metadata, &metadata), (FrameKind::JobRecord, &record)] {
        // Each four bytes, whatever they mean, become a huge number; and then many things at once.
        let huge = (0..payload.len() - 4).flat_map(|at| [(at, u32::MAX), (at, 1 << 30), (at, 1 << 20)]);
        let mut changes: Vec<_> = huge.map(|change| vec![change]).collect();
        for _ in 0..20_000 {
            let count = 1 + rng.below(4);
            let at = |rng: &mut Rng| rng.below(payload.len() as u64 - 4) as usize;
            changes
                .push((0..count).map(|_| (at(&mut rng), rng.next_u64() as u32 >> rng.below(32))).collect());
        }
        for changes in changes {
            let mut damaged = payload.clone();
            for (at, number) in &changes {
                damaged[*at..at + 4].copy_from_slice(&number.to_le_bytes());
            }
            let bytes = framed(kind, &damaged);
            let taken = peak(|| (metadata::decode(&bytes, "chk-7/"), JobRecord::decode(&bytes)));
            assert!(taken <= bound(bytes.len()), "{changes:?}: {taken} bytes for {}", bytes.len());
        }
    }
    let zeros = vec![0; 1 << 24];
    let compressed =
        [zeros.clone(), zstd::bulk::compress(&zeros, 1).unwrap(), lz4_flex::block::compress(&zeros)];
    drop(zeros);
    for (code, stored) in (0u8..).zip(&compressed) {
        let stored = if code == 0 { &stored[..1000] } else { &stored[..] };
        for length in [0, 10, 1000, 1 << 20, 1 << 30, 1 << 40, u64::MAX] {
            let payload = [&[0, 0, code][..], &u64::to_le_bytes(length), stored].concat();
            let bytes = framed(FrameKind::KeyGroupSection, &payload);
            let checksum = u32::from_le_bytes(bytes[16..20].try_into().unwrap());
            let handle = StateHandle { location: Location::Inline(Vec::new()), checksum };
            // A reader that unfolds step by step may go as far as the bytes really unfold; its vector grows by doubling.
            let real = if code == 1 { 3 * (1 << 24).min(length as usize) } else { 0 };
            let taken = peak(|| check_section("f", KeyGroup(0), &handle, &bytes));
            assert!(taken <= bound(2000) + real, "{code}, {length}: {taken} bytes");
        }
    }
}
