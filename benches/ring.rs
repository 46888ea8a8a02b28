//! The ring between two pinned threads, beside `rtrb` in the same run.
//!
//! Each iteration of a `transfer` moves [`ITEMS`] items; the sum of what arrived is checked before anything is timed, and
//! again in every iteration. `round_trip` sends one item to the other thread and waits for the answer: its time is two hops.
//!
//! Compare ratios within one run, not numbers across machines. The two threads need a core each for themselves: on a busy
//! machine the means tell how often a thread was interrupted, nothing else.

use std::hint::spin_loop;
use std::sync::{Barrier, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use stoplog::ring::{Budget, RingConfig, ring};

/// Items per iteration.
const ITEMS: usize = 1 << 14;

trait Item: Send + 'static {
    const NAME: &str;
    fn new(value: u64) -> Self;
    fn value(&self) -> u64;
}

impl Item for u64 {
    const NAME: &str = "8B";
    fn new(value: u64) -> Self {
        value
    }
    fn value(&self) -> u64 {
        *self
    }
}

impl Item for [u64; 8] {
    const NAME: &str = "64B";
    fn new(value: u64) -> Self {
        [value; 8]
    }
    fn value(&self) -> u64 {
        self[0] ^ self[7] ^ self[3]
    }
}

/// One half of a channel that is fed in batches.
trait Sender<T>: Send {
    /// Sends the items of this range; waits while the channel is full.
    fn send(&mut self, values: std::ops::Range<u64>);
}

/// The other half.
trait Receiver<T>: Send {
    /// Adds what is there, `max` items at most, to the sum. Returns how many there were.
    fn receive(&mut self, max: usize, sum: &mut u64) -> usize;
}

struct Ours<H>(H);
/// Like `Ours`, but with one call for each record: what a subtask that deals its records out to many rings does.
struct OneByOne<T>(stoplog::ring::Producer<T>);
struct Rtrb<H>(H);

impl<T: Item> Sender<T> for Ours<stoplog::ring::Producer<T>> {
    #[inline(always)]
    fn send(&mut self, values: std::ops::Range<u64>) {
        let n = (values.end - values.start) as usize;
        let mut items = values.map(T::new);
        let mut sent = self.0.push_from(&mut items);
        self.0.publish();
        while sent < n {
            spin_loop();
            sent += self.0.push_from(&mut items);
            self.0.publish();
        }
    }
}

impl<T: Item> Sender<T> for OneByOne<T> {
    #[inline(always)]
    fn send(&mut self, values: std::ops::Range<u64>) {
        for value in values {
            let mut item = T::new(value);
            while let Err(back) = self.0.push(item) {
                item = back;
                self.0.publish();
                spin_loop();
            }
        }
        self.0.publish();
    }
}

impl<T: Item> Receiver<T> for Ours<stoplog::ring::Consumer<T>> {
    #[inline(always)]
    fn receive(&mut self, max: usize, sum: &mut u64) -> usize {
        self.0.drain(max, |item| {
            *sum = sum.wrapping_add(item.value());
            true
        })
    }
}

impl<T: Item> Sender<T> for Rtrb<rtrb::Producer<T>> {
    #[inline(always)]
    fn send(&mut self, values: std::ops::Range<u64>) {
        let n = (values.end - values.start) as usize;
        if n == 1 {
            let mut item = T::new(values.start);
            while let Err(rtrb::PushError::Full(back)) = self.0.push(item) {
                item = back;
                spin_loop();
            }
            return;
        }
        loop {
            match self.0.write_chunk_uninit(n) {
                Ok(chunk) => {
                    chunk.fill_from_iter(values.map(T::new));
                    return;
                }
                Err(_) => spin_loop(),
            }
        }
    }
}

impl<T: Item> Receiver<T> for Rtrb<rtrb::Consumer<T>> {
    #[inline(always)]
    fn receive(&mut self, max: usize, sum: &mut u64) -> usize {
        if max == 1 {
            let Ok(item) = self.0.pop() else { return 0 };
            *sum = sum.wrapping_add(item.value());
            return 1;
        }
        let n = self.0.slots().min(max);
        if let Ok(chunk) = self.0.read_chunk(n) {
            for item in chunk {
                *sum = sum.wrapping_add(item.value());
            }
        }
        n
    }
}

fn ours<T: Item>(capacity: usize) -> (impl Sender<T>, impl Receiver<T>) {
    let config = RingConfig { capacity, first_segment: capacity, parking: Budget::new(0) };
    let (producer, consumer) = ring::<T>(&config);
    (Ours(producer), Ours(consumer))
}

fn one_by_one<T: Item>(capacity: usize) -> (impl Sender<T>, impl Receiver<T>) {
    let config = RingConfig { capacity, first_segment: capacity, parking: Budget::new(0) };
    let (producer, consumer) = ring::<T>(&config);
    (OneByOne(producer), Ours(consumer))
}

fn rtrb<T: Item>(capacity: usize) -> (impl Sender<T>, impl Receiver<T>) {
    let (producer, consumer) = rtrb::RingBuffer::<T>::new(capacity);
    (Rtrb(producer), Rtrb(consumer))
}

/// Pins this thread to the n-th core, if there is one and the system agrees.
fn pin(n: usize) {
    // Asked for once: a pinned thread, and every thread it starts, sees only its own core.
    static CORES: OnceLock<Vec<core_affinity::CoreId>> = OnceLock::new();
    let cores = CORES.get_or_init(|| core_affinity::get_core_ids().unwrap_or_default());
    if let Some(&core) = cores.get(n) {
        core_affinity::set_for_current(core);
    }
}

/// Moves `rounds` times [`ITEMS`] items and checks their sum.
fn transfer<T>(
    (sender, mut receiver): (impl Sender<T>, impl Receiver<T>),
    rounds: u64,
    batch: usize,
) -> Duration {
    let items = rounds * ITEMS as u64;
    let start = Barrier::new(2);
    thread::scope(|scope| {
        let start = &start;
        scope.spawn(move || {
            // Onto this thread's stack: each half writes to itself, and they must not share a line.
            let mut sender = sender;
            pin(1);
            start.wait();
            let mut next = 0;
            while next < items {
                sender.send(next..next + batch as u64);
                next += batch as u64;
            }
        });
        pin(0);
        start.wait();
        let begun = Instant::now();
        let (mut received, mut sum) = (0, 0_u64);
        while received < items {
            let n = receiver.receive(batch, &mut sum);
            received += n as u64;
            if n == 0 {
                spin_loop();
            }
        }
        let elapsed = begun.elapsed();
        let expected = (u128::from(items) * u128::from(items - 1) / 2) as u64;
        assert_eq!(sum, expected, "items were lost or doubled");
        elapsed
    })
}

fn round_trip(
    (mut there, there_end): (impl Sender<u64>, impl Receiver<u64>),
    (back, mut back_end): (impl Sender<u64>, impl Receiver<u64>),
    trips: u64,
) -> Duration {
    let start = Barrier::new(2);
    let wait = |receiver: &mut dyn FnMut(&mut u64) -> usize| {
        let mut value = 0;
        while receiver(&mut value) == 0 {
            spin_loop();
        }
        value
    };
    thread::scope(|scope| {
        let start = &start;
        scope.spawn(move || {
            let (mut there_end, mut back) = (there_end, back);
            pin(1);
            start.wait();
            for _ in 0..trips {
                let value = wait(&mut |value| there_end.receive(1, value));
                back.send(value + 1..value + 2);
            }
        });
        pin(0);
        start.wait();
        let begun = Instant::now();
        for trip in 0..trips {
            there.send(trip..trip + 1);
            assert_eq!(wait(&mut |value| back_end.receive(1, value)), trip + 1);
        }
        begun.elapsed()
    })
}

fn transfers_of<T: Item>(group: &mut BenchmarkGroup<'_, WallTime>) {
    for capacity in [1024, 8192] {
        for batch in [1, 64, 256] {
            let parameter = format!("{}/capacity {capacity}/batch {batch}", T::NAME);
            transfer(ours::<T>(capacity), 20, batch);
            transfer(rtrb::<T>(capacity), 20, batch);
            group.bench_function(BenchmarkId::new("stoplog", &parameter), |bencher| {
                bencher.iter_custom(|rounds| transfer(ours::<T>(capacity), rounds, batch));
            });
            group.bench_function(BenchmarkId::new("stoplog one by one", &parameter), |bencher| {
                bencher.iter_custom(|rounds| transfer(one_by_one::<T>(capacity), rounds, batch));
            });
            group.bench_function(BenchmarkId::new("rtrb", &parameter), |bencher| {
                bencher.iter_custom(|rounds| transfer(rtrb::<T>(capacity), rounds, batch));
            });
        }
    }
}

fn transfers(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("transfer");
    group.throughput(Throughput::Elements(ITEMS as u64));
    transfers_of::<u64>(&mut group);
    transfers_of::<[u64; 8]>(&mut group);
    group.finish();
}

fn round_trips(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("round_trip");
    group.bench_function("stoplog", |bencher| {
        bencher.iter_custom(|trips| round_trip(one_by_one(1024), one_by_one(1024), trips));
    });
    group.bench_function("rtrb", |bencher| {
        bencher.iter_custom(|trips| round_trip(rtrb(1024), rtrb(1024), trips));
    });
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .without_plots()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_millis(1000));
    targets = transfers, round_trips
}
criterion_main!(benches);
