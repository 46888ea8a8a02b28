//! Programs that publish lines exactly once, on a disk whose process dies at any operation, again and again.
//!
//! [`crashes`] decides when a process dies and starts the next one; [`checks`] says what must hold between two lives and at the
//! end. A small program with a known way to do it right, and with many to do it wrong, shows that the checks notice.
//!
//! A failure prints the line that replays it.

#[path = "durability/checks.rs"]
mod checks;
#[path = "durability/crashes.rs"]
mod crashes;
#[path = "durability/job.rs"]
mod job;
#[path = "durability/job_crashes.rs"]
mod job_crashes;
#[path = "durability/ledger.rs"]
mod ledger;

use stoplog::testing::CrashKind;

use crashes::{Death, Failure, Schedule, after_drawn_deaths, at_every_operation, at_every_pair, run};
use job::Job;
use ledger::{Flaw, Ledger};

fn power_loss(seed: u64) -> CrashKind {
    CrashKind::PowerLoss { seed }
}

/// Everything that is tried with a program that is small enough to die everywhere.
fn try_everything(seed: u64, flaw: Option<Flaw>) -> Result<u64, Failure> {
    let mut lives = 0;
    for kind in [CrashKind::Kill, power_loss(seed), power_loss(seed + 1000)] {
        lives += at_every_operation(seed, &[], 0, kind, || Ledger::new(seed, flaw))?.lives;
    }
    lives += after_drawn_deaths(seed, 60, || Ledger::new(seed, flaw))?.lives;
    Ok(lives)
}

#[test]
fn a_careful_program_survives_its_death_at_every_operation() {
    let lives: u64 =
        (0..20).map(|seed| try_everything(seed, None).unwrap_or_else(|failure| panic!("{failure}"))).sum();
    assert!(lives > 10_000, "{lives} lives");
}

#[test]
fn a_careful_program_survives_a_second_death_at_every_operation() {
    for (first, second) in
        [(CrashKind::Kill, CrashKind::Kill), (CrashKind::Kill, power_loss(1)), (power_loss(2), power_loss(3))]
    {
        let tried = at_every_pair(1, (first, 0, 1), (second, 40), || Ledger::new(1, None));
        tried.unwrap_or_else(|failure| panic!("{failure}"));
    }
}

#[test]
fn every_flaw_is_noticed() {
    for (flaw, expected) in Flaw::ALL {
        let failure = (0..40).find_map(|seed| try_everything(seed, Some(flaw)).err());
        let failure = failure.unwrap_or_else(|| panic!("{flaw:?} is not noticed"));
        let is_expected = expected.iter().any(|part| failure.reason.contains(part));
        assert!(is_expected, "{flaw:?} is noticed by something else: {failure}");
        let again = run(&mut Ledger::new(failure.schedule.seed, Some(flaw)), &failure.schedule);
        assert_eq!(again.unwrap_err().reason, failure.reason, "a failure can be replayed");
    }
}

#[test]
fn a_schedule_is_read_as_it_is_written() {
    let deaths = vec![
        Death { operations_before: 12, kind: CrashKind::Kill },
        Death { operations_before: 0, kind: power_loss(77) },
    ];
    let schedule = Schedule { seed: 5, deaths };
    assert_eq!(schedule.to_string(), "5:12k,0p77");
    assert_eq!("5:12k,0p77".parse(), Ok(schedule));
    assert_eq!("5:".parse(), Ok(Schedule { seed: 5, deaths: Vec::new() }));
    assert!("5:12x".parse::<Schedule>().is_err() && "5".parse::<Schedule>().is_err());
}

/// The schedule in `STOPLOG_DEATHS`, of the job whose story is in `STOPLOG_STORY` if that is set.
#[test]
fn replay() {
    let Ok(schedule) = std::env::var("STOPLOG_DEATHS") else { return };
    let schedule: Schedule = schedule.parse().expect("seed:12k,3p77");
    let outcome = match std::env::var("STOPLOG_STORY") {
        Ok(story) => run(&mut Job::new(schedule.seed, story.parse().expect("a story")), &schedule),
        Err(_) => run(&mut Ledger::new(schedule.seed, None), &schedule),
    };
    match outcome {
        Ok(outcome) => println!("{schedule}: {outcome:?}"),
        Err(failure) => panic!("{failure}"),
    }
}
