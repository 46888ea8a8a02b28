//! A real job with checkpoints and files of output on the disk that dies.
//!
//! It counts the keys of its input and publishes `key,count`. Everything about it is drawn from one seed; what each process of it has for
//! itself (parallelism, scheduling, time of day) from the seed and the number of the process.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use stoplog::api::JobGraph;
use stoplog::base::id::JobId;
use stoplog::base::rng::{Rng, splitmix64};
use stoplog::config::{CheckpointRetention, SnapshotCompression};
use stoplog::job::supervisor::Request;
use stoplog::job::{JobOrigin, JobResult, RunIdentity};
use stoplog::prelude::*;
use stoplog::savepoint::{self, Inspection};
use stoplog::snapshot::Store;
use stoplog::testing::faults::INJECTED;
use stoplog::testing::{SimOptions, Simulation, StoreFault, VirtualStore};

use super::checks::{Expected, ExpectedOutput};
use super::crashes::{Life, Program};

const ROOT: &str = "/state/checkpoints";
const NAME: &str = "counts";
const OUTPUTS: [&str; 2] = ["/out/lines", "/out/again/lines"];

/// What happens to the job besides its deaths.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Story {
    pub(crate) asked: Option<Asked>,
    pub(crate) trouble: Option<Trouble>,
}

/// What the first process is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    Suspend,
    Cancel,
}

/// What goes wrong with the disk in one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// One call of this kind fails, after so many that do not.
    Fault { life: u64, fault: StoreFault, calls_before: u64 },
    /// There is room for so many bytes. If it is drawn, there is more after a while.
    Full { life: u64, room: u64 },
}

impl Story {
    pub(crate) const UNDISTURBED: Self = Self { asked: None, trouble: None };
    pub(crate) const SUSPENDED: Self = Self { asked: Some(Asked::Suspend), trouble: None };
    pub(crate) const CANCELLED: Self = Self { asked: Some(Asked::Cancel), trouble: None };

    pub(crate) fn with_fault(self, life: u64, fault: StoreFault, calls_before: u64) -> Self {
        Self { trouble: Some(Trouble::Fault { life, fault, calls_before }), ..self }
    }

    pub(crate) fn with_room(self, life: u64, room: u64) -> Self {
        Self { trouble: Some(Trouble::Full { life, room }), ..self }
    }
}

/// `suspend`, `1-Sync-12`, `cancel+2-room-300`, or nothing.
impl fmt::Display for Story {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let asked = self.asked.map(|asked| format!("{asked:?}").to_lowercase());
        let trouble = self.trouble.map(|trouble| match trouble {
            Trouble::Fault { life, fault, calls_before } => format!("{life}-{fault:?}-{calls_before}"),
            Trouble::Full { life, room } => format!("{life}-room-{room}"),
        });
        let words: Vec<_> = asked.into_iter().chain(trouble).collect();
        f.write_str(&words.join("+"))
    }
}

impl FromStr for Story {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut story = Self::UNDISTURBED;
        for word in text.split('+').filter(|word| !word.is_empty()) {
            match word {
                "suspend" => story.asked = Some(Asked::Suspend),
                "cancel" => story.asked = Some(Asked::Cancel),
                trouble => story.trouble = Some(trouble.parse()?),
            }
        }
        Ok(story)
    }
}

impl FromStr for Trouble {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let unknown = || format!("there is no trouble {text:?}");
        let words: Vec<&str> = text.split('-').collect();
        let [life, what, number] = words[..] else { return Err(unknown()) };
        let life = life.parse().map_err(|_| unknown())?;
        let number = number.parse().map_err(|_| unknown())?;
        if what == "room" {
            return Ok(Self::Full { life, room: number });
        }
        let fault = StoreFault::ALL.into_iter().find(|fault| format!("{fault:?}") == what);
        Ok(Self::Fault { life, fault: fault.ok_or_else(unknown)?, calls_before: number })
    }
}

/// The job, over all of its processes.
#[derive(Debug)]
pub(crate) struct Job {
    seed: u64,
    story: Story,
    /// The keys of each source's records.
    sources: Vec<Vec<char>>,
    sinks: usize,
    retained: u32,
    inline_threshold: usize,
    retention: Option<CheckpointRetention>,
    /// Every process would begin a run of its own if it found none.
    has_many_ids: bool,
    /// All processes begin at the same time of day.
    has_stopped_clock: bool,
    lives: u64,
    was_asked_to_cancel: bool,
    is_over: bool,
}

impl Job {
    pub(crate) fn new(seed: u64, story: Story) -> Self {
        let mut rng = Rng::new(splitmix64(seed ^ 0x10B));
        let sources = (0..1 + rng.below(2))
            .map(|_| (0..4 + rng.below(5)).map(|_| char::from(b'a' + rng.below(3) as u8)).collect())
            .collect();
        let is_kept = story == Story::UNDISTURBED && rng.one_in(3);
        Self {
            seed,
            story,
            sources,
            sinks: 1 + usize::from(rng.one_in(3)),
            retained: 1 + rng.below(3) as u32,
            inline_threshold: if rng.one_in(2) { 0 } else { 20 << 10 },
            retention: is_kept.then_some(CheckpointRetention::RetainOnCancellation),
            // Whoever cancels a run knows its id.
            has_many_ids: story.asked != Some(Asked::Cancel) && rng.one_in(2),
            has_stopped_clock: rng.one_in(3),
            lives: 0,
            was_asked_to_cancel: false,
            is_over: false,
        }
    }

    fn id(&self) -> JobId {
        JobId::from_words(self.seed, if self.has_many_ids { self.lives } else { 1 })
    }

    fn config(&self, rng: &mut Rng) -> JobConfig {
        let mut config = JobConfig {
            name: NAME.to_owned(),
            parallelism: 1 + rng.below(3) as u32,
            async_snapshots: !rng.one_in(3),
            ..JobConfig::default()
        };
        config.max_parallelism = Some(8);
        let checkpoints = &mut config.checkpoints;
        checkpoints.dir = Some(PathBuf::from(ROOT));
        checkpoints.interval = Some(Duration::from_micros(1 + rng.below(20)));
        checkpoints.max_concurrent = 1 + rng.below(2) as u32;
        checkpoints.num_retained = self.retained;
        checkpoints.inline_threshold = self.inline_threshold;
        checkpoints.retention = self.retention;
        checkpoints.tolerable_failures = rng.below(3) as u32;
        checkpoints.compression = SnapshotCompression::None;
        let attempts = rng.below(3) as u32;
        config.restart = Some(RestartConfig::FixedDelay { attempts, delay: Duration::from_micros(10) });
        config
    }

    /// The job of one process, and the number of records that its sources hand on.
    fn graph(&self, store: &VirtualStore, config: JobConfig) -> Result<(JobGraph, Arc<AtomicU64>), String> {
        let env = StreamEnvironment::new(config);
        let read = Arc::new(AtomicU64::new(0));
        let mut streams = self.sources.iter().enumerate().map(|(index, keys)| {
            let (keys, read) = (keys.clone(), Arc::clone(&read));
            let source = GeneratorSource::new(keys.len() as u64, move |n| {
                read.fetch_add(1, Ordering::Relaxed);
                u32::from(keys[n as usize])
            });
            env.source(&format!("source {index}"), source).uid(&format!("source {index}")).share()
        });
        let first = streams.next().expect("there is a source");
        let united = match streams.next() {
            Some(second) => first.stream().union(second.stream()).map(|key| key).share(),
            None => first,
        };
        let counts = united.stream().key_by(|key| *key).process_with(
            ValueStateDescriptor::<u64>::new("n"),
            |key, mut n, _| {
                let next = n.value().unwrap_or(0) + 1;
                n.update(next);
                Some((key, next))
            },
        );
        let counts = counts.uid("counts").share();
        for (index, directory) in OUTPUTS[..self.sinks].iter().enumerate() {
            let format = |(key, n): &(u32, u64), line: &mut Vec<u8>| {
                let key = char::from_u32(*key).unwrap_or('?');
                line.extend_from_slice(format!("{key},{n}").as_bytes());
            };
            let sink = LineSink::directory(*directory, format).with_store(Arc::new(store.clone()));
            counts.stream().sink(&format!("sink {index}"), sink).uid(&format!("sink {index}"));
        }
        Ok((env.plan().map_err(|error| error.to_string())?, read))
    }

    fn identity(&self, store: &VirtualStore) -> Option<RunIdentity> {
        if self.story.asked != Some(Asked::Cancel) {
            return Some(RunIdentity::ResumedOrNew(self.id()));
        }
        // It is not begun again once it is cancelled.
        let is_there = store.files().contains_key(&format!("{ROOT}/{}/_job", self.id()));
        match (is_there, self.was_asked_to_cancel) {
            (true, _) => Some(RunIdentity::Resumed(Some(self.id()))),
            (false, false) => Some(RunIdentity::ResumedOrNew(self.id())),
            (false, true) => None,
        }
    }

    /// Makes the disk fail as the story has it. Answers whether anything can go wrong in this life.
    fn disturb(&self, store: &VirtualStore) -> bool {
        store.set_quota(None);
        match self.story.trouble.filter(|_| !self.is_over) {
            Some(Trouble::Fault { life, fault, calls_before }) if life == self.lives => {
                store.fail_after(fault, calls_before);
                true
            }
            Some(Trouble::Full { life, room }) if life == self.lives => {
                store.set_quota(Some(store.used() + room));
                true
            }
            // What did not fail then does not fail later.
            Some(Trouble::Fault { life, fault, .. }) if life < self.lives => {
                store.fail_after(fault, u64::MAX);
                false
            }
            _ => false,
        }
    }

    /// One process. Answers what became of the job, or why it did not even begin; nothing if the process died.
    fn run(
        &mut self,
        store: &VirtualStore,
        identity: RunIdentity,
        life: &mut Life,
    ) -> Result<Option<Result<JobResult, Error>>, String> {
        let mut rng = Rng::new(splitmix64(self.seed ^ splitmix64(self.lives)));
        let config = self.config(&mut rng);
        let mut options = SimOptions::from_seed(rng.next_u64());
        options.workers = 1 + rng.below(2) as usize;
        options.budget_max = 1 + rng.below(2) as usize;
        options.time_step = Duration::from_micros(1 + rng.below(20));
        (options.task_weight, options.helper_weight, options.event_weight) = (
            options.task_weight + 10 * rng.below(4),
            options.helper_weight + 10 * rng.below(4),
            options.event_weight + 10 * rng.below(6),
        );
        options.turns_max = 50_000;
        if !self.has_stopped_clock {
            options.started_at_ms += self.lives * 1000;
        }
        let (asked_after, mut patience) = (rng.below(3), 1 + rng.below(40));
        let more_room_after = if rng.one_in(2) { rng.below(600) } else { u64::MAX };
        let (graph, read) = self.graph(store, config.clone())?;
        let shared: Arc<dyn Store> = Arc::new(store.clone());
        let origin = JobOrigin::from_settings(&config, identity, &shared, options.started_at_ms);
        let begun = origin.and_then(|origin| Simulation::with_origin(graph, origin, options));
        if store.is_dead() {
            return Ok(None);
        }
        let mut sim = match begun {
            Ok(sim) => sim,
            Err(error) => return Ok(Some(Err(error))),
        };
        let mut launches = 0;
        loop {
            if sim.launches() > launches {
                launches = sim.launches();
                let restored = sim.supervisor().restored_from().and_then(checkpoint_of);
                if restored < life.completed {
                    return Err(format!(
                        "restarts from {restored:?}, although {:?} was complete",
                        life.completed
                    ));
                }
                if !life.has_begun {
                    (life.has_begun, life.restored) = (true, restored);
                }
            }
            let counts = sim.supervisor().coordinator().counts();
            life.completed = counts.last.map(|last| last.id.0);
            life.records_read = read.load(Ordering::Relaxed);
            if sim.is_over() {
                break;
            }
            let is_due = self.lives == 1 && patience > 0 && counts.completed >= asked_after;
            patience -= u64::from(is_due);
            match self.story.asked.filter(|_| is_due && patience == 0) {
                Some(Asked::Suspend) => sim.request(Request::Suspend),
                Some(Asked::Cancel) => {
                    self.was_asked_to_cancel = true;
                    sim.request(Request::Cancel);
                }
                None => {}
            }
            if sim.turns() == more_room_after {
                store.set_quota(None);
            }
            let turn = sim.turn();
            if store.is_dead() {
                return Ok(None);
            }
            turn?;
        }
        let result = sim.finish();
        if std::env::var_os("STOPLOG_SHOW").is_some() {
            println!("{} {:?} {:?} {}", self.lives, result.state, result.checkpoints, life.records_read);
        }
        Ok((!store.is_dead()).then_some(Ok(result)))
    }

    /// What a process that came to its own end says about the job.
    fn judge(
        &self,
        store: &VirtualStore,
        ended: Result<JobResult, Error>,
        is_disturbed: bool,
        life: &mut Life,
    ) -> Result<(), String> {
        let (state, error) = match ended {
            Ok(result) => (result.state, result.error),
            Err(error) => (JobState::Failed, Some(error)),
        };
        life.is_finished = state == JobState::Finished;
        life.has_stopped = state == JobState::Suspended || is_disturbed;
        life.is_given_up = state == JobState::Canceled;
        if let Some(error) = error {
            let text = error.to_string();
            if text.contains("the run is over") && self.was_asked_to_cancel {
                life.is_given_up = true;
            } else if !is_disturbed {
                return Err(format!("the job failed by itself: {text}"));
            } else if !text.contains(INJECTED) || !(text.contains("/state") || text.contains("/out")) {
                return Err(format!("an error that does not say what is wrong: {text}"));
            }
        }
        let is_hidden = |path: &String| path.split('/').any(|name| name.starts_with('.'));
        match self.lasting(store).into_keys().find(is_hidden).filter(|_| !is_disturbed && !life.is_given_up) {
            Some(path) => Err(format!("{path} is left behind by a job that is {state}")),
            None => Ok(()),
        }
    }
}

/// The number at the end of the path of a checkpoint.
fn checkpoint_of(path: &str) -> Option<u64> {
    path.rsplit_once("/chk-").and_then(|(_, id)| id.parse().ok())
}

impl Program for Job {
    fn live(&mut self, store: &VirtualStore) -> Result<Life, String> {
        self.lives += 1;
        let log_before = store.log().len();
        let is_disturbed = self.disturb(store);
        let mut life = Life::default();
        let Some(identity) = self.identity(store) else {
            self.is_over = true;
            return Ok(Life { is_given_up: true, ..life });
        };
        if let Some(ended) = self.run(store, identity, &mut life)? {
            self.judge(store, ended, is_disturbed, &mut life)?;
            self.is_over = (life.is_finished || life.is_given_up) && !life.has_stopped;
        }
        let log = store.log();
        let ids = log[log_before..].iter().filter_map(|line| {
            let (_, path) = line.split_once(" create directories ")?;
            path.rsplit_once("/.chk-")?.1.parse::<u64>().ok()
        });
        let (first, last) = (ids.clone().min(), ids.max());
        life.ids = first.zip(last);
        Ok(life)
    }

    fn expected(&self) -> Expected {
        let mut counts = BTreeMap::new();
        for key in self.sources.iter().flatten() {
            *counts.entry(key.to_string()).or_default() += 1;
        }
        let output = |directory: &&str| ExpectedOutput {
            directory: PathBuf::from(*directory),
            counts: counts.clone(),
        };
        let by_id = self.story.asked == Some(Asked::Cancel);
        let (keeps_checkpoints, has_many_ids) = (self.retention.is_some(), self.has_many_ids);
        let may_stay = move |path: &str| {
            let Ok(below) = Path::new(path).strip_prefix(ROOT) else {
                return Path::new(ROOT).starts_with(path);
            };
            if below.to_str().is_some_and(|name| name.starts_with(".lock-")) {
                return by_id;
            }
            match below.iter().nth(1).and_then(|name| name.to_str()) {
                None | Some("_job") => true,
                // Of a process that died before it had recorded its run.
                Some(".lock" | "._job") => has_many_ids,
                Some(name) => keeps_checkpoints && name.starts_with("chk-"),
            }
        };
        Expected { outputs: OUTPUTS[..self.sinks].iter().map(output).collect(), may_stay: Arc::new(may_stay) }
    }

    /// All checkpoints that can be seen are whole, and no file is in them that they do not name.
    fn check_disk(&self, store: &VirtualStore) -> Result<(), String> {
        let shared: Arc<dyn Store> = Arc::new(store.clone());
        let files = store.files();
        let runs =
            store.directories().into_iter().filter(|path| Path::new(path).parent() == Some(Path::new(ROOT)));
        for run in runs {
            let has_record = files.contains_key(&format!("{run}/_job"));
            if !has_record {
                if let Some(path) = files.keys().find(|path| path.starts_with(&format!("{run}/chk-"))) {
                    return Err(format!("{path} belongs to a run without a record"));
                }
                continue;
            }
            let verified = savepoint::verify(Arc::clone(&shared), Path::new(&run));
            let verified = verified.map_err(|error| error.to_string())?;
            if !verified.whole {
                return Err(format!("damage after a crash: {:?}", verified.damage));
            }
            let inspected = savepoint::inspect(Arc::clone(&shared), Path::new(&run));
            let Inspection::Run(described) = inspected.map_err(|error| error.to_string())? else {
                return Err(format!("{run} is no run"));
            };
            for checkpoint in described.checkpoints {
                let below = format!("{}/", checkpoint.path);
                let names = files.keys().filter_map(|path| path.strip_prefix(&below));
                let is_named = |name: &&str| {
                    *name == "_metadata" || checkpoint.files.iter().any(|file| file.name == **name)
                };
                if let Some(name) = names.into_iter().find(|name| !is_named(name)) {
                    return Err(format!("{below}{name} is not part of the checkpoint"));
                }
            }
        }
        Ok(())
    }

    fn lasting(&self, store: &VirtualStore) -> BTreeMap<String, Vec<u8>> {
        let files = store.files();
        let lasts = |path: &str| {
            let name = path.rsplit('/').next().unwrap_or_default();
            if self.story.asked == Some(Asked::Cancel) && name.starts_with(".lock") {
                // Who resumes a run by its id does not look for it by its name, and nobody resumes one that was cancelled.
                return false;
            }
            // A process that dies before it has recorded its run leaves a directory that nobody else can know to be given up.
            let run = Path::new(path).strip_prefix(ROOT).ok().and_then(|below| below.iter().next());
            run.is_none_or(|run| files.contains_key(&format!("{ROOT}/{}/_job", run.display())))
        };
        let directories = store.directories().into_iter().map(|path| (path, Vec::new()));
        let all = files.clone().into_iter().chain(directories);
        all.filter(|(path, _)| lasts(path)).collect()
    }

    fn variables(&self) -> String {
        format!("STOPLOG_STORY={} ", self.story)
    }
}
