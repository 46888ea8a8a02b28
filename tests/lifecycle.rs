//! Jobs on real threads: how they end, and what is left of them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use stoplog::operator::OpenContext;
use stoplog::prelude::*;

/// Threads are counted per process, so one test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The engine's threads in this process.
fn threads() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("Linux");
    let names = tasks.flatten().filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|name| name.starts_with("stoplog-")).collect()
}

fn assert_no_thread_is_left() {
    // A joined thread may stand in /proc for another moment.
    let start = Instant::now();
    while !threads().is_empty() {
        assert!(start.elapsed() < Duration::from_secs(5), "threads are left: {:?}", threads());
        std::thread::yield_now();
    }
}

fn config(parallelism: u32) -> JobConfig {
    let mut config = JobConfig { parallelism, ..JobConfig::default() };
    config.checkpoints.interval = Some(Duration::from_millis(5));
    config.restart = Some(RestartConfig::None);
    config
}

/// Numbers without end.
fn endless(env: &StreamEnvironment) -> Stream<u64, impl stoplog::graph::Pipe<Out = u64> + use<>> {
    env.source("numbers", GeneratorSource::new(u64::MAX, |n| n).rate(20_000.0))
}

fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(30), "waited too long until {what}");
        std::thread::yield_now();
    }
}

#[test]
fn no_thread_is_left_of_a_finished_job() {
    let _alone = alone();
    let env = StreamEnvironment::new(config(3));
    env.source("numbers", GeneratorSource::new(10_000, |n| n))
        .key_by(|n| n % 7)
        .reduce(|a, b| *a += b)
        .sink("out", DiscardSink);
    assert_eq!(env.execute().unwrap().state, JobState::Finished);
    assert_no_thread_is_left();
}

#[test]
fn no_thread_is_left_of_a_failed_job() {
    let _alone = alone();
    let env = StreamEnvironment::new(config(3));
    endless(&env).map(|n| assert!(n < 1000, "too many")).sink("out", DiscardSink);
    assert!(env.execute().is_err());
    assert_no_thread_is_left();
}

#[test]
fn no_thread_is_left_of_a_cancelled_or_suspended_job() {
    let _alone = alone();
    for suspend in [false, true] {
        let env = StreamEnvironment::new(config(3));
        endless(&env).key_by(|n| n % 7).reduce(|a, b| *a += b).sink("out", DiscardSink);
        let job = env.plan().unwrap().start().unwrap();
        wait_until("a checkpoint is complete", || job.progress().checkpoints.completed > 0);
        let stopper = job.stopper();
        if suspend {
            stopper.suspend()
        } else {
            stopper.cancel()
        }
        let expected = if suspend { JobState::Suspended } else { JobState::Canceled };
        assert_eq!(job.wait().state, expected);
        assert_no_thread_is_left();
        // Once more, to a job that is gone.
        stopper.cancel();
    }
}

#[test]
fn dropping_the_handle_ends_everything() {
    let _alone = alone();
    let env = StreamEnvironment::new(config(2));
    endless(&env).sink("out", DiscardSink);
    let job = env.plan().unwrap().start().unwrap();
    wait_until("records flow", || job.progress().records_in > 0);
    assert!(!threads().is_empty());
    drop(job);
    assert_no_thread_is_left();
}

#[test]
fn a_job_that_is_cancelled_at_once_ends() {
    let _alone = alone();
    for _ in 0..20 {
        let env = StreamEnvironment::new(config(4));
        endless(&env).key_by(|n| n % 7).reduce(|a, b| *a += b).sink("out", DiscardSink);
        drop(env.plan().unwrap().start().unwrap());
    }
    assert_no_thread_is_left();
}

#[test]
fn a_panic_names_operator_subtask_and_message() {
    let _alone = alone();
    let env = StreamEnvironment::new(config(2));
    env.source("numbers", GeneratorSource::new(100, |n| n))
        .map(|n| if n == 51 { panic!("number {n} is bad") } else { n })
        .uid("checker")
        .sink("out", DiscardSink);
    let error = env.execute().unwrap_err();
    assert_eq!(error.operator().map(|uid| uid.as_str()), Some("checker"));
    // 51 is odd: the second subtask makes it.
    assert_eq!(error.subtask().map(|subtask| subtask.0), Some(1));
    assert!(error.message().contains("number 51 is bad"), "{error}");
}

#[test]
fn a_restart_after_a_panic_goes_on_from_the_checkpoint() {
    let _alone = alone();
    let mut config = config(2);
    config.restart = Some(RestartConfig::FixedDelay { attempts: 3, delay: Duration::from_millis(1) });
    let env = StreamEnvironment::new(config);
    let (armed, counts) = (Arc::new(AtomicBool::new(false)), CollectSink::new());
    let trigger = Arc::clone(&armed);
    env.source("numbers", GeneratorSource::new(4000, |n| n).rate(20_000.0))
        .map(move |n| {
            assert!(!trigger.swap(false, Ordering::Relaxed), "once");
            n
        })
        .key_by(|n| n % 5)
        .process_with(ValueStateDescriptor::<u64>::new("n"), |_, mut n, cx| {
            let next = n.value().unwrap_or(0) + 1;
            n.update(next);
            Some((*cx.key(), next))
        })
        .sink("out", counts.clone());
    let job = env.plan().unwrap().start().unwrap();
    wait_until("a checkpoint is complete", || job.progress().checkpoints.completed > 1);
    armed.store(true, Ordering::Relaxed);
    let result = job.wait();
    assert_eq!((result.state, result.restarts), (JobState::Finished, 1));
    assert!(result.restored_from.is_some());
    let mut counts = counts.take();
    counts.sort_unstable();
    let expected: Vec<_> = (0..5).flat_map(|key| (1..=800).map(move |n| (key, n))).collect();
    assert_eq!(counts, expected);
    assert_no_thread_is_left();
}

#[test]
fn sixty_four_subtasks_share_the_cores_there_are() {
    let _alone = alone();
    let mut config = config(64);
    config.ring_capacity = 16;
    let env = StreamEnvironment::new(config);
    let sums = CollectSink::new();
    env.source("numbers", GeneratorSource::new(20_000, |n| n))
        .key_by(|n| n % 500)
        .reduce_final(|sum, n| *sum += n)
        .sink("out", sums.clone());
    assert_eq!(env.execute().unwrap().state, JobState::Finished);
    let sums: HashMap<u64, u64> = sums.take().into_iter().collect();
    assert_eq!(sums.len(), 500);
    assert_eq!(sums.values().sum::<u64>(), 20_000 * 19_999 / 2);
}

/// The fast source's channel is parked until the slow source's barrier comes, while the consumer is slow as well.
#[test]
fn parked_channels_and_a_slow_consumer_lose_nothing() {
    let _alone = alone();
    let mut config = config(2);
    config.ring_capacity = 4;
    config.parking_max_bytes = 256;
    config.checkpoints.interval = Some(Duration::from_millis(2));
    let env = StreamEnvironment::new(config);
    let counts = CollectSink::new();
    let fast = env.source("fast", GeneratorSource::new(5_000, |n| n));
    let slow = env.source("slow", GeneratorSource::new(300, |n| n).rate(3000.0));
    fast.union(slow)
        .key_by(|n| n % 3)
        .process_with(ValueStateDescriptor::<u64>::new("n"), |_, mut n, cx| {
            if n.value().unwrap_or(0).is_multiple_of(50) {
                let start = Instant::now();
                while start.elapsed() < Duration::from_micros(200) {
                    std::hint::spin_loop();
                }
            }
            n.modify(|| 0, |n| *n += 1);
            Some((*cx.key(), n.value().unwrap_or(0)))
        })
        .sink("out", counts.clone());
    let result = env.execute().unwrap();
    assert!(result.checkpoints.completed > 1);
    assert!(!result.alignment_us.is_empty());
    assert_eq!(counts.take().len(), 5_300);
}

/// A sink that panics in one of its calls.
#[derive(Debug, Clone)]
struct Bad {
    call: &'static str,
    times: Arc<AtomicU32>,
    written: bool,
}

impl Bad {
    fn new(call: &'static str) -> Self {
        Self { call, times: Arc::default(), written: false }
    }

    fn may_panic(&self, call: &str) {
        if call == self.call {
            self.times.fetch_add(1, Ordering::Relaxed);
            panic!("bad {call}");
        }
    }
}

impl Sink<u64> for Bad {
    fn open(&mut self, _cx: &mut OpenContext<'_>) -> Result<(), BoxError> {
        self.may_panic("open");
        Ok(())
    }

    fn write(&mut self, _record: u64) -> Result<Flow, BoxError> {
        self.written = true;
        Ok(Flow::Continue)
    }

    fn close(&mut self) -> Result<(), BoxError> {
        self.may_panic("close");
        Ok(())
    }
}

impl Drop for Bad {
    fn drop(&mut self) {
        if self.written {
            self.may_panic("drop");
        }
    }
}

fn run_bad(call: &'static str, attempts: u32) -> (Result<JobResult, Error>, u32) {
    let mut config = config(4);
    config.restart = Some(RestartConfig::FixedDelay { attempts, delay: Duration::from_millis(1) });
    let env = StreamEnvironment::new(config);
    let bad = Bad::new(call);
    env.source("numbers", GeneratorSource::new(2000, |n| n)).sink("bad", bad.clone()).uid("bad");
    let result = env.execute();
    assert_no_thread_is_left();
    (result, bad.times.load(Ordering::Relaxed))
}

#[test]
fn an_operator_that_panics_when_it_is_opened_fails_the_job() {
    let _alone = alone();
    let (result, times) = run_bad("open", 2);
    let error = result.unwrap_err();
    assert!(error.message().contains("bad open"), "{error}");
    assert_eq!(error.operator().map(|uid| uid.as_str()), Some("bad"));
    assert!(times >= 3, "the restarts were used up");
}

#[test]
fn an_operator_that_panics_when_it_is_closed_fails_the_job() {
    let _alone = alone();
    let (result, times) = run_bad("close", 2);
    let error = result.unwrap_err();
    assert!(error.message().contains("bad close"), "{error}");
    assert!(times >= 3, "the restarts were used up");
}

/// Several subtasks of one worker: a second panic while the first one unwinds would end the process.
#[test]
fn operators_that_panic_when_they_are_dropped_harm_nobody() {
    let _alone = alone();
    let (result, times) = run_bad("drop", 0);
    assert_eq!(result.unwrap().state, JobState::Finished);
    assert_eq!(times, 4);
}

/// A value that cannot be serialised.
#[derive(Debug, Clone, Default, Deserialize)]
struct Unserialisable;

impl Serialize for Unserialisable {
    fn serialize<S: serde::Serializer>(&self, _serializer: S) -> Result<S::Ok, S::Error> {
        panic!("bad value")
    }
}

#[test]
fn state_that_panics_when_it_is_serialised_fails_the_checkpoint_not_the_process() {
    let _alone = alone();
    for async_snapshots in [true, false] {
        let mut config = config(2);
        config.async_snapshots = async_snapshots;
        let env = StreamEnvironment::new(config);
        endless(&env)
            .key_by(|n| n % 5)
            .process_with(ValueStateDescriptor::<Unserialisable>::new("bad"), |n, mut bad, _| {
                bad.update(Unserialisable);
                Some(n)
            })
            .sink("out", DiscardSink);
        let error = env.execute().unwrap_err();
        assert!(error.message().contains("bad value"), "{error}");
        assert_no_thread_is_left();
    }
}

/// A source whose input cannot be divided, which happens on the job's own thread.
#[derive(Clone)]
struct BadSource;

impl Source for BadSource {
    type Out = u64;
    type Split = u64;

    fn create_splits(&mut self, _parallelism: u32) -> Result<Vec<u64>, BoxError> {
        panic!("bad splits")
    }

    fn open(&mut self, _splits: Vec<u64>, _cx: &mut OpenContext<'_>) -> Result<(), BoxError> {
        Ok(())
    }

    fn poll(&mut self, _output: &mut impl Output<u64>, _max: usize) -> Result<SourceStatus, BoxError> {
        Ok(SourceStatus::Ended)
    }

    fn snapshot(&self) -> Vec<u64> {
        Vec::new()
    }
}

#[test]
fn a_source_that_panics_when_it_divides_its_input_fails_the_job() {
    let _alone = alone();
    let env = StreamEnvironment::new(config(2));
    env.source("bad", BadSource).uid("bad").sink("out", DiscardSink);
    let error = env.execute().unwrap_err();
    assert!(error.message().contains("bad splits"), "{error}");
    assert_no_thread_is_left();
}

#[test]
fn requests_to_a_job_that_is_over_are_answered() {
    let _alone = alone();
    let env = StreamEnvironment::new(config(2));
    env.source("numbers", GeneratorSource::new(10, |n| n)).sink("out", DiscardSink);
    let job = env.plan().unwrap().start().unwrap();
    wait_until("the job is over", || job.is_over());
    assert!(job.trigger_checkpoint().is_err());
    assert_eq!(job.wait().state, JobState::Finished);
}

/// Sources and sinks that block live on threads of their own; those end too, whatever the job dies of.
#[test]
fn no_thread_is_left_of_helpers_that_read_and_write() {
    let _alone = alone();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    for ending in ["cancel", "suspend", "panic"] {
        let scratch = tempfile::tempdir().unwrap();
        let input = scratch.path().join("input");
        std::fs::write(&input, "line\n".repeat(1000)).unwrap();
        let env = StreamEnvironment::new(config(3));
        let files = env.source("files", FileSource::lines([input]));
        let sockets = env.source("sockets", SocketSource::new(address.clone()));
        let write = |line: &String, bytes: &mut Vec<u8>| bytes.extend(line.bytes());
        let panics = ending == "panic";
        let lines = files.union(sockets).map(move |line| {
            assert!(!panics, "on purpose");
            line
        });
        lines.sink("out", LineSink::directory(scratch.path().join("out"), write));
        let job = env.plan().unwrap().start().unwrap();
        let _peer = listener.accept().unwrap();
        match ending {
            "cancel" => job.stopper().cancel(),
            "suspend" => job.stopper().suspend(),
            _ => {}
        }
        let state = job.wait().state;
        let expected = [JobState::Canceled, JobState::Suspended, JobState::Failed];
        assert!(expected.contains(&state), "{ending}: {state}");
        assert_no_thread_is_left();
    }
}

/// An iterator may have any number of items, even without end: the subtask stops in the middle for whatever else is to be done.
#[test]
fn a_job_is_cancelled_in_the_middle_of_an_endless_iterator() {
    let _alone = alone();
    let env = StreamEnvironment::new(config(1));
    let items = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&items);
    env.source("one", VecSource::new(vec![1u64]))
        .flat_map(|_| 0u64..)
        .filter(move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
            false
        })
        .sink("out", DiscardSink);
    let job = env.plan().unwrap().start().unwrap();
    wait_until("the iterator is under way", || items.load(Ordering::Relaxed) > 10_000);
    job.stopper().cancel();
    assert_eq!(job.wait().state, JobState::Canceled);
    assert_no_thread_is_left();
}

#[test]
fn every_idle_strategy_gets_every_record_through() {
    let _alone = alone();
    for idle_strategy in [IdleStrategy::BusySpin, IdleStrategy::BackOff, IdleStrategy::Park] {
        let env = StreamEnvironment::new(JobConfig { idle_strategy, ring_capacity: 4, ..config(3) });
        let out = CollectSink::new();
        env.source("numbers", GeneratorSource::new(5_000, |n| n))
            .key_by_parts(|n| (n % 17, 1u64))
            .reduce(|sum, one| *sum += one)
            .sink("out", out.clone());
        env.execute().unwrap();
        assert_eq!(out.take().len(), 5_000, "{idle_strategy:?}");
    }
    assert_no_thread_is_left();
}

struct PanicsWhenDropped;

impl Drop for PanicsWhenDropped {
    fn drop(&mut self) {
        panic!("dropped");
    }
}

#[test]
fn a_panic_whose_payload_panics_again_still_fails_the_job() {
    let _alone = alone();
    let env = StreamEnvironment::new(config(1));
    env.source("one", VecSource::new(vec![1u64]))
        .map(|n: u64| if n == 1 { std::panic::panic_any(PanicsWhenDropped) } else { n })
        .uid("bomb")
        .sink("out", DiscardSink);
    let error = env.execute().unwrap_err().to_string();
    assert!(error.contains("\"bomb\"") && error.contains("carried no text"), "{error}");
    assert_no_thread_is_left();
}

/// An error that says itself that no restart helps is believed, wherever it comes from.
#[test]
fn a_sink_that_gives_up_is_not_tried_again() {
    #[derive(Clone)]
    struct GivesUp(Arc<AtomicU32>);

    impl Sink<u64> for GivesUp {
        fn open(&mut self, _cx: &mut OpenContext<'_>) -> Result<(), BoxError> {
            self.0.fetch_add(1, Ordering::Relaxed);
            let (kind, recovery) =
                (stoplog::base::error::ErrorKind::Connector, stoplog::base::error::Recovery::GiveUp);
            Err(Error::new(kind, recovery, "no use").into())
        }

        fn write(&mut self, _record: u64) -> Result<Flow, BoxError> {
            Ok(Flow::Continue)
        }
    }

    let _alone = alone();
    let restart = Some(RestartConfig::FixedDelay { attempts: 5, delay: Duration::from_millis(1) });
    let env = StreamEnvironment::new(JobConfig { restart, ..config(1) });
    let opened = Arc::new(AtomicU32::new(0));
    env.source("one", VecSource::new(vec![1u64])).sink("out", GivesUp(Arc::clone(&opened)));
    assert!(env.execute().unwrap_err().to_string().contains("no use"));
    assert_eq!(opened.load(Ordering::Relaxed), 1);
}

/// Whatever removes the directory takes published output with it: a job that made a new one would hide the loss.
#[test]
fn an_output_directory_that_vanishes_fails_the_job_by_name() {
    let _alone = alone();
    let scratch = tempfile::tempdir().unwrap();
    let directory = scratch.path().join("out");
    let restart = Some(RestartConfig::FixedDelay { attempts: 2, delay: Duration::from_millis(1) });
    let env = StreamEnvironment::new(JobConfig { restart, ..config(1) });
    let write = |n: &u64, line: &mut Vec<u8>| line.extend(n.to_string().bytes());
    endless(&env).sink("out", LineSink::directory(&directory, write));
    let job = env.plan().unwrap().start().unwrap();
    let is_published = || {
        std::fs::read_dir(&directory).is_ok_and(|mut names| {
            names.any(|name| name.unwrap().file_name().to_str().unwrap().starts_with("part-"))
        })
    };
    wait_until("something is published", is_published);
    std::fs::rename(&directory, scratch.path().join("moved")).unwrap();
    let result = job.wait();
    let error = result.error.expect("failed").to_string();
    assert_eq!(result.state, JobState::Failed, "{error}");
    assert!(error.contains(directory.to_str().unwrap()), "{error}");
    assert!(!directory.exists());
    assert_no_thread_is_left();
}

#[test]
fn lines_in_a_directory_are_there_exactly_once_whatever_panics() {
    let _alone = alone();
    let scratch = tempfile::tempdir().unwrap();
    let restart = Some(RestartConfig::FixedDelay { attempts: 10, delay: Duration::from_millis(1) });
    let env = StreamEnvironment::new(JobConfig { restart, ..config(3) });
    let (records, panics) = (40_000u64, Arc::new(AtomicU32::new(0)));
    let counted = Arc::clone(&panics);
    let seen = Arc::new(AtomicU32::new(0));
    env.source("numbers", GeneratorSource::new(records, |n| n).rate(80_000.0))
        .rebalance()
        .map(move |n| {
            let seen = seen.fetch_add(1, Ordering::Relaxed);
            if seen % 9_000 == 8_999 && counted.fetch_add(1, Ordering::Relaxed) < 5 {
                panic!("on purpose");
            }
            n
        })
        .sink(
            "out",
            LineSink::directory(scratch.path(), |n: &u64, line: &mut Vec<u8>| {
                line.extend(n.to_string().bytes());
            }),
        );
    let result = env.execute().unwrap();
    assert!(result.restarts >= 4, "{}", result.restarts);
    let mut numbers: Vec<u64> = Vec::new();
    for entry in std::fs::read_dir(scratch.path()).unwrap() {
        let path = entry.unwrap().path();
        assert!(path.file_name().unwrap().to_str().unwrap().starts_with("part-"), "{}", path.display());
        numbers.extend(std::fs::read_to_string(path).unwrap().lines().map(|n| n.parse::<u64>().unwrap()));
    }
    numbers.sort_unstable();
    assert!(numbers.into_iter().eq(0..records));
}

/// A source that ends with its last record held up is not asked again, whatever it would answer.
#[test]
fn a_source_that_has_ended_is_not_asked_again() {
    #[derive(Clone)]
    struct AllAtOnce(Option<u64>);

    impl Source for AllAtOnce {
        type Out = u64;
        type Split = u64;

        fn create_splits(&mut self, _parallelism: u32) -> Result<Vec<u64>, BoxError> {
            Ok(vec![0])
        }

        fn open(&mut self, splits: Vec<u64>, _cx: &mut OpenContext<'_>) -> Result<(), BoxError> {
            self.0 = splits.first().copied();
            Ok(())
        }

        fn poll(&mut self, output: &mut impl Output<u64>, _max: usize) -> Result<SourceStatus, BoxError> {
            if self.0.is_some() {
                for n in 0..20_000 {
                    // Ruthless: it never stops for a blocked output.
                    let _ = output.collect(n);
                }
            }
            Ok(SourceStatus::Ended)
        }

        fn snapshot(&self) -> Vec<u64> {
            self.0.into_iter().collect()
        }
    }

    let _alone = alone();
    let env = StreamEnvironment::new(JobConfig { parallelism: 2, ring_capacity: 64, ..JobConfig::default() });
    env.source("all", AllAtOnce(None)).key_by(|n| n % 3).reduce(|a, b| *a += b).sink("out", DiscardSink);
    let result = env.execute().unwrap();
    assert_eq!((result.records_in, result.records_out), (20_000, 20_000));
}
