//! How long a killed job takes until its output goes on: from `kill -9` to the first newly committed file.
//!
//! Runs the command as its users do: a keyed count with 1 GB of state is killed right after a completed checkpoint and resumed.
//! Beside it stands the plain loop that any recovery has to do at least: read the checkpoint's files from the same disk.
//!
//! `cargo bench --bench recovery`; `-- --test` does the same with a small state.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

struct Size {
    keys: u64,
    value_bytes: u64,
    rate: u64,
}

const FULL: Size = Size { keys: 4_000_000, value_bytes: 256, rate: 1_500_000 };
const SMALL: Size = Size { keys: 20_000, value_bytes: 256, rate: 100_000 };

fn spawn(directory: &Path, size: &Size, compression: &str) -> Child {
    let path = |name: &str| directory.join(name).to_str().expect("a UTF-8 path").to_owned();
    Command::new(env!("CARGO_BIN_EXE_stoplog"))
        .args(["run", "keyed-count", "--records", "1000000000000", "-q"])
        .args(["--keys", &size.keys.to_string(), "--value-bytes", &size.value_bytes.to_string()])
        .args(["--rate", &size.rate.to_string(), "--output", &path("out")])
        .args(["--checkpoint-dir", &path("checkpoints"), "--checkpoint-interval", "1s", "--resume"])
        .args(["-D", &format!("execution.checkpointing.snapshot-compression={compression}")])
        .stdout(Stdio::null())
        .spawn()
        .expect("the command starts")
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    fs::read_dir(directory).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path())).collect()
}

fn is_visible(path: &Path) -> bool {
    path.file_name().is_some_and(|name| !name.to_string_lossy().starts_with('.'))
}

fn newest_checkpoint(directory: &Path) -> Option<(u64, PathBuf)> {
    let jobs = entries(&directory.join("checkpoints"));
    let ids = jobs.iter().flat_map(|job| entries(job)).filter_map(|path| {
        let id = path.file_name()?.to_str()?.strip_prefix("chk-")?.parse().ok()?;
        Some((id, path))
    });
    ids.max()
}

fn visible_files(directory: &Path) -> usize {
    entries(&directory.join("out")).iter().filter(|path| is_visible(path)).count()
}

fn wait(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(600), "waited in vain: {what}");
        sleep(Duration::from_millis(1));
    }
}

fn measure(size: &Size, compression: &str) {
    let scratch = tempfile::tempdir().expect("a directory");
    let directory = scratch.path();
    let mut job = spawn(directory, size, compression);
    // So many records that nearly every key has come up.
    let fill = Duration::from_secs_f64(3.0 * size.keys as f64 / size.rate as f64);
    sleep(fill);
    let (before, _) = newest_checkpoint(directory).unwrap_or_default();
    wait("a checkpoint of the whole state", || {
        newest_checkpoint(directory).is_some_and(|(id, _)| id > before + 1)
    });
    job.kill().expect("killed");
    job.wait().expect("ended");
    let killed = Instant::now();
    let (id, path) = newest_checkpoint(directory).expect("a checkpoint");
    let stored: u64 =
        entries(&path).iter().map(|file| fs::metadata(file).map_or(0, |about| about.len())).sum();
    let visible = visible_files(directory);
    let mut job = spawn(directory, size, compression);
    wait("new output", || visible_files(directory) > visible);
    let first_output = killed.elapsed();
    // The promises of the old checkpoint are published first; what follows is new.
    wait("a new checkpoint", || newest_checkpoint(directory).is_some_and(|(newest, _)| newest > id));
    let visible = visible_files(directory);
    wait("output of this life", || visible_files(directory) > visible);
    let new_output = killed.elapsed();
    job.kill().expect("killed");
    job.wait().expect("ended");

    let (_, path) = newest_checkpoint(directory).expect("a checkpoint");
    let begun = Instant::now();
    let bytes: usize = entries(&path).iter().map(|file| fs::read(file).map_or(0, |bytes| bytes.len())).sum();
    let reading = begun.elapsed();
    let state = size.keys * (size.value_bytes + 10);
    println!(
        "state {:.2} GB, {compression}: checkpoint {:.3} GB on disk; kill to promised output {first_output:.2?}, \
         to the first output of the new life {new_output:.2?}; reading the files alone {reading:.2?} for {:.3} GB",
        state as f64 / 1e9,
        stored as f64 / 1e9,
        bytes as f64 / 1e9
    );
}

fn main() {
    let is_test = std::env::args().any(|argument| argument == "--test");
    let size = if is_test { &SMALL } else { &FULL };
    for compression in ["none", "zstd"] {
        measure(size, compression);
    }
}
