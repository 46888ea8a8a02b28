//! `stoplog run JOB`.

use std::io::Write as _;
use std::process::ExitCode;

use clap::{ArgMatches, FromArgMatches as _};
use indicatif::MultiProgress;
use tracing_subscriber::EnvFilter;

use super::args::EngineOptions;
use super::progress::{self, LogWriter};
use super::result::{RunResult, summary};
use super::{FAILED, MISTAKE, mistakes, signals};
use crate::api::{JobGraph, StreamEnvironment};
use crate::base::error::{Error, Recovery};
use crate::job::{JobResult, JobState, RunIdentity};
use crate::jobs::{AlertCount, JobRegistry, JobSetup};

/// Runs the job of this name and answers with the exit status.
pub(super) fn run(registry: &JobRegistry, name: &str, matches: &ArgMatches) -> ExitCode {
    let options = match EngineOptions::from_arg_matches(matches) {
        Ok(options) => options,
        Err(error) => return mistakes(&[error.to_string()]),
    };
    let terminal = MultiProgress::new();
    start_log(options.verbose, &terminal);
    let (graph, alerts) = match plan(registry, name, matches, &options) {
        Ok(planned) => planned,
        Err(found) => return mistakes(&found),
    };
    if options.explain {
        let _ = std::io::stdout().lock().write_all(graph.explain().as_bytes());
        return ExitCode::SUCCESS;
    }
    if graph.config.checkpoints.interval.is_some() && graph.config.checkpoints.dir.is_none() {
        tell!(
            "note: checkpoints live in memory; they serve restarts of the job within this process only; \
             --checkpoint-dir keeps them"
        );
    }
    execute(graph, &options, alerts, &terminal)
}

/// Declares and plans the job, or answers everything that is wrong.
fn plan(
    registry: &JobRegistry,
    name: &str,
    matches: &ArgMatches,
    options: &EngineOptions,
) -> Result<(JobGraph, Option<AlertCount>), Vec<String>> {
    let mut found = Vec::new();
    let config = options.config(name, &mut found);
    let Some(job) = registry.find(name) else {
        return Err(vec![format!("there is no job {name:?}; `stoplog jobs` lists them")]);
    };
    let mut setup = JobSetup::new(StreamEnvironment::new(config.clone()));
    if let Err(error) = job.declare(matches, &mut setup) {
        return Err(vec![error.to_string()]);
    }
    found.extend_from_slice(setup.mistakes());
    let is_declared = setup.mistakes().is_empty();
    let (env, alerts) = setup.into_parts();
    match env.plan() {
        Ok(graph) if found.is_empty() => return Ok((graph, alerts)),
        Ok(_) => {}
        Err(error) if is_declared => found.extend(error.mistakes),
        // What is missing in the graph follows from the mistakes in the options.
        Err(_) => found.extend(config.faults()),
    }
    Err(found)
}

fn execute(
    graph: JobGraph,
    options: &EngineOptions,
    alerts: Option<AlertCount>,
    terminal: &MultiProgress,
) -> ExitCode {
    let parallelism = graph.config.parallelism;
    let identity = if options.resume {
        RunIdentity::Resumed(options.job_id)
    } else {
        RunIdentity::Fresh(options.job_id)
    };
    // Before the job starts: a signal must not find the process unprepared.
    let signals = match signals::Watch::start() {
        Ok(signals) => signals,
        Err(error) => {
            tell!("error: cannot watch for signals: {error}");
            return ExitCode::from(FAILED);
        }
    };
    let handle = match graph.start_as(identity) {
        Ok(handle) => handle,
        Err(error) => {
            tell!("error: {error}");
            return ExitCode::from(status_of(&error));
        }
    };
    signals.suspend(handle.stopper());
    if !options.quiet {
        progress::show(&handle, terminal);
    }
    let result = handle.wait();
    let alerts = alerts.map_or(0, |count| count(result.state == JobState::Finished));
    report(&result, parallelism, alerts, options.json)
}

fn report(result: &JobResult, parallelism: u32, alerts: u64, json: bool) -> ExitCode {
    let failed = result.state == JobState::Failed;
    if let Some(error) = result.error.as_ref().filter(|_| failed) {
        tell!("error: {error}");
    }
    if json {
        let line = RunResult::new(result, parallelism, alerts).to_json();
        if let Err(error) = writeln!(std::io::stdout().lock(), "{line}") {
            tell!("error: cannot write the result to standard output: {error}");
            return ExitCode::from(FAILED);
        }
    } else {
        tell!("{}", summary(result, alerts));
    }
    ExitCode::from(result.error.as_ref().filter(|_| failed).map_or(u8::from(failed), status_of))
}

/// A job that was refused before it began was asked for by mistake.
fn status_of(error: &Error) -> u8 {
    if error.recovery() == Recovery::RejectJob { MISTAKE } else { FAILED }
}

/// Logs to standard error, around the progress line. `RUST_LOG` decides what, unless `-v` does.
fn start_log(verbose: u8, terminal: &MultiProgress) {
    let filter = match verbose {
        0 => EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn")),
        1 => EnvFilter::new("info"),
        2 => EnvFilter::new("debug"),
        _ => EnvFilter::new("trace"),
    };
    let terminal = terminal.clone();
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(false)
        // Its own complaints would go the same way, and end the process if they cannot.
        .log_internal_errors(false)
        .with_writer(move || LogWriter(terminal.clone()));
    // An embedder may have its own log already.
    let _ = log.try_init();
}
