//! When a process dies, and what is tried: every operation, every pair, drawn sequences.

use std::fmt;
use std::str::FromStr;

use stoplog::base::rng::{Rng, splitmix64};
use stoplog::testing::{CrashKind, VirtualStore};

use super::checks::{Expected, Facts};

/// Nothing here needs so many lives: a program that dies no more comes to its end.
const LIVES_MAX: usize = 40;

/// One process of a program, as it is seen from outside.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Life {
    /// False if it died.
    pub(crate) is_finished: bool,
    /// The checkpoint from which it went on.
    pub(crate) restored: Option<u64>,
    /// The first and the last id that it gave to a checkpoint. One of which nothing was on the disk yet does not count.
    pub(crate) ids: Option<(u64, u64)>,
    /// The newest checkpoint that it has said to be complete.
    pub(crate) completed: Option<u64>,
    /// Records that its sources handed on.
    pub(crate) records_read: u64,
}

/// A program that comes to its end in as many processes as it takes. It remembers nothing between them.
pub(crate) trait Program {
    /// One process: until the program is finished or the store is gone.
    fn live(&mut self, store: &VirtualStore) -> Result<Life, String>;

    /// What it is to publish.
    fn expected(&self) -> Expected;
}

/// The end of one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Death {
    /// It dies in the operation after so many others.
    pub(crate) operations_before: u64,
    pub(crate) kind: CrashKind,
}

/// How the processes of a program die, one after the other. The one after the last of them lives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Schedule {
    /// Seed of the program and of the disk.
    pub(crate) seed: u64,
    pub(crate) deaths: Vec<Death>,
}

/// `seed:12k,3p77`: killed in the operation after twelve others, then power is lost with seed 77 in the one after three.
impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.seed)?;
        for (n, death) in self.deaths.iter().enumerate() {
            let comma = if n > 0 { "," } else { "" };
            match death.kind {
                CrashKind::Kill => write!(f, "{comma}{}k", death.operations_before)?,
                CrashKind::PowerLoss { seed } => write!(f, "{comma}{}p{seed}", death.operations_before)?,
            }
        }
        Ok(())
    }
}

impl FromStr for Schedule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number =
            |digits: &str| digits.parse::<u64>().map_err(|error| format!("{digits:?} in {text:?}: {error}"));
        let (seed, deaths) = text.split_once(':').ok_or_else(|| format!("{text:?} has no colon"))?;
        let death = |death: &str| -> Result<Death, String> {
            if let Some(killed) = death.strip_suffix('k') {
                return Ok(Death { operations_before: number(killed)?, kind: CrashKind::Kill });
            }
            let (before, seed) = death.split_once('p').ok_or_else(|| format!("{death:?} in {text:?}"))?;
            let kind = CrashKind::PowerLoss { seed: number(seed)? };
            Ok(Death { operations_before: number(before)?, kind })
        };
        let deaths = deaths.split(',').filter(|death| !death.is_empty()).map(death).collect::<Result<_, _>>();
        Ok(Self { seed: number(seed)?, deaths: deaths? })
    }
}

/// What a schedule went through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) lives: u64,
    /// Operations of all lives.
    pub(crate) operations: u64,
    /// False if a life that was to die came to the end before.
    pub(crate) has_died_as_planned: bool,
}

/// A schedule that went wrong.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    pub(crate) schedule: Schedule,
    pub(crate) reason: String,
    log: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { schedule, reason, log } = self;
        writeln!(f, "{reason}\n{}", log.join("\n"))?;
        writeln!(f, "{reason}")?;
        write!(
            f,
            "replay: STOPLOG_DEATHS={schedule} cargo test --features testing --test sim durability::replay"
        )
    }
}

/// Runs a program through all of its deaths to its end, and once more after that.
pub(crate) fn run(program: &mut impl Program, schedule: &Schedule) -> Result<Outcome, Failure> {
    let mut store = VirtualStore::new(schedule.seed);
    let lives = live_on(program, schedule, &mut store);
    let failed = |reason| Failure { schedule: schedule.clone(), reason, log: store.log() };
    lives.map_err(failed)
}

fn live_on(
    program: &mut impl Program,
    schedule: &Schedule,
    store: &mut VirtualStore,
) -> Result<Outcome, String> {
    let expected = program.expected();
    let mut facts = Facts::default();
    let mut deaths = schedule.deaths.iter();
    let mut lives = 0;
    loop {
        lives += 1;
        if lives > LIVES_MAX {
            return Err(format!("not finished after {LIVES_MAX} lives"));
        }
        if let Some(death) = deaths.next() {
            store.crash_at(death.operations_before, death.kind);
        }
        let life = program.live(store).map_err(|error| format!("life {lives}: {error}"))?;
        if life.is_finished == store.is_dead() {
            return Err(format!("life {lives} has come to no end: {life:?}"));
        }
        facts.add(life)?;
        expected.check_so_far(store)?;
        if life.is_finished {
            break;
        }
        *store = store.reboot();
    }
    // One that outlived its death has not used it.
    let has_died_as_planned = lives > schedule.deaths.len();
    let operations = store.operations();
    expected.check_finished(store)?;
    check_stays_finished(program, &expected, store, &mut facts, splitmix64(schedule.seed))?;
    Ok(Outcome { lives: lives as u64, operations, has_died_as_planned })
}

/// That a program is finished survives a loss of power; resumed, it reads nothing and changes nothing.
fn check_stays_finished(
    program: &mut impl Program,
    expected: &Expected,
    store: &mut VirtualStore,
    facts: &mut Facts,
    seed: u64,
) -> Result<(), String> {
    let (files, directories) = (store.files(), store.directories());
    store.crash(CrashKind::PowerLoss { seed });
    expected.check_so_far(store)?;
    *store = store.reboot();
    let life = program.live(store).map_err(|error| format!("after the end: {error}"))?;
    if !life.is_finished || life.records_read > 0 || life.ids.is_some() {
        return Err(format!("a finished program goes on: {life:?}"));
    }
    facts.add(life)?;
    expected.check_finished(store)?;
    if (store.files(), store.directories()) != (files, directories) {
        return Err("a finished program has changed something".to_owned());
    }
    Ok(())
}

/// Dies once, at every operation in turn. Answers the number of lives.
pub(crate) fn at_every_operation<P: Program>(
    seed: u64,
    kind: CrashKind,
    program: impl Fn() -> P,
) -> Result<u64, Failure> {
    let mut lives = 0;
    for operations_before in 0.. {
        let schedule = Schedule { seed, deaths: vec![Death { operations_before, kind }] };
        let outcome = run(&mut program(), &schedule)?;
        lives += outcome.lives;
        if !outcome.has_died_as_planned {
            break;
        }
    }
    Ok(lives)
}

/// Dies twice: at every operation of the first life, and at each of the first `second_max` operations of the second.
pub(crate) fn at_every_pair<P: Program>(
    seed: u64,
    first: CrashKind,
    second: CrashKind,
    second_max: u64,
    program: impl Fn() -> P,
) -> Result<u64, Failure> {
    let mut lives = 0;
    for first_before in 0.. {
        for second_before in 0..second_max {
            let deaths = vec![
                Death { operations_before: first_before, kind: first },
                Death { operations_before: second_before, kind: second },
            ];
            let outcome = run(&mut program(), &Schedule { seed, deaths })?;
            lives += outcome.lives;
            if !outcome.has_died_as_planned {
                // If not even the first life died, there is no operation left.
                if outcome.lives == 1 {
                    return Ok(lives);
                }
                break;
            }
        }
    }
    Ok(lives)
}

/// Dies again and again, at operations drawn from the seed, most of them early: in the midst of the recovery.
pub(crate) fn after_drawn_deaths<P: Program>(
    seed: u64,
    schedules: u64,
    program: impl Fn() -> P,
) -> Result<u64, Failure> {
    let undisturbed = run(&mut program(), &Schedule { seed, deaths: Vec::new() })?;
    let mut rng = Rng::new(splitmix64(seed ^ 0xDEAD));
    let mut lives = undisturbed.lives;
    for _ in 0..schedules {
        let count = 2 + rng.below(8);
        let deaths = (0..count).map(|n| {
            let is_early = n > 0 && !rng.one_in(4);
            let bound = if is_early { undisturbed.operations.min(24) } else { undisturbed.operations };
            let operations_before = rng.below(bound + 1);
            let kind = if rng.one_in(3) {
                CrashKind::Kill
            } else {
                CrashKind::PowerLoss { seed: rng.below(1 << 32) }
            };
            Death { operations_before, kind }
        });
        let schedule = Schedule { seed, deaths: deaths.collect() };
        lives += run(&mut program(), &schedule)?.lives;
    }
    Ok(lives)
}
