//! The job dies everywhere.
//!
//! `STOPLOG_CRASH_SEEDS` says how many seeds are tried in each test, for long runs; `STOPLOG_SEED` is the first of them.

use std::ops::Range;

use stoplog::base::rng::{Rng, splitmix64};
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

/// Operations of the first process if nothing kills it.
fn first_operations(seed: u64, story: Story) -> Result<u64, Failure> {
    let outcome = run(&mut Job::new(seed, story), &Schedule { seed, deaths: Vec::new() })?;
    Ok(outcome.first_operations)
}

/// Deaths at every operation of the first process, and at every operation of the one after it.
fn die_everywhere(seed: u64, kind: CrashKind, story: Story) -> Result<Tried, Failure> {
    let mut tried = at_every_operation(seed, &[], 0, kind, || Job::new(seed, story))?;
    let operations = first_operations(seed, story)?;
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
    let tried = try_seeds(10, |seed| die_everywhere(seed, CrashKind::Kill, Story::UNDISTURBED));
    assert!(tried.restored * 4 > tried.schedules, "{tried:?}");
}

#[test]
fn a_job_survives_a_loss_of_power_at_every_operation() {
    let tried = try_seeds(10, |seed| die_everywhere(seed, power_loss(seed), Story::UNDISTURBED));
    assert!(tried.restored * 4 > tried.schedules, "{tried:?}");
}

/// At the beginning, when what is needed is made, and at the end, when that is recorded and everything else removed.
#[test]
fn a_job_survives_two_deaths_in_a_row_at_its_beginning_and_at_its_end() {
    try_seeds(2, |seed| {
        let mut tried = Tried::default();
        let end = first_operations(seed, Story::UNDISTURBED)?.saturating_sub(25);
        for (first, second) in [(CrashKind::Kill, power_loss(seed)), (power_loss(seed), power_loss(seed + 1))]
        {
            let program = || Job::new(seed, Story::UNDISTURBED);
            tried += at_every_pair(seed, (first, end, 1), (second, 50), program)?;
            tried += at_every_pair(seed, (first, 0, 4), (second, 30), program)?;
        }
        Ok(tried)
    });
}

#[test]
fn a_job_survives_many_deaths_in_a_row() {
    try_seeds(60, |seed| after_drawn_deaths(seed, 40, || Job::new(seed, Story::UNDISTURBED)));
}

#[test]
fn a_job_that_is_suspended_survives_its_death_at_every_operation() {
    try_seeds(5, |seed| {
        let mut tried = die_everywhere(seed, CrashKind::Kill, Story::SUSPENDED)?;
        tried += die_everywhere(seed, power_loss(seed), Story::SUSPENDED)?;
        Ok(tried)
    });
}

#[test]
fn a_job_that_is_cancelled_survives_its_death_at_every_operation() {
    try_seeds(5, |seed| {
        let mut tried = die_everywhere(seed, CrashKind::Kill, Story::CANCELLED)?;
        tried += die_everywhere(seed, power_loss(seed), Story::CANCELLED)?;
        Ok(tried)
    });
}

/// Whenever it happens, all of the output is there at last.
#[test]
fn a_job_can_be_suspended_at_any_time() {
    try_seeds(500, |seed| {
        let mut tried = Tried::default();
        tried.add(&run(&mut Job::new(seed, Story::SUSPENDED), &Schedule { seed, deaths: Vec::new() })?);
        Ok(tried)
    });
}

/// At every call of every kind, in the first process and in one that goes on after a crash.
#[test]
fn a_job_survives_every_call_of_the_store_that_fails() {
    let tried = try_seeds(4, |seed| {
        let mut tried = Tried::default();
        for story in [Story::UNDISTURBED, Story::SUSPENDED, Story::CANCELLED] {
            let operations = first_operations(seed, story)?;
            let death = Death { operations_before: operations / 2 + seed % 5, kind: power_loss(seed) };
            for (life, deaths) in [(1, vec![]), (2, vec![death])] {
                for fault in StoreFault::ALL {
                    for calls_before in 0.. {
                        let story = story.with_fault(life, fault, calls_before);
                        let schedule = Schedule { seed, deaths: deaths.clone() };
                        let outcome = run(&mut Job::new(seed, story), &schedule)?;
                        tried.add(&outcome);
                        if outcome.faults == 0 {
                            break;
                        }
                    }
                }
            }
        }
        Ok(tried)
    });
    assert!(tried.faults * 2 > tried.schedules, "{tried:?}");
}

/// What has failed once meets a loss of power on the way out.
#[test]
fn a_job_survives_calls_that_fail_before_it_dies() {
    try_seeds(2, |seed| {
        let mut tried = Tried::default();
        for story in [Story::UNDISTURBED, Story::SUSPENDED, Story::CANCELLED] {
            for fault in [StoreFault::SyncDirectory, StoreFault::Rename, StoreFault::Remove] {
                for calls_before in 0.. {
                    let story = story.with_fault(1, fault, calls_before);
                    let outcome = run(&mut Job::new(seed, story), &Schedule { seed, deaths: Vec::new() })?;
                    if outcome.faults == 0 {
                        break;
                    }
                    let from = outcome.first_operations.saturating_sub(20);
                    tried += at_every_operation(seed, &[], from, power_loss(seed), || Job::new(seed, story))?;
                }
            }
        }
        Ok(tried)
    });
}

/// Deaths and calls that fail, and a request to end, as they come.
#[test]
fn a_job_survives_whatever_comes_together() {
    try_seeds(400, |seed| {
        let mut rng = Rng::new(splitmix64(seed ^ 0x70_6E7));
        let asked = [Story::UNDISTURBED, Story::SUSPENDED, Story::CANCELLED][rng.below(3) as usize];
        let fault = StoreFault::ALL[rng.below(StoreFault::ALL.len() as u64) as usize];
        let story = asked.with_fault(1 + rng.below(4), fault, rng.below(20));
        after_drawn_deaths(seed, 6, || Job::new(seed, story))
    });
}

#[test]
fn a_job_goes_on_once_a_full_disk_has_room_again() {
    try_seeds(20, |seed| {
        let mut tried = Tried::default();
        let operations = first_operations(seed, Story::UNDISTURBED)?;
        let death = Death { operations_before: operations / 2 + seed % 5, kind: power_loss(seed) };
        for (life, deaths) in [(1, vec![]), (2, vec![death])] {
            for room in (0..1500).step_by(60) {
                let story = Story::UNDISTURBED.with_room(life, room);
                tried.add(&run(&mut Job::new(seed, story), &Schedule { seed, deaths: deaths.clone() })?);
            }
        }
        Ok(tried)
    });
}

#[test]
fn a_story_is_read_as_it_is_written() {
    for story in [Story::UNDISTURBED, Story::SUSPENDED, Story::CANCELLED] {
        let fault = story.with_fault(2, StoreFault::SyncDirectory, 7);
        for story in [story, fault, story.with_room(1, 9)] {
            assert_eq!(story.to_string().parse(), Ok(story));
        }
    }
    assert!("2-Nothing-1".parse::<Story>().is_err() && "else".parse::<Story>().is_err());
}
