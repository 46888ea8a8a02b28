//! Whether, and when, a failed job is started again.

use std::time::Duration;

use crate::base::clock::Nanos;

/// What is done after a failure.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RestartStrategy {
    /// The first failure is the last.
    None,
    /// A fixed number of restarts in the whole life of the job, each after the same delay.
    FixedDelay {
        /// How many restarts.
        attempts: u32,
        /// From the failure to the restart.
        delay: Duration,
    },
}

/// The answer to one failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestartDecision {
    /// Start again after this time.
    After(Duration),
    /// The job has failed.
    GiveUp,
}

/// A strategy and the failures it has seen.
#[derive(Debug, Clone)]
pub struct Restarts {
    strategy: RestartStrategy,
    granted: u32,
}

impl Restarts {
    /// The strategy before the first failure.
    #[must_use]
    pub fn new(strategy: RestartStrategy) -> Self {
        Self { strategy, granted: 0 }
    }

    /// The job failed at this time, which never goes back.
    pub fn on_failure(&mut self, now: Nanos) -> RestartDecision {
        // A fixed delay is the same at any time; strategies that count failures within a span will look at it.
        let _ = now;
        match self.strategy {
            RestartStrategy::FixedDelay { attempts, delay } if self.granted < attempts => {
                self.granted += 1;
                RestartDecision::After(delay)
            }
            RestartStrategy::None | RestartStrategy::FixedDelay { .. } => RestartDecision::GiveUp,
        }
    }

    /// How many restarts there were.
    #[must_use]
    pub fn granted(&self) -> u32 {
        self.granted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_strategy_the_first_failure_is_the_last() {
        let mut restarts = Restarts::new(RestartStrategy::None);
        assert_eq!(restarts.on_failure(Nanos(5)), RestartDecision::GiveUp);
        assert_eq!(restarts.granted(), 0);
    }

    #[test]
    fn a_fixed_number_of_restarts_is_granted_each_after_the_delay() {
        let delay = Duration::from_millis(7);
        let mut restarts = Restarts::new(RestartStrategy::FixedDelay { attempts: 2, delay });
        let decisions: Vec<_> = (0..4).map(|n| restarts.on_failure(Nanos(n))).collect();
        let (again, no) = (RestartDecision::After(delay), RestartDecision::GiveUp);
        assert_eq!(decisions, [again, again, no, no]);
        assert_eq!(restarts.granted(), 2);
    }
}
