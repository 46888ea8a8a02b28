//! File systems that refuse: full disks, directories that vanish, single operations that fail. A checkpoint is aborted or the job
//! restarts or fails, with a message that names the path and the cause; what ends as FINISHED has every line once.
//!
//! Small file systems are mounted for some of it. Where that is not allowed, a test says so on standard error and the wrapped file
//! system in the same process has to do.

use std::fs;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use serde_json::Value;
use stoplog::prelude::*;
use stoplog::snapshot::{JobRecord, LocalStore, RunState, Store, StoreFile};
use tracing_subscriber::filter::LevelFilter;

#[path = "kill/counters.rs"]
mod counters;
#[path = "kill/hooked_store.rs"]
mod hooked_store;
#[path = "kill/output.rs"]
mod output;

use counters::{Life, Place, Witness};
use hooked_store::{Hook, HookedStore, Operation};
use output::{Visible, files_below};

const PATIENCE: Duration = Duration::from_secs(60);
const NO_SPACE: i32 = 28;
const IO_ERROR: i32 = 5;

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "waited in vain: {what}");
        sleep(Duration::from_millis(2));
    }
}

/// The result, or a panic if there is none for a long time.
fn wait(handle: JobHandle) -> JobResult {
    let begun = Instant::now();
    while !handle.is_over() {
        if begun.elapsed() > PATIENCE {
            let progress = handle.progress();
            // Dropping it would wait for the end.
            std::mem::forget(handle);
            let log = String::from_utf8(Log::captured().0.lock().unwrap().clone()).unwrap();
            let last: Vec<_> = log.lines().rev().take(20).collect();
            panic!("the job hangs: {progress:?}: {last:#?}");
        }
        sleep(Duration::from_millis(1));
    }
    handle.wait()
}

/// What the jobs of this process say in the log.
#[derive(Debug, Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn captured() -> Self {
        static LOG: OnceLock<Log> = OnceLock::new();
        let begin = || {
            let log = Self::default();
            let writer = log.clone();
            let subscriber = tracing_subscriber::fmt().with_max_level(LevelFilter::WARN).with_ansi(false);
            subscriber.with_writer(move || writer.clone()).init();
            log
        };
        LOG.get_or_init(begin).clone()
    }

    /// Lines about the place.
    fn about(&self, place: &Place) -> Vec<String> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        let root = place.root().to_str().unwrap();
        let job = place.record().map(|record| format!("job={}", record.job));
        let is_about =
            |line: &&str| line.contains(root) || job.as_ref().is_some_and(|job| line.contains(job));
        text.lines().filter(is_about).map(str::to_owned).collect()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Refuses one operation of a kind, once.
#[derive(Debug)]
struct FailsOnce {
    kind: Operation,
    at: u64,
    seen: AtomicU64,
    refused: Mutex<Option<PathBuf>>,
}

impl FailsOnce {
    fn refuses(&self, operation: Operation, path: &Path) -> io::Result<()> {
        if operation == self.kind && self.seen.fetch_add(1, Ordering::Relaxed) + 1 == self.at {
            *self.refused.lock().unwrap() = Some(path.to_owned());
            return Err(io::Error::from_raw_os_error(IO_ERROR));
        }
        Ok(())
    }
}

impl Hook for FailsOnce {
    fn before(&self, operation: Operation, path: &Path) -> io::Result<()> {
        self.refuses(operation, path)
    }

    fn append(&self, path: &Path, file: &mut dyn StoreFile, bytes: &[u8]) -> io::Result<()> {
        let refused = self.refuses(Operation::Append, path);
        file.append(if refused.is_ok() { bytes } else { &bytes[..bytes.len() / 2] })?;
        refused
    }
}

/// One more life, undisturbed.
fn live_to_the_end(place: &Place, life: &Life) {
    let store: Arc<dyn Store> = Arc::new(LocalStore);
    let result = wait(counters::resume(place.root(), life, &store).unwrap());
    assert_eq!(result.state, JobState::Finished, "{:?}", result.error);
    place.assert_finished(life.records);
}

/// A short run during which the `at`-th operation of the kind fails. False if there were fewer.
fn ends_exactly_once_although(kind: Operation, at: u64) -> bool {
    let log = Log::captured();
    let place = if at == 1 { Place::new() } else { Place::in_memory() };
    let mut witness = Witness::default();
    let failing = Arc::new(FailsOnce { kind, at, seen: AtomicU64::new(0), refused: Mutex::new(None) });
    let store = HookedStore::shared(Arc::clone(&failing) as Arc<dyn Hook>);
    let records = 1500;
    let life = Life {
        records,
        rate: 60_000.0,
        parallelism: 1 + (at % 2) as u32,
        interval: Duration::from_millis(3),
        inline_threshold: 0,
        ..Life::default()
    };
    let mut errors: Vec<String> = Vec::new();
    let ended = loop {
        assert!(errors.len() <= 1, "{kind:?} {at}: one failure, and two lives are not enough: {errors:?}");
        match counters::resume(place.root(), &life, &store) {
            Err(error) => errors.push(error.to_string()),
            Ok(handle) => {
                let result = wait(handle);
                match result.state {
                    JobState::Finished => break result,
                    JobState::Failed => errors.push(result.error.expect("it failed").to_string()),
                    other => panic!("{kind:?} {at}: {other}"),
                }
            }
        }
        witness.look_at(&place);
    };
    witness.look_at(&place);
    // What could not be removed is removed now.
    live_to_the_end(&place, &life);
    witness.look_at(&place);
    let Some(path) = failing.refused.lock().unwrap().clone() else { return false };
    let had_consequences = !errors.is_empty() || ended.restarts > 0 || ended.checkpoints.failed > 0;
    let told: Vec<_> = errors.into_iter().chain(log.about(&place)).collect();
    let root = place.root().to_str().unwrap();
    let is_told = told.iter().any(|text| text.contains("Input/output error") && text.contains(root));
    assert!(is_told || !had_consequences, "{kind:?} {at}, {}: only {told:#?}", path.display());
    true
}

#[test]
fn any_operation_may_fail_once() {
    use Operation as O;
    let kinds = [
        O::CreateDirectories,
        O::Create,
        O::Append,
        O::Sync,
        O::Read,
        O::ReadRange,
        O::Entry,
        O::List,
        O::Rename,
        O::RemoveFile,
        O::RemoveDirectory,
        O::SyncFile,
        O::SyncDirectory,
        O::Lock,
    ];
    for kind in kinds {
        // Each of the first, and fewer of the many that follow.
        let places = std::iter::successors(Some(1), |at| Some(at + 1 + at / 16));
        let failures = places.take_while(|at| ends_exactly_once_although(kind, *at)).count();
        println!("{kind:?}: {failures} failures");
    }
}

/// Refuses to write down that the run is finished, or to remove what is left of it then.
#[derive(Debug)]
enum FailsAtTheEnd {
    Record,
    CleanUp,
}

impl Hook for FailsAtTheEnd {
    fn before(&self, operation: Operation, _path: &Path) -> io::Result<()> {
        match self {
            Self::CleanUp if operation == Operation::RemoveDirectory => {
                Err(io::Error::from_raw_os_error(IO_ERROR))
            }
            _ => Ok(()),
        }
    }

    fn append(&self, path: &Path, file: &mut dyn StoreFile, bytes: &[u8]) -> io::Result<()> {
        let is_end = |bytes| JobRecord::decode(bytes).is_ok_and(|record| record.state == RunState::Finished);
        match self {
            Self::Record if path.ends_with("._job") && is_end(bytes) => {
                Err(io::Error::from_raw_os_error(NO_SPACE))
            }
            _ => file.append(bytes),
        }
    }
}

/// Then whoever resumes it would find a run that is not finished, so it is not; but what cannot be removed changes nothing.
#[test]
fn a_job_is_finished_if_its_end_is_recorded_and_not_before() {
    let log = Log::captured();
    for failing in [FailsAtTheEnd::Record, FailsAtTheEnd::CleanUp] {
        let place = Place::in_memory();
        let mut witness = Witness::default();
        let life = Life { records: 5000, ..Life::default() };
        let is_recorded = matches!(failing, FailsAtTheEnd::CleanUp);
        let store = HookedStore::shared(Arc::new(failing));
        let result = wait(counters::resume(place.root(), &life, &store).unwrap());
        witness.look_at(&place);
        let root = place.root().to_str().unwrap();
        if is_recorded {
            assert_eq!(result.state, JobState::Finished, "{:?}", result.error);
            let is_told = |line: &String| line.contains("left behind") && line.contains("Input/output error");
            assert!(log.about(&place).iter().any(is_told), "{:#?}", log.about(&place));
        } else {
            assert_eq!(result.state, JobState::Failed);
            let error = result.error.unwrap().to_string();
            let words = ["the end of the job cannot be recorded", root, "No space left on device"];
            assert!(words.iter().all(|word| error.contains(word)), "{error}");
        }
        live_to_the_end(&place, &life);
        witness.look_at(&place);
    }
}

/// Below a directory nothing can be added for a while.
#[derive(Debug)]
struct Full {
    directory: PathBuf,
    is_full: AtomicBool,
}

impl Full {
    fn refuses(&self, path: &Path) -> io::Result<()> {
        let is_full = self.is_full.load(Ordering::Relaxed) && path.starts_with(&self.directory);
        if is_full { Err(io::Error::from_raw_os_error(NO_SPACE)) } else { Ok(()) }
    }
}

impl Hook for Full {
    fn before(&self, operation: Operation, path: &Path) -> io::Result<()> {
        use Operation as O;
        match operation {
            O::CreateDirectories | O::Create => self.refuses(path),
            _ => Ok(()),
        }
    }

    fn append(&self, path: &Path, file: &mut dyn StoreFile, bytes: &[u8]) -> io::Result<()> {
        let refused = self.refuses(path);
        file.append(if refused.is_ok() { bytes } else { &bytes[..bytes.len() / 2] })?;
        refused
    }
}

#[test]
fn a_store_that_is_full_for_a_while_delays_the_job_and_loses_nothing() {
    let log = Log::captured();
    for directory in [counters::checkpoints, counters::output] {
        let place = Place::in_memory();
        let mut witness = Witness::default();
        let full = Arc::new(Full { directory: directory(place.root()), is_full: AtomicBool::new(false) });
        let store = HookedStore::shared(Arc::clone(&full) as Arc<dyn Hook>);
        let life = Life { rate: 200_000.0, ..Life::default() };
        let handle = counters::resume(place.root(), &life, &store).unwrap();
        until("output is seen", || handle.progress().checkpoints.completed > 3);
        full.is_full.store(true, Ordering::Relaxed);
        until("restarts", || handle.progress().restarts >= 3);
        let completed = handle.progress().checkpoints.completed;
        until("more restarts", || handle.progress().restarts >= 8);
        assert_eq!(handle.progress().checkpoints.completed, completed, "none while it is full");
        // Nothing changes while the place is full, so that it can be looked at from outside.
        witness.look_at(&place);
        assert!(witness.lines() > 0);
        full.is_full.store(false, Ordering::Relaxed);
        let result = wait(handle);
        assert_eq!(result.state, JobState::Finished, "{:?}", result.error);
        witness.look_at(&place);
        place.assert_finished(life.records);
        let told = log.about(&place);
        let of_directory = full.directory.to_str().unwrap();
        assert!(
            told.iter().any(|line| line.contains("No space left on device") && line.contains(of_directory)),
            "{told:#?}"
        );
    }
}

/// A small file system of its own, in memory.
struct Mounted {
    at: PathBuf,
}

impl Mounted {
    fn new(at: &Path, kilobytes: u32) -> Option<Self> {
        Self::made(at, |path| {
            let mut mount = Command::new("mount");
            mount.args(["-t", "tmpfs", "-o", &format!("size={kilobytes}k"), "tmpfs"]).arg(path);
            mount
        })
    }

    /// `None`, and a word about it, where this is not allowed.
    fn made(at: &Path, command: impl FnOnce(&Path) -> Command) -> Option<Self> {
        fs::create_dir_all(at).unwrap();
        match command(at).output() {
            Ok(output) if output.status.success() => Some(Self { at: at.to_owned() }),
            refused => {
                eprintln!("skipped: no file system can be mounted here ({refused:?})");
                None
            }
        }
    }

    /// The same files under the same name, but nothing can be changed.
    fn read_only(at: &Path) -> Option<Self> {
        // Made so beside it: as long as somebody writes it could not be made so in its place.
        let beside = Self::made(&at.with_extension("read-only"), |path| {
            let mut bind = Command::new("mount");
            bind.arg("--bind").args([at, path]);
            bind
        })?;
        let changed = Command::new("mount").args(["-o", "remount,bind,ro"]).arg(&beside.at).status();
        assert!(changed.unwrap().success());
        Self::made(at, |path| {
            let mut bind = Command::new("mount");
            bind.arg("--bind").args([&beside.at, path]);
            bind
        })
    }

    /// Leaves no room; may be repeated while others remove and add files.
    fn fill(&self) {
        let mut ballast = fs::File::options().create(true).append(true).open(self.ballast()).unwrap();
        while ballast.write_all(&[0; 4096]).is_ok() {}
    }

    fn make_room(&self) {
        fs::remove_file(self.ballast()).unwrap();
    }

    /// Not where the job looks.
    fn ballast(&self) -> PathBuf {
        self.at.join("ballast")
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.at).status();
    }
}

/// The command at work on 60 000 records: each line a key and the number that its state has come to.
struct Run {
    child: Child,
    stderr: Arc<Mutex<String>>,
    reader: Option<JoinHandle<()>>,
}

const RECORDS: usize = 60_000;

impl Run {
    fn of(place: &Place, more: &[&str]) -> Self {
        let (output, checkpoints) = (place.output(), place.checkpoints());
        let mut child = Command::new(env!("CARGO_BIN_EXE_stoplog"))
            .args(["run", "sequence-check", "--keys", "10", "--records", "60000", "--json", "-q", "--resume"])
            .args(["--checkpoint-interval", "5ms", "-D", "restart-strategy.type=fixed-delay"])
            .args(["-D", "restart-strategy.fixed-delay.delay=10ms", "-p", "2"])
            .arg("--output")
            .arg(output)
            .arg("--checkpoint-dir")
            .arg(checkpoints)
            .args(more)
            .env_remove("RUST_LOG")
            .env("RUST_BACKTRACE", "0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stderr = Arc::new(Mutex::new(String::new()));
        let (pipe, text) = (child.stderr.take().unwrap(), Arc::clone(&stderr));
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(pipe).lines() {
                *text.lock().unwrap() += &(line.unwrap() + "\n");
            }
        });
        Self { child, stderr, reader: Some(reader) }
    }

    fn stderr(&self) -> String {
        self.stderr.lock().unwrap().clone()
    }

    /// True once it has said something about this path with these words.
    fn has_told(&self, path: &Path, words: &str) -> bool {
        let path = path.to_str().unwrap();
        self.stderr().lines().any(|line| line.contains(path) && line.contains(words))
    }

    fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Exit status and result.
    fn end(mut self) -> (i32, Value, String) {
        let begun = Instant::now();
        while !self.has_ended() {
            assert!(begun.elapsed() < PATIENCE, "it hangs: {}", self.stderr());
            sleep(Duration::from_millis(2));
        }
        self.reader.take().unwrap().join().unwrap();
        let mut stdout = String::new();
        io::Read::read_to_string(self.child.stdout.as_mut().unwrap(), &mut stdout).unwrap();
        let status = self.child.wait().unwrap();
        let stderr = self.stderr();
        assert!(!stderr.contains("panicked"), "{stderr}");
        let status = status.code().unwrap_or_else(|| panic!("{status}: {stderr}"));
        let result = stdout.lines().last().map(|line| serde_json::from_str(line).unwrap());
        (status, result.unwrap_or_default(), stderr)
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn parts(place: &Place) -> Vec<String> {
    files_below(&place.output()).into_iter().filter(|name| name.starts_with("part-")).collect()
}

fn assert_complete(place: &Place) {
    let mut lines = Visible::default().all_lines(&place.output());
    let count = lines.len();
    lines.sort_unstable();
    lines.dedup();
    assert_eq!((lines.len(), count), (RECORDS, RECORDS), "every line, once");
}

fn assert_finishes(run: Run, place: &Place, visible: &mut Visible) {
    let (status, result, stderr) = run.end();
    assert_eq!((status, &result["state"]), (0, &"FINISHED".into()), "{stderr}");
    assert_eq!(result["alerts"], 0, "{result}");
    visible.look_at(&place.output());
    assert_complete(place);
}

/// Slow enough that something can happen to it on the way.
const SLOW: [&str; 2] = ["--rate", "30000"];

fn slow_run(place: &Place, more: &[&str]) -> Run {
    let mut run = Run::of(place, &[&SLOW, more].concat());
    until("output and checkpoints", || {
        assert!(!run.has_ended(), "{}", run.stderr());
        parts(place).len() > 4 && !place.completed().is_empty()
    });
    run
}

#[test]
fn a_full_disk_is_told_and_once_there_is_room_the_job_goes_on() {
    for directory in [counters::checkpoints, counters::output] {
        let place = Place::in_memory();
        let at = directory(place.root());
        let Some(disk) = Mounted::new(&at, 16 << 10) else { return };
        let mut visible = Visible::default();
        let mut run = slow_run(&place, &[]);
        until("it is told", || {
            assert!(!run.has_ended(), "{}", run.stderr());
            disk.fill();
            run.has_told(&at, "No space left on device")
        });
        // Nothing new is seen, and what was seen stays.
        sleep(Duration::from_millis(100));
        fs::rename(disk.ballast(), at.join(".ballast")).unwrap();
        visible.look_at(&place.output());
        fs::rename(at.join(".ballast"), disk.ballast()).unwrap();
        disk.make_room();
        assert_finishes(run, &place, &mut visible);
    }
}

#[test]
fn a_directory_that_cannot_be_written_for_a_while_delays_the_job() {
    for directory in [counters::checkpoints, counters::output] {
        let place = Place::in_memory();
        let at = directory(place.root());
        let mut visible = Visible::default();
        let mut run = slow_run(&place, &[]);
        let Some(read_only) = Mounted::read_only(&at) else { return };
        until("it is told", || {
            assert!(!run.has_ended(), "{}", run.stderr());
            run.has_told(&at, "Read-only file system")
        });
        visible.look_at(&place.output());
        drop(read_only);
        assert_finishes(run, &place, &mut visible);
    }
}

const FEW_RESTARTS: [&str; 2] = ["-D", "restart-strategy.fixed-delay.attempts=3"];

fn away(directory: &Path) -> PathBuf {
    directory.with_extension("away")
}

/// Checkpoints in files, so that there is something else to miss than the metadata.
const IN_FILES: [&str; 2] = ["-D", "execution.checkpointing.data-inline-threshold=0"];

/// The job has failed, and says which directory was the reason.
fn assert_failed(run: Run, at: &Path) {
    let (status, result, stderr) = run.end();
    assert_eq!((status, &result["state"]), (1, &"FAILED".into()), "{stderr}");
    let path = at.to_str().unwrap();
    let error = result["error"].as_str().unwrap();
    assert!(error.contains(path), "{path} is not named: {error}");
    assert!(stderr.contains(&format!("error: {error}")), "{stderr}");
    let causes = ["(os error ", "is missing", "are gone"];
    let is_cause = |line: &str| line.contains(path) && causes.iter().any(|cause| line.contains(cause));
    assert!(stderr.lines().any(is_cause), "nobody says what is wrong with {path}: {stderr}");
}

#[test]
fn a_directory_that_is_removed_fails_the_job_by_name() {
    for directory in [counters::checkpoints, counters::output] {
        let place = Place::in_memory();
        let at = directory(place.root());
        let run = slow_run(&place, &[&FEW_RESTARTS[..], &IN_FILES].concat());
        // In one step, so that the job does not add to it meanwhile.
        fs::rename(&at, away(&at)).unwrap();
        fs::remove_dir_all(away(&at)).unwrap();
        assert_failed(run, &at);
        assert!(!at.exists(), "it is not begun anew");
    }
}

/// Even if it takes several attempts: nobody knows what else was taken away.
#[test]
fn a_directory_that_is_emptied_file_by_file_never_ends_as_finished() {
    for directory in [counters::checkpoints, counters::output] {
        let place = Place::in_memory();
        let at = directory(place.root());
        let run = slow_run(&place, &FEW_RESTARTS);
        until("it is removed", || fs::remove_dir_all(&at).is_ok());
        assert_failed(run, &at);
    }
}

#[test]
fn a_file_in_the_place_of_a_directory_fails_the_job_and_put_back_it_goes_on() {
    for directory in [counters::checkpoints, counters::output] {
        let place = Place::in_memory();
        let at = directory(place.root());
        let mut visible = Visible::default();
        let run = slow_run(&place, &FEW_RESTARTS);
        visible.look_at(&place.output());
        fs::rename(&at, away(&at)).unwrap();
        fs::write(&at, "a file").unwrap();
        assert_failed(run, &at);
        fs::remove_file(&at).unwrap();
        fs::rename(away(&at), &at).unwrap();
        visible.look_at(&place.output());
        assert_finishes(Run::of(&place, &[]), &place, &mut visible);
    }
}
