//! Whole jobs, stepped on one thread from a seed, that are killed and go on.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::store::{Trouble, Troubled};
use super::*;
use crate::base::id::JobId;
use crate::base::rng::Rng;
use crate::job::JobState;
use crate::job::origin::JobOrigin;
use crate::prelude::{GeneratorSource, JobConfig, RestartConfig, StreamEnvironment};
use crate::snapshot::{CheckpointStorage, MemoryStorage};
use crate::testing::{SimOptions, Simulation};

const RECORDS: u64 = 400;

struct Lives {
    rng: Rng,
    store: Arc<Troubled>,
    storage: Arc<MemoryStorage>,
    /// What was seen at the end of each life.
    seen: BTreeMap<String, String>,
    restarts: u32,
}

impl Lives {
    fn simulation(&mut self, life: u64, is_last: bool) -> Simulation {
        let rng = &mut self.rng;
        let mut config = JobConfig { parallelism: 1 + rng.below(3) as u32, ..JobConfig::default() };
        config.max_parallelism = Some(16);
        config.checkpoints.interval = Some(Duration::from_micros(3 + rng.below(100)));
        config.checkpoints.max_concurrent = 1 + rng.below(3) as u32;
        config.checkpoints.tolerable_failures = rng.below(4) as u32;
        config.restart = Some(RestartConfig::FixedDelay { attempts: 1000, delay: Duration::from_micros(20) });
        let env = StreamEnvironment::new(config);
        let panics_one_in = [0, 300, 3000][rng.below(3) as usize];
        let (calls, seed) = (Arc::new(AtomicU64::new(0)), rng.next_u64());
        env.source("numbers", GeneratorSource::new(RECORDS, |n| n))
            .uid("numbers")
            .rebalance()
            .map(move |n: u64| {
                let call = calls.fetch_add(1, Ordering::Relaxed);
                if panics_one_in > 0 && !is_last && Rng::new(seed ^ call).one_in(panics_one_in) {
                    std::panic::resume_unwind(Box::new("on purpose"));
                }
                n
            })
            .sink("lines", on(&self.store, Path::new("/out")))
            .uid("lines");
        let origin = JobOrigin {
            resumes: life > 0,
            ..JobOrigin::in_storage(
                JobId::from_words(0, 1),
                Arc::clone(&self.storage) as Arc<dyn CheckpointStorage>,
            )
        };
        let options = SimOptions::from_seed(rng.next_u64());
        Simulation::with_origin(env.plan().unwrap(), origin, options).unwrap()
    }

    /// True once the job is finished.
    fn live(&mut self, life: u64, is_last: bool) -> bool {
        let mut simulation = self.simulation(life, is_last);
        let turns = self.rng.below(800);
        for turn in 0.. {
            if simulation.is_over() {
                let result = simulation.finish();
                assert_eq!(result.state, JobState::Finished, "{:?}", result.error);
                self.restarts += result.restarts;
                return true;
            }
            if turn == turns && !is_last {
                break;
            }
            if !is_last && self.rng.one_in(2000) {
                let trouble = [Trouble::Refused, Trouble::AnswerLost][self.rng.below(2) as usize];
                self.store.trouble_after(self.rng.below(10), trouble);
            }
            simulation.turn().unwrap_or_else(|error| panic!("{error}"));
        }
        self.restarts += simulation.launches();
        self.look();
        self.store.kill();
        drop(simulation);
        let power_loss = self.rng.one_in(2).then(|| self.rng.next_u64());
        self.store.revive(power_loss);
        if power_loss.is_none() {
            self.look();
        }
        false
    }

    fn look(&mut self) {
        // A job that has never been as far as its first record has no directory.
        if self.store.list(Path::new("/out")).is_err() {
            return;
        }
        let now = visible(self.store.as_ref(), Path::new("/out"));
        for (name, content) in &self.seen {
            assert_eq!(now.get(name), Some(content), "{name} was changed or removed");
        }
        let mut numbers: Vec<&str> = now.values().flat_map(|content| content.lines()).collect();
        let all = numbers.len();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), all, "a line is seen twice");
        self.seen = now;
    }
}

#[test]
fn a_job_that_is_killed_again_and_again_writes_every_line_once() {
    let (mut killed, mut restarts) = (0, 0);
    for seed in 0..1000 {
        let counts = std::panic::catch_unwind(|| {
            let mut lives = Lives {
                rng: Rng::new(seed),
                store: Arc::default(),
                storage: Arc::new(MemoryStorage::new()),
                seen: BTreeMap::new(),
                restarts: 0,
            };
            let last = lives.rng.below(5);
            let life = (0..=last).find(|life| lives.live(*life, *life == last)).unwrap();
            lives.look();
            let lines: Vec<_> = lives.seen.values().flat_map(|content| content.lines()).collect();
            assert_eq!(lines.len() as u64, RECORDS);
            // Something may have gone wrong at the very end. The next run tidies up.
            lives.store.revive(None);
            let mut tidy = recovery(&on(&lives.store, Path::new("/out")));
            tidy.claim(&SinkClaim { is_finished: true, ..resuming(None) }).unwrap();
            tidy.settle(&[]).unwrap();
            drop(tidy);
            assert!(hidden(lives.store.as_ref(), Path::new("/out")).is_empty());
            (life, lives.restarts)
        });
        let counts = counts.unwrap_or_else(|_| panic!("seed {seed}"));
        killed += counts.0;
        restarts += counts.1;
    }
    assert!(killed > 500 && restarts > 1000, "killed {killed} times, {restarts} restarts");
}
