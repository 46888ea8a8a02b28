//! Named jobs with options of their own.

use std::fmt;
use std::path::Path;

use clap::{ArgMatches, Args, Command};

use crate::api::StreamEnvironment;
use crate::connectors::LineSink;

type Declare = Box<dyn Fn(&ArgMatches, &mut JobSetup) -> Result<(), clap::Error>>;

/// Answers how many alerts a job has raised; told whether the job is finished.
pub type AlertCount = Box<dyn Fn(bool) -> u64>;

/// A table of named jobs.
///
/// ```
/// use stoplog::jobs::{JobRegistry, JobSetup};
/// use stoplog::prelude::*;
///
/// #[derive(clap::Args)]
/// struct Options {
///     /// How many squares.
///     #[arg(long, default_value_t = 10)]
///     count: u64,
/// }
///
/// fn squares(options: Options, job: &mut JobSetup) {
///     job.env().source("numbers", GeneratorSource::new(options.count, |n| n * n)).sink("nowhere", DiscardSink);
/// }
///
/// let registry = JobRegistry::new().add("squares", "Makes squares", squares);
/// assert_eq!(registry.jobs()[0].name(), "squares");
/// ```
#[derive(Debug, Default)]
pub struct JobRegistry {
    jobs: Vec<JobEntry>,
}

/// One named job.
pub struct JobEntry {
    name: &'static str,
    description: &'static str,
    augment: fn(Command) -> Command,
    declare: Declare,
}

impl fmt::Debug for JobEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobEntry").field("name", &self.name).finish_non_exhaustive()
    }
}

impl JobRegistry {
    /// A table without jobs.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a job: its name, one line about it, and the function that declares its streams from its options. Options must not have
    /// the names of the command's own.
    #[must_use]
    pub fn add<O: Args + 'static>(
        mut self,
        name: &'static str,
        description: &'static str,
        declare: impl Fn(O, &mut JobSetup) + 'static,
    ) -> Self {
        self.jobs.push(JobEntry {
            name,
            description,
            augment: O::augment_args,
            declare: Box::new(move |matches, setup| {
                declare(O::from_arg_matches(matches)?, setup);
                Ok(())
            }),
        });
        self
    }

    /// The jobs, in the order in which they were added.
    #[must_use]
    pub fn jobs(&self) -> &[JobEntry] {
        &self.jobs
    }

    /// The job of this name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&JobEntry> {
        self.jobs.iter().find(|job| job.name == name)
    }
}

impl JobEntry {
    /// The name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// One line about the job.
    #[must_use]
    pub fn description(&self) -> &'static str {
        self.description
    }

    /// Adds the job's options to a command.
    #[must_use]
    pub fn augment(&self, command: Command) -> Command {
        (self.augment)(command)
    }

    /// Declares the job's streams.
    ///
    /// # Errors
    /// If the options are not those of the job.
    pub fn declare(&self, options: &ArgMatches, setup: &mut JobSetup) -> Result<(), clap::Error> {
        (self.declare)(options, setup)
    }
}

/// What a job is given to declare itself in.
pub struct JobSetup {
    env: StreamEnvironment,
    mistakes: Vec<String>,
    alerts: Option<AlertCount>,
}

impl fmt::Debug for JobSetup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobSetup").field("mistakes", &self.mistakes).finish_non_exhaustive()
    }
}

impl JobSetup {
    /// A setup in this environment.
    #[must_use]
    pub fn new(env: StreamEnvironment) -> Self {
        Self { env, mistakes: Vec::new(), alerts: None }
    }

    /// Where the streams are declared.
    #[must_use]
    pub fn env(&self) -> &StreamEnvironment {
        &self.env
    }

    /// Notes a mistake in the options: the job will not be started. Several may be noted; all are shown.
    pub fn mistake(&mut self, mistake: impl fmt::Display) {
        self.mistakes.push(mistake.to_string());
    }

    /// The mistakes noted so far.
    #[must_use]
    pub fn mistakes(&self) -> &[String] {
        &self.mistakes
    }

    /// Sets what counts the job's alerts.
    pub fn count_alerts(&mut self, count: impl Fn(bool) -> u64 + 'static) {
        self.alerts = Some(Box::new(count));
    }

    /// The environment, and what counts the alerts.
    #[must_use]
    pub fn into_parts(self) -> (StreamEnvironment, Option<AlertCount>) {
        (self.env, self.alerts)
    }

    /// A sink of lines in the directory, or where `otherwise` says. Whether the directory can be used is seen when the job starts,
    /// for that depends on what the job goes on from; a mere slip is found here.
    pub(super) fn lines<T, F>(
        &mut self,
        directory: Option<&Path>,
        format: F,
        otherwise: fn(F) -> LineSink<T, F>,
    ) -> LineSink<T, F>
    where
        T: 'static,
        F: Fn(&T, &mut Vec<u8>) + Clone + Send + 'static,
    {
        match directory {
            Some(directory) => {
                if directory.exists() && !directory.is_dir() {
                    let path = directory.display();
                    self.mistake(format_args!(
                        "the output directory {path} is not a directory; name another one"
                    ));
                }
                LineSink::directory(directory, format)
            }
            None => otherwise(format),
        }
    }

    /// Checks a rate in records per second.
    pub(super) fn check_rate(&mut self, rate: f64) {
        if !(rate >= 0.0 && rate.is_finite()) {
            self.mistake(format_args!("--rate is {rate}; it must be 0 or a number of records per second"));
        }
    }
}
