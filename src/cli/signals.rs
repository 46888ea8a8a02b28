//! SIGINT and SIGTERM: the first one suspends the job, the second one ends the process.

use std::io;
use std::sync::mpsc::{Sender, channel};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::job::JobStopper;

/// Watches for signals as long as the process lives.
#[derive(Debug)]
pub(super) struct Watch {
    stopper: Sender<JobStopper>,
}

impl Watch {
    /// Takes the signals over from the system; the first one waits for [`Watch::suspend`].
    pub(super) fn start() -> io::Result<Self> {
        let mut signals = Signals::new([SIGINT, SIGTERM])?;
        let (stopper, job) = channel::<JobStopper>();
        std::thread::Builder::new().name("stoplog-signals".to_owned()).spawn(move || {
            let mut arrivals = signals.forever();
            if arrivals.next().is_some()
                && let Ok(job) = job.recv()
            {
                job.suspend();
                tell!("suspending the job; a second signal ends the process at once");
            }
            if let Some(signal) = arrivals.next() {
                signal_hook::low_level::exit(128 + signal);
            }
        })?;
        Ok(Self { stopper })
    }

    /// Sets which job the first signal suspends.
    pub(super) fn suspend(&self, job: JobStopper) {
        // The thread is there until the second signal, and then nobody is.
        let _ = self.stopper.send(job);
    }
}
