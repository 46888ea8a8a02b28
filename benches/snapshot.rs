//! Checkpoints to a real disk and back, against the least that any engine has to do.
//!
//! `cargo bench --bench snapshot`; compare numbers of one run only. `engine` forks a filled table, writes it as one subtask's part of
//! a checkpoint and commits that: sections, checksums, everything on disk. `bare` is a loop over a plain map that serialises each
//! entry with postcard into one buffer per key group, compresses it and writes one file with one fsync. The way back: `engine` reads
//! the newest checkpoint and fills a table, `bare` reads the file, decompresses and fills a plain map. All are given as bytes of
//! uncompressed entries per second.
#![allow(missing_docs, reason = "the entry point is made by a macro")]

use std::fs::File;
use std::hint::black_box;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use criterion::{
    BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main, measurement::WallTime,
};
use hashbrown::HashMap;
use stoplog::base::id::{CheckpointId, JobId, OperatorUid, SubtaskId, SubtaskIndex, VertexId};
use stoplog::base::key_group::{KeyGroups, StableHash};
use stoplog::base::rng::splitmix64;
use stoplog::snapshot::{
    CheckpointStorage, CompletedCheckpoint, Compression, Conclusion, JobStorage, JobStorageSettings,
    LocalStore, OperatorSnapshot, StateFiles, SubtaskSnapshot, read_state, write_state,
};
use stoplog::state::{CurrentKey, HeapTable, KeyedStateTable, StateDescriptor, ValueStateDescriptor};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const GROUPS: u32 = 128;
fn job() -> JobId {
    JobId::from_words(7, 7)
}

const SUBTASK: SubtaskId = SubtaskId { vertex: VertexId(0), index: SubtaskIndex(0) };

/// A count and 200 bytes that compress a little, as text does.
type Value = (u64, Vec<u8>);
type Table = HeapTable<u64, (), Value>;

fn groups() -> KeyGroups {
    KeyGroups::new(GROUPS, 1)
}

fn value(key: u64, bytes: usize) -> Value {
    let word = |n: u64| splitmix64(key ^ (n % 40)) as u8 % 32 + 64;
    (key, (0..bytes as u64).map(word).collect())
}

fn new_table() -> Table {
    let descriptor = ValueStateDescriptor::<Value>::new("values");
    descriptor.create_table(groups(), groups().range(SubtaskIndex(0)))
}

fn filled_table(keys: u64, bytes: usize) -> Table {
    let mut table = new_table();
    for key in 0..keys {
        table.set(&CurrentKey::new(&key, &(), key.stable_hash(), &groups()), value(key, bytes));
    }
    table
}

/// One map per key group, as the plain loop would keep them to be able to restore a part.
fn filled_maps(keys: u64, bytes: usize) -> Vec<HashMap<u64, Value>> {
    let mut maps = vec![HashMap::new(); GROUPS as usize];
    for key in 0..keys {
        maps[usize::from(groups().group(key.stable_hash()).0)].insert(key, value(key, bytes));
    }
    maps
}

fn storage(directory: &Path) -> JobStorage {
    let (store, settings) = (Arc::new(LocalStore), JobStorageSettings::default());
    let storage = JobStorage::fresh(store, directory, job(), "bench", 0, settings).expect("a new directory");
    storage.open().expect("a writable directory");
    storage
}

/// A whole checkpoint, from the fork until it is durable.
fn write_engine(
    storage: &JobStorage,
    id: u64,
    table: &mut Table,
    compression: Compression,
) -> CompletedCheckpoint {
    let frozen = table.fork_state();
    let mut writer = storage.begin(CheckpointId(id), SUBTASK).expect("a new file");
    let state = write_state(frozen, &mut *writer, compression).expect("written");
    let operator = OperatorSnapshot {
        uid: OperatorUid::new("operator"),
        keyed: vec![state],
        list: Vec::new(),
        ended: false,
    };
    let mut subtask = SubtaskSnapshot {
        subtask: SUBTASK,
        parallelism: 1,
        operators: vec![operator],
        bytes: 0,
        files: Vec::new(),
    };
    subtask.place(writer.finish().expect("durable")).expect("the file that was written");
    let checkpoint = CompletedCheckpoint {
        id: CheckpointId(id),
        job: job(),
        max_parallelism: GROUPS,
        triggered_at_ms: 0,
        completed_at_ms: 0,
        subtasks: vec![subtask],
    };
    storage.commit(&checkpoint).expect("committed");
    checkpoint
}

fn write_bare(path: &Path, maps: &[HashMap<u64, Value>], compression: Compression) {
    let mut file = File::create(path).expect("a new file");
    let mut buffer = Vec::new();
    for map in maps {
        buffer.clear();
        for entry in map {
            buffer = postcard::to_extend(&entry, buffer).expect("serialised");
        }
        let stored = compress(&buffer, compression);
        file.write_all(&(stored.len() as u64).to_le_bytes()).expect("written");
        file.write_all(&stored).expect("written");
    }
    file.sync_all().expect("durable");
}

fn compress(bytes: &[u8], compression: Compression) -> Vec<u8> {
    match compression {
        Compression::Zstd { level } => zstd::bulk::compress(bytes, level).expect("compressed"),
        Compression::Lz4 => lz4_flex::block::compress_prepend_size(bytes),
        Compression::None => bytes.to_vec(),
    }
}

fn decompress(bytes: &[u8], compression: Compression) -> Vec<u8> {
    match compression {
        Compression::Zstd { .. } => zstd::stream::decode_all(bytes).expect("decompressed"),
        Compression::Lz4 => lz4_flex::block::decompress_size_prepended(bytes).expect("decompressed"),
        Compression::None => bytes.to_vec(),
    }
}

fn read_engine(storage: &JobStorage) -> Table {
    let newest = storage.newest().expect("readable").expect("there is one");
    let mut table = new_table();
    let state = &newest.subtasks[0].operators[0].keyed[0];
    let files: &dyn StateFiles = storage;
    read_state::<stoplog::state::StateError>(
        files,
        state,
        groups().range(SubtaskIndex(0)),
        |group, contents| table.restore(group, contents),
    )
    .expect("restored");
    table
}

fn read_bare(path: &Path, compression: Compression) -> HashMap<u64, Value> {
    let bytes = std::fs::read(path).expect("readable");
    let (mut rest, mut map) = (&bytes[..], HashMap::new());
    while let Some((length, after)) = rest.split_first_chunk::<8>() {
        let (stored, after) = after.split_at(u64::from_le_bytes(*length) as usize);
        rest = after;
        let contents = decompress(stored, compression);
        let mut entries = &contents[..];
        while !entries.is_empty() {
            let ((key, value), left) = postcard::take_from_bytes(entries).expect("an entry");
            map.insert(key, value);
            entries = left;
        }
    }
    map
}

fn both_ways(group: &mut BenchmarkGroup<'_, WallTime>, keys: u64, bytes: usize, compression: Compression) {
    let scratch = tempfile::tempdir().expect("a directory");
    let (mut table, maps) = (filled_table(keys, bytes), filled_maps(keys, bytes));
    let storage = storage(scratch.path());
    let bare = scratch.path().join("bare");
    let name = match compression {
        Compression::None => "none",
        Compression::Zstd { .. } => "zstd",
        Compression::Lz4 => "lz4",
    };
    let name = format!("{name}/{keys}x{bytes}");
    // Both write the same entries, and both get them all back.
    write_engine(&storage, 1, &mut table, compression);
    write_bare(&bare, &maps, compression);
    assert_eq!(read_engine(&storage).entries() as u64, keys);
    assert_eq!(read_bare(&bare, compression).len() as u64, keys);
    group.throughput(Throughput::Bytes(keys * (bytes as u64 + 16)));
    let mut id = 1;
    group.bench_function(format!("write/engine/{name}"), |bencher| {
        bencher.iter(|| {
            id += 1;
            black_box(write_engine(&storage, id, &mut table, compression));
            // As the coordinator does when a newer one is complete.
            storage.discard(CheckpointId(id - 1)).expect("removed");
        });
    });
    group.bench_function(format!("write/bare/{name}"), |bencher| {
        bencher.iter(|| write_bare(&bare, &maps, compression));
    });
    group.bench_function(format!("restore/engine/{name}"), |bencher| {
        bencher.iter(|| black_box(read_engine(&storage)));
    });
    group.bench_function(format!("restore/bare/{name}"), |bencher| {
        bencher.iter(|| black_box(read_bare(&bare, compression)));
    });
    storage.conclude(Conclusion::Finished { keeps_checkpoints: false }).expect("concluded");
}

fn checkpoints(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("snapshot");
    for compression in [Compression::default(), Compression::Lz4, Compression::None] {
        both_ways(&mut group, 1_000_000, 0, compression);
        both_ways(&mut group, 400_000, 200, compression);
    }
    group.finish();
}

criterion_group! {
    name = snapshot;
    config = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_millis(3000));
    targets = checkpoints
}
criterion_main!(snapshot);
