//! The command and what it leaves on disk: resuming, restoring by path, retention, locks, damage.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;

#[path = "kill/output.rs"]
mod output;

use output::{Visible, files_below};

const PATIENCE: Duration = Duration::from_secs(60);

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stoplog"));
    command.args(args).env_remove("RUST_LOG").env("RUST_BACKTRACE", "0");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn stoplog(args: &[&str]) -> Output {
    command(args).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The result of a run that must end with this status.
fn ended(output: &Output, status: i32) -> Value {
    assert_eq!(output.status.code(), Some(status), "{}", stderr(output));
    let stdout = String::from_utf8(output.stdout.clone()).unwrap();
    serde_json::from_str(stdout.lines().last().unwrap_or_else(|| panic!("no result: {}", stderr(output))))
        .unwrap()
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "waited in vain: {what}");
        sleep(Duration::from_millis(2));
    }
}

fn signal(child: &Child, name: &str) {
    assert!(Command::new("kill").args([name, &child.id().to_string()]).status().unwrap().success());
}

/// A place for one job: 60 000 records in the order of their keys' numbers.
struct Place {
    directory: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// Arguments of a run of `sequence-check` with its checkpoints here; `more` comes last.
    fn args(&self, more: &[&str]) -> Vec<String> {
        let (output, checkpoints) = (self.text("out"), self.text("checkpoints"));
        let fixed = [
            "run",
            "sequence-check",
            "--keys",
            "10",
            "--records",
            "60000",
            "--output",
            &output,
            "--checkpoint-dir",
            &checkpoints,
            "--checkpoint-interval",
            "5ms",
            "--json",
            "-q",
        ];
        fixed.iter().chain(more).map(|arg| (*arg).to_owned()).collect()
    }

    fn spawn(&self, more: &[&str]) -> Child {
        let args = self.args(more);
        command(&args.iter().map(String::as_str).collect::<Vec<_>>()).spawn().unwrap()
    }

    fn run(&self, more: &[&str]) -> Output {
        self.spawn(more).wait_with_output().unwrap()
    }

    /// Directories of visible checkpoints, oldest first.
    fn checkpoints(&self) -> Vec<PathBuf> {
        let mut found: Vec<(u64, PathBuf)> = Vec::new();
        for job in fs::read_dir(self.path("checkpoints")).into_iter().flatten() {
            for entry in fs::read_dir(job.unwrap().path()).into_iter().flatten() {
                let path = entry.unwrap().path();
                let id = path.file_name().unwrap().to_str().unwrap().strip_prefix("chk-").map(str::to_owned);
                found.extend(id.map(|id| (id.parse().unwrap(), path)));
            }
        }
        found.sort();
        found.into_iter().map(|(_, path)| path).collect()
    }

    /// 0 if there is none.
    fn newest_id(&self) -> u64 {
        let newest = self.checkpoints().pop();
        newest.map_or(0, |path| path.file_name().unwrap().to_str().unwrap()["chk-".len()..].parse().unwrap())
    }

    fn hidden(&self) -> Vec<String> {
        let all = files_below(self.directory.path());
        all.into_iter().filter(|name| name.split('/').any(|part| part.starts_with('.'))).collect()
    }

    /// Lets a slow run complete some checkpoints and ends it by this signal.
    fn interrupted(&self, name: &str, more: &[&str]) -> Output {
        let child = self.spawn(&[&["--rate", "20000"], more].concat());
        until("checkpoints are completed", || {
            self.checkpoints().last().is_some_and(|path| !path.ends_with("chk-1"))
                && self.path("out").join("x").parent().is_some_and(|out| {
                    fs::read_dir(out).is_ok_and(|entries| {
                        entries
                            .filter(|entry| {
                                entry.as_ref().is_ok_and(|entry| {
                                    entry.file_name().to_str().unwrap().starts_with("part-")
                                })
                            })
                            .count()
                            > 0
                    })
                })
        });
        signal(&child, name);
        child.wait_with_output().unwrap()
    }

    /// Every key's numbers, each once.
    fn assert_complete(&self) {
        let mut lines: Vec<(u64, u64)> = Visible::default()
            .all_lines(&self.path("out"))
            .iter()
            .map(|line| {
                line.split_once(',').map(|(key, n)| (key.parse().unwrap(), n.parse().unwrap())).unwrap()
            })
            .collect();
        lines.sort_unstable();
        let expected = (0..10).flat_map(|key| (1..=6000).map(move |n| (key, n)));
        assert!(lines.iter().copied().eq(expected), "{} lines", lines.len());
    }
}

#[test]
fn a_suspended_job_goes_on_at_another_parallelism_under_its_old_identity() {
    let place = Place::new();
    let first = ended(&place.interrupted("-INT", &["-p", "2"]), 0);
    assert_eq!(first["state"], "SUSPENDED");
    assert!(place.hidden().is_empty(), "{:?}", place.hidden());
    assert_eq!(place.checkpoints().len(), 1, "one is retained");
    let kept = place.checkpoints()[0].clone();
    assert_eq!(first["checkpoints"]["last"]["path"], kept.to_str().unwrap());
    let second = ended(&place.run(&["-p", "3", "--resume"]), 0);
    assert_eq!((&second["state"], &second["job_id"]), (&"FINISHED".into(), &first["job_id"]));
    assert_eq!(second["restored_from"], kept.to_str().unwrap());
    assert_eq!(second["alerts"], 0);
    let ids = [&first, &second].map(|result| result["checkpoints"]["last"]["id"].as_u64().unwrap());
    assert!(ids[0] < ids[1], "ids grow: {ids:?}");
    let total = [&first, &second].map(|result| result["records_in"].as_u64().unwrap());
    assert!(total[1] < 60_000, "the second run reads what is left");
    place.assert_complete();
    assert!(place.hidden().is_empty() && place.checkpoints().is_empty());
}

#[test]
fn ids_grow_over_every_life_of_the_directory() {
    let place = Place::new();
    let mut last = 0;
    for life in 0..6 {
        let child = place.spawn(&["--rate", "15000", "--resume", "-p", &(1 + life % 3).to_string()]);
        until("newer checkpoints", || place.newest_id() > last + 1);
        signal(&child, "-KILL");
        child.wait_with_output().unwrap();
        assert!(place.newest_id() > last, "{} after {last}", place.newest_id());
        last = place.newest_id();
    }
    let end = ended(&place.run(&["--resume"]), 0);
    assert!(end["checkpoints"]["last"]["id"].as_u64().unwrap() > last);
    place.assert_complete();
}

#[test]
fn a_finished_job_is_not_run_again_and_another_run_needs_another_output() {
    let place = Place::new();
    let first = ended(&place.run(&["--resume"]), 0);
    assert_eq!(first["state"], "FINISHED");
    let files = files_below(place.directory.path());
    let again = ended(&place.run(&["--resume", "-p", "4"]), 0);
    assert_eq!(
        (&again["state"], &again["records_in"], &again["records_out"]),
        (&"FINISHED".into(), &0.into(), &0.into())
    );
    assert_eq!(files, files_below(place.directory.path()), "nothing changed");
    let fresh = place.run(&[]);
    assert_eq!(fresh.status.code(), Some(2), "{}", stderr(&fresh));
    assert!(stderr(&fresh).contains("is not empty"), "{}", stderr(&fresh));
    assert_eq!(files, files_below(place.directory.path()), "the refused run left nothing");
    place.assert_complete();
}

#[test]
fn a_second_process_with_the_same_directory_is_refused_and_harms_nothing() {
    let place = Place::new();
    let child = place.spawn(&["--rate", "60000", "--resume", "-p", "2"]);
    until("a checkpoint", || !place.checkpoints().is_empty());
    for _ in 0..5 {
        let second = place.run(&["--resume"]);
        let text = stderr(&second);
        assert_eq!(second.status.code(), Some(2), "{text}");
        assert!(text.contains("is held by") && text.contains(&child.id().to_string()), "{text}");
        // Not its own checkpoints, but the same output.
        let other = place.text("other");
        let args = place.args(&["--checkpoint-dir", &other]);
        let args: Vec<&str> =
            args.iter().map(String::as_str).filter(|arg| *arg != place.text("checkpoints")).collect();
        let mut args: Vec<&str> = args;
        let at = args.iter().position(|arg| *arg == "--checkpoint-dir").unwrap();
        args.remove(at);
        let third = stoplog(&args);
        let text = stderr(&third);
        assert_eq!(third.status.code(), Some(2), "{text}");
        assert!(!place.path("other").exists(), "the refused run left nothing");
    }
    ended(&child.wait_with_output().unwrap(), 0);
    place.assert_complete();
}

#[test]
fn a_retained_checkpoint_restores_by_its_path_into_another_output() {
    let place = Place::new();
    place.interrupted(
        "-KILL",
        &["-p", "2", "-D", "execution.checkpointing.num-retained=3", "--max-parallelism", "16"],
    );
    let before = files_below(&place.path("checkpoints"));
    for (index, checkpoint) in place.checkpoints().iter().enumerate() {
        for path in [checkpoint.clone(), checkpoint.join("_metadata")] {
            let output = place.text(&format!("out-{index}-{}", path.ends_with("_metadata")));
            let run = stoplog(&[
                "run",
                "sequence-check",
                "--keys",
                "10",
                "--records",
                "60000",
                "-s",
                path.to_str().unwrap(),
                "--output",
                &output,
                "-p",
                "3",
                "--json",
                "-q",
            ]);
            let result = ended(&run, 0);
            assert_eq!((&result["state"], &result["alerts"]), (&"FINISHED".into(), &0.into()));
            assert_eq!(result["restored_from"], checkpoint.to_str().unwrap());
            assert!(result["records_in"].as_u64().unwrap() < 60_000);
        }
    }
    let checkpoint = place.checkpoints().last().unwrap().to_str().unwrap().to_owned();
    let out = place.text("out-refused");
    let refused = stoplog(&[
        "run",
        "sequence-check",
        "--keys",
        "10",
        "--records",
        "60000",
        "-s",
        &checkpoint,
        "--output",
        &out,
        "--max-parallelism",
        "32",
    ]);
    let text = stderr(&refused);
    assert_eq!(refused.status.code(), Some(2), "{text}");
    assert!(text.contains("16") && text.contains("32"), "both numbers: {text}");
    assert_eq!(before, files_below(&place.path("checkpoints")), "restoring by path changes nothing there");
}

#[test]
fn going_back_behind_committed_output_needs_its_flag() {
    let place = Place::new();
    place.interrupted("-KILL", &["-p", "2", "-D", "execution.checkpointing.num-retained=3"]);
    // The newest one's output is committed by going on from it.
    let child = place.spawn(&["--rate", "20000", "--resume", "-D", "execution.checkpointing.num-retained=3"]);
    until("three checkpoints", || place.checkpoints().len() >= 3);
    let oldest = place.checkpoints()[0].clone();
    until("newer ones", || !oldest.exists());
    signal(&child, "-KILL");
    child.wait_with_output().unwrap();
    let kept = place.checkpoints();
    let oldest = kept[0].to_str().unwrap();
    let parts = || {
        let files = files_below(&place.path("out"));
        // A lock that its dead owner left may be cleared away.
        files.into_iter().filter(|name| name != ".lock").collect::<Vec<_>>()
    };
    let files = parts();
    let back = |more: &[&str]| {
        let other = place.text("other");
        let args = place.args(&[&["-s", oldest], more].concat());
        let args: Vec<String> = args
            .into_iter()
            .map(|arg| if arg == place.text("checkpoints") { other.clone() } else { arg })
            .collect();
        stoplog(&args.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let refused = back(&[]);
    let text = stderr(&refused);
    assert_eq!(refused.status.code(), Some(2), "{text}");
    assert!(text.contains("part-") && text.contains("--allow-repeated-output"), "{text}");
    assert_eq!(files, parts());
    let mut visible = Visible::default();
    visible.look_at(&place.path("out"));
    let result = ended(&back(&["--allow-repeated-output"]), 0);
    assert_eq!(result["state"], "FINISHED");
    visible.look_at(&place.path("out"));
    // Some lines are there twice now, as was allowed; none is missing.
    let mut lines = visible.all_lines(&place.path("out"));
    let with_repeats = lines.len();
    lines.sort_unstable();
    lines.dedup();
    assert_eq!(lines.len(), 60_000);
    assert!(with_repeats > 60_000);
}

#[test]
fn damage_is_refused_by_name_and_nothing_is_removed() {
    let place = Place::new();
    // State in files, not in the metadata.
    let more = [
        "-p",
        "2",
        "-D",
        "execution.checkpointing.num-retained=2",
        "-D",
        "execution.checkpointing.data-inline-threshold=0",
    ];
    place.interrupted("-KILL", &more);
    let newest = place.checkpoints().last().unwrap().clone();
    let older = place.checkpoints()[0].clone();
    assert_ne!(newest, older);
    let files = files_below(&newest);
    assert!(files.len() >= 2 && files.contains(&"_metadata".to_owned()), "{files:?}");
    for file in files {
        let path = newest.join(&file);
        let whole = fs::read(&path).unwrap();
        let mut damages: Vec<Option<Vec<u8>>> = vec![None, Some(Vec::new())];
        for at in [0, whole.len() / 3, whole.len() / 2, whole.len() - 1] {
            let mut flipped = whole.clone();
            flipped[at] ^= 0x10;
            damages.push(Some(flipped));
            damages.push(Some(whole[..at].to_vec()));
        }
        for damaged in damages {
            match &damaged {
                Some(bytes) => fs::write(&path, bytes).unwrap(),
                None => fs::remove_file(&path).unwrap(),
            }
            let expected = files_below(place.directory.path());
            let resumed = place.run(&[&more[..], &["--resume"]].concat());
            let text = stderr(&resumed);
            assert_eq!(resumed.status.code(), Some(2), "{file}: {text}");
            assert!(text.contains(path.to_str().unwrap()), "{file} is not named: {text}");
            let verified = stoplog(&["verify", newest.to_str().unwrap()]);
            let told = stderr(&verified) + &String::from_utf8_lossy(&verified.stdout);
            assert_eq!(verified.status.code(), Some(1), "{file}: {told}");
            assert!(told.contains(&file), "{file} is not named: {told}");
            let left: Vec<String> = files_below(place.directory.path());
            let is_lock = |name: &&String| !name.ends_with(".lock");
            assert_eq!(
                left.iter().filter(is_lock).collect::<Vec<_>>(),
                expected.iter().filter(is_lock).collect::<Vec<_>>(),
                "nothing is removed"
            );
            fs::write(&path, &whole).unwrap();
        }
    }
    // The older one restores by its path while the newest is damaged.
    fs::write(newest.join("_metadata"), "").unwrap();
    let output = place.text("elsewhere");
    let run = stoplog(&[
        "run",
        "sequence-check",
        "--keys",
        "10",
        "--records",
        "60000",
        "-s",
        older.to_str().unwrap(),
        "--output",
        &output,
        "--json",
        "-q",
    ]);
    assert_eq!(ended(&run, 0)["alerts"], 0);
}

#[test]
fn checkpoints_are_kept_or_removed_as_the_retention_says() {
    const RETENTION: &str = "execution.checkpointing.externalized-checkpoint-retention";
    let retain = format!("{RETENTION}=RETAIN_ON_CANCELLATION");
    let delete = format!("{RETENTION}=DELETE_ON_CANCELLATION");
    // Finished: removed unless retained.
    for (more, kept) in [(&[][..], 0), (&["-D", &retain][..], 1), (&["-D", &delete][..], 0)] {
        let place = Place::new();
        let end = ended(&place.run(more), 0);
        assert_eq!((end["state"].as_str(), place.checkpoints().len()), (Some("FINISHED"), kept), "{more:?}");
        assert!(place.hidden().is_empty());
        if kept > 0 {
            let whole = stoplog(&["verify", place.checkpoints()[0].to_str().unwrap()]);
            assert_eq!(whole.status.code(), Some(0), "{}", stderr(&whole));
        }
    }
    // Suspended: kept unless it says to delete.
    for (more, kept) in [(&[][..], 1), (&["-D", &retain][..], 1), (&["-D", &delete][..], 0)] {
        let place = Place::new();
        let end = ended(&place.interrupted("-TERM", more), 0);
        assert_eq!((end["state"].as_str(), place.checkpoints().len()), (Some("SUSPENDED"), kept), "{more:?}");
        assert!(place.hidden().is_empty(), "{:?}", place.hidden());
    }
    // Failed: kept.
    let place = Place::new();
    let more = ["--rate", "60000", "--fail-after", "20000", "-p", "1", "-D", "restart-strategy.type=none"];
    let end = ended(&place.run(&more), 1);
    assert_eq!((end["state"].as_str(), place.checkpoints().len()), (Some("FAILED"), 1));
    assert!(place.hidden().is_empty(), "{:?}", place.hidden());
    ended(&place.run(&["--resume"]), 0);
    place.assert_complete();
}

#[test]
fn mistakes_about_what_to_go_on_from_are_told_with_status_2() {
    let place = Place::new();
    let job = ["run", "sequence-check", "--records", "10"];
    let nowhere = place.text("nowhere");
    let file = place.text("file");
    fs::write(&file, "x").unwrap();
    for (more, words) in [
        (&["--resume"][..], &["--resume", "--checkpoint-dir"][..]),
        (&["--resume", "-s", &nowhere, "--checkpoint-dir", &nowhere], &["-s", "--resume"]),
        (&["-s", &nowhere], &[&nowhere]),
        (&["-s", &file], &[&file]),
        (&["-s", &nowhere, "--claim-mode", "claim"], &["claim", "not available yet"]),
        (&["--checkpoint-dir", "hdfs:///x"], &["hdfs", "execution.checkpointing.dir"]),
    ] {
        let output = stoplog(&[&job[..], more].concat());
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{more:?}: {text}");
        for word in words {
            assert!(text.contains(word), "{more:?}: {word:?} is missing in {text}");
        }
    }
    assert!(!Path::new(&nowhere).exists());
}

#[test]
fn a_checkpoint_directory_that_cannot_be_written_is_named() {
    let place = Place::new();
    fs::write(place.path("checkpoints"), "a file").unwrap();
    let refused = place.run(&[]);
    let text = stderr(&refused);
    assert_eq!(refused.status.code(), Some(2), "{text}");
    assert!(text.contains(&place.text("checkpoints")), "{text}");
    let place = Place::new();
    fs::write(place.path("out"), "a file").unwrap();
    let refused = place.run(&[]);
    let text = stderr(&refused);
    assert_eq!(refused.status.code(), Some(2), "{text}");
    assert!(text.contains(&place.text("out")), "{text}");
}

/// Such a run has nothing of its own before its first checkpoint; to begin again from nothing would count everything anew.
#[test]
fn a_run_that_began_from_a_snapshot_goes_on_from_it_until_it_has_a_checkpoint() {
    let place = Place::new();
    place.interrupted("-KILL", &[]);
    let snapshot = place.checkpoints().pop().unwrap();
    let (output, own) = (place.text("out-2"), place.text("own"));
    let job = ["run", "sequence-check", "--keys", "10", "--records", "60000", "--output", &output];
    let kept = ["--checkpoint-dir", &own, "--checkpoint-interval", "1h", "--json", "-q"];
    let by_path = ["-s", snapshot.to_str().unwrap(), "--rate", "1000"];
    let child = command(&[&job[..], &kept, &by_path].concat()).spawn().unwrap();
    until("the run is recorded", || {
        files_below(&place.path("own")).iter().any(|name| name.ends_with("/_job"))
    });
    signal(&child, "-KILL");
    child.wait_with_output().unwrap();
    let resume = [&job[..], &kept, &["--resume"]].concat();
    let end = ended(&stoplog(&resume), 0);
    assert_eq!((&end["state"], &end["alerts"]), (&"FINISHED".into(), &0.into()));
    assert_eq!(end["restored_from"], snapshot.to_str().unwrap());
    assert!(end["records_in"].as_u64().unwrap() < 60_000);
}

#[test]
fn a_run_whose_record_is_gone_is_not_begun_again() {
    let place = Place::new();
    place.interrupted("-KILL", &[]);
    let record = place.checkpoints()[0].parent().unwrap().join("_job");
    fs::remove_file(&record).unwrap();
    let refused = place.run(&["--resume"]);
    let text = stderr(&refused);
    assert_eq!(refused.status.code(), Some(2), "{text}");
    assert!(text.contains(record.to_str().unwrap()), "{text}");
}

#[test]
fn a_finished_run_needs_neither_its_input_nor_its_retention() {
    let place = Place::new();
    let (input, output, own) = (place.text("words"), place.text("out"), place.text("own"));
    fs::write(&input, "to be or not to be\n").unwrap();
    let job = [
        "run",
        "wordcount",
        "--input",
        &input,
        "--output",
        &output,
        "--checkpoint-dir",
        &own,
        "--checkpoint-interval",
        "1h",
        "--resume",
        "--json",
        "-q",
    ];
    let retain = ["-D", "execution.checkpointing.externalized-checkpoint-retention=RETAIN_ON_CANCELLATION"];
    ended(&stoplog(&[&job[..], &retain].concat()), 0);
    let left = files_below(&place.path("own"));
    assert!(left.iter().any(|name| name.contains("chk-")), "{left:?}");
    fs::remove_file(&input).unwrap();
    let again = ended(&stoplog(&job), 0);
    assert_eq!((&again["state"], &again["records_in"]), (&"FINISHED".into(), &0.into()));
    assert_eq!(files_below(&place.path("own")), left);
}

#[test]
fn a_higher_parallelism_than_the_default_allows_comes_with_the_snapshot() {
    let place = Place::new();
    place.interrupted("-KILL", &["--max-parallelism", "256", "-p", "150"]);
    let end = ended(&place.run(&["--resume", "-p", "140"]), 0);
    assert_eq!(end["parallelism"], 140);
    place.assert_complete();
}

/// Whoever reads the messages may be gone; the job ends as it was asked to all the same.
#[test]
fn a_standard_error_that_takes_nothing_changes_nothing() {
    let place = Place::new();
    let full = || fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let args = place.args(&["--rate", "20000", "--resume", "-v"]);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let child = command(&args).stderr(full()).spawn().unwrap();
    until("a checkpoint", || !place.checkpoints().is_empty());
    signal(&child, "-INT");
    let end = ended(&child.wait_with_output().unwrap(), 0);
    assert_eq!(end["state"], "SUSPENDED");
    let refused = command(&["run", "wordcount", "--input", "/no/such/file"]).stderr(full()).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
}

#[test]
fn the_newest_checkpoint_of_a_suspended_run_cannot_be_taken_away_unnoticed() {
    let place = Place::new();
    let more = ["-D", "execution.checkpointing.num-retained=3"];
    ended(&place.interrupted("-INT", &more), 0);
    let newest = place.checkpoints().pop().unwrap();
    assert!(place.checkpoints().len() > 1);
    fs::remove_dir_all(&newest).unwrap();
    let refused = place.run(&["--resume"]);
    let text = stderr(&refused);
    assert_eq!(refused.status.code(), Some(2), "{text}");
    assert!(text.contains("are gone") || text.contains("gone"), "{text}");
}
