//! The shape of the command.

use clap::{ArgAction, Args, Command};

use crate::base::id::JobId;
use crate::config::JobConfig;
use crate::jobs::JobRegistry;

/// Options of the engine, the same for every job.
#[derive(Debug, Args)]
#[command(next_help_heading = "Engine options")]
pub(super) struct EngineOptions {
    /// Subtasks of each operator [default: the number of cores]
    #[arg(short, long, value_name = "N")]
    parallelism: Option<String>,
    /// Key groups, 1 to 32768 [default: 128]
    #[arg(long, value_name = "N")]
    max_parallelism: Option<String>,
    /// Sets a configuration key; may be given more than once
    #[arg(short = 'D', value_name = "KEY=VALUE")]
    settings: Vec<String>,
    /// Time from one checkpoint to the next, such as 250ms, 10s or 5min [default: no checkpoints]
    #[arg(long, value_name = "DURATION")]
    checkpoint_interval: Option<String>,
    /// exactly-once
    #[arg(long, value_name = "MODE")]
    checkpoint_mode: Option<String>,
    /// Where keyed state lives: heap
    #[arg(long, value_name = "BACKEND")]
    backend: Option<String>,
    /// Identity of the job, 32 hexadecimal digits [default: a fresh one]
    #[arg(long, value_name = "HEX32")]
    pub(super) job_id: Option<JobId>,
    /// Print the plan and start nothing
    #[arg(long)]
    pub(super) explain: bool,
    /// Print the result as one JSON object, the last line of standard output
    #[arg(long)]
    pub(super) json: bool,
    /// No progress line
    #[arg(short, long)]
    pub(super) quiet: bool,
    /// More log; twice for still more
    #[arg(short, long, action = ArgAction::Count)]
    pub(super) verbose: u8,
}

impl EngineOptions {
    /// The settings for a job, and what is wrong with them. An option of its own wins over `-D`.
    pub(super) fn config(&self, job: &str, mistakes: &mut Vec<String>) -> JobConfig {
        let mut config = JobConfig { name: job.to_owned(), ..JobConfig::default() };
        let mut set = |key: &str, value: &str| {
            if let Err(error) = config.set(key, value) {
                mistakes.push(error.to_string());
            }
        };
        let special = [
            ("parallelism.default", &self.parallelism),
            ("pipeline.max-parallelism", &self.max_parallelism),
            ("execution.checkpointing.interval", &self.checkpoint_interval),
            ("execution.checkpointing.mode", &self.checkpoint_mode),
            ("state.backend.type", &self.backend),
        ];
        let (pairs, others): (Vec<_>, Vec<_>) =
            self.settings.iter().partition(|setting| setting.contains('='));
        for (key, value) in pairs.into_iter().filter_map(|pair| pair.split_once('=')) {
            set(key.trim(), value);
        }
        for (key, value) in special {
            if let Some(value) = value {
                set(key, value);
            }
        }
        mistakes.extend(others.into_iter().map(|other| format!("-D {other}: KEY=VALUE is expected")));
        config
    }
}

/// The whole command.
pub(super) fn command(registry: &JobRegistry) -> Command {
    let jobs = registry.jobs().iter().map(|job| {
        let command = job.augment(Command::new(job.name()).next_help_heading("Job options"));
        // The texts of the option types would take the place of the job's own.
        EngineOptions::augment_args(command).about(job.description()).long_about(None)
    });
    let run = Command::new("run")
        .about("Runs a job to its end")
        .subcommand_required(true)
        .subcommand_value_name("JOB")
        .subcommand_help_heading("Jobs")
        .disable_help_subcommand(true)
        .subcommands(jobs);
    Command::new("stoplog")
        .about("A stream-processing engine in one process")
        .version(env!("CARGO_PKG_VERSION"))
        .subcommand_required(true)
        .disable_help_subcommand(true)
        .subcommand(run)
        .subcommand(Command::new("jobs").about("Lists the jobs that can be run"))
}
