//! The shape of the command.

use std::fs;
use std::path::{Path, PathBuf};

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
    /// YAML file of configuration keys, flat or nested; -D and the other options win over it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
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
    /// Directory under which each job has one for its checkpoints [default: they live in memory]
    #[arg(long, value_name = "URI")]
    checkpoint_dir: Option<String>,
    /// Go on from this savepoint or retained checkpoint
    #[arg(short = 's', long, value_name = "PATH")]
    from_savepoint: Option<String>,
    /// Go on with the newest run of this job under the checkpoint directory; begin if there is none
    #[arg(long)]
    pub(super) resume: bool,
    /// Whose the snapshot of -s is from now on: no-claim leaves it to its owner [default: no-claim]
    #[arg(long, value_name = "MODE")]
    claim_mode: Option<String>,
    /// Start although output that was published after the snapshot will be repeated
    #[arg(long)]
    allow_repeated_output: bool,
    /// Identity of the job, 32 hexadecimal digits [default: a fresh one; that of the run with --resume]
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
    /// The settings for a job, and what is wrong with them: the file's, those of `-D`, then the options that are short for a key.
    /// What is taken with a reservation is said on standard error.
    pub(super) fn config(&self, job: &str, mistakes: &mut Vec<String>) -> JobConfig {
        let mut config = JobConfig { name: job.to_owned(), ..JobConfig::default() };
        if let Some(file) = &self.config {
            load(file, &mut config, mistakes);
        }
        let mut set = |key: &str, value: &str| {
            if let Err(error) = config.set(key, value) {
                mistakes.push(error.to_string());
            }
        };
        for setting in &self.settings {
            if let Some((key, value)) = setting.split_once('=') {
                set(key.trim(), value);
            }
        }
        let repeated_output = self.allow_repeated_output.then(|| "true".to_owned());
        let special = [
            ("parallelism.default", &self.parallelism),
            ("pipeline.max-parallelism", &self.max_parallelism),
            ("execution.checkpointing.interval", &self.checkpoint_interval),
            ("execution.checkpointing.mode", &self.checkpoint_mode),
            ("execution.checkpointing.dir", &self.checkpoint_dir),
            ("execution.state-recovery.path", &self.from_savepoint),
            ("execution.state-recovery.claim-mode", &self.claim_mode),
            ("execution.state-recovery.allow-repeated-output", &repeated_output),
            ("state.backend.type", &self.backend),
        ];
        for (key, value) in special {
            if let Some(value) = value {
                set(key, value);
            }
        }
        let others = self.settings.iter().filter(|setting| !setting.contains('='));
        mistakes.extend(others.map(|other| format!("-D {other}: KEY=VALUE is expected")));
        config.recovery.resumes = self.resume;
        self.check_start(&config, mistakes);
        // Without a directory to be in, relative paths lead nowhere: whoever uses one says so.
        if let Ok(directory) = std::env::current_dir() {
            config.resolve_paths(&directory);
        }
        for note in &config.notes {
            tell!("note: {note}");
        }
        config
    }

    fn check_start(&self, config: &JobConfig, mistakes: &mut Vec<String>) {
        if !self.resume {
            return;
        }
        if config.recovery.path.is_some() {
            mistakes.push(
                "--resume goes on with the newest run under the checkpoint directory, -s/--from-savepoint \
                 (execution.state-recovery.path) with the snapshot that it names: give one of them"
                    .to_owned(),
            );
        }
        if config.checkpoints.dir.is_none() {
            mistakes.push(
                "--resume needs the directory of the earlier run: give --checkpoint-dir (execution.checkpointing.dir)"
                    .to_owned(),
            );
        }
    }
}

/// Sets the keys of a file.
fn load(file: &Path, config: &mut JobConfig, mistakes: &mut Vec<String>) {
    let name = file.display();
    match fs::read_to_string(file) {
        Ok(text) => {
            let faults = config.load_yaml(&text).err().unwrap_or_default();
            mistakes.extend(faults.iter().map(|fault| format!("--config {name}: {fault}")));
        }
        Err(error) => mistakes.push(format!("--config {name}: it cannot be read: {error}")),
    }
}

/// Options of the commands that look at snapshots.
#[derive(Debug, Args)]
pub(super) struct SnapshotOptions {
    /// Directory of a checkpoint, the _metadata in it, or the directory of a run for all of its checkpoints
    pub(super) path: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
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
        .subcommand(
            SnapshotOptions::augment_args(Command::new("inspect")).about("Shows what a snapshot consists of"),
        )
        .subcommand(
            SnapshotOptions::augment_args(Command::new("verify"))
                .about("Reads all of a snapshot and tells everything that is damaged"),
        )
}
