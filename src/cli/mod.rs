//! The command line: runs named jobs and tells what became of them.
//!
//! The command `stoplog` is this with the built-in jobs. A binary of one's own gets the same command for jobs of one's own:
//!
//! ```no_run
//! use stoplog::jobs::{JobRegistry, JobSetup};
//! use stoplog::prelude::*;
//!
//! #[derive(clap::Args)]
//! struct Options {
//!     /// How many squares.
//!     #[arg(long, default_value_t = 10)]
//!     count: u64,
//! }
//!
//! fn squares(options: Options, job: &mut JobSetup) {
//!     job.env()
//!         .source("numbers", GeneratorSource::new(options.count, |n| n * n))
//!         .uid("numbers")
//!         .sink("lines", LineSink::stdout(|n: &u64, line: &mut Vec<u8>| line.extend(n.to_string().bytes())));
//! }
//!
//! fn main() -> std::process::ExitCode {
//!     stoplog::cli::run(&JobRegistry::new().add("squares", "Makes squares", squares))
//! }
//! ```

/// Writes a line to standard error. Nobody may be there to read it: that is no reason to end otherwise than one would.
macro_rules! tell {
    ($($argument:tt)*) => {{
        let _ = std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("{}\n", format_args!($($argument)*)));
    }};
}

mod args;
mod inspect;
mod progress;
mod result;
mod run;
mod signals;
mod verify;

use std::io::Write as _;
use std::process::ExitCode;

use crate::jobs::JobRegistry;

/// Exit status of a job that failed.
const FAILED: u8 = 1;
/// Exit status after a mistake in the command, the configuration or the job.
const MISTAKE: u8 = 2;

/// Does what the process' arguments say, with the jobs of this table. The answer is the status to exit with: 0 if all went well, 1
/// if the job failed, 2 if the command was wrong and nothing was started.
pub fn run(registry: &JobRegistry) -> ExitCode {
    let mut command = args::command(registry);
    let matches = match command.try_get_matches_from_mut(std::env::args_os()) {
        Ok(matches) => matches,
        Err(error) => {
            // Nobody may be there to read it.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { MISTAKE } else { 0 });
        }
    };
    match matches.subcommand() {
        Some(("run", run)) => match run.subcommand() {
            Some((name, options)) => run::run(registry, name, options),
            None => unreachable!("a job is required"),
        },
        Some(("jobs", _)) => {
            list(registry);
            ExitCode::SUCCESS
        }
        Some(("inspect", options)) => inspect::run(options),
        Some(("verify", options)) => verify::run(options),
        _ => unreachable!("a subcommand is required"),
    }
}

fn list(registry: &JobRegistry) {
    let width = registry.jobs().iter().map(|job| job.name().len()).max().unwrap_or(0);
    let mut stdout = std::io::stdout().lock();
    for job in registry.jobs() {
        // A reader that has seen enough is no mistake.
        let _ = writeln!(stdout, "{:width$}  {}", job.name(), job.description());
    }
}

/// Tells what is wrong with the command, all of it.
fn mistakes(mistakes: &[String]) -> ExitCode {
    for mistake in mistakes {
        tell!("error: {mistake}");
    }
    ExitCode::from(MISTAKE)
}
