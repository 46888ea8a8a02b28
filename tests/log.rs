//! What a job says in the log: under which target, and with which fields.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use stoplog::base::id::JobId;
use stoplog::prelude::*;
use stoplog::snapshot::{CheckpointStorage, MemoryStorage};
use tracing_subscriber::filter::LevelFilter;

#[derive(Clone, Default)]
struct Captured(Arc<Mutex<Vec<u8>>>);

impl Write for Captured {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Counts the lines of a file, and numbers until a checkpoint is complete; then suspends.
fn count_for_a_while(job: JobId, file: &std::path::Path, storage: &Arc<dyn CheckpointStorage>) -> u64 {
    let env = StreamEnvironment::new(JobConfig::named("count").with_parallelism(2));
    let numbers = env.source("numbers", GeneratorSource::new(u64::MAX, |n| n.to_string())).uid("numbers");
    env.source("files", FileSource::lines([file]))
        .uid("files")
        .union(numbers)
        .key_by_parts(|line| (line.len() as u64, 1u64))
        .reduce(|sum, one| *sum += one)
        .uid("counter")
        .sink("nowhere", DiscardSink);
    let handle = env.plan().unwrap().start_with(job, Arc::clone(storage)).unwrap();
    while handle.progress().records_in < 10_000 && !handle.is_over() {
        std::thread::yield_now();
    }
    handle.trigger_checkpoint().unwrap();
    handle.stopper().suspend();
    let result = handle.wait();
    assert_eq!(result.state, JobState::Suspended, "{:?}", result.error);
    result.records_in
}

#[test]
fn every_line_says_where_it_belongs_and_no_record_has_a_line() {
    let captured = Captured::default();
    let writer = captured.clone();
    let log = tracing_subscriber::fmt().with_max_level(LevelFilter::TRACE).with_ansi(false);
    log.with_writer(move || writer.clone()).init();

    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("lines");
    std::fs::write(&file, b"one\ntwo\nnot \xFF UTF-8\n").unwrap();
    let storage: Arc<dyn CheckpointStorage> = Arc::new(MemoryStorage::new());
    let job = JobId::random();
    let records: u64 = (0..2).map(|_| count_for_a_while(job, &file, &storage)).sum();

    let log = String::from_utf8(captured.0.lock().unwrap().clone()).unwrap();
    let place = ["operator=", "subtask="];
    let snapshot = ["operator=", "subtask=", "checkpoint="];
    let expected: &[(&str, &str, &[&str])] = &[
        ("stoplog::job", "job state", &["from=", "to="]),
        ("stoplog::checkpoint::coordinator", "completed", &["checkpoint=", "duration", "bytes="]),
        ("stoplog::runtime::worker", "worker started", &["core=", "subtasks="]),
        ("stoplog::runtime::worker", "worker ended", &["core=", "subtasks="]),
        ("stoplog::runtime::subtask", "started from nothing", &place),
        ("stoplog::runtime::subtask", "restored", &[&snapshot[..], &["bytes=", "restore_ms="]].concat()),
        (
            "stoplog::runtime::subtask",
            "snapshot taken",
            &[&snapshot[..], &["sync_ms=", "alignment_ms="]].concat(),
        ),
        (
            "stoplog::runtime::subtask",
            "snapshot written",
            &[&snapshot[..], &["bytes=", "async_ms="]].concat(),
        ),
        (
            "stoplog::connectors::file",
            "reading a part of a file",
            &[&place[..], &["path=", "from=", "to="]].concat(),
        ),
        ("stoplog::connectors::file", "is not UTF-8", &place),
        ("stoplog::connectors::file", "the files are unchanged", &[&place[..], &["files="]].concat()),
    ];
    let id = format!("job={job}");
    for (target, message, fields) in expected {
        let of_target: Vec<_> = log.lines().filter(|line| line.contains(&format!("{target}: "))).collect();
        let line = of_target.iter().find(|line| line.contains(message));
        let line = line.unwrap_or_else(|| panic!("{target}: {message:?} is missing in\n{log}"));
        for field in fields.iter().copied().chain([id.as_str()]) {
            assert!(line.contains(field), "{field} is missing in {line}");
        }
        for line in of_target {
            assert!(line.contains(&id), "the job is missing in {line}");
        }
    }
    let lines = log.lines().count() as u64;
    assert!(lines < 200 && lines < records / 10, "{lines} lines for {records} records");
}
