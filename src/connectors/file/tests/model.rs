//! Random lives of a job against a model.
//!
//! The job writes the numbers 0, 1, 2, … A checkpoint is a position in them. At any time, what is seen must be numbers before the
//! position of the newest completed checkpoint, each once; whenever the job has settled, exactly those.

use std::collections::BTreeSet;

use super::store::{Trouble, Troubled};
use super::*;
use crate::base::rng::Rng;

const DIRECTORY: &str = "/out";

/// A checkpoint that every subtask has seen the barrier of.
struct Taken {
    id: u64,
    position: u64,
    promises: Vec<Promise>,
}

/// What is durable: the newest completed checkpoint.
#[derive(Default, Clone)]
struct Newest {
    id: u64,
    position: u64,
    transactions: Vec<Vec<u8>>,
}

struct Life {
    rng: Rng,
    store: Arc<Troubled>,
    prototype: Sunk,
    job: Option<Box<dyn SinkRecovery>>,
    subtasks: Vec<(Sunk, ByHand)>,
    position: u64,
    next_checkpoint: u64,
    taken: Vec<Taken>,
    newest: Newest,
    /// Everything that was ever seen, unless a power cut may have taken it back for the moment.
    seen: BTreeMap<String, String>,
    has_failed: bool,
    restarts: u32,
    completed: u32,
}

impl Life {
    fn new(seed: u64) -> Self {
        let store = Arc::new(Troubled::default());
        let prototype = on(&store, Path::new(DIRECTORY));
        let mut life = Self {
            rng: Rng::new(seed),
            store,
            prototype,
            job: None,
            subtasks: Vec::new(),
            position: 0,
            next_checkpoint: 1,
            taken: Vec::new(),
            newest: Newest::default(),
            seen: BTreeMap::new(),
            has_failed: false,
            restarts: 0,
            completed: 0,
        };
        life.begin_process(&fresh());
        life
    }

    fn begin_process(&mut self, claim: &SinkClaim) {
        self.prototype = on(&self.store, Path::new(DIRECTORY));
        let mut job = recovery(&self.prototype);
        job.claim(claim).unwrap();
        self.job = Some(job);
        let parallelism = 1 + self.rng.below(4) as u32;
        self.deploy(parallelism);
    }

    /// Subtasks are opened before the sink is settled, and write nothing until then.
    fn deploy(&mut self, parallelism: u32) {
        self.has_failed = false;
        self.taken.clear();
        self.position = self.newest.position;
        let opening = |subtask| Opening { subtask, parallelism, checkpointing: true };
        self.subtasks = (0..parallelism).map(|subtask| open(&self.prototype, opening(subtask))).collect();
        self.settle();
    }

    fn settle(&mut self) {
        let job = self.job.as_mut().unwrap();
        // Now and then it takes several attempts.
        while self.rng.one_in(4) {
            self.store.trouble_after(self.rng.below(8), Trouble::Refused);
            let _ = job.settle(&self.newest.transactions);
        }
        self.store.no_trouble();
        job.settle(&self.newest.transactions).unwrap();
        let numbers: BTreeSet<_> = self.look().into_iter().collect();
        assert_eq!(numbers, (0..self.newest.position).collect(), "after settling");
        assert_eq!(hidden(self.store.as_ref(), Path::new(DIRECTORY)), [".lock"]);
    }

    /// All numbers that are seen.
    fn look(&mut self) -> Vec<u64> {
        let now = visible(self.store.as_ref(), Path::new(DIRECTORY));
        for (name, content) in &self.seen {
            assert_eq!(now.get(name), Some(content), "{name} was changed or removed");
        }
        let numbers: Vec<u64> =
            now.values().flat_map(|content| content.lines()).map(|line| line.parse().unwrap()).collect();
        self.seen = now;
        let once: BTreeSet<_> = numbers.iter().copied().collect();
        assert_eq!(once.len(), numbers.len(), "a number is seen twice");
        assert!(once.last().is_none_or(|last| *last < self.newest.position), "seen before it may be");
        numbers
    }

    fn any(&mut self) -> &mut (Sunk, ByHand) {
        let index = self.rng.below(self.subtasks.len() as u64) as usize;
        &mut self.subtasks[index]
    }

    fn turn(&mut self) {
        match self.rng.below(20) {
            0..=5 => self.write(),
            6..=11 => {
                for _ in 0..self.rng.below(8) {
                    self.any().1.step();
                }
            }
            12 => {
                let flushed = self.any().0.flush();
                self.has_failed |= flushed.is_err();
            }
            13 | 14 => self.barrier(),
            15 | 16 => self.complete(),
            17 => self.abandon(),
            18 if self.rng.one_in(6) => {
                let trouble = [Trouble::Refused, Trouble::AnswerLost][self.rng.below(2) as usize];
                self.store.trouble_after(self.rng.below(6), trouble);
            }
            19 if self.rng.one_in(8) => self.kill(),
            _ => {
                let subtask = self.any();
                let published = subtask.0.published();
                self.has_failed |= published.is_err();
            }
        }
        if self.has_failed || self.rng.one_in(200) {
            self.restart();
        }
        self.look();
    }

    fn write(&mut self) {
        for _ in 0..1 + self.rng.below(5) {
            let parallelism = self.subtasks.len() as u64;
            let (sink, _) = &mut self.subtasks[(self.position % parallelism) as usize];
            match sink.resume().and_then(|_| sink.write(self.position)) {
                Ok(_) => self.position += 1,
                Err(_) => self.has_failed = true,
            }
        }
    }

    fn barrier(&mut self) {
        let id = self.next_checkpoint;
        self.next_checkpoint += 1;
        let promises = self.subtasks.iter_mut().map(|(sink, _)| Promise::of(sink, id)).collect();
        self.taken.push(Taken { id, position: self.position, promises });
    }

    /// Completes the oldest checkpoint that all subtasks have promised; some of them may not hear of it.
    fn complete(&mut self) {
        let kept = |taken: &Taken| taken.promises.iter().all(|promise| matches!(promise.get(), Some(Ok(_))));
        let Some(at) = self.taken.iter().position(kept) else { return };
        // Earlier ones are subsumed.
        let Taken { id, position, promises } = self.taken.drain(..=at).next_back().unwrap();
        let transactions = promises.iter().flat_map(Promise::kept).collect();
        self.newest = Newest { id, position, transactions };
        self.completed += 1;
        let loses_notices = self.rng.one_in(4);
        for (sink, _) in &mut self.subtasks {
            if !loses_notices || self.rng.one_in(2) {
                self.has_failed |= sink.notify_complete(CheckpointId(id)).is_err();
            }
        }
    }

    fn abandon(&mut self) {
        if !self.taken.is_empty() {
            let index = self.rng.below(self.taken.len() as u64) as usize;
            let id = CheckpointId(self.taken.remove(index).id);
            for (sink, _) in &mut self.subtasks {
                self.has_failed |= sink.notify_aborted(id).is_err();
            }
        }
    }

    fn end_execution(&mut self) {
        let orderly = self.rng.one_in(2);
        for (sink, mut helpers) in self.subtasks.drain(..) {
            drop(sink);
            if orderly {
                helpers.stop();
            }
        }
    }

    /// Within the process: the parallelism stays.
    fn restart(&mut self) {
        self.restarts += 1;
        let parallelism = self.subtasks.len() as u32;
        self.end_execution();
        self.store.no_trouble();
        self.deploy(parallelism);
    }

    fn kill(&mut self) {
        self.restarts += 1;
        self.look();
        self.store.kill();
        self.end_execution();
        self.job = None;
        let power_loss = self.rng.one_in(2).then(|| self.rng.next_u64());
        self.store.revive(power_loss);
        let restored = Some(self.newest.id).filter(|id| *id > 0);
        // A rename that was not durable yet was seen nevertheless; it must come back.
        let seen = std::mem::take(&mut self.seen);
        self.begin_process(&resuming(restored));
        for (name, content) in &seen {
            assert_eq!(self.seen.get(name), Some(content), "{name} did not come back");
        }
    }

    fn finish(mut self) {
        self.restart();
        let end = self.position + 10;
        while self.position < end {
            self.write();
        }
        for (sink, _) in &mut self.subtasks {
            assert_eq!(sink.end_input().unwrap(), Flow::Continue);
        }
        self.barrier();
        self.subtasks.iter_mut().for_each(|(_, helpers)| helpers.catch_up());
        let id = CheckpointId(self.taken.last().unwrap().id);
        self.complete();
        assert_eq!(self.newest.position, self.position);
        for (sink, helpers) in &mut self.subtasks {
            sink.notify_complete(id).unwrap();
            sink.close().unwrap();
            helpers.catch_up();
            assert_eq!(sink.published().unwrap(), Flow::Continue);
        }
        assert_eq!(self.look().len() as u64, self.position);
        self.end_execution();
        self.settle();
        self.job = None;
        assert!(hidden(self.store.as_ref(), Path::new(DIRECTORY)).is_empty());
    }
}

#[test]
fn whatever_happens_lines_are_seen_exactly_once() {
    let (mut restarts, mut completed) = (0, 0);
    for seed in 0..500 {
        let life = std::panic::catch_unwind(|| {
            let mut life = Life::new(seed);
            for _ in 0..200 {
                life.turn();
            }
            let counts = (life.restarts, life.completed);
            life.finish();
            counts
        });
        let counts = life.unwrap_or_else(|_| panic!("seed {seed}"));
        restarts += counts.0;
        completed += counts.1;
    }
    assert!(restarts > 500 && completed > 1500, "{restarts} restarts, {completed} checkpoints");
}
