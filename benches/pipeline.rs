//! Whole jobs: the keyed count (W1) through the public API, beside the hand-written loop in the same run.
//!
//! `cargo bench --bench pipeline`. The checksums of both sides are compared before anything is timed.

#![allow(missing_docs, reason = "the macros of criterion")]

use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use stoplog::base::rng::splitmix64;
use stoplog::operator::CloseContext;
use stoplog::prelude::*;

mod compare;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const RECORDS: u64 = 4_000_000;

/// Counts each key.
#[derive(Clone)]
struct Count;

impl ProcessFunction for Count {
    type Key = u64;
    type In = ();
    type Out = ();
    type States = ValueStateDescriptor<u64>;

    fn states(&self) -> Self::States {
        ValueStateDescriptor::new("count")
    }

    fn process(
        &mut self,
        (): (),
        mut count: StatesOf<'_, Self>,
        _cx: &ProcessContext<'_, u64>,
        _output: &mut impl Output<()>,
    ) -> Result<(), BoxError> {
        count.modify(|| 0, |count| *count += 1);
        Ok(())
    }

    fn close(&mut self, table: &mut TablesOf<Self>, cx: &mut CloseContext) -> Result<(), BoxError> {
        let checksum = table
            .fork()
            .entries()
            .fold(0u64, |sum, (key, (), count)| sum.wrapping_add(splitmix64(key ^ splitmix64(count))));
        cx.accumulate("checksum", checksum);
        Ok(())
    }
}

fn keyed_count(keys: u64, interval: Option<Duration>) -> u64 {
    let mut config = JobConfig { parallelism: 2, ..JobConfig::default() };
    config.checkpoints.interval = interval;
    let env = StreamEnvironment::new(config);
    env.source("numbers", GeneratorSource::new(RECORDS, move |n| splitmix64(n) % keys))
        .key_by_parts(|key| (key, ()))
        .process(Count)
        .sink("nowhere", DiscardSink);
    env.execute().unwrap().accumulators["checksum"]
}

fn pipeline(c: &mut Criterion) {
    let mut group = c.benchmark_group("keyed_count");
    group.throughput(Throughput::Elements(RECORDS)).sample_size(10).measurement_time(Duration::from_secs(4));
    for keys in [1_000, 1_000_000] {
        let expected = compare::keyed_count(RECORDS, keys);
        assert_eq!(keyed_count(keys, None), expected, "the engine and the hand-written loop count the same");
        let by_hand = BenchmarkId::new("hand_written", keys);
        group.bench_function(by_hand, |b| b.iter(|| compare::keyed_count(RECORDS, keys)));
        group.bench_function(BenchmarkId::new("stoplog", keys), |b| b.iter(|| keyed_count(keys, None)));
        let every = Some(Duration::from_millis(100));
        let with = BenchmarkId::new("stoplog_checkpoints_100ms", keys);
        group.bench_function(with, |b| b.iter(|| keyed_count(keys, every)));
    }
    group.finish();
}

criterion_group!(benches, pipeline);
criterion_main!(benches);
