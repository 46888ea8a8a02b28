//! A job that goes on from the checkpoint of another: what must be refused, and why.

use std::sync::Arc;
use std::time::Duration;

use stoplog::base::id::{CheckpointId, JobId, SubtaskId};
use stoplog::codec::Key;
use stoplog::prelude::*;
use stoplog::snapshot::{
    CheckpointStorage, CompletedCheckpoint, MemoryStorage, SnapshotError, StateFiles, StateHandle,
    StateWriter,
};

/// Counts four keys for ever, until some records are through and a checkpoint is complete; then suspends.
fn count_for_a_while<K: Key>(
    storage: &Arc<dyn CheckpointStorage>,
    max_parallelism: u32,
    key: fn(u64) -> K,
) -> JobResult {
    let max_parallelism = Some(max_parallelism);
    let env = StreamEnvironment::new(JobConfig { parallelism: 1, max_parallelism, ..JobConfig::default() });
    env.source("numbers", GeneratorSource::new(u64::MAX, |n| n % 4))
        .uid("numbers")
        .key_by_parts(move |n| (key(n), ()))
        .process_with(ValueStateDescriptor::<u64>::new("count"), |(), mut count, _| {
            count.modify(|| 0, |count| *count += 1);
            None::<u64>
        })
        .uid("counter")
        .sink("nowhere", DiscardSink);
    let job = env.plan().unwrap().start_with(JobId::random(), Arc::clone(storage)).unwrap();
    while job.progress().records_in == 0 && !job.is_over() {
        std::thread::yield_now();
    }
    let _ = job.trigger_checkpoint();
    job.stopper().suspend();
    job.wait()
}

fn memory() -> Arc<dyn CheckpointStorage> {
    Arc::new(MemoryStorage::new())
}

#[test]
fn the_same_job_goes_on_where_it_was() {
    let storage = memory();
    assert_eq!(count_for_a_while::<u64>(&storage, 8, |n| n).restored_from, None);
    let again = count_for_a_while::<u64>(&storage, 8, |n| n);
    assert_eq!((again.state, again.restored_from), (JobState::Suspended, Some("memory:chk-1".to_owned())));
}

/// Another number of key groups puts keys into other groups: their state would not be found, and they would count from 1 again.
#[test]
fn another_max_parallelism_is_refused_with_both_numbers() {
    let storage = memory();
    count_for_a_while::<u64>(&storage, 8, |n| n);
    let result = count_for_a_while::<u64>(&storage, 16, |n| n);
    let error = result.error.expect("refused").to_string();
    assert_eq!((result.state, result.restarts), (JobState::Failed, 0));
    assert!(error.contains("max parallelism is 8 in the snapshot and 16 in the job"), "{error}");
}

/// All integers have one hash and encodings that decode each other: only the stored form of the key tells them apart.
#[test]
fn keys_of_another_type_are_refused() {
    let storage = memory();
    count_for_a_while::<u64>(&storage, 1, |n| n);
    let result = count_for_a_while::<i64>(&storage, 1, |n| n.cast_signed());
    let error = result.error.expect("refused").to_string();
    assert!(error.contains("keys of the form i64 in the job and u64 in the snapshot"), "{error}");
    assert!(error.contains("\"counter\""), "{error}");
}

#[derive(Debug)]
struct PanickingStorage(MemoryStorage);

impl StateFiles for PanickingStorage {
    fn read(&self, handle: &StateHandle) -> Result<Vec<u8>, SnapshotError> {
        self.0.read(handle)
    }
}

impl CheckpointStorage for PanickingStorage {
    fn begin(&self, id: CheckpointId, subtask: SubtaskId) -> Result<Box<dyn StateWriter>, SnapshotError> {
        self.0.begin(id, subtask)
    }

    fn commit(&self, _checkpoint: &CompletedCheckpoint) -> Result<(), SnapshotError> {
        panic!("no commit today")
    }

    fn discard(&self, _id: CheckpointId) -> Result<(), SnapshotError> {
        panic!("no discard either")
    }

    fn newest(&self) -> Result<Option<CompletedCheckpoint>, SnapshotError> {
        self.0.newest()
    }

    fn list(&self) -> Result<Vec<CheckpointId>, SnapshotError> {
        self.0.list()
    }
}

/// The storage is the embedder's: its panic fails the checkpoint, and with it the job, but never the process.
#[test]
fn a_storage_that_panics_fails_the_job_and_not_the_process() {
    let mut config = JobConfig { parallelism: 1, ..JobConfig::default() };
    config.checkpoints.interval = Some(Duration::from_millis(1));
    config.restart = Some(RestartConfig::None);
    let env = StreamEnvironment::new(config);
    env.source("numbers", GeneratorSource::new(10, |n| n)).sink("nowhere", DiscardSink);
    let storage = Arc::new(PanickingStorage(MemoryStorage::new()));
    let result = env.plan().unwrap().start_with(JobId::random(), storage).unwrap().wait();
    let error = result.error.expect("failed").to_string();
    assert_eq!(result.state, JobState::Failed);
    assert!(error.contains("the storage panicked"), "{error}");
}

/// Storage whose writes wait until the test lets them go on.
#[derive(Debug)]
struct SlowStorage {
    inner: MemoryStorage,
    writes_begun: std::sync::atomic::AtomicU64,
    open: std::sync::Mutex<bool>,
    opened: std::sync::Condvar,
}

impl StateFiles for SlowStorage {
    fn read(&self, handle: &StateHandle) -> Result<Vec<u8>, SnapshotError> {
        self.inner.read(handle)
    }
}

impl CheckpointStorage for SlowStorage {
    fn begin(&self, id: CheckpointId, subtask: SubtaskId) -> Result<Box<dyn StateWriter>, SnapshotError> {
        self.writes_begun.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let open = self.open.lock().unwrap();
        drop(self.opened.wait_while(open, |open| !*open).unwrap());
        self.inner.begin(id, subtask)
    }

    fn commit(&self, checkpoint: &CompletedCheckpoint) -> Result<(), SnapshotError> {
        self.inner.commit(checkpoint)
    }

    fn discard(&self, id: CheckpointId) -> Result<(), SnapshotError> {
        self.inner.discard(id)
    }

    fn newest(&self) -> Result<Option<CompletedCheckpoint>, SnapshotError> {
        self.inner.newest()
    }

    fn list(&self) -> Result<Vec<CheckpointId>, SnapshotError> {
        self.inner.list()
    }
}

/// Snapshots that wait for their turn longer than their checkpoint lives are not written: each would delay the next past its
/// timeout too, and keep its fork of the state in memory.
#[test]
fn snapshots_of_abandoned_checkpoints_are_not_written() {
    let storage = Arc::new(SlowStorage {
        inner: MemoryStorage::new(),
        writes_begun: Default::default(),
        open: std::sync::Mutex::new(false),
        opened: std::sync::Condvar::new(),
    });
    let mut config = JobConfig { parallelism: 2, ..JobConfig::default() };
    config.checkpoints.interval = Some(Duration::from_millis(1));
    config.checkpoints.timeout = Duration::from_millis(2);
    config.checkpoints.tolerable_failures = u32::MAX;
    let env = StreamEnvironment::new(config);
    env.source("numbers", GeneratorSource::new(u64::MAX, |n| n % 4).rate(10_000.0))
        .key_by_parts(|n| (n, 1u64))
        .reduce(|sum, one| *sum += one)
        .sink("nowhere", DiscardSink);
    let shared = Arc::clone(&storage) as Arc<dyn CheckpointStorage>;
    let job = env.plan().unwrap().start_with(JobId::random(), shared).unwrap();
    while job.progress().checkpoints.failed < 30 {
        std::thread::yield_now();
    }
    // One thread writes: it hangs in the first snapshot, all others were abandoned behind it.
    let begun = || storage.writes_begun.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!(begun(), 1);
    *storage.open.lock().unwrap() = true;
    storage.opened.notify_all();
    job.stopper().cancel();
    assert_eq!(job.wait().state, JobState::Canceled);
    assert!(begun() < 10, "{} of more than 30 abandoned snapshots were written", begun());
}
