//! A random job, and what it must do: a sequential model of the same functions.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use stoplog::api::Placeable;
use stoplog::base::rng::{Rng, splitmix64};
use stoplog::operator::OpenContext;
use stoplog::prelude::*;
use stoplog::testing::checkers::{AuditSink, Observed};
use stoplog::testing::{Fault, Faults};

/// Key and number.
pub(crate) type Rec = (u32, u64);
/// What sinks get.
pub(crate) type Out = (u64, u64);

/// What happens to the records of one source before the key is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Prelude {
    Direct,
    MapFilter,
    /// Many records per input, so that output blocks in the middle of an iterator.
    Burst,
    /// Two branches of one shared stream, united again.
    Diamond,
}

/// What happens from the key on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tail {
    /// Count per key.
    Count,
    /// Reduce per key, then a map.
    Reduce,
    /// Count, shared by a sink and by a second count with another key.
    CountTwice,
    /// A function that hands on several records per input, then a flat map.
    Spread,
    /// No key at all.
    Stateless,
    /// One record per key at the end.
    Final,
}

#[derive(Debug, Clone)]
pub(crate) struct SourcePlan {
    pub(crate) count: u64,
    pub(crate) vec: bool,
    /// Hands on a few records more although the output has blocked.
    pub(crate) greedy: bool,
    pub(crate) prelude: Prelude,
    pub(crate) parallelism: u32,
    /// Records per second of simulated time; 0 for no limit.
    pub(crate) rate: f64,
    /// Parallelism at the first start, which decides the splits.
    pub(crate) first_parallelism: u32,
}

/// One job, drawn from a seed.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) sources: Vec<SourcePlan>,
    pub(crate) tail: Tail,
    pub(crate) rebalance: bool,
    pub(crate) new_chain: bool,
    pub(crate) keys: u64,
    pub(crate) hot_one_in: u64,
    /// Of the operators in order.
    pub(crate) parallelism: [u32; 4],
    pub(crate) block_one_in: u32,
    pub(crate) max_parallelism: u32,
}

fn parallelism(rng: &mut Rng) -> u32 {
    let most = if rng.one_in(3) { 5 } else { 3 };
    1 + rng.below(most) as u32
}

impl Plan {
    pub(crate) fn from_seed(seed: u64) -> Self {
        let mut rng = Rng::new(splitmix64(seed ^ 0x9_1A17));
        let source_count = if rng.one_in(2) { 1 } else { 1 + rng.below(3) };
        let sources = (0..source_count)
            .map(|_| {
                let parallelism = parallelism(&mut rng);
                SourcePlan {
                    count: 20 + rng.below(300),
                    vec: rng.one_in(3),
                    greedy: rng.one_in(3),
                    prelude: [Prelude::Direct, Prelude::MapFilter, Prelude::Burst, Prelude::Diamond]
                        [rng.below(4) as usize],
                    parallelism,
                    rate: if rng.one_in(6) { 1e5 } else { 0.0 },
                    first_parallelism: parallelism,
                }
            })
            .collect();
        Self {
            seed,
            sources,
            tail: [Tail::Count, Tail::Reduce, Tail::CountTwice, Tail::Spread, Tail::Stateless, Tail::Final]
                [rng.below(6) as usize],
            rebalance: rng.one_in(2),
            new_chain: rng.one_in(2),
            keys: 1 + rng.below(20),
            hot_one_in: 1 + rng.below(8),
            parallelism: std::array::from_fn(|_| parallelism(&mut rng)),
            block_one_in: if rng.one_in(2) { 0 } else { 1 + rng.below(7) as u32 },
            max_parallelism: [5, 8, 128, 1024][rng.below(4) as usize],
        }
    }

    /// Gives every operator another parallelism, for the next life of the job.
    pub(crate) fn rescale(&mut self, rng: &mut Rng) {
        // What a partly ended operator hands on at its end cannot be divided anew.
        if self.tail != Tail::Final {
            self.sources.iter_mut().for_each(|source| source.parallelism = parallelism(rng));
            self.parallelism = std::array::from_fn(|_| parallelism(rng));
        }
    }

    pub(crate) fn sinks(&self) -> usize {
        if self.tail == Tail::CountTwice { 2 } else { 1 }
    }

    fn make(&self) -> impl Fn(usize, u64) -> Rec + Clone + Send + Sync + 'static {
        let Self { seed, keys, hot_one_in, .. } = *self;
        move |source, n| {
            let hash = splitmix64(seed ^ ((source as u64) << 32) ^ n);
            let key = if hash.is_multiple_of(hot_one_in) { 0 } else { (hash >> 32) % keys };
            (key as u32, n)
        }
    }

    /// The records of a source that reach the key.
    fn keyed_input(&self, source: usize, n: u64) -> Vec<Rec> {
        let record = self.make()(source, n);
        match self.sources[source].prelude {
            Prelude::Direct => vec![record],
            Prelude::MapFilter => Some(shift(record)).into_iter().filter(is_kept).collect(),
            Prelude::Burst => burst(record).collect(),
            Prelude::Diamond => {
                let mut both = vec![record];
                both.extend(Some(record).filter(is_kept).map(shift));
                both
            }
        }
    }

    /// What the job has made of these numbers of each source.
    pub(crate) fn model(&self, consumed: &[Vec<u64>]) -> Model {
        let mut model = Model { sinks: vec![Vec::new(); self.sinks()], ..Model::default() };
        for (source, numbers) in consumed.iter().enumerate() {
            for record in numbers.iter().flat_map(|n| self.keyed_input(source, *n)) {
                let count = model.counts.entry(record.0).or_default();
                *count += 1;
                let (key, n) = (record.0, *count);
                match self.tail {
                    Tail::Count => model.sinks[0].push(out(key, n)),
                    Tail::Reduce => model.sinks[0].push(out(key, n * weight(key))),
                    Tail::CountTwice => {
                        model.sinks[0].push(out(key, n));
                        let class = class(out(key, n));
                        let again = model.counts_again.entry(class).or_default();
                        *again += 1;
                        model.sinks[1].push(out(class, *again));
                    }
                    Tail::Spread => {
                        let spread = (0..spread(key)).map(|j| out(key, n * 100 + j));
                        model.sinks[0].extend(spread.flat_map(twice));
                    }
                    Tail::Stateless => model.sinks[0].push(out(record.0, record.1)),
                    Tail::Final => {}
                }
            }
        }
        if self.tail == Tail::Final {
            model.sinks[0] = model.counts.iter().map(|(key, count)| out(*key, *count)).collect();
        }
        model.sinks.iter_mut().for_each(|records| records.sort_unstable());
        model
    }

    /// All numbers of all sources.
    pub(crate) fn everything(&self) -> Vec<Vec<u64>> {
        self.sources.iter().map(|source| (0..source.count).collect()).collect()
    }
}

/// What a sequential run makes.
#[derive(Debug, Default)]
pub(crate) struct Model {
    pub(crate) counts: BTreeMap<u32, u64>,
    pub(crate) counts_again: BTreeMap<u32, u64>,
    /// Sorted.
    pub(crate) sinks: Vec<Vec<Out>>,
}

fn shift(record: Rec) -> Rec {
    (record.0 + 1, record.1)
}

fn is_kept(record: &Rec) -> bool {
    !record.1.is_multiple_of(3)
}

fn burst(record: Rec) -> impl Iterator<Item = Rec> + Send + 'static {
    let copies = if record.1 % 16 == 7 { 30 } else { record.1 % 4 };
    (0..copies).map(move |n| (record.0 + (n % 3) as u32, record.1))
}

fn weight(key: u32) -> u64 {
    3 + u64::from(key % 7)
}

fn class(out: Out) -> u32 {
    (out.1 % 3) as u32
}

fn spread(key: u32) -> u64 {
    if key.is_multiple_of(5) { 12 } else { 1 + u64::from(key % 3) }
}

fn twice(out: Out) -> [Out; 2] {
    [out, (out.0, out.1 + 1_000_000)]
}

fn out(key: u32, n: u64) -> Out {
    (u64::from(key), n)
}

/// What the functions of the job share with the test.
#[derive(Debug, Clone)]
pub(crate) struct World {
    pub(crate) faults: Faults,
    pub(crate) observed: Arc<Observed>,
    pub(crate) sinks: Vec<AuditSink<Out>>,
    /// For each number of each source: 1 if the restored state has it already.
    pub(crate) consumed: Arc<Vec<Vec<AtomicU64>>>,
}

/// A generator that may ask for no more than four records and takes no notice of a blocked output.
#[derive(Clone)]
struct Greedy<S> {
    inner: S,
    greedy: bool,
}

/// Hides from a source that the output has blocked.
struct Deaf<'a, O> {
    output: &'a mut O,
}

impl<T, O: Output<T>> Output<T> for Deaf<'_, O> {
    fn collect(&mut self, record: T) -> Flow {
        let _ = self.output.collect(record);
        Flow::Continue
    }
}

impl<S: Source> Source for Greedy<S> {
    type Out = S::Out;
    type Split = S::Split;

    fn create_splits(&mut self, parallelism: u32) -> Result<Vec<S::Split>, BoxError> {
        self.inner.create_splits(parallelism)
    }

    fn open(&mut self, splits: Vec<S::Split>, cx: &mut OpenContext<'_>) -> Result<(), BoxError> {
        self.inner.open(splits, cx)
    }

    fn poll(&mut self, output: &mut impl Output<S::Out>, max: usize) -> Result<SourceStatus, BoxError> {
        if self.greedy {
            self.inner.poll(&mut Deaf { output }, max.min(4))
        } else {
            self.inner.poll(output, max)
        }
    }

    fn snapshot(&self) -> Vec<S::Split> {
        self.inner.snapshot()
    }
}

#[derive(Clone)]
struct SpreadFunction(Faults);

impl ProcessFunction for SpreadFunction {
    type Key = u32;
    type In = Rec;
    type Out = Out;
    type States = ValueStateDescriptor<u64>;

    fn states(&self) -> Self::States {
        ValueStateDescriptor::new("n")
    }

    fn process(
        &mut self,
        _record: Rec,
        mut count: StatesOf<'_, Self>,
        cx: &ProcessContext<'_, u32>,
        output: &mut impl Output<Out>,
    ) -> Result<(), BoxError> {
        self.0.check(Fault::UserFunction)?;
        let n = count.value().unwrap_or(0) + 1;
        count.update(n);
        for j in 0..spread(*cx.key()) {
            let _ = output.collect(out(*cx.key(), n * 100 + j));
        }
        Ok(())
    }
}

/// Builds the job.
pub(crate) fn build(plan: &Plan, world: &World, config: JobConfig) -> Result<JobGraph, String> {
    let env = StreamEnvironment::new(config);
    let make = plan.make();
    if let [source] = plan.sources.as_slice()
        && !source.vec
        && source.prelude != Prelude::Diamond
    {
        // One source: the chain behind it stays one type, so that it can be fused.
        let source = source.clone();
        let stream = generator(&env, &make, world, 0, &source);
        match source.prelude {
            Prelude::Direct => finish(plan, world, stream),
            Prelude::MapFilter => {
                let faults = world.faults.clone();
                let stream = stream.map(move |record| {
                    faults.check_or_panic(Fault::UserFunction);
                    shift(record)
                });
                finish(plan, world, stream.filter(is_kept));
            }
            _ => finish(plan, world, stream.flat_map(burst)),
        }
    } else {
        let mut streams = Vec::new();
        for (index, source) in plan.sources.iter().enumerate() {
            let stream = if source.vec {
                let records: Vec<_> = (0..source.count).collect();
                let (observe, make) = (observe(world, index), make.clone());
                env.source(&format!("vec {index}"), VecSource::new(records))
                    .uid(&format!("source {index}"))
                    .parallelism(source.parallelism)
                    .map(move |n| {
                        observe(n);
                        make(index, n)
                    })
                    .share()
            } else {
                generator(&env, &make, world, index, source).share()
            };
            streams.push(match source.prelude {
                Prelude::Direct => stream,
                Prelude::MapFilter => {
                    let faults = world.faults.clone();
                    let mapped = stream.stream().map(move |record| {
                        faults.check_or_panic(Fault::UserFunction);
                        shift(record)
                    });
                    mapped.parallelism(plan.parallelism[3]).filter(is_kept).share()
                }
                Prelude::Burst => {
                    let burst = stream.stream().flat_map(burst).parallelism(plan.parallelism[3]);
                    if plan.new_chain { burst.map(|r| r).start_new_chain().share() } else { burst.share() }
                }
                Prelude::Diamond => {
                    let left = stream.stream().map(|r| r).parallelism(plan.parallelism[2]).share();
                    let right = stream.stream().filter(is_kept).map(shift).share();
                    left.stream().union(right.stream()).map(|r| r).parallelism(plan.parallelism[3]).share()
                }
            });
        }
        let mut streams = streams.into_iter();
        let mut united = streams.next().expect("there is a source");
        for (n, other) in streams.enumerate() {
            let union = united.stream().union(other.stream()).map(|r| r);
            united = union.parallelism(plan.parallelism[(n + 1) % 4]).share();
        }
        if plan.rebalance {
            finish(plan, world, united.stream().rebalance());
        } else {
            finish(plan, world, united.stream());
        }
    }
    env.plan().map_err(|error| error.to_string())
}

fn observe(world: &World, source: usize) -> impl Fn(u64) + Clone + Send + Sync + use<> {
    let (consumed, observed) = (Arc::clone(&world.consumed), Arc::clone(&world.observed));
    let faults = world.faults.clone();
    move |n| {
        if consumed[source][n as usize].load(Ordering::Relaxed) > 0 {
            observed.violation(format!("source {source} reads {n}, which the restored state has already"));
        }
        faults.check_or_panic(Fault::UserFunction);
    }
}

fn generator<M>(
    env: &StreamEnvironment,
    make: &M,
    world: &World,
    index: usize,
    source: &SourcePlan,
) -> Stream<Rec, impl Pipe<Out = Rec> + use<M>>
where
    M: Fn(usize, u64) -> Rec + Clone + Send + Sync + 'static,
{
    let (observe, make) = (observe(world, index), make.clone());
    let generator = GeneratorSource::new(source.count, move |n| {
        observe(n);
        make(index, n)
    });
    let generator = Greedy { inner: generator.rate(source.rate), greedy: source.greedy };
    env.source(&format!("generator {index}"), generator)
        .uid(&format!("source {index}"))
        .parallelism(source.parallelism)
}

/// From the key to the sinks.
fn finish<P: Pipe<Out = Rec>>(plan: &Plan, world: &World, stream: Stream<Rec, P>) {
    let [keyed, mapped, sunk, _] = plan.parallelism;
    let faults = world.faults.clone();
    let sink = world.sinks[0].clone();
    match plan.tail {
        Tail::Count => {
            count(stream, faults).parallelism(keyed).sink("out", sink);
        }
        Tail::Reduce => {
            let reduced = stream
                .key_by_parts(|(key, _)| (key, weight(key)))
                .reduce(|sum, more| *sum += more)
                .uid("keyed")
                .parallelism(keyed)
                .map(|(key, sum)| out(key, sum));
            if plan.new_chain {
                reduced.start_new_chain().sink("out", sink).parallelism(sunk);
            } else {
                reduced.parallelism(mapped).sink("out", sink).parallelism(sunk);
            }
        }
        Tail::CountTwice => {
            let counts = count(stream, faults).parallelism(keyed).share();
            counts.stream().sink("out", sink).parallelism(sunk);
            let again = counts.stream().key_by(|out| class(*out)).process_with(
                ValueStateDescriptor::<u64>::new("n"),
                |_, mut n, cx| {
                    let next = n.value().unwrap_or(0) + 1;
                    n.update(next);
                    Some(out(*cx.key(), next))
                },
            );
            again.uid("keyed again").parallelism(mapped).sink("again", world.sinks[1].clone());
        }
        Tail::Spread => {
            let spread = stream.key_by(|record| record.0).process(SpreadFunction(faults));
            let spread = spread.uid("keyed").parallelism(keyed).flat_map(twice);
            spread.parallelism(mapped).sink("out", sink).parallelism(sunk);
        }
        Tail::Stateless => {
            let mapped = stream.map(|(key, n)| out(key, n)).parallelism(mapped);
            mapped.rebalance().sink("out", sink).parallelism(sunk);
        }
        Tail::Final => {
            stream
                .key_by_parts(|(key, _)| (key, 1u64))
                .reduce_final(|sum, one| *sum += one)
                .uid("keyed")
                .parallelism(keyed)
                .map(|(key, sum)| out(key, sum))
                .sink("out", sink)
                .parallelism(sunk);
        }
    }
}

fn count<P: Pipe<Out = Rec>>(
    stream: Stream<Rec, P>,
    faults: Faults,
) -> Stream<Out, impl Placeable<Out = Out> + use<P>> {
    let counts = stream.key_by(|record| record.0).process_with(
        ValueStateDescriptor::<u64>::new("n"),
        move |_, mut n, cx| {
            faults.check_or_panic(Fault::UserFunction);
            let next = n.value().unwrap_or(0) + 1;
            n.update(next);
            Some(out(*cx.key(), next))
        },
    );
    counts.uid("keyed")
}
