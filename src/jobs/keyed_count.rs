//! `keyed-count`: generated keys, exchanged by hash, counted in keyed state.

use std::io::Write as _;
use std::marker::PhantomData;
use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use serde::{Deserialize, Serialize};

use super::registry::JobSetup;
use super::zipf::Zipf;
use crate::base::error::BoxError;
use crate::base::rng::splitmix64;
use crate::codec::Value;
use crate::connectors::{GeneratorSource, LineSink};
use crate::operator::process::{StatesOf, TablesOf};
use crate::operator::{CloseContext, Output, ProcessContext, ProcessFunction};
use crate::state::ValueStateDescriptor;

/// Options of `keyed-count`.
#[derive(Debug, Clone, Args)]
pub struct KeyedCountOptions {
    /// Records to generate
    #[arg(long, default_value_t = 1_000_000)]
    pub records: u64,
    /// Different keys
    #[arg(long, default_value_t = 1_000)]
    pub keys: u64,
    /// How the keys are distributed
    #[arg(long, value_name = "uniform|zipf:S", default_value = "uniform")]
    pub skew: Skew,
    /// Records per second in all; 0 for as many as possible
    #[arg(long, default_value_t = 0.0)]
    pub rate: f64,
    /// Directory for a line `key,count` per record, empty unless the job goes on from a checkpoint; without it the counts stay in the state
    #[arg(long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// Extra bytes in the state of each key
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    pub value_bytes: usize,
}

/// How keys are distributed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Skew {
    /// Record `n` has the key `splitmix64(n) % keys`.
    Uniform,
    /// Zipf-distributed with this exponent: see [`Zipf`]; the key is the rank less one.
    Zipf(f64),
}

impl FromStr for Skew {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let exponent = match text.split_once(':') {
            None if text == "uniform" => return Ok(Self::Uniform),
            Some(("zipf", exponent)) => exponent.parse().ok(),
            _ => None,
        };
        exponent
            .filter(|exponent: &f64| exponent.is_finite() && *exponent >= 0.0)
            .map(Self::Zipf)
            .ok_or_else(|| "uniform, or zipf:S with a number S from 0 on, is expected".to_owned())
    }
}

/// What a value may carry along at most: each key has one.
const VALUE_BYTES_MAX: usize = 1 << 20;

type Format = fn(&(u64, u64), &mut Vec<u8>);
type CountSink = LineSink<(u64, u64), Format>;

/// Writes a pair as `first,second`.
pub(super) fn format((key, count): &(u64, u64), line: &mut Vec<u8>) {
    let _ = write!(line, "{key},{count}");
}

pub(super) fn declare(options: KeyedCountOptions, job: &mut JobSetup) {
    if options.keys == 0 {
        job.mistake("--keys is 0; at least one key is needed");
    }
    if options.value_bytes > VALUE_BYTES_MAX {
        job.mistake(format_args!(
            "--value-bytes is {}; at most {VALUE_BYTES_MAX} are possible",
            options.value_bytes
        ));
    }
    job.check_rate(options.rate);
    let sink = job.lines(options.output.as_deref(), format as Format, CountSink::nowhere);
    if !job.mistakes().is_empty() {
        return;
    }
    let keys = options.keys;
    match options.skew {
        Skew::Uniform => generate(&options, move |n| splitmix64(n) % keys, job, sink),
        Skew::Zipf(exponent) => {
            let zipf = Zipf::new(keys, exponent);
            generate(&options, move |n| zipf.rank(n) - 1, job, sink);
        }
    }
}

fn generate<F>(options: &KeyedCountOptions, key: F, job: &JobSetup, sink: CountSink)
where
    F: FnMut(u64) -> u64 + Clone + Send + 'static,
{
    if options.value_bytes == 0 {
        count::<F, u64>(options, key, job, sink);
    } else {
        count::<F, Padded>(options, key, job, sink);
    }
}

fn count<F, C>(options: &KeyedCountOptions, key: F, job: &JobSetup, sink: CountSink)
where
    F: FnMut(u64) -> u64 + Clone + Send + 'static,
    C: Counter,
{
    let counter =
        Count::<C> { emit: options.output.is_some(), extra_bytes: options.value_bytes, counter: PhantomData };
    job.env()
        .source("keys", GeneratorSource::new(options.records, key).rate(options.rate))
        .uid("keys")
        .key_by_parts(|key| (key, ()))
        .process(counter)
        .uid("count")
        .sink("counts", sink)
        .uid("output");
}

/// The value kept for a key.
trait Counter: Value {
    fn zero(extra_bytes: usize) -> Self;
    fn increment(&mut self) -> u64;
    fn count(&self) -> u64;
}

impl Counter for u64 {
    #[inline]
    fn zero(_extra_bytes: usize) -> Self {
        0
    }

    #[inline]
    fn increment(&mut self) -> u64 {
        *self += 1;
        *self
    }

    fn count(&self) -> u64 {
        *self
    }
}

/// A count with bytes that are only carried along.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Padded {
    count: u64,
    extra: Box<[u8]>,
}

impl Counter for Padded {
    fn zero(extra_bytes: usize) -> Self {
        Self { count: 0, extra: vec![0x5A; extra_bytes].into() }
    }

    #[inline]
    fn increment(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    fn count(&self) -> u64 {
        self.count
    }
}

/// Counts the records of each key. The checksum over all counts is `Σ splitmix64(key ^ splitmix64(count))`.
#[derive(Debug, Clone)]
struct Count<C> {
    emit: bool,
    extra_bytes: usize,
    counter: PhantomData<fn() -> C>,
}

impl<C: Counter> ProcessFunction for Count<C> {
    type Key = u64;
    type In = ();
    type Out = (u64, u64);
    type States = ValueStateDescriptor<C>;

    fn states(&self) -> Self::States {
        ValueStateDescriptor::new("count")
    }

    #[inline]
    fn process(
        &mut self,
        (): (),
        mut counter: StatesOf<'_, Self>,
        cx: &ProcessContext<'_, u64>,
        output: &mut impl Output<(u64, u64)>,
    ) -> Result<(), BoxError> {
        let extra_bytes = self.extra_bytes;
        let count = counter.modify(|| C::zero(extra_bytes), C::increment);
        if self.emit {
            let _ = output.collect((*cx.key(), count));
        }
        Ok(())
    }

    fn close(&mut self, table: &mut TablesOf<Self>, cx: &mut CloseContext) -> Result<(), BoxError> {
        let checksum = table.fork().entries().fold(0u64, |sum, (key, (), counter)| {
            sum.wrapping_add(splitmix64(key ^ splitmix64(counter.count())))
        });
        cx.accumulate("checksum", checksum);
        Ok(())
    }
}
