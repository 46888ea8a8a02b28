//! The states of a job.
//!
//! ```text
//! Created --Deployed--> Running --Finished--> FINISHED
//!    |                   |   ^
//!    |            Restart|   |Deployed
//!    |                   v   |
//!    +------Restart--> Restarting
//!    |
//!    +- Fail ---> Failing ---Stopped--> FAILED
//!    +- Cancel -> Canceling -Stopped--> CANCELED
//!    +- Suspended --------------------> SUSPENDED
//! ```
//!
//! A job that an earlier process finished goes from `Created` to `FINISHED` at once. The three events below are legal in `Created`, `Running` and `Restarting` alike. What is in capitals is terminal.

use std::fmt;

/// The state of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum JobState {
    /// Accepted, nothing runs yet.
    Created,
    /// All subtasks run.
    Running,
    /// An attempt failed; the next one waits for its delay or is being deployed.
    Restarting,
    /// No restart is left; the subtasks are being stopped.
    Failing,
    /// Cancelled by request; the subtasks are being stopped.
    Canceling,
    /// Terminal: all input was read and everything is published.
    Finished,
    /// Terminal: cancelled by request.
    Canceled,
    /// Terminal for this process: ended in an orderly way, to be resumed from its checkpoints.
    Suspended,
    /// Terminal: failed, and not restarted.
    Failed,
}

/// What happens to a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobEvent {
    /// All subtasks of an attempt run.
    Deployed,
    /// The attempt failed and is to be followed by another.
    Restart,
    /// The job failed for good.
    Fail,
    /// Somebody asked to cancel.
    Cancel,
    /// All subtasks have stopped.
    Stopped,
    /// All subtasks have stopped to be resumed later.
    Suspended,
    /// The coordinator says that everything is done.
    Finished,
}

/// An event that is not possible in this state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{event:?} is not possible in state {state}")]
pub struct IllegalTransition {
    /// The state, which stays as it is.
    pub state: JobState,
    /// The event.
    pub event: JobEvent,
}

impl JobState {
    /// All states.
    pub const ALL: [Self; 9] = [
        Self::Created,
        Self::Running,
        Self::Restarting,
        Self::Failing,
        Self::Canceling,
        Self::Finished,
        Self::Canceled,
        Self::Suspended,
        Self::Failed,
    ];

    /// The state after this event. The first reason to end decides: a failure while the job is being stopped, and a
    /// second wish to cancel it, change nothing.
    ///
    /// # Errors
    /// If the event is not possible in this state. No event is possible in a terminal state.
    pub fn next(self, event: JobEvent) -> Result<Self, IllegalTransition> {
        use JobEvent as E;
        match (self, event) {
            (Self::Created | Self::Restarting, E::Deployed) => Ok(Self::Running),
            (Self::Created | Self::Running | Self::Restarting, E::Restart) => Ok(Self::Restarting),
            (Self::Created | Self::Running | Self::Restarting, E::Fail) => Ok(Self::Failing),
            (Self::Created | Self::Running | Self::Restarting, E::Cancel) => Ok(Self::Canceling),
            (Self::Created | Self::Running | Self::Restarting, E::Suspended) => Ok(Self::Suspended),
            (Self::Created | Self::Running, E::Finished) => Ok(Self::Finished),
            (Self::Failing, E::Fail) => Ok(Self::Failing),
            (Self::Canceling, E::Fail | E::Cancel) => Ok(Self::Canceling),
            (Self::Failing, E::Stopped) => Ok(Self::Failed),
            (Self::Canceling, E::Stopped) => Ok(Self::Canceled),
            (state, event) => Err(IllegalTransition { state, event }),
        }
    }

    /// True if the state is never left.
    #[must_use]
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Finished | Self::Canceled | Self::Suspended | Self::Failed)
    }

    /// The state in Flink's spelling.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Created => "CREATED",
            Self::Running => "RUNNING",
            Self::Restarting => "RESTARTING",
            Self::Failing => "FAILING",
            Self::Canceling => "CANCELLING",
            Self::Finished => "FINISHED",
            Self::Canceled => "CANCELED",
            Self::Suspended => "SUSPENDED",
            Self::Failed => "FAILED",
        }
    }
}

impl fmt::Display for JobState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENTS: [JobEvent; 7] = [
        JobEvent::Deployed,
        JobEvent::Restart,
        JobEvent::Fail,
        JobEvent::Cancel,
        JobEvent::Stopped,
        JobEvent::Suspended,
        JobEvent::Finished,
    ];

    #[test]
    fn every_pair_of_state_and_event_has_the_result_of_this_table() {
        use JobState as S;
        let no = None;
        let stop = |deployed, restart, finished| {
            [deployed, restart, Some(S::Failing), Some(S::Canceling), None, Some(S::Suspended), finished]
        };
        let table = [
            (S::Created, stop(Some(S::Running), Some(S::Restarting), Some(S::Finished))),
            (S::Running, stop(no, Some(S::Restarting), Some(S::Finished))),
            (S::Restarting, stop(Some(S::Running), Some(S::Restarting), no)),
            (S::Failing, [no, no, Some(S::Failing), no, Some(S::Failed), no, no]),
            (S::Canceling, [no, no, Some(S::Canceling), Some(S::Canceling), Some(S::Canceled), no, no]),
            (S::Finished, [no; 7]),
            (S::Canceled, [no; 7]),
            (S::Suspended, [no; 7]),
            (S::Failed, [no; 7]),
        ];
        assert_eq!(table.map(|(state, _)| state), S::ALL);
        for (state, row) in table {
            for (event, expected) in EVENTS.into_iter().zip(row) {
                let expected = expected.ok_or(IllegalTransition { state, event });
                assert_eq!(state.next(event), expected, "{state} {event:?}");
            }
        }
    }

    /// A process that is stopped while a job waits for its restart must not make it look cancelled: whoever reads
    /// "cancelled" may delete the checkpoints.
    #[test]
    fn a_job_stopped_during_its_restart_delay_is_suspended_not_cancelled() {
        let restarting = JobState::Running.next(JobEvent::Restart).unwrap();
        assert_eq!(restarting.next(JobEvent::Suspended), Ok(JobState::Suspended));
    }

    #[test]
    fn terminal_states_are_never_left() {
        for state in JobState::ALL {
            let left = EVENTS.into_iter().any(|event| state.next(event).is_ok());
            assert_eq!(left, !state.is_terminal(), "{state}");
        }
    }

    #[test]
    fn an_illegal_transition_names_the_state_and_the_event() {
        let error = JobState::Finished.next(JobEvent::Cancel).unwrap_err();
        assert_eq!(error.to_string(), "Cancel is not possible in state FINISHED");
    }
}
