//! Random orders of events against the invariants.
//!
//! Every channel gets a random legal sequence of records, barriers, cancels and its end, now and then with an obsolete
//! entry in it. A driver reads readable channels at random, with aborts of the coordinator in between, and checks each
//! action against what the channels have delivered.

use std::collections::{BTreeSet, VecDeque};

use super::*;
use crate::base::rng::Rng;

const SEEDS: u64 = 20_000;
const CHECKPOINTS: u64 = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Entry {
    Record,
    Barrier(u64),
    Cancel(u64),
    End,
}

#[derive(Debug)]
struct Lane {
    entries: VecDeque<Entry>,
    last_read: Option<Entry>,
    ended: bool,
    parked: bool,
    /// The highest id read, as barrier or cancel.
    passed: u64,
}

/// The entries of one channel. `calm`: every barrier comes.
fn lane(rng: &mut Rng, calm: bool) -> Lane {
    let mut entries = VecDeque::new();
    let mut ended = false;
    for id in 1..=CHECKPOINTS {
        if !ended {
            entries.extend((0..rng.below(3)).map(|_| Entry::Record));
            if rng.one_in(12) {
                entries.push_back(Entry::End);
                ended = true;
            }
        }
        match rng.below(20) {
            0 if !calm => entries.push_back(Entry::Cancel(id)),
            1 if !calm => {}
            _ => entries.push_back(Entry::Barrier(id)),
        }
        if id > 1 && rng.one_in(15) {
            let obsolete = 1 + rng.below(id - 1);
            entries.push_back(if rng.one_in(2) { Entry::Barrier(obsolete) } else { Entry::Cancel(obsolete) });
        }
    }
    Lane { entries, last_read: None, ended: false, parked: false, passed: 0 }
}

#[derive(Debug)]
struct Model {
    seed: u64,
    aligner: Aligner,
    lanes: Vec<Lane>,
    now: Nanos,
    actions: Vec<Action>,
    taken: BTreeSet<u64>,
    cancelled: BTreeSet<u64>,
    aborted: BTreeSet<u64>,
    /// Ids with a cancel read from some channel.
    cancels_read: BTreeSet<u64>,
    newest_out: u64,
}

impl Model {
    fn new(seed: u64, rng: &mut Rng) -> Self {
        let channels = 1 + rng.below(4) as usize;
        let calm = rng.one_in(3);
        Self {
            seed,
            aligner: Aligner::new(channels),
            lanes: (0..channels).map(|_| lane(rng, calm)).collect(),
            now: Nanos(0),
            actions: Vec::new(),
            taken: BTreeSet::new(),
            cancelled: BTreeSet::new(),
            aborted: BTreeSet::new(),
            cancels_read: BTreeSet::new(),
            newest_out: 0,
        }
    }

    fn readable(&self) -> Vec<usize> {
        (0..self.lanes.len())
            .filter(|i| !self.lanes[*i].parked && !self.lanes[*i].entries.is_empty())
            .collect()
    }

    fn read(&mut self, index: usize) {
        let channel = channel_index(index);
        let lane = &mut self.lanes[index];
        let entry = lane.entries.pop_front().expect("a readable channel");
        let obsolete = matches!(entry, Entry::Barrier(id) | Entry::Cancel(id) if id <= lane.passed);
        match entry {
            Entry::Barrier(id) => {
                lane.passed = lane.passed.max(id);
                self.aligner.barrier(channel, CheckpointId(id), self.now, &mut self.actions);
            }
            Entry::Cancel(id) => {
                lane.passed = lane.passed.max(id);
                self.cancels_read.insert(id);
                self.aligner.cancel_barrier(channel, CheckpointId(id), self.now, &mut self.actions);
            }
            Entry::End => {
                lane.ended = true;
                self.aligner.end_of_input(channel, self.now, &mut self.actions);
            }
            Entry::Record => {}
        }
        if obsolete {
            assert!(self.actions.is_empty(), "seed {}: {entry:?} is obsolete", self.seed);
        } else {
            lane.last_read = Some(entry);
        }
        self.check(Some(index));
    }

    fn abort(&mut self, id: u64) {
        self.aborted.insert(id);
        self.aligner.abort(CheckpointId(id), self.now, &mut self.actions);
        self.check(None);
    }

    /// Checks and carries out the actions of one event.
    fn check(&mut self, read: Option<usize>) {
        let seed = self.seed;
        for action in std::mem::take(&mut self.actions) {
            match action {
                Action::Park(channel) => {
                    assert_eq!(
                        Some(channel.index()),
                        read,
                        "seed {seed}: only the channel just read is parked"
                    );
                    assert!(!self.lanes[channel.index()].parked, "seed {seed}: parked twice");
                    self.lanes[channel.index()].parked = true;
                }
                Action::Unpark { channel, .. } => {
                    assert!(self.lanes[channel.index()].parked, "seed {seed}: released twice");
                    self.lanes[channel.index()].parked = false;
                }
                Action::TakeSnapshot(alignment) => {
                    let id = alignment.checkpoint.0;
                    self.leaves_in_order(id);
                    self.taken.insert(id);
                    assert!(!self.aborted.contains(&id), "seed {seed}: {id} was aborted");
                    assert!(!self.cancels_read.contains(&id), "seed {seed}: {id} was cancelled upstream");
                    for lane in &self.lanes {
                        let at_barrier = lane.last_read == Some(Entry::Barrier(id));
                        assert!(at_barrier || lane.ended, "seed {seed}: {lane:?} is not at barrier {id}");
                        assert!(lane.passed <= id, "seed {seed}: {lane:?} is beyond {id}");
                    }
                }
                Action::ForwardCancel { checkpoint, cause } => {
                    let id = checkpoint.0;
                    self.leaves_in_order(id);
                    self.cancelled.insert(id);
                    match cause {
                        CancelCause::Coordinator => assert!(self.aborted.contains(&id), "seed {seed}"),
                        CancelCause::Upstream => assert!(self.cancels_read.contains(&id), "seed {seed}"),
                        CancelCause::Superseded { by } => {
                            let lane = &self.lanes[read.expect("by an entry")];
                            assert!(by.0 > id && lane.passed == by.0, "seed {seed}: {id} for {by}");
                        }
                    }
                }
            }
        }
        self.check_queries();
    }

    /// Snapshots and cancels together leave in the order of their ids, so none leaves twice.
    fn leaves_in_order(&mut self, id: u64) {
        assert!(id > self.newest_out, "seed {}: {id} leaves after {}", self.seed, self.newest_out);
        self.newest_out = id;
    }

    fn check_queries(&self) {
        let (seed, aligner) = (self.seed, &self.aligner);
        for (index, lane) in self.lanes.iter().enumerate() {
            assert_eq!(aligner.is_parked(channel_index(index)), lane.parked, "seed {seed}: channel {index}");
            assert_eq!(aligner.has_ended(channel_index(index)), lane.ended, "seed {seed}: channel {index}");
        }
        let missing: Vec<_> = aligner.waiting_for().map(ChannelIndex::index).collect();
        let anyone_parked = self.lanes.iter().any(|lane| lane.parked);
        assert_eq!(anyone_parked, aligner.aligning().is_some(), "seed {seed}: parked means aligning");
        assert_eq!(anyone_parked, !missing.is_empty(), "seed {seed}: an alignment waits for somebody");
        for index in missing {
            assert!(!self.lanes[index].parked && !self.lanes[index].ended, "seed {seed}: channel {index}");
        }
        assert!(aligner.remembered_ranges() as u64 <= CHECKPOINTS.div_ceil(2), "seed {seed}");
    }

    /// When all has been read, nothing hangs and each checkpoint has the outcome it deserves.
    fn finish(&mut self, complete: &[u64]) {
        let seed = self.seed;
        // A checkpoint of which a barrier never came ends by its timeout.
        while let Some(stuck) = self.aligner.aligning() {
            assert!(!complete.contains(&stuck.0), "seed {seed}: {stuck} hangs although all barriers came");
            self.abort(stuck.0);
            assert_ne!(self.aligner.aligning(), Some(stuck), "seed {seed}: the abort of {stuck} was ignored");
            while let Some(index) = self.readable().first() {
                self.read(*index);
            }
        }
        assert!(
            self.lanes.iter().all(|lane| !lane.parked && lane.entries.is_empty()),
            "seed {seed}: {self:?}"
        );
        for id in complete.iter().filter(|id| !self.aborted.contains(id)) {
            assert!(self.taken.contains(id), "seed {seed}: {id} was delivered by all and not taken");
        }
        for id in 1..=CHECKPOINTS {
            let seen = self.lanes.iter().any(|lane| lane.passed >= id);
            let settled = self.taken.contains(&id) || self.cancelled.contains(&id) || self.newest_out > id;
            assert!(settled || !seen, "seed {seed}: {id} has no outcome");
        }
    }
}

#[test]
fn random_orders_keep_the_invariants() {
    let (mut taken, mut cancelled) = (0, 0);
    for seed in 0..SEEDS {
        let mut rng = Rng::new(seed);
        let mut model = Model::new(seed, &mut rng);
        let delivers = |lane: &Lane, id| {
            let first = lane
                .entries
                .iter()
                .find(|entry| matches!(entry, Entry::Barrier(other) | Entry::Cancel(other) if *other >= id));
            first == Some(&Entry::Barrier(id))
        };
        let complete: Vec<_> =
            (1..=CHECKPOINTS).filter(|id| model.lanes.iter().all(|lane| delivers(lane, *id))).collect();

        let aborts = [0, 0, 30, 8][rng.below(4) as usize];
        loop {
            model.now.0 += rng.below(50);
            if aborts > 0 && rng.one_in(aborts) {
                model.abort(1 + rng.below(CHECKPOINTS));
            }
            let readable = model.readable();
            if readable.is_empty() {
                break;
            }
            model.read(readable[rng.below(readable.len() as u64) as usize]);
        }
        model.finish(&complete);
        taken += model.taken.len();
        cancelled += model.cancelled.len();
    }
    assert!(
        taken > 20_000 && cancelled > 20_000,
        "the model exercises both: {taken} taken, {cancelled} cancelled"
    );
}
