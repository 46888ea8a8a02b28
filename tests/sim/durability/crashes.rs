//! When a process dies, and what is tried: every operation, every pair, drawn sequences.

use std::collections::BTreeMap;
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
    /// It has said that everything is done.
    pub(crate) is_finished: bool,
    /// It came to its own end and did not die, although the program is not finished, or something went wrong: another one follows.
    pub(crate) has_stopped: bool,
    /// The program was given up for good: nothing more will be published.
    pub(crate) is_given_up: bool,
    /// It has decided from what it goes on.
    pub(crate) has_begun: bool,
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

    /// What must hold of a disk on which no process is alive. `store` is a copy: looking at it disturbs nobody.
    fn check_disk(&self, _store: &VirtualStore) -> Result<(), String> {
        Ok(())
    }

    /// The files, and directories without contents, which neither a crash nor another process changes once the program is over.
    fn lasting(&self, store: &VirtualStore) -> BTreeMap<String, Vec<u8>> {
        let directories = store.directories().into_iter().map(|path| (path, Vec::new()));
        store.files().into_iter().chain(directories).collect()
    }

    /// What a replay needs to know besides the schedule: variables of the environment.
    fn variables(&self) -> String {
        String::new()
    }
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
    /// Operations of the first life.
    pub(crate) first_operations: u64,
    /// Lives that went on from a checkpoint.
    pub(crate) restored: u64,
    /// Calls of the store that failed although the process lived on.
    pub(crate) faults: u64,
    pub(crate) deaths: u64,
    /// False if a life that was to die came to its end before.
    pub(crate) has_died_as_planned: bool,
}

/// A schedule that went wrong.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    pub(crate) schedule: Schedule,
    pub(crate) reason: String,
    variables: String,
    log: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { schedule, reason, variables, log } = self;
        writeln!(f, "{reason}\n{}", log.join("\n"))?;
        writeln!(f, "{reason}")?;
        write!(
            f,
            "replay: {variables}STOPLOG_DEATHS={schedule} cargo test --features testing --test sim durability::replay"
        )
    }
}

/// Runs a program through all of its deaths to its end, and once more after that.
pub(crate) fn run(program: &mut impl Program, schedule: &Schedule) -> Result<Outcome, Failure> {
    let mut store = VirtualStore::new(schedule.seed);
    let lives = live_on(program, schedule, &mut store);
    let variables = program.variables();
    lives.map_err(|reason| Failure { schedule: schedule.clone(), reason, variables, log: store.log() })
}

fn live_on(
    program: &mut impl Program,
    schedule: &Schedule,
    store: &mut VirtualStore,
) -> Result<Outcome, String> {
    let expected = program.expected();
    let mut facts = Facts::default();
    let mut deaths = schedule.deaths.iter();
    let (mut lives, mut died, mut restored, mut first_operations) = (0, 0, 0, 0);
    let last = loop {
        lives += 1;
        if lives > LIVES_MAX {
            return Err(format!("not finished after {LIVES_MAX} lives"));
        }
        if let Some(death) = deaths.next() {
            store.crash_at(death.operations_before, death.kind);
        }
        let life = program.live(store).map_err(|error| format!("life {lives}: {error}"))?;
        let is_over = life.is_finished || life.is_given_up;
        if !(store.is_dead() || is_over || life.has_stopped) {
            return Err(format!("life {lives} has come to no end: {life:?}"));
        }
        if let Some(lock) = store.locks().first() {
            return Err(format!("the lock {lock} is still held after life {lives}"));
        }
        facts.add(life)?;
        died += u64::from(store.is_dead());
        if lives == 1 {
            first_operations = store.operations();
        }
        restored += u64::from(life.restored.is_some());
        expected.check_so_far(store)?;
        if is_over && !life.has_stopped && !store.is_dead() {
            break life;
        }
        *store = store.reboot();
        program.check_disk(&store.image(CrashKind::Kill))?;
    };
    let has_died_as_planned = died == schedule.deaths.len() as u64;
    let (operations, faults) = (store.operations(), u64::from(store.faults_struck()));
    check_stays(program, &expected, store, last, &mut facts, splitmix64(schedule.seed))?;
    let lives = lives as u64;
    Ok(Outcome { lives, operations, first_operations, restored, faults, deaths: died, has_died_as_planned })
}

/// That a program is finished, or given up, survives a loss of power; resumed, it reads nothing and changes nothing.
fn check_stays(
    program: &mut impl Program,
    expected: &Expected,
    store: &mut VirtualStore,
    last: Life,
    facts: &mut Facts,
    seed: u64,
) -> Result<(), String> {
    let check = |store: &VirtualStore| {
        if last.is_finished { expected.check_finished(store) } else { expected.check_given_up(store) }
    };
    check(store)?;
    let seen = program.lasting(store);
    store.crash(CrashKind::PowerLoss { seed });
    expected.check_so_far(store)?;
    *store = store.reboot();
    program.check_disk(&store.image(CrashKind::Kill))?;
    let life = program.live(store).map_err(|error| format!("after the end: {error}"))?;
    let is_over = (life.is_finished, life.is_given_up) == (last.is_finished, last.is_given_up);
    if !is_over || life.has_stopped || life.records_read > 0 || life.ids.is_some() {
        return Err(format!("a program that is over goes on: {life:?}"));
    }
    facts.add(life)?;
    check(store)?;
    if program.lasting(store) != seen {
        return Err("a program that is over has changed something".to_owned());
    }
    Ok(())
}

/// What was tried.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tried {
    pub(crate) schedules: u64,
    pub(crate) lives: u64,
    pub(crate) operations: u64,
    pub(crate) restored: u64,
    pub(crate) faults: u64,
}

impl Tried {
    pub(crate) fn add(&mut self, outcome: &Outcome) {
        self.schedules += 1;
        self.lives += outcome.lives;
        self.operations += outcome.operations;
        self.restored += outcome.restored;
        self.faults += outcome.faults;
    }
}

impl std::ops::AddAssign for Tried {
    fn add_assign(&mut self, other: Self) {
        self.schedules += other.schedules;
        self.lives += other.lives;
        self.operations += other.operations;
        self.restored += other.restored;
        self.faults += other.faults;
    }
}

/// Dies as it is given, and in the life after that once more, at every operation in turn from `from` on.
pub(crate) fn at_every_operation<P: Program>(
    seed: u64,
    before: &[Death],
    from: u64,
    kind: CrashKind,
    program: impl Fn() -> P,
) -> Result<Tried, Failure> {
    let mut tried = Tried::default();
    for operations_before in from.. {
        let mut deaths = before.to_vec();
        deaths.push(Death { operations_before, kind });
        let outcome = run(&mut program(), &Schedule { seed, deaths })?;
        tried.add(&outcome);
        if !outcome.has_died_as_planned {
            break;
        }
    }
    Ok(tried)
}

/// Dies twice: at every `stride`-th operation of the first life, from `from` on, and at each of the first `second_max` operations of the
/// second.
pub(crate) fn at_every_pair<P: Program>(
    seed: u64,
    (first, from, stride): (CrashKind, u64, usize),
    (second, second_max): (CrashKind, u64),
    program: impl Fn() -> P,
) -> Result<Tried, Failure> {
    let mut tried = Tried::default();
    for first_before in (from..).step_by(stride) {
        for second_before in 0..second_max {
            let deaths = vec![
                Death { operations_before: first_before, kind: first },
                Death { operations_before: second_before, kind: second },
            ];
            let outcome = run(&mut program(), &Schedule { seed, deaths })?;
            tried.add(&outcome);
            if !outcome.has_died_as_planned {
                // If not even the first life died, there is no operation left.
                if outcome.deaths == 0 {
                    return Ok(tried);
                }
                break;
            }
        }
    }
    Ok(tried)
}

/// Dies again and again, at operations drawn from the seed, most of them early: in the midst of the recovery.
pub(crate) fn after_drawn_deaths<P: Program>(
    seed: u64,
    schedules: u64,
    program: impl Fn() -> P,
) -> Result<Tried, Failure> {
    let undisturbed = run(&mut program(), &Schedule { seed, deaths: Vec::new() })?;
    let mut rng = Rng::new(splitmix64(seed ^ 0xDEAD));
    let mut tried = Tried::default();
    tried.add(&undisturbed);
    // Where the recovery ends and records flow.
    let operations = undisturbed.first_operations;
    let early = operations.div_ceil(4).max(24).min(operations);
    for _ in 0..schedules {
        let count = 2 + rng.below(8);
        let deaths = (0..count).map(|n| {
            let is_early = n > 0 && !rng.one_in(4);
            let bound = if is_early { early } else { operations };
            let operations_before = rng.below(bound + 1);
            let kind = if rng.one_in(3) {
                CrashKind::Kill
            } else {
                CrashKind::PowerLoss { seed: rng.below(1 << 32) }
            };
            Death { operations_before, kind }
        });
        let schedule = Schedule { seed, deaths: deaths.collect() };
        tried.add(&run(&mut program(), &schedule)?);
    }
    Ok(tried)
}
