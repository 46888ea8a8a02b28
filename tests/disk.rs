//! Jobs whose checkpoints are on the disk.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use stoplog::base::id::JobId;
use stoplog::config::SnapshotCompression;
use stoplog::prelude::*;
use stoplog::snapshot::{
    CheckpointStorage, CompletedCheckpoint, Conclusion, JobStorage, JobStorageSettings, LocalStore,
    SnapshotDirectory, StateFiles, read_section,
};

const SUSPENDED: Conclusion = Conclusion::Ended { keeps_checkpoints: true };

fn job() -> JobId {
    JobId::from_words(4, 2)
}

fn settings(inline_threshold: usize) -> JobStorageSettings {
    JobStorageSettings { inline_threshold, owner: "the test".to_owned(), began_from: None }
}

/// Counts a thousand keys until a checkpoint was taken by hand; then suspends.
fn count_for_a_while(
    storage: &Arc<JobStorage>,
    parallelism: u32,
    compression: SnapshotCompression,
) -> JobResult {
    let mut config = JobConfig { parallelism, max_parallelism: Some(16), ..JobConfig::default() };
    config.checkpoints.compression = compression;
    config.checkpoints.interval = Some(Duration::from_millis(20));
    let env = StreamEnvironment::new(config);
    env.source("numbers", GeneratorSource::new(u64::MAX, |n| n % 1000).rate(100_000.0))
        .uid("numbers")
        .key_by_parts(|n| (n, 1u64))
        .reduce(|sum, one| *sum += one)
        .uid("counter")
        .sink("nowhere", DiscardSink);
    let shared = Arc::clone(storage) as Arc<dyn CheckpointStorage>;
    let running = env.plan().unwrap().start_with(job(), shared).unwrap();
    while running.progress().records_in < 5000 && !running.is_over() {
        std::thread::yield_now();
    }
    running.trigger_checkpoint().unwrap();
    running.stopper().suspend();
    running.wait()
}

fn verified(path: &Path) {
    let found = stoplog::savepoint::verify(Arc::new(LocalStore), path).unwrap();
    assert!(found.whole, "{:?}", found.damage);
}

/// One life after the other, each with another number of subtasks, another compression, and its state in other places.
#[test]
fn a_job_goes_on_in_another_process_from_its_newest_checkpoint() {
    let root = tempfile::tempdir().unwrap();
    let lives = [
        (1, SnapshotCompression::Zstd, 0),
        (3, SnapshotCompression::Lz4, 1 << 20),
        (2, SnapshotCompression::None, 500),
        (2, SnapshotCompression::Zstd, 20 << 10),
    ];
    let mut newest = None;
    for (parallelism, compression, inline_threshold) in lives {
        let store = Arc::new(LocalStore);
        let storage = if newest.is_none() {
            JobStorage::fresh(store, root.path(), job(), "counting", 1, settings(inline_threshold))
        } else {
            JobStorage::resume(store, root.path(), job(), settings(inline_threshold))
        };
        let storage = Arc::new(storage.unwrap());
        storage.open().unwrap();
        let result = count_for_a_while(&storage, parallelism, compression);
        assert_eq!((result.state, result.error.map(|error| error.to_string())), (JobState::Suspended, None));
        let expected = newest.map(|id| storage.path(id));
        assert_eq!(result.restored_from, expected, "not from an older one, and not from nothing");
        let now = storage.newest().unwrap().unwrap();
        assert!(Some(now.id) > newest);
        newest = Some(now.id);
        let (by_path, files) =
            SnapshotDirectory::open(Arc::new(LocalStore), Path::new(&storage.path(now.id))).unwrap();
        assert_eq!(counted(&by_path, files.as_ref()), counted(&now, storage.as_ref()));
        verified(storage.job_directory());
        storage.conclude(SUSPENDED).unwrap();
        drop(storage);
    }
}

/// The sum of all counts. It must be the number of records that the source says it has produced.
fn counted(checkpoint: &CompletedCheckpoint, files: &dyn StateFiles) -> u64 {
    let (mut counted, mut produced) = (0, 0);
    for operator in checkpoint.subtasks.iter().flat_map(|subtask| &subtask.operators) {
        for (group, handle) in operator.keyed.iter().flat_map(|state| &state.sections) {
            let contents = read_section(files, *group, handle).unwrap();
            let mut rest = &contents[8..];
            while !rest.is_empty() {
                let ((_key, count), left) = postcard::take_from_bytes::<(u64, u64)>(rest).unwrap();
                counted += count;
                rest = left;
            }
        }
        for split in operator.list.iter().flat_map(|list| &list.items) {
            let (next, step) = postcard::from_bytes::<(u64, u64)>(split).unwrap();
            produced += next / step;
        }
    }
    assert!(counted > 0);
    assert_eq!(counted, produced, "nothing is lost and nothing is counted twice");
    counted
}
