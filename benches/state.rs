//! The heap table against a plain map, in one run, and what forks and snapshots cost.
//!
//! Run with `cargo bench --bench state`; compare numbers of one run only. Increments draw uniformly random keys from a
//! filled table. `prepared` is what the engine does: the hashes of a batch are known before its first record is processed.
#![allow(missing_docs, reason = "the entry point is made by a macro")]

use std::hint::black_box;
use std::time::Duration;

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use hashbrown::HashMap;
use stoplog::base::id::{CheckpointId, SubtaskId, SubtaskIndex, VertexId};
use stoplog::base::key_group::{KeyGroups, StableHash};
use stoplog::base::rng::Rng;
use stoplog::snapshot::{CheckpointStorage, Compression, MemoryStorage, write_state};
use stoplog::state::{CurrentKey, HeapTable, KeyedStateTable, StateDescriptor, ValueStateDescriptor};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const MAX_PARALLELISM: u32 = 128;
const BATCH: usize = 256;
const SIZES: [(&str, u64); 2] = [("1k", 1_000), ("1M", 1_000_000)];

type Table = HeapTable<u64, (), u64>;

fn groups() -> KeyGroups {
    KeyGroups::new(MAX_PARALLELISM, 1)
}

fn filled_table(keys: u64) -> Table {
    let descriptor = ValueStateDescriptor::<u64>::new("count");
    let mut table = descriptor.create_table(groups(), groups().range(SubtaskIndex(0)));
    for key in 0..keys {
        table.set(&CurrentKey::new(&key, &(), key.stable_hash(), &groups()), 0);
    }
    assert_eq!(table.entries() as u64, keys);
    table
}

fn draw(rng: &mut Rng, keys: u64) -> [u64; BATCH] {
    std::array::from_fn(|_| rng.below(keys))
}

#[inline(never)]
fn increment_table(table: &mut Table, groups: &KeyGroups, batch: &[u64; BATCH]) {
    for key in batch {
        table.modify(&CurrentKey::new(key, &(), key.stable_hash(), groups), || 0, |count| *count += 1);
    }
}

#[inline(never)]
fn increment_map(map: &mut HashMap<u64, u64>, batch: &[u64; BATCH]) {
    for key in batch {
        *map.entry(*key).or_insert(0) += 1;
    }
}

/// Both structures must count the same before they are timed.
fn check_counts() {
    let (mut table, mut map, mut rng) = (filled_table(0), HashMap::new(), Rng::new(1));
    for _ in 0..100 {
        let batch = draw(&mut rng, 5000);
        table.prepare(batch.iter().map(StableHash::stable_hash));
        increment_table(&mut table, &groups(), &batch);
        increment_map(&mut map, &batch);
    }
    assert_eq!(table.fork().entries().map(|(key, (), count)| (key, count)).collect::<HashMap<_, _>>(), map);
}

fn increments(criterion: &mut Criterion) {
    check_counts();
    let mut group = criterion.benchmark_group("increments");
    group.throughput(Throughput::Elements(BATCH as u64));
    for (name, keys) in SIZES {
        let mut rng = Rng::new(7);
        let mut map: HashMap<u64, u64> = (0..keys).map(|key| (key, 0)).collect();
        group.bench_function(BenchmarkId::new("plain_map", name), |bencher| {
            bencher.iter(|| increment_map(&mut map, &draw(&mut rng, keys)));
        });
        drop(map);
        let mut table = filled_table(keys);
        group.bench_function(BenchmarkId::new("table", name), |bencher| {
            bencher.iter(|| increment_table(&mut table, &groups(), &draw(&mut rng, keys)));
        });
        group.bench_function(BenchmarkId::new("table_prepared", name), |bencher| {
            bencher.iter(|| {
                let batch = draw(&mut rng, keys);
                table.prepare(batch.iter().map(StableHash::stable_hash));
                increment_table(&mut table, &groups(), &batch);
            });
        });
    }
    group.finish();
}

/// The pause of the processing thread: the fork itself, and the first write after it.
fn forks(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("fork");
    for (name, keys) in [("10k", 10_000), ("1M", 1_000_000)] {
        let mut table = filled_table(keys);
        group.bench_function(BenchmarkId::new("fork", name), |bencher| bencher.iter(|| table.fork()));
        let mut rng = Rng::new(3);
        group.bench_function(BenchmarkId::new("fork_and_first_batch", name), |bencher| {
            bencher.iter_batched(
                || draw(&mut rng, keys),
                |batch| {
                    let frozen = table.fork();
                    increment_table(&mut table, &groups(), &batch);
                    frozen
                },
                BatchSize::PerIteration,
            );
        });
    }
    group.finish();
}

/// As many writes as there are keys: while no fork is alive, and right after a fork, when every segment is copied once.
fn storm(criterion: &mut Criterion) {
    const KEYS: u64 = 1_000_000;
    let mut group = criterion.benchmark_group("storm");
    group.throughput(Throughput::Elements(KEYS));
    let mut table = filled_table(KEYS);
    let mut rng = Rng::new(5);
    let mut pass = |table: &mut Table| {
        for _ in 0..KEYS as usize / BATCH {
            let batch = draw(&mut rng, KEYS);
            table.prepare(batch.iter().map(StableHash::stable_hash));
            increment_table(table, &groups(), &batch);
        }
    };
    group.bench_function("no_fork", |bencher| bencher.iter(|| pass(&mut table)));
    group.bench_function("after_fork", |bencher| {
        bencher.iter_batched(|| (), |()| (table.fork(), pass(&mut table)), BatchSize::PerIteration);
    });
    group.finish();
}

fn serialisation(criterion: &mut Criterion) {
    const KEYS: u64 = 1_000_000;
    let mut group = criterion.benchmark_group("write_state");
    // What the entries take in memory; the bytes written are fewer.
    group.throughput(Throughput::Bytes(KEYS * 16));
    let mut table = filled_table(KEYS);
    let mut rng = Rng::new(5);
    for _ in 0..KEYS as usize / BATCH {
        increment_table(&mut table, &groups(), &draw(&mut rng, KEYS));
    }
    for (name, compression) in [("none", Compression::None), ("zstd_1", Compression::default())] {
        let storage = MemoryStorage::new();
        let subtask = SubtaskId { vertex: VertexId(0), index: SubtaskIndex(0) };
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                let mut writer = storage.begin(CheckpointId(1), subtask).expect("memory takes a new file");
                let snapshot = write_state(table.fork_state(), &mut *writer, compression);
                black_box(snapshot.expect("integers can be serialised"))
            });
        });
    }
    group.finish();
}

criterion_group! {
    name = state;
    config = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_millis(2000));
    targets = increments, forks, storm, serialisation
}
criterion_main!(state);
