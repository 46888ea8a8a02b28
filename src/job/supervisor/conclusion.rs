//! The end of a job: stop, publish what is promised, record the end, remove what nobody needs.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::{Supervisor, SupervisorEvent, snapshot_error};
use crate::base::clock::Nanos;
use crate::base::error::{Error, ErrorKind, Recovery};
use crate::checkpoint::Event;
use crate::config::CheckpointRetention;
use crate::job::executor::Executor;
use crate::job::lifecycle::JobEvent;
use crate::job::sinks::JobSinks;
use crate::snapshot::{Conclusion, SnapshotError};

/// How a job ends. While it is set nothing begins any more; the job is over once that is recorded.
#[derive(Debug)]
pub(super) struct Ending {
    /// `Finished`, `Suspended`, `Cancel` or `Fail`.
    event: JobEvent,
    is_concluding: bool,
}

/// What becomes of the checkpoints of a job that ends like this.
fn conclusion(event: JobEvent, is_rejected: bool, retention: Option<CheckpointRetention>) -> Conclusion {
    use CheckpointRetention as R;
    let keeps_checkpoints = match (event, retention) {
        (_, Some(R::RetainOnCancellation)) => true,
        (_, Some(R::NoExternalizedCheckpoints)) => false,
        (JobEvent::Fail, _) | (JobEvent::Suspended, None) => true,
        _ => false,
    };
    match event {
        JobEvent::Finished => Conclusion::Finished { keeps_checkpoints },
        _ if is_rejected => Conclusion::Rejected,
        _ => Conclusion::Ended { keeps_checkpoints },
    }
}

impl<E: Executor> Supervisor<E> {
    /// Stops the execution; the rest follows once no outcome is awaited any more.
    pub(super) fn end(&mut self, event: JobEvent, now: Nanos) {
        self.restart_at = None;
        self.executor.stop(event != JobEvent::Fail);
        self.ended_at = Some(now);
        if matches!(event, JobEvent::Cancel | JobEvent::Fail) {
            self.transition(event);
        }
        self.ending = Some(Ending { event, is_concluding: false });
        self.coordinate(Event::Shutdown, now);
    }

    pub(super) fn conclude_if_ready(&mut self) {
        if self.awaits_outcome() || self.discarding > 0 {
            return;
        }
        let Some(ending) = self.ending.as_mut().filter(|ending| !ending.is_concluding) else { return };
        ending.is_concluding = true;
        let is_finished = ending.event == JobEvent::Finished;
        let is_rejected = self.started_at.is_none()
            && self.error.as_ref().is_some_and(|error| error.recovery() == Recovery::RejectJob);
        let conclusion = conclusion(ending.event, is_rejected, self.config.checkpoints.retention);
        // What a finished job has promised is published, as every subtask has said. Of one that was refused nothing is touched.
        let promised = match conclusion {
            Conclusion::Finished { .. } => Ok(self.sinks.transactions(None)),
            Conclusion::Ended { .. } => {
                self.origin.newest().map(|newest| self.sinks.transactions(newest.as_ref()))
            }
            Conclusion::Rejected => Ok(self.sinks.transactions(None)),
        };
        let (job, sinks, events) = (self.job_id(), self.sinks.clone(), self.events.clone());
        let storage = Arc::clone(&self.origin.storage);
        self.executor.pool().spawn_ahead(Box::new(move || {
            let settle = |sinks: &JobSinks| {
                let settled = match &promised {
                    Ok(transactions) => sinks.settle(transactions).map_err(|error| error.to_string()),
                    Err(error) => Err(error.to_string()),
                };
                if let Err(error) = &settled {
                    tracing::warn!(target: "stoplog::job", %job, "output is not settled, the next run will try again: {error}");
                }
                settled.is_ok()
            };
            let conclusion = match conclusion {
                // What was promised and could not be published still hangs on the checkpoint that promises it.
                Conclusion::Ended { .. } if !settle(&sinks) => Conclusion::Ended { keeps_checkpoints: true },
                conclusion => conclusion,
            };
            let concluded = match catch_unwind(AssertUnwindSafe(|| storage.conclude(conclusion))) {
                Ok(Ok(())) => Ok(()),
                Ok(Err(error @ SnapshotError::EndNotRecorded { .. })) => Err(snapshot_error(error)),
                Ok(Err(error)) => {
                    tracing::warn!(target: "stoplog::job", %job, "something is left behind: {error}");
                    Ok(())
                }
                Err(_) => {
                    Err(Error::new(ErrorKind::Snapshot, Recovery::GiveUp, "the storage panicked at the end of the job"))
                }
            };
            if is_finished && concluded.is_ok() {
                settle(&sinks);
            }
            sinks.release();
            let _ = events.send(SupervisorEvent::Concluded(concluded));
        }));
    }

    pub(super) fn concluded(&mut self, result: Result<(), Error>) {
        let Some(Ending { event, .. }) = self.ending else { return };
        match (event, result) {
            (JobEvent::Finished, Err(error)) => {
                // Whoever resumes the job must find that it is finished, or it is not.
                let message = format!("everything is done, but {error}");
                self.error = Some(Error::new(ErrorKind::Snapshot, Recovery::GiveUp, message));
                self.transition(JobEvent::Fail);
                self.transition(JobEvent::Stopped);
                return;
            }
            (_, Err(error)) => {
                tracing::warn!(target: "stoplog::job", job = %self.job_id(), "{error}");
            }
            (_, Ok(())) => {}
        }
        match event {
            JobEvent::Cancel | JobEvent::Fail => self.transition(JobEvent::Stopped),
            event => self.transition(event),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checkpoints_are_kept_as_the_retention_says() {
        use CheckpointRetention as R;
        let ends = [JobEvent::Finished, JobEvent::Cancel, JobEvent::Suspended, JobEvent::Fail];
        let table = [
            (None, [false, false, true, true]),
            (Some(R::RetainOnCancellation), [true, true, true, true]),
            (Some(R::DeleteOnCancellation), [false, false, false, true]),
            (Some(R::NoExternalizedCheckpoints), [false, false, false, false]),
        ];
        for (retention, expected) in table {
            let kept = ends.map(|end| match conclusion(end, false, retention) {
                Conclusion::Ended { keeps_checkpoints } => keeps_checkpoints,
                Conclusion::Finished { keeps_checkpoints } => {
                    assert_eq!(end, JobEvent::Finished);
                    keeps_checkpoints
                }
                Conclusion::Rejected => panic!("it ran"),
            });
            assert_eq!(kept, expected, "{retention:?}");
            assert_eq!(conclusion(JobEvent::Fail, true, retention), Conclusion::Rejected);
        }
    }
}
