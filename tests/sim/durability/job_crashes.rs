//! The job dies everywhere.
//!
//! `STOPLOG_CRASH_SEEDS` says how many seeds are tried in each test, for long runs; `STOPLOG_SEED` is the first of them.

use std::ops::Range;

use stoplog::testing::{CrashKind, StoreFault};

use super::crashes::{
    Death, Failure, Schedule, Tried, after_drawn_deaths, at_every_operation, at_every_pair, run,
};
use super::job::{Job, Story};
use super::power_loss;

fn seeds(usual: u64) -> Range<u64> {
    let number = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let first = number("STOPLOG_SEED").unwrap_or(0);
    first..first + number("STOPLOG_CRASH_SEEDS").unwrap_or(usual)
}

fn try_seeds(usual: u64, attempt: impl Fn(u64) -> Result<Tried, Failure>) -> Tried {
    let mut tried = Tried::default();
    for seed in seeds(usual) {
        tried += attempt(seed).unwrap_or_else(|failure| panic!("{failure}"));
    }
    println!("{tried:?}");
    tried
}

fn undisturbed(seed: u64) -> Job {
    Job::new(seed, Story::Undisturbed)
}

fn operations_alone(seed: u64, story: Story) -> Result<u64, Failure> {
    run(&mut Job::new(seed, story), &Schedule { seed, deaths: Vec::new() }).map(|outcome| outcome.operations)
}

/// Deaths at every operation of the first process, and at every operation of the one after it.
fn die_everywhere(seed: u64, kind: CrashKind, story: Story) -> Result<Tried, Failure> {
    let mut tried = at_every_operation(seed, &[], 0, kind, || Job::new(seed, story))?;
    let operations = operations_alone(seed, story)?;
    for part in 1..4 {
        let operations_before = operations * part / 4 + seed % 7;
        for first in [CrashKind::Kill, power_loss(seed + 2000)] {
            let first = Death { operations_before, kind: first };
            tried += at_every_operation(seed, &[first], 0, kind, || Job::new(seed, story))?;
        }
    }
    Ok(tried)
}

#[test]
fn a_job_survives_to_be_killed_at_every_operation() {
    let tried = try_seeds(10, |seed| die_everywhere(seed, CrashKind::Kill, Story::Undisturbed));
    assert!(tried.restored * 4 > tried.schedules, "{tried:?}");
}

#[test]
fn a_job_survives_a_loss_of_power_at_every_operation() {
    let tried = try_seeds(10, |seed| die_everywhere(seed, power_loss(seed), Story::Undisturbed));
    assert!(tried.restored * 4 > tried.schedules, "{tried:?}");
}

/// The last operations, when the end is being recorded and everything else removed, and the first ones.
#[test]
fn a_job_survives_two_deaths_in_a_row_at_its_end_and_at_its_beginning() {
    try_seeds(4, |seed| {
        let mut tried = Tried::default();
        let end = operations_alone(seed, Story::Undisturbed)?.saturating_sub(30);
        for (first, second) in [(CrashKind::Kill, power_loss(seed)), (power_loss(seed), power_loss(seed + 1))]
        {
            tried += at_every_pair(seed, (first, end, 1), (second, u64::MAX), || undisturbed(seed))?;
            tried += at_every_pair(seed, (first, 0, 3), (second, 30), || undisturbed(seed))?;
        }
        Ok(tried)
    });
}

#[test]
fn a_job_survives_many_deaths_in_a_row() {
    try_seeds(60, |seed| after_drawn_deaths(seed, 40, || undisturbed(seed)));
}

#[test]
fn a_job_that_is_suspended_survives_its_death_at_every_operation() {
    try_seeds(6, |seed| {
        let mut tried = die_everywhere(seed, CrashKind::Kill, Story::Suspended)?;
        tried += die_everywhere(seed, power_loss(seed), Story::Suspended)?;
        Ok(tried)
    });
}

#[test]
fn a_job_that_is_cancelled_survives_its_death_at_every_operation() {
    try_seeds(6, |seed| {
        let mut tried = die_everywhere(seed, CrashKind::Kill, Story::Cancelled)?;
        tried += die_everywhere(seed, power_loss(seed), Story::Cancelled)?;
        Ok(tried)
    });
}

/// At every call of every kind, in the first process and in one that goes on after a crash.
#[test]
fn a_job_survives_every_call_of_the_store_that_fails() {
    let tried = try_seeds(4, |seed| {
        let mut tried = Tried::default();
        let operations = operations_alone(seed, Story::Undisturbed)?;
        let death = Death { operations_before: operations / 2 + seed % 5, kind: power_loss(seed) };
        for (life, deaths) in [(1, vec![]), (2, vec![death])] {
            for fault in StoreFault::ALL {
                for calls_before in 0.. {
                    let story = Story::Fault { life, fault, calls_before };
                    let schedule = Schedule { seed, deaths: deaths.clone() };
                    let outcome = run(&mut Job::new(seed, story), &schedule)?;
                    tried.add(&outcome);
                    if outcome.faults == 0 {
                        break;
                    }
                }
            }
        }
        Ok(tried)
    });
    assert!(tried.faults * 2 > tried.schedules, "{tried:?}");
}

#[test]
fn a_job_goes_on_once_a_full_disk_has_room_again() {
    try_seeds(20, |seed| {
        let mut tried = Tried::default();
        let operations = operations_alone(seed, Story::Undisturbed)?;
        let death = Death { operations_before: operations / 2 + seed % 5, kind: power_loss(seed) };
        for (life, deaths) in [(1, vec![]), (2, vec![death])] {
            for room in (0..1500).step_by(60) {
                let story = Story::Full { life, room };
                tried.add(&run(&mut Job::new(seed, story), &Schedule { seed, deaths: deaths.clone() })?);
            }
        }
        Ok(tried)
    });
}

#[test]
fn a_story_is_read_as_it_is_written() {
    let fault = Story::Fault { life: 2, fault: StoreFault::SyncDirectory, calls_before: 7 };
    for story in
        [Story::Undisturbed, Story::Suspended, Story::Cancelled, fault, Story::Full { life: 1, room: 9 }]
    {
        assert_eq!(story.to_string().parse(), Ok(story));
    }
    assert!("2-Nothing-1".parse::<Story>().is_err() && "else".parse::<Story>().is_err());
}
