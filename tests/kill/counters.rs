//! A job whose lines show whether state, position and output were kept together: 0 to n, each once.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use stoplog::base::error::Error;
use stoplog::base::id::{CheckpointId, JobId};
use stoplog::job::{JobHandle, JobOrigin, RunIdentity};
use stoplog::prelude::*;
use stoplog::savepoint::verify;
use stoplog::snapshot::{JobRecord, LocalStore, RunState, Store};

use crate::output::{Visible, files_below};

const KEYS: u64 = 10;

/// How a life of the job is led.
#[derive(Debug, Clone)]
pub(crate) struct Life {
    pub(crate) records: u64,
    /// Records per second; 0 for as many as possible.
    pub(crate) rate: f64,
    pub(crate) parallelism: u32,
    pub(crate) interval: Duration,
    pub(crate) num_retained: u32,
    pub(crate) inline_threshold: usize,
    pub(crate) restart: RestartConfig,
}

impl Default for Life {
    fn default() -> Self {
        Self {
            records: 60_000,
            rate: 0.0,
            parallelism: 2,
            interval: Duration::from_millis(2),
            num_retained: 1,
            inline_threshold: 20 << 10,
            restart: RestartConfig::FixedDelay { attempts: u32::MAX, delay: Duration::from_millis(1) },
        }
    }
}

/// Where a job has its files.
#[derive(Debug)]
pub(crate) struct Place {
    directory: tempfile::TempDir,
}

impl Place {
    /// On the disk.
    pub(crate) fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    /// In memory if the machine has such a file system: a process that is killed leaves the same in both, and making something
    /// durable takes no time there.
    pub(crate) fn in_memory() -> Self {
        let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        Self { directory }
    }

    pub(crate) fn root(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn checkpoints(&self) -> PathBuf {
        checkpoints(self.root())
    }

    pub(crate) fn output(&self) -> PathBuf {
        output(self.root())
    }

    /// What the record of the only run says; `None` if there is none.
    pub(crate) fn record(&self) -> Option<JobRecord> {
        let runs = self.runs();
        assert!(runs.len() <= 1, "one run is resumed, and no other is begun: {runs:?}");
        JobRecord::read(&LocalStore, runs.first()?).unwrap()
    }

    fn runs(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.checkpoints()).into_iter().flatten();
        let paths = entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_dir());
        // A life that ended before it had recorded the run leaves a directory without anything visible.
        paths
            .filter(|run| fs::read_dir(run).unwrap().any(|entry| !is_hidden(&entry.unwrap().path())))
            .collect()
    }

    /// The visible checkpoints of the only run, oldest first.
    pub(crate) fn completed(&self) -> BTreeMap<CheckpointId, PathBuf> {
        let mut completed = BTreeMap::new();
        for run in self.runs() {
            for entry in fs::read_dir(run).unwrap() {
                let path = entry.unwrap().path();
                let id = path.file_name().unwrap().to_str().unwrap().strip_prefix("chk-").map(str::parse);
                completed.extend(id.map(|id| (CheckpointId(id.unwrap()), path)));
            }
        }
        completed
    }

    /// All numbers are there, once, and nothing is left of the run but the record that it is finished.
    pub(crate) fn assert_finished(&self, records: u64) {
        let mut numbers = numbers(&Visible::default().all_lines(&self.output()));
        numbers.sort_unstable();
        let count = numbers.len();
        assert!(numbers.iter().copied().eq(0..records), "{count} lines instead of {records}, each once");
        assert_eq!(self.record().map(|record| record.state), Some(RunState::Finished));
        // Of a run that was killed before it had its record nobody knows; nothing visible is in its directory.
        let is_trace = |name: &str| name.ends_with("/.lock") || name.ends_with("/._job");
        let run = self.runs().pop().unwrap();
        let (own, others): (Vec<_>, Vec<_>) = files_below(&self.checkpoints())
            .into_iter()
            .partition(|name| self.checkpoints().join(name).starts_with(&run));
        assert!(
            matches!(own.as_slice(), [record] if record.ends_with("/_job")),
            "{own:?} is left of the run"
        );
        assert!(others.iter().all(|name| is_trace(name)), "{others:?} is left under the checkpoints");
        let output = files_below(&self.output());
        let hidden: Vec<_> = output.into_iter().filter(|name| name.starts_with('.')).collect();
        assert!(hidden.is_empty(), "{hidden:?} is left in the output");
    }
}

fn is_hidden(path: &Path) -> bool {
    path.file_name().unwrap().to_str().unwrap().starts_with('.')
}

fn numbers(lines: &[String]) -> Vec<u64> {
    lines.iter().map(|line| line.parse().unwrap()).collect()
}

pub(crate) fn checkpoints(root: &Path) -> PathBuf {
    root.join("checkpoints")
}

pub(crate) fn output(root: &Path) -> PathBuf {
    root.join("out")
}

/// Resumes the job below `root`, or begins it. Checkpoints and output go through the store.
pub(crate) fn resume(root: &Path, life: &Life, store: &Arc<dyn Store>) -> Result<JobHandle, Error> {
    let checkpointing = CheckpointConfig::every(life.interval)
        .with_dir(checkpoints(root))
        .with_num_retained(life.num_retained)
        .with_inline_threshold(life.inline_threshold);
    let config = JobConfig::named("counters")
        .with_parallelism(life.parallelism)
        .with_max_parallelism(16)
        .with_ring_capacity(16)
        .with_restart(life.restart)
        .with_checkpoints(checkpointing);
    let env = StreamEnvironment::new(config);
    let format = |n: &u64, line: &mut Vec<u8>| line.extend_from_slice(n.to_string().as_bytes());
    let sink = LineSink::directory(output(root), format).with_store(Arc::clone(store));
    env.source("numbers", GeneratorSource::new(life.records, |n| n).rate(life.rate))
        .uid("numbers")
        .key_by_parts(|n| (n % KEYS, ()))
        .process_with(ValueStateDescriptor::<u64>::new("count"), |(), mut count, cx| {
            let before = count.modify(|| 0, |count| std::mem::replace(count, *count + 1));
            Some(cx.key() + KEYS * before)
        })
        .uid("counter")
        .sink("lines", sink)
        .uid("lines");
    let graph = env.plan().unwrap();
    let now_ms = 1_700_000_000_000;
    let origin = JobOrigin::from_settings(&graph.config, RunIdentity::Resumed(None), store, now_ms)?;
    graph.start_from(origin)
}

/// What is seen from outside, from one life to the next.
#[derive(Debug, Default)]
pub(crate) struct Witness {
    visible: Visible,
    /// The newest checkpoint seen.
    pub(crate) newest: CheckpointId,
    job: Option<JobId>,
    state: Option<RunState>,
}

impl Witness {
    /// Looks at what a life has left: nothing that was seen is changed, every checkpoint is whole, ids grow, and no output is seen
    /// before its checkpoint.
    pub(crate) fn look_at(&mut self, place: &Place) {
        self.visible.look_at(&place.output());
        let mut numbers = numbers(&self.visible.all_lines(&place.output()));
        let count = numbers.len();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), count, "lines are repeated");

        let record = place.record();
        if let Some(job) = self.job {
            assert_eq!(record.as_ref().map(|record| record.job), Some(job), "it is the same run");
        }
        let state = record.as_ref().map(|record| record.state);
        self.job = record.map(|record| record.job);
        assert!(
            self.state != Some(RunState::Finished) || state == Some(RunState::Finished),
            "what is finished stays so"
        );
        self.state = state;

        let completed = place.completed();
        for path in completed.values() {
            let verification = verify(Arc::new(LocalStore), path).unwrap();
            assert!(verification.whole, "{verification:?}");
        }
        if state == Some(RunState::Finished) {
            return;
        }
        let newest = completed.keys().last().copied().unwrap_or_default();
        assert!(newest >= self.newest, "{newest} after {}", self.newest);
        self.newest = newest;
        for name in files_below(&place.output()).iter().filter(|name| !name.starts_with('.')) {
            let id: u64 = name.rsplit_once('-').unwrap().1.parse().unwrap();
            assert!(
                CheckpointId(id) <= newest,
                "{name} is seen before its checkpoint; the newest is {newest}"
            );
        }
    }

    /// Lines seen so far.
    pub(crate) fn lines(&self) -> usize {
        self.visible.lines
    }
}
