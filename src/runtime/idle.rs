//! What a worker does when none of its subtasks can do anything.

use crate::base::clock::{Clock, Nanos};
use crate::base::progress::Progress;
use crate::config::IdleStrategy;
use crate::sync::wake::Parker;

/// Rounds of polling without a pause between them: about 10 µs, what a message from another core takes at most.
const SPIN_ROUNDS: u32 = 200;
/// Rounds with a yield (about 1 µs each) before the thread parks; waking a parked thread costs 15 µs and more.
const YIELD_ROUNDS: u32 = 100;

/// Counts idle rounds and paces them.
#[derive(Debug)]
pub struct Idler {
    strategy: IdleStrategy,
    rounds: u32,
}

impl Idler {
    /// Not idle yet.
    #[must_use]
    pub fn new(strategy: IdleStrategy) -> Self {
        Self { strategy, rounds: 0 }
    }

    /// The worker has found work.
    #[inline]
    pub fn reset(&mut self) {
        self.rounds = 0;
    }

    /// Nothing to do before `deadline` unless somebody wakes the worker. Before it sleeps, `poll` looks at everything
    /// once more: what was published just before the sleep was announced must be found here, nobody will wake for it.
    pub fn wait(
        &mut self,
        deadline: Nanos,
        parker: &Parker,
        clock: &dyn Clock,
        mut poll: impl FnMut() -> Progress,
    ) -> Progress {
        self.rounds = self.rounds.saturating_add(1);
        let (spin, give_way) = match self.strategy {
            IdleStrategy::BusySpin => (u32::MAX, 0),
            IdleStrategy::BackOff => (SPIN_ROUNDS, YIELD_ROUNDS),
            IdleStrategy::Park => (0, 0),
        };
        if self.rounds <= spin {
            std::hint::spin_loop();
            return Progress::Idle(deadline);
        }
        if self.rounds <= spin + give_way {
            std::thread::yield_now();
            return Progress::Idle(deadline);
        }
        parker.prepare();
        match poll() {
            Progress::Idle(until) => {
                let deadline = deadline.min(until);
                let timeout = (deadline != Nanos::MAX).then(|| deadline.since(clock.now()));
                if timeout.is_some_and(|timeout| timeout.is_zero()) {
                    parker.cancel();
                } else {
                    parker.park(timeout);
                }
                Progress::Idle(until)
            }
            other => {
                parker.cancel();
                other
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::base::clock::SystemClock;

    /// What is published between the last ordinary poll and the announcement of the sleep wakes nobody: only a poll after the
    /// announcement finds it.
    #[test]
    fn everything_is_polled_once_more_after_the_sleep_is_announced() {
        let (parker, clock) = (Parker::new(), SystemClock::new());
        for strategy in [IdleStrategy::Park, IdleStrategy::BackOff] {
            let mut idler = Idler::new(strategy);
            let mut polled_asleep = 0;
            for _ in 0..=SPIN_ROUNDS + YIELD_ROUNDS {
                let progress = idler.wait(Nanos::MAX, &parker, &clock, || {
                    assert!(parker.is_asleep(), "{strategy:?} polls only after the announcement");
                    polled_asleep += 1;
                    Progress::Worked
                });
                if progress == Progress::Worked {
                    break;
                }
            }
            assert_eq!(polled_asleep, 1, "{strategy:?} ends up asleep");
            assert!(!parker.is_asleep(), "{strategy:?} takes the announcement back when there is work");
        }
    }

    #[test]
    fn a_wake_up_during_the_last_poll_is_not_lost_and_a_deadline_ends_the_sleep() {
        let (parker, clock) = (Parker::new(), SystemClock::new());
        let waker = parker.waker();
        let mut idler = Idler::new(IdleStrategy::Park);
        idler.wait(Nanos::MAX, &parker, &clock, || {
            waker.wake();
            Progress::IDLE
        });
        let deadline = clock.now().after(std::time::Duration::from_millis(2));
        while clock.now() < deadline {
            idler.wait(deadline, &parker, &clock, || Progress::IDLE);
        }
    }

    #[test]
    fn busy_spinning_never_sleeps() {
        let (parker, clock) = (Parker::new(), SystemClock::new());
        let mut idler = Idler::new(IdleStrategy::BusySpin);
        for _ in 0..10_000 {
            idler.wait(Nanos::MAX, &parker, &clock, || panic!("it has no last poll"));
        }
    }
}
