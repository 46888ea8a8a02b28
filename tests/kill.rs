//! The command under `kill -9`, again and again: what it has committed is exactly what one undisturbed run commits.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::Duration;

use serde_json::Value;
use stoplog::base::rng::Rng;

#[path = "kill/output.rs"]
mod output;

use output::{Visible, files_below};

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stoplog"));
    command.args(args).env_remove("RUST_LOG").env("RUST_BACKTRACE", "0");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs until the process ends or is killed after the pause. `None` if it was killed.
fn run_or_kill(args: &[&str], pause: Duration) -> Option<Output> {
    let mut child: Child = command(args).spawn().unwrap();
    sleep(pause);
    child.kill().unwrap();
    let output = child.wait_with_output().unwrap();
    output.status.code().is_some().then_some(output)
}

fn result(output: &Output) -> Value {
    let stdout = String::from_utf8(output.stdout.clone()).unwrap();
    let line = stdout.lines().last().unwrap_or_else(|| panic!("no result: {}", stderr(output)));
    serde_json::from_str(line).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

struct Scratch {
    _directory: tempfile::TempDir,
    input: PathBuf,
    output: PathBuf,
    checkpoints: PathBuf,
}

impl Scratch {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = |name| directory.path().join(name);
        let (input, output, checkpoints) = (path("in"), path("out"), path("checkpoints"));
        Self { _directory: directory, input, output, checkpoints }
    }

    fn path(path: &Path) -> &str {
        path.to_str().unwrap()
    }

    /// What is left when everything is done: the record that the job is finished, and visible output.
    fn assert_tidy(&self, job_id: &str) {
        let left = files_below(&self.checkpoints);
        assert_eq!(left, [format!("{job_id}/_job")], "only the record of the job is left");
        let hidden: Vec<_> =
            files_below(&self.output).into_iter().filter(|name| name.starts_with('.')).collect();
        assert!(hidden.is_empty(), "{hidden:?} is left in the output");
    }
}

/// Words of which some are frequent and some are rare, in lines of a few.
fn text(rng: &mut Rng, words: u64) -> String {
    let mut text = String::new();
    for n in 0..words {
        let bound = 1 + rng.below(2000);
        text.push_str(&format!("w{}", rng.below(bound)));
        text.push(if n % 9 == 8 { '\n' } else { ' ' });
    }
    text
}

/// For each word the counts 1 to n, each once.
fn assert_updates(lines: &[String], texts: &[String]) {
    let mut counts: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for line in lines {
        let (word, count) = line.rsplit_once(',').unwrap();
        counts.entry(word).or_default().push(count.parse().unwrap());
    }
    let mut expected: BTreeMap<&str, u64> = BTreeMap::new();
    for word in texts.iter().flat_map(|text| text.split_whitespace()) {
        *expected.entry(word).or_default() += 1;
    }
    assert_eq!(counts.len(), expected.len(), "as many words");
    for (word, mut counts) in counts {
        counts.sort_unstable();
        assert!(
            counts.iter().copied().eq(1..=expected[word]),
            "{word}: {counts:?}, expected 1 to {}",
            expected[word]
        );
    }
}

/// The promise of the whole: exactly once, from the file read to the file committed, across `kill -9`.
#[test]
fn word_counts_survive_a_hundred_kills() {
    const KILLS: u32 = 100;
    const WORDS: u64 = 3_000_000;
    let seed = std::env::var("STOPLOG_SEED").ok().map_or(1, |seed| seed.parse().unwrap());
    println!("STOPLOG_SEED={seed}");
    let mut rng = Rng::new(seed);
    let scratch = Scratch::new();
    fs::create_dir(&scratch.input).unwrap();
    let texts: Vec<String> = (0..3).map(|_| text(&mut rng, WORDS / 3)).collect();
    for (index, text) in texts.iter().enumerate() {
        fs::write(scratch.input.join(format!("{index}.txt")), text).unwrap();
    }
    let (input, output) = (Scratch::path(&scratch.input), Scratch::path(&scratch.output));
    let checkpoints = Scratch::path(&scratch.checkpoints);
    let mut visible = Visible::default();
    let (mut kills, mut restored) = (0, 0);
    let mut bound_ms = 60;
    let finished = loop {
        let parallelism = (1 + rng.below(4)).to_string();
        let args = [
            "run",
            "wordcount",
            "--input",
            input,
            "--output",
            output,
            "--checkpoint-dir",
            checkpoints,
            "--checkpoint-interval",
            "20ms",
            "--resume",
            "-p",
            &parallelism,
            "--json",
            "-q",
            "-D",
            "taskmanager.ring.capacity=16",
        ];
        // Once there were enough kills the job may come to its end.
        let pause =
            if kills < KILLS { Duration::from_millis(rng.below(bound_ms)) } else { Duration::from_secs(120) };
        if kills >= KILLS {
            let output = command(&args).output().unwrap();
            assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
            break output;
        }
        let before = visible.lines;
        match run_or_kill(&args, pause) {
            None => kills += 1,
            Some(output) if output.status.code() == Some(0) => break output,
            Some(output) => panic!("life {kills}: {}: {}", output.status, stderr(&output)),
        }
        visible.look_at(&scratch.output);
        restored += u32::from(before > 0);
        // Lives are as long as the machine needs: the input is to last for all kills, and most lives are to commit something.
        let is_too_fast = visible.lines as u64 * u64::from(KILLS) > WORDS / 2 * u64::from(kills);
        bound_ms = if is_too_fast { (bound_ms * 3 / 4).max(8) } else { (bound_ms * 9 / 8 + 1).min(400) };
    };
    let end = result(&finished);
    assert_eq!(end["state"], "FINISHED", "{end}");
    assert!(kills >= KILLS, "the input was read to its end after only {kills} kills");
    assert!(restored > 20, "most lives went on from a checkpoint, not {restored}");
    visible.look_at(&scratch.output);
    assert_updates(&visible.all_lines(&scratch.output), &texts);
    let job_id = end["job_id"].as_str().unwrap();
    scratch.assert_tidy(job_id);

    // Once more: there is nothing left to do.
    let args = [
        "run",
        "wordcount",
        "--input",
        input,
        "--output",
        output,
        "--checkpoint-dir",
        checkpoints,
        "--resume",
        "--json",
    ];
    let again = command(&args).output().unwrap();
    assert_eq!(again.status.code(), Some(0), "{}", stderr(&again));
    let again = result(&again);
    assert_eq!(
        (&again["state"], &again["records_in"], &again["job_id"]),
        (&"FINISHED".into(), &0.into(), &job_id.into())
    );
    visible.look_at(&scratch.output);
    scratch.assert_tidy(job_id);
}
