//! Runs the job of one seed through up to three lives, with faults in all but the last, and checks everything.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crossbeam::channel::{Receiver, bounded};
use stoplog::base::error::ErrorKind;
use stoplog::base::id::{CheckpointId, OperatorUid};
use stoplog::base::rng::{Rng, splitmix64};
use stoplog::checkpoint::protocol::AbortReason;
use stoplog::job::supervisor::Request;
use stoplog::prelude::*;
use stoplog::snapshot::{CheckpointStorage, CompletedCheckpoint};
use stoplog::testing::checkers::{AuditSink, Observed, cut};
use stoplog::testing::faults::INJECTED;
use stoplog::testing::{Fault, Faults, FaultyStorage, SimOptions, Simulation};

use crate::plan::{Model, Out, Plan, Tail, World, build};

/// What a seed went through.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) trace: u64,
    pub(crate) turns: u64,
    pub(crate) lives: u32,
    pub(crate) restarts: u32,
    pub(crate) restored: u32,
    pub(crate) checkpoints: u64,
    pub(crate) aborted: u64,
    pub(crate) faults: u32,
}

struct Case {
    seed: u64,
    plan: Plan,
    rng: Rng,
    world: World,
    storage: FaultyStorage,
    /// The checkpoint from which the running execution was restored.
    restored: Option<CheckpointId>,
    /// Without periodic checkpoints, a job that is stopped while its sinks close repeats its output.
    may_repeat: bool,
    periodic: bool,
    newest_id: Option<CheckpointId>,
    launches: u32,
    answers: Vec<Receiver<Result<CheckpointId, AbortReason>>>,
    output: Vec<Vec<Out>>,
    outcome: Outcome,
}

/// Runs one seed.
pub(crate) fn run(seed: u64) -> Result<Outcome, String> {
    let plan = Plan::from_seed(seed);
    let faults = Faults::new(splitmix64(seed ^ 0xFA_017));
    let storage = FaultyStorage::new(faults.clone());
    let observed = Arc::new(Observed::default());
    let names = ["out", "again"];
    let sink = |name: &&'static str| {
        AuditSink::new(name, Arc::clone(&observed), faults.clone(), storage.clone(), plan.block_one_in)
    };
    let sinks = names[..plan.sinks()].iter().map(sink).collect();
    let consumed = plan.sources.iter().map(|source| (0..source.count).map(|_| AtomicU64::new(0)).collect());
    let world = World { faults, observed, sinks, consumed: Arc::new(consumed.collect()) };
    let case = Case {
        seed,
        rng: Rng::new(splitmix64(seed ^ 0xC0FF)),
        output: vec![Vec::new(); plan.sinks()],
        plan,
        world,
        storage,
        restored: None,
        may_repeat: false,
        periodic: true,
        newest_id: None,
        launches: 0,
        answers: Vec::new(),
        outcome: Outcome::default(),
    };
    case.run()
}

impl Case {
    fn run(mut self) -> Result<Outcome, String> {
        let lives = [1, 1, 2, 3][self.rng.below(4) as usize];
        for life in 1..=lives {
            let last = life == lives;
            self.outcome.lives += 1;
            self.set_faults(last);
            if self.live(last).map_err(|error| format!("life {life}: {error}"))? == JobState::Finished {
                break;
            }
            if last {
                return Err("the last life did not finish".to_owned());
            }
            if self.rng.one_in(2) {
                self.plan.rescale(&mut self.rng);
            }
        }
        self.check_output()?;
        self.check_storage_is_empty()?;
        self.outcome.faults = self.world.faults.struck();
        Ok(self.outcome)
    }

    /// In the last life nothing goes wrong that the job cannot survive.
    fn set_faults(&mut self, last: bool) {
        let faults = &self.world.faults;
        for fault in Fault::ALL {
            let one_in = match fault {
                Fault::UserFunction => 40 + self.rng.below(600),
                Fault::Write => 200 + self.rng.below(2000),
                Fault::Open | Fault::Helper => 60,
                Fault::PreCommit | Fault::Begin | Fault::Append | Fault::Finish => 8 + self.rng.below(40),
                Fault::Notify | Fault::Commit | Fault::Discard => 3 + self.rng.below(16),
                Fault::Close => 3,
            };
            let used = self.rng.one_in(3);
            faults.set_rate(fault, if used { one_in } else { 0 });
        }
        if last {
            // One restart at most, with as many of them allowed as there can be.
            faults.set_rate(Fault::Discard, 0);
        }
        let budget = if self.rng.one_in(4) { 0 } else { 1 + self.rng.below(5) as u32 };
        faults.allow(budget);
    }

    fn config(&mut self, last: bool) -> JobConfig {
        let rng = &mut self.rng;
        let mut config = JobConfig {
            name: format!("seed {}", self.seed),
            parallelism: 1 + rng.below(3) as u32,
            max_parallelism: Some(self.plan.max_parallelism),
            ring_capacity: [2, 4, 16, 4096][rng.below(4) as usize],
            parking_max_bytes: [0, 512, 1 << 20][rng.below(3) as usize],
            async_snapshots: !rng.one_in(3),
            ..JobConfig::default()
        };
        let interval = [0, 3, 10, 30, 100, 400, 2000][rng.below(7) as usize];
        config.checkpoints.interval = (interval > 0).then(|| Duration::from_micros(interval));
        config.checkpoints.max_concurrent = 1 + rng.below(3) as u32;
        config.checkpoints.tolerable_failures = rng.below(4) as u32;
        config.checkpoints.num_retained = 1 + rng.below(3) as u32;
        if config.checkpoints.max_concurrent == 1 && rng.one_in(3) {
            config.checkpoints.min_pause = Duration::from_micros(rng.below(100));
        }
        if !last && rng.one_in(3) {
            config.checkpoints.timeout = Duration::from_micros(50 + rng.below(2000));
        }
        let attempts = if last { 1000 } else { rng.below(6) as u32 };
        config.restart =
            Some(RestartConfig::FixedDelay { attempts, delay: Duration::from_micros(rng.below(300)) });
        if config.checkpoints.interval.is_none() {
            // Without checkpoints a sink that failed to close would be closed twice.
            self.world.faults.set_rate(Fault::Close, 0);
        }
        config
    }

    /// One life of the job: until it is finished, failed, cancelled or suspended.
    #[allow(clippy::too_many_lines, reason = "one story")]
    fn live(&mut self, last: bool) -> Result<JobState, String> {
        let config = self.config(last);
        let checkpoints = config.checkpoints.clone();
        let periodic = config.checkpoints.interval.is_some();
        if std::env::var_os("STOPLOG_SHOW").is_some() {
            println!("{config:#?}\n{:#?}", self.plan);
        }
        let job = build(&self.plan, &self.world, config)?;
        let mut options = SimOptions::from_seed(splitmix64(self.seed ^ u64::from(self.outcome.lives) << 56));
        options.time_weight = options.time_weight.min(4);
        let storage: Arc<dyn CheckpointStorage> = Arc::new(self.storage.clone());
        let mut sim = Simulation::new(job, storage, options).map_err(|error| error.to_string())?;
        let kept_before = self.storage.list().map_err(|error| error.to_string())?.len();
        let closed = self.world.observed.closed.swap(0, Ordering::Relaxed);
        self.may_repeat |= closed > 0 && !self.periodic;
        self.periodic = periodic;
        self.launches = 0;
        self.answers.clear();
        let by_hand = if self.rng.one_in(2) { 20 + self.rng.below(2000) } else { 0 };
        let stop = if last || self.rng.one_in(2) { 0 } else { 300 + self.rng.below(6000) };
        let failures = loop {
            self.watch_launch(&mut sim)?;
            if by_hand > 0 && self.answers.len() < 8 && sim.draw(by_hand) == 0 {
                let (answer, answered) = bounded(1);
                self.answers.push(answered);
                sim.request(Request::Checkpoint(answer));
            }
            if stop > 0 && sim.draw(stop) == 0 {
                let suspend = sim.draw(2) == 0;
                sim.request(if suspend { Request::Suspend } else { Request::Cancel });
            }
            if sim.is_over() {
                break sim.failures().to_vec();
            }
            sim.turn()?;
            for checkpoint in self.storage.take_committed() {
                self.check_cut(&checkpoint)
                    .map_err(|error| format!("checkpoint {}: {error}", checkpoint.id))?;
            }
            self.world.observed.check()?;
        };
        for failure in failures {
            if std::env::var_os("STOPLOG_SHOW").is_some() {
                println!("{failure}");
            }
            if !failure.message().contains(INJECTED) && failure.kind() != ErrorKind::Checkpoint {
                return Err(format!("a failure that nobody injected: {failure}"));
            }
        }
        // An id of which the storage knows nothing, not even that it was discarded, may be given again.
        let excused = self.storage.not_discarded();
        let known = self.newest_id.filter(|newest| !excused.contains(newest));
        if sim.oldest_id().is_some() && sim.oldest_id() <= known {
            return Err(format!("{:?} is given after {known:?}", sim.oldest_id()));
        }
        self.newest_id = self.newest_id.max(sim.newest_id());
        self.outcome.trace = splitmix64(self.outcome.trace ^ sim.trace());
        self.outcome.turns += sim.turns();
        if std::env::var_os("STOPLOG_SHOW").is_some() {
            println!(
                "life {}: {:?} {:?}",
                self.outcome.lives,
                sim.supervisor(),
                sim.supervisor().coordinator()
            );
        }
        // Nothing here takes longer than milliseconds, except to wait for a timeout since a message was lost.
        if sim.now() > stoplog::base::clock::Nanos(100_000_000_000) {
            return Err(format!("the job waited for a timeout: it is over at {:?}", sim.now()));
        }
        let undelivered = sim.undelivered_requests();
        let result = sim.finish();
        if !self.storage.take_committed().is_empty() {
            return Err("a checkpoint became durable after the job was over".to_owned());
        }
        self.world.observed.check()?;
        self.outcome.restarts += result.restarts;
        self.outcome.checkpoints += result.checkpoints.completed;
        self.outcome.aborted += result.checkpoints.failed + result.checkpoints.subsumed;
        let counts = result.checkpoints;
        if counts.triggered != counts.completed + counts.failed + counts.subsumed {
            return Err(format!("not every checkpoint has one outcome: {counts:?}"));
        }
        self.check_answers(undelivered)?;
        // What an earlier life kept goes with the first checkpoint that completes.
        let allowed =
            (checkpoints.num_retained as usize).max(if counts.completed == 0 { kept_before } else { 0 });
        self.check_retained(allowed)?;
        if let Some(error) = &result.error
            && !error.message().contains(INJECTED)
            && error.kind() != ErrorKind::Checkpoint
        {
            return Err(format!("the job failed by itself: {error}"));
        }
        for (output, sink) in self.output.iter_mut().zip(&self.world.sinks) {
            output.extend(sink.collected.take());
        }
        Ok(result.state)
    }

    /// A new execution: what it is restored from decides what its sources may read.
    fn watch_launch(&mut self, sim: &mut Simulation) -> Result<(), String> {
        if sim.launches() == self.launches {
            return Ok(());
        }
        self.launches = sim.launches();
        let closed = self.world.observed.closed.swap(0, Ordering::Relaxed);
        self.may_repeat |= closed > 0 && !self.periodic;
        self.world.observed.epoch.fetch_add(1, Ordering::Relaxed);
        let newest = self.storage.newest().map_err(|error| error.to_string())?;
        self.restored = newest.as_ref().map(|checkpoint| checkpoint.id);
        self.outcome.restored += u32::from(newest.is_some());
        if newest.is_none() {
            let sources = self.plan.sources.iter_mut();
            sources.for_each(|source| source.first_parallelism = source.parallelism);
        }
        let consumed = match &newest {
            Some(checkpoint) => self.consumed(checkpoint)?,
            None => vec![Vec::new(); self.plan.sources.len()],
        };
        for (flags, numbers) in self.world.consumed.iter().zip(&consumed) {
            flags.iter().for_each(|flag| flag.store(0, Ordering::Relaxed));
            numbers.iter().for_each(|n| flags[*n as usize].store(1, Ordering::Relaxed));
        }
        Ok(())
    }

    /// The numbers that each source had handed on before the barrier.
    fn consumed(&self, checkpoint: &CompletedCheckpoint) -> Result<Vec<Vec<u64>>, String> {
        let mut all = Vec::new();
        for (index, source) in self.plan.sources.iter().enumerate() {
            let uid = OperatorUid::new(format!("source {index}"));
            let splits: Vec<(u64, u64)> = cut::source_splits(checkpoint, &uid)?;
            let parts = u64::from(source.first_parallelism);
            if splits.len() as u64 != parts {
                return Err(format!("{uid} has {} splits, not {parts}", splits.len()));
            }
            let mut numbers = BTreeSet::new();
            for (next, other) in splits {
                let read: Vec<u64> = if source.vec {
                    // `other` is the end of the split.
                    let part = (0..parts).find(|part| source.count * (part + 1) / parts == other);
                    let part = part.ok_or_else(|| format!("{uid}: no split ends at {other}"))?;
                    (source.count * part / parts..next).collect()
                } else {
                    (next % other..next.min(source.count)).step_by(other as usize).collect()
                };
                for n in read {
                    if !numbers.insert(n) {
                        return Err(format!("{uid}: {n} stands in two splits"));
                    }
                }
            }
            all.push(numbers.into_iter().collect());
        }
        Ok(all)
    }

    /// The checkpoint holds the effects of all records before its positions, and of no other.
    fn check_cut(&self, checkpoint: &CompletedCheckpoint) -> Result<(), String> {
        let model = self.plan.model(&self.consumed(checkpoint)?);
        let state = |uid: &str, name: &str| {
            cut::keyed_state::<u32, u64>(checkpoint, &self.storage, &OperatorUid::new(uid), name)
        };
        let Model { counts, counts_again, sinks } = model;
        let same = |what: &str, found: &dyn std::fmt::Debug, expected: &dyn std::fmt::Debug, same: bool| {
            if same { Ok(()) } else { Err(format!("{what} is {found:?}, the model has {expected:?}")) }
        };
        match self.plan.tail {
            Tail::Stateless => {}
            Tail::Reduce => {
                let found = state("keyed", "reduced")?;
                let weighted = counts.iter().map(|(key, n)| (*key, n * (3 + u64::from(key % 7)))).collect();
                same("reduced state", &found, &weighted, found == weighted)?;
            }
            Tail::Final => {
                let found = state("keyed", "reduced")?;
                same("reduced state", &found, &counts, found == counts)?;
            }
            Tail::Count | Tail::CountTwice | Tail::Spread => {
                let found = state("keyed", "n")?;
                same("counts", &found, &counts, found == counts)?;
            }
        }
        if self.plan.tail == Tail::CountTwice {
            let found = state("keyed again", "n")?;
            same("second counts", &found, &counts_again, found == counts_again)?;
        }
        for (sink, expected) in self.world.sinks.iter().zip(sinks) {
            let mut promised = sink.promised(checkpoint.id, self.restored);
            promised.sort_unstable();
            // Records at the end are handed on subtask by subtask, and only once the subtask has ended.
            if self.plan.tail != Tail::Final || promised.len() == expected.len() {
                same("what sinks promised", &promised, &expected, promised == expected)?;
            }
        }
        Ok(())
    }

    fn check_answers(&self, mut undelivered: usize) -> Result<(), String> {
        for answered in &self.answers {
            match answered.try_recv() {
                Ok(Ok(id)) if !self.storage.was_committed(id) => {
                    return Err(format!("a request was answered with {id}, which is not durable"));
                }
                Ok(_) => {}
                Err(_) if undelivered > 0 => undelivered -= 1,
                Err(_) => return Err("a request for a checkpoint was not answered".to_owned()),
            }
        }
        Ok(())
    }

    fn check_retained(&self, num_retained: usize) -> Result<(), String> {
        let mut kept = self.storage.list().map_err(|error| error.to_string())?;
        let excused = self.storage.not_discarded();
        kept.retain(|id| !excused.contains(id));
        if kept.len() > num_retained {
            return Err(format!("checkpoints {kept:?} are kept, {num_retained} are allowed"));
        }
        Ok(())
    }

    fn check_output(&mut self) -> Result<(), String> {
        let model = self.plan.model(&self.plan.everything());
        for (index, (mut output, mut expected)) in self.output.iter().cloned().zip(model.sinks).enumerate() {
            // A keyed operator and a sink in the same chain: the updates of a key arrive in order.
            if (self.plan.tail == Tail::Count || index == 1) && !self.may_repeat {
                let mut last = std::collections::BTreeMap::new();
                for (key, n) in &output {
                    let before = last.insert(*key, *n).unwrap_or(0);
                    if *n != before + 1 {
                        return Err(format!("sink {index}, key {key}: {n} follows {before}"));
                    }
                }
            }
            output.sort_unstable();
            if self.may_repeat {
                output.dedup();
                expected.dedup();
            }
            if output != expected {
                return Err(format!("sink {index}: {}", difference(&output, &expected)));
            }
        }
        Ok(())
    }

    /// Once the retained checkpoints are gone, no file is left.
    fn check_storage_is_empty(&self) -> Result<(), String> {
        let inner = self.storage.inner();
        let excused = self.storage.not_discarded();
        for id in inner.list().map_err(|error| error.to_string())?.into_iter().chain(excused) {
            inner.discard(id).map_err(|error| error.to_string())?;
        }
        match inner.files() {
            0 => Ok(()),
            files => Err(format!("{files} files are left that belong to no checkpoint")),
        }
    }
}

/// The first few records that are too many or too few.
fn difference(found: &[Out], expected: &[Out]) -> String {
    let count = |records: &[Out], record| records.iter().filter(|other| **other == record).count();
    let all: BTreeSet<_> = found.iter().chain(expected).copied().collect();
    let wrong = all.into_iter().filter(|record| count(found, *record) != count(expected, *record));
    let wrong: Vec<_> =
        wrong.take(5).map(|record| (record, count(found, record), count(expected, record))).collect();
    format!("{} records, {} expected; (record, found, expected): {wrong:?}", found.len(), expected.len())
}
