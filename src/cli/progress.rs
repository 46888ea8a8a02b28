//! The live line of a running job.

use std::io::{self, IsTerminal as _, Write};
use std::time::Duration;

use indicatif::{HumanBytes, HumanCount, MultiProgress, ProgressBar, ProgressStyle};

use crate::base::clock::{Clock as _, Nanos, SystemClock};
use crate::job::{JobHandle, JobProgress};

/// How long the line waits before it looks again whether the job is over.
const LOOK: Duration = Duration::from_millis(20);
const UPDATE: Duration = Duration::from_millis(250);

/// Writes log lines above the live line.
#[derive(Debug)]
pub(super) struct LogWriter(pub(super) MultiProgress);

impl Write for LogWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.suspend(|| io::stderr().write_all(bytes)).map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// Shows how the job is doing until it is over, if standard error is a terminal; returns at once if not.
pub(super) fn show(handle: &JobHandle, terminal: &MultiProgress) {
    if !io::stderr().is_terminal() {
        return;
    }
    let bar = terminal.add(ProgressBar::new_spinner());
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}") {
        bar.set_style(style);
    }
    let clock = SystemClock::new();
    let (mut shown_at, mut shown) = (Nanos(0), 0);
    while !handle.is_over() {
        std::thread::park_timeout(LOOK);
        let now = clock.now();
        let elapsed = now.since(shown_at);
        if elapsed >= UPDATE {
            let progress = handle.progress();
            let rate = progress.records_in.saturating_sub(shown) as f64 / elapsed.as_secs_f64();
            (shown_at, shown) = (now, progress.records_in);
            bar.set_message(line(&progress, rate));
            bar.tick();
        }
    }
    bar.finish_and_clear();
}

fn line(progress: &JobProgress, rate: f64) -> String {
    let mut line = format!(
        "{}  {} records  {}/s",
        progress.state,
        HumanCount(progress.records_in),
        HumanCount(rate as u64)
    );
    if let Some(checkpoint) = progress.in_flight {
        line += &format!("  checkpoint {checkpoint} under way");
    }
    if let Some(last) = &progress.last_checkpoint {
        line += &format!(
            "  last checkpoint {} {:.1?} {}  worst stall {:.1?}",
            last.id,
            last.duration,
            HumanBytes(last.bytes),
            progress.worst_alignment
        );
    }
    if progress.restarts > 0 {
        line += &format!("  {} restarts", progress.restarts);
    }
    line
}
