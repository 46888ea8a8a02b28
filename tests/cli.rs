//! The command `stoplog` from outside: its output, its exit status, its behaviour towards signals and pipes.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;

const SHAKESPEARE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/shakespeare.txt");

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

/// The result of a run that must end with this status; its JSON object is the last line of standard output.
fn result(args: &[&str], status: i32) -> Value {
    let output = stoplog(&[args, &["--json"]].concat());
    assert_eq!(output.status.code(), Some(status), "{args:?}: {}", stderr(&output));
    last_line(&output.stdout)
}

fn last_line(stdout: &[u8]) -> Value {
    let text = String::from_utf8(stdout.to_vec()).unwrap();
    serde_json::from_str(text.lines().last().expect("a result was printed")).unwrap()
}

/// A mistake: exit status 2 and these words on standard error, nothing on standard output.
fn refused(args: &[&str], words: &[&str]) {
    let output = stoplog(args);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{args:?}: {text}");
    assert!(output.stdout.is_empty(), "{args:?}");
    for word in words {
        assert!(text.contains(word), "{args:?}: {word:?} is missing in {text}");
    }
}

/// All lines of the visible files of a directory.
fn lines_in(directory: &Path) -> Vec<String> {
    let mut files: Vec<PathBuf> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| !path.file_name().unwrap().to_str().unwrap().starts_with('.'));
    files.sort();
    let read = |path: &PathBuf| fs::read_to_string(path).unwrap();
    files.iter().map(read).flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>()).collect()
}

/// Word and count; the count stands behind the last comma.
fn parse(lines: &[String]) -> Vec<(String, u64)> {
    let pair = |line: &String| {
        let (word, count) = line.rsplit_once(',').unwrap();
        (word.to_owned(), count.parse().unwrap())
    };
    lines.iter().map(pair).collect()
}

fn expected_counts(text: &str) -> BTreeMap<String, u64> {
    let mut words: Vec<_> = text.split(char::is_whitespace).filter(|word| !word.is_empty()).collect();
    words.sort_unstable();
    words.chunk_by(|a, b| a == b).map(|run| (run[0].to_owned(), run.len() as u64)).collect()
}

/// For each word the counts 1 to n, each once.
fn assert_updates(lines: &[String], text: &str) {
    let mut counts: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for (word, count) in parse(lines) {
        counts.entry(word).or_default().push(count);
    }
    counts.values_mut().for_each(|counts| counts.sort_unstable());
    let expected = expected_counts(text).into_iter().map(|(word, n)| (word, (1..=n).collect()));
    assert_eq!(counts, expected.collect::<BTreeMap<_, Vec<u64>>>());
}

#[test]
fn words_are_counted_right_at_every_parallelism_in_both_modes() {
    let text = fs::read_to_string(SHAKESPEARE).unwrap();
    let words: u64 = expected_counts(&text).values().sum();
    for parallelism in ["1", "2", "3", "4", "7", "33"] {
        let scratch = tempfile::tempdir().unwrap();
        let (all, last) = (scratch.path().join("all"), scratch.path().join("last"));
        let run = ["run", "wordcount", "--input", SHAKESPEARE, "-p", parallelism, "--output"];
        let updates = result(&[&run[..], &[all.to_str().unwrap()]].concat(), 0);
        assert_eq!((&updates["state"], &updates["records_out"]), (&"FINISHED".into(), &words.into()));
        assert_updates(&lines_in(&all), &text);
        result(&[&run[..], &[last.to_str().unwrap(), "--emit", "final"]].concat(), 0);
        let finals = parse(&lines_in(&last));
        assert_eq!(finals.len(), expected_counts(&text).len(), "one line a word");
        assert_eq!(finals.into_iter().collect::<BTreeMap<_, _>>(), expected_counts(&text));
    }
}

#[test]
fn words_are_counted_right_from_a_directory_while_checkpoints_are_taken() {
    let text = fs::read_to_string(SHAKESPEARE).unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let input = scratch.path().join("in");
    fs::create_dir(&input).unwrap();
    let half = text.char_indices().map(|(at, _)| at).find(|at| *at > text.len() / 2).unwrap();
    let half = text[..half].rfind('\n').unwrap() + 1;
    fs::write(input.join("a"), &text[..half]).unwrap();
    fs::write(input.join("b"), &text[half..]).unwrap();
    fs::write(input.join(".c"), "hidden words").unwrap();
    let output = scratch.path().join("out");
    let (input, directory) = (input.to_str().unwrap(), output.to_str().unwrap());
    let args = ["run", "wordcount", "--input", input, "--output", directory, "--checkpoint-interval", "5ms"];
    let run = result(&args, 0);
    assert!(run["checkpoints"]["completed"].as_u64().unwrap() >= 1);
    assert_updates(&lines_in(&output), &text);
}

#[test]
fn without_an_output_the_lines_go_to_standard_output() {
    let scratch = tempfile::tempdir().unwrap();
    let input = scratch.path().join("in");
    fs::write(&input, "to be, or\u{a0}not\r\nto be,").unwrap();
    let output = stoplog(&["run", "wordcount", "--input", input.to_str().unwrap(), "--emit", "final"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let mut lines: Vec<_> = std::str::from_utf8(&output.stdout).unwrap().lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["be,,2", "not,1", "or,1", "to,2"]);
    assert!(stderr(&output).contains("FINISHED"));
}

#[test]
fn the_checksum_of_counted_keys_depends_on_nothing_but_the_records() {
    let small = ["run", "keyed-count", "--records", "1000000", "--keys", "1000"];
    let variants: [&[&str]; 8] = [
        &[],
        &["--checkpoint-interval", "1s"],
        &["--checkpoint-interval", "5ms"],
        &["-p", "1", "--max-parallelism", "1"],
        &["-p", "3", "--max-parallelism", "5", "--checkpoint-interval", "5ms"],
        &["-p", "7", "--max-parallelism", "32768"],
        &["-p", "64"],
        &["--value-bytes", "100", "--checkpoint-interval", "5ms"],
    ];
    for variant in variants {
        let run = result(&[&small[..], variant].concat(), 0);
        assert_eq!(run["checksum"].as_u64(), Some(17_088_094_688_967_722_082), "{variant:?}");
        assert_eq!(run["records_in"].as_u64(), Some(1_000_000), "{variant:?}");
    }
    let run = result(&["run", "keyed-count", "--records", "5000000", "--keys", "100003"], 0);
    assert_eq!(run["checksum"].as_u64(), Some(7_240_563_391_425_686_789));
}

#[test]
fn skewed_keys_are_the_same_in_every_run() {
    let run = ["run", "keyed-count", "--records", "100000", "--keys", "5000", "--skew", "zipf:1.0"];
    let checksum = result(&[&run[..], &["-p", "1"]].concat(), 0)["checksum"].as_u64();
    assert!(checksum.is_some());
    assert_eq!(result(&[&run[..], &["-p", "3"]].concat(), 0)["checksum"].as_u64(), checksum);
}

#[test]
fn a_rate_holds_the_records_back() {
    let run =
        result(&["run", "keyed-count", "--records", "200", "--keys", "5", "--rate", "1000", "-p", "2"], 0);
    assert!(run["seconds"].as_f64().unwrap() > 0.19, "{run}");
}

#[test]
fn the_result_has_every_field_that_scripts_rely_on() {
    let run =
        result(&["run", "keyed-count", "--checkpoint-interval", "5ms", "--job-id", &"ab".repeat(16)], 0);
    for (field, value) in [
        ("job", Value::from("keyed-count")),
        ("job_id", "ab".repeat(16).into()),
        ("state", "FINISHED".into()),
        ("backend", "heap".into()),
        ("restarts", 0.into()),
        ("alerts", 0.into()),
        ("late_records", 0.into()),
        ("restored_from", Value::Null),
        ("latency_us", Value::Null),
        ("error", Value::Null),
    ] {
        assert_eq!(run[field], value, "{field}");
    }
    for field in ["parallelism", "records_in", "records_out", "checksum", "peak_rss_bytes"] {
        assert!(run[field].is_u64(), "{field}: {}", run[field]);
    }
    for field in ["seconds", "records_per_second", "restore_ms"] {
        assert!(run[field].is_f64(), "{field}: {}", run[field]);
    }
    for field in ["triggered", "completed", "failed", "subsumed"] {
        assert!(run["checkpoints"][field].is_u64(), "{field}");
    }
    let last = &run["checkpoints"]["last"];
    assert_eq!(last["path"], format!("memory:chk-{}", last["id"]));
    for field in ["duration_ms", "sync_us_max", "async_ms_max", "alignment_us_max", "bytes"] {
        assert!(last[field].is_number(), "{field}");
    }
    assert!(last.as_object().unwrap().contains_key("incremental_bytes"));
    for field in ["alignment_stall_us", "sync_pause_us", "checkpoint_duration_ms"] {
        for part in ["count", "p50", "p90", "p99", "p999", "p9999", "max"] {
            assert!(run[field][part].is_number(), "{field}.{part}");
        }
    }
    let off = result(&["run", "keyed-count", "--records", "10"], 0);
    assert_eq!((&off["checkpoints"]["last"], &off["sync_pause_us"]), (&Value::Null, &Value::Null));
}

#[test]
fn repeated_failures_leave_no_gap_and_no_repeat_in_state_and_output() {
    let scratch = tempfile::tempdir().unwrap();
    let directory = scratch.path().join("out");
    let options = "run sequence-check --keys 100 --records 1200000 --rate 1000000 -p 3 --fail-after 60000 --fail-times 4 \
                   --checkpoint-interval 2ms -D restart-strategy.fixed-delay.delay=1ms --output";
    let mut args: Vec<_> = options.split_whitespace().collect();
    args.push(directory.to_str().unwrap());
    let run = result(&args, 0);
    assert_eq!((&run["alerts"], &run["restarts"]), (&0.into(), &4.into()), "{run}");
    assert!(run["restored_from"].as_str().unwrap().starts_with("memory:chk-"), "{run}");
    let mut numbers = parse(&lines_in(&directory));
    assert_eq!(numbers.len(), 1_200_000, "each line once");
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), 1_200_000, "no line is missing");
    let is_hidden = |entry: fs::DirEntry| entry.file_name().to_str().unwrap().starts_with('.');
    assert!(!fs::read_dir(&directory).unwrap().any(|entry| is_hidden(entry.unwrap())), "nothing is left");
}

#[test]
fn a_panic_names_operator_subtask_and_message() {
    let args = ["run", "sequence-check", "--fail-after", "1000", "--records", "100000", "-p", "2"];
    let run = result(&args, 1);
    assert_eq!(run["state"], "FAILED");
    let error = run["error"].as_str().unwrap();
    assert!(error.starts_with("operator \"check\", subtask "), "{error}");
    assert!(error.contains("failed on purpose after 1000 records"), "{error}");
    let output = stoplog(&args);
    assert!(stderr(&output).contains(&error[..25]), "{}", stderr(&output));
}

#[test]
fn mistakes_are_all_named_and_nothing_is_started() {
    refused(&["run"], &["JOB"]);
    refused(&["run", "wordcont", "--input", "x"], &["wordcont", "wordcount"]);
    refused(&["run", "wordcount"], &["--input"]);
    refused(&["run", "keyed-count", "--latency"], &["--latency"]);
    refused(&["run", "keyed-count", "--job-id", "12"], &["32 hexadecimal digits"]);
    refused(&["run", "keyed-count", "--skew", "steep"], &["zipf:S"]);
    refused(&["run", "keyed-count", "--checkpoint-mode", "at-least-once"], &["not available yet"]);
    refused(&["run", "keyed-count", "--backend", "paper"], &["state.backend.type is \"paper\"", "heap"]);
    refused(&["run", "keyed-count", "-p", "0"], &["parallelism.default is 0"]);
    refused(
        &["run", "keyed-count", "-p", "9", "--max-parallelism", "8"],
        &["parallelism.default is 9", "max-parallelism"],
    );
    refused(&["run", "keyed-count", "-D", "pipeline.name"], &["KEY=VALUE"]);
    refused(&["run", "keyed-count", "--output", SHAKESPEARE], &[SHAKESPEARE, "output directory"]);
    refused(&["run", "keyed-count", "-p", "many"], &["parallelism.default", "whole number"]);
    refused(
        &[
            "run",
            "keyed-count",
            "-D",
            "execution.checkpoint.interval=1s",
            "--keys",
            "0",
            "-p",
            "0",
            "--rate=-1",
        ],
        &["\"execution.checkpointing.interval\"", "--keys is 0", "parallelism.default is 0", "--rate is -1"],
    );
    refused(
        &["run", "wordcount", "--input", "/no/such/file", "--input", "tcp://nowhere"],
        &["/no/such/file", "tcp://HOST:PORT"],
    );
    let scratch = tempfile::tempdir().unwrap();
    fs::write(scratch.path().join("part-0"), "of another run").unwrap();
    let directory = scratch.path().to_str().unwrap();
    refused(&["run", "wordcount", "--input", SHAKESPEARE, "--output", directory], &[directory, "not empty"]);
}

#[test]
fn how_a_job_may_go_on_is_checked_before_it_starts() {
    let run = ["run", "keyed-count", "--records", "10"];
    let refused = |args: &[&str], words: &[&str]| refused(&[&run[..], args].concat(), words);
    refused(&["--resume"], &["--checkpoint-dir", "execution.checkpointing.dir"]);
    let both = ["--resume", "-s", "/snapshot", "--checkpoint-dir", "/chk"];
    refused(&both, &["--resume", "-s/--from-savepoint", "execution.state-recovery.path"]);
    let by_key =
        ["--resume", "-D", "execution.state-recovery.path=/snapshot", "-D", "state.checkpoints.dir=/chk"];
    refused(&by_key, &["--resume", "execution.state-recovery.path"]);
    refused(&["-s", "/snapshot", "--claim-mode", "claim"], &["CLAIM is not available yet"]);
    refused(&["--claim-mode", "mine"], &["execution.state-recovery.claim-mode", "NO_CLAIM"]);
    refused(
        &["--checkpoint-dir", "hdfs://host/chk"],
        &["execution.checkpointing.dir", "\"hdfs\"", "file:///path"],
    );
    refused(&["--config", "/no/such/file"], &["--config /no/such/file", "No such file"]);
}

#[test]
fn a_file_of_settings_gives_way_to_keys_and_they_to_options() {
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("conf.yaml");
    let path = file.to_str().unwrap();
    let plan = |args: &[&str]| {
        let run = ["run", "keyed-count", "--records", "10", "--explain", "--config", path];
        let output = stoplog(&[&run[..], args].concat());
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        (String::from_utf8(output.stdout.clone()).unwrap(), stderr(&output))
    };
    fs::write(&file, "state.backend: rocksdb\nparallelism:\n  default: 5\n").unwrap();
    let (text, notes) = plan(&[]);
    assert!(text.contains("parallelism 5"), "{text}");
    for note in
        ["note: state.backend is the 1.x name of state.backend.type\n", "note: state.backend is rocksdb, "]
    {
        assert_eq!(notes.matches(note).count(), 1, "{notes}");
    }
    let by_key = ["-D", "parallelism.default=6"];
    assert!(plan(&by_key).0.contains("parallelism 6"));
    assert!(plan(&[&["-p", "7"], &by_key[..]].concat()).0.contains("parallelism 7"));
    fs::write(&file, "execution.checkpoint.interval: 1s\nparallelism.default: many\n").unwrap();
    let both = [
        &format!("--config {path}: line 1: unknown configuration key")[..],
        "\"execution.checkpointing.interval\"",
        &format!("--config {path}: line 2: parallelism.default is \"many\""),
    ];
    refused(&["run", "keyed-count", "--config", path], &both);
}

#[test]
fn a_plan_is_explained_and_jobs_are_listed_without_starting_anything() {
    let scratch = tempfile::tempdir().unwrap();
    let directory = scratch.path().join("out");
    let args =
        ["run", "wordcount", "--input", SHAKESPEARE, "--explain", "--output", directory.to_str().unwrap()];
    let output = stoplog(&args);
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    for word in ["uid files", "uid split", "uid count", "uid output", "HASH", "reduced"] {
        assert!(text.contains(word), "{word:?} is missing in {text}");
    }
    assert!(!text.contains("made up") && !directory.exists());
    let jobs = String::from_utf8(stoplog(&["jobs"]).stdout).unwrap();
    for job in ["wordcount", "keyed-count", "sequence-check"] {
        assert!(jobs.contains(job), "{jobs}");
    }
}

/// A job that reads words from a socket of the test's.
struct Served {
    child: Child,
    connection: std::net::TcpStream,
    stdout: BufReader<std::process::ChildStdout>,
}

fn serve(args: &[&str]) -> Served {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("tcp://{}", listener.local_addr().unwrap());
    let mut child = command(&[&["run", "wordcount", "--input", &address], args].concat()).spawn().unwrap();
    let (connection, _) = listener.accept().unwrap();
    let stdout = BufReader::new(child.stdout.take().unwrap());
    Served { child, connection, stdout }
}

impl Served {
    /// Sends a word that was not sent before and waits until it was counted.
    fn count(&mut self, word: &str) {
        writeln!(self.connection, "{word}").unwrap();
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        assert_eq!(line, format!("{word},1\n"));
    }

    fn signal(&self, name: &str) {
        let status = Command::new("kill").args([name, &self.child.id().to_string()]).status().unwrap();
        assert!(status.success());
    }

    /// What is left on standard output, and the exit status.
    fn end(mut self) -> (Vec<u8>, Option<i32>) {
        let mut rest = Vec::new();
        self.stdout.read_to_end(&mut rest).unwrap();
        (rest, self.child.wait().unwrap().code())
    }
}

#[test]
fn words_from_a_socket_are_counted_until_the_peer_closes() {
    let text: String =
        fs::read_to_string(SHAKESPEARE).unwrap().lines().take(3000).collect::<Vec<_>>().join("\n");
    let mut served = serve(&["-p", "3"]);
    let (mut sender, sent) = (served.connection.try_clone().unwrap(), text.clone());
    let writer = std::thread::spawn(move || {
        sender.write_all(sent.as_bytes()).unwrap();
        sender.shutdown(std::net::Shutdown::Write).unwrap();
    });
    let mut output = String::new();
    served.stdout.read_to_string(&mut output).unwrap();
    writer.join().unwrap();
    assert_eq!(served.child.wait().unwrap().code(), Some(0));
    assert_updates(&output.lines().map(str::to_owned).collect::<Vec<_>>(), &text);
}

#[test]
fn a_refused_connection_names_the_address() {
    // The port was free a moment ago, and nobody listens on it.
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let run = result(&["run", "wordcount", "--input", &format!("tcp://{address}")], 1);
    let error = run["error"].as_str().unwrap();
    assert!(error.contains("operator \"sockets\"") && error.contains(&address), "{error}");
}

#[test]
fn the_first_signal_suspends_the_job() {
    for signal in ["-INT", "-TERM"] {
        let mut served = serve(&["--json", "-p", "2", "--checkpoint-interval", "10ms"]);
        served.count("one");
        served.count("two");
        served.signal(signal);
        let (rest, status) = served.end();
        let run = last_line(&rest);
        assert_eq!((&run["state"], status), (&"SUSPENDED".into(), Some(0)), "{run}");
        assert_eq!((&run["records_in"], &run["error"]), (&2.into(), &Value::Null), "{run}");
    }
}

#[test]
fn an_idle_job_leaves_the_cores_alone() {
    let mut served = serve(&[]);
    served.count("one");
    let ticks = |id: u32| {
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap();
        let fields: Vec<_> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    };
    let before = ticks(served.child.id());
    // The time over which is measured; nothing is waited for.
    std::thread::sleep(Duration::from_secs(3));
    let used = ticks(served.child.id()) - before;
    drop(served.connection.shutdown(std::net::Shutdown::Both));
    assert_eq!(served.end().1, Some(0));
    // A tick is 10 ms: 2 % of 3 s.
    assert!(used < 6, "{used} ticks of 10 ms in 3 s");
}

#[test]
fn a_reader_that_goes_away_fails_the_job_once_and_without_a_panic() {
    // With checkpoints a failed job is restarted; here that could not help.
    let args = ["run", "wordcount", "--input", SHAKESPEARE, "--checkpoint-interval", "10s", "--json"];
    let mut child = command(&args).spawn().unwrap();
    let mut first = [0; 1];
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut first).unwrap();
    drop(stdout);
    let output = child.wait_with_output().unwrap();
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("cannot write to standard output") && !text.contains("panicked"), "{text}");
}

#[test]
fn a_full_disk_fails_the_job_with_the_system_s_words() {
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = command(&["run", "wordcount", "--input", SHAKESPEARE]).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("No space left on device"), "{}", stderr(&output));
}

#[test]
fn checkpoints_without_a_directory_are_said_to_live_in_memory_once() {
    let output = stoplog(&["run", "keyed-count", "--records", "1000", "--checkpoint-interval", "1s"]);
    assert_eq!(stderr(&output).matches("live in memory").count(), 1, "{}", stderr(&output));
    let output = stoplog(&["run", "keyed-count", "--records", "1000"]);
    assert_eq!(stderr(&output).matches("live in memory").count(), 0);
}

#[test]
fn a_core_that_cannot_be_pinned_to_is_named_once_and_the_job_goes_on() {
    let output =
        stoplog(&["run", "keyed-count", "--records", "1000", "-p", "3", "-D", "taskmanager.cores=3999,4000"]);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert_eq!(text.matches("cannot be pinned to core").count(), 1, "{text}");
}

/// A job whose output nobody reads cannot end in an orderly way; the second signal does not wait for it.
#[test]
fn a_second_signal_ends_the_process_at_once() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_stoplog"))
        .args(["run", "wordcount", "--input", SHAKESPEARE, "-q"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Until the pipe is full, the job runs; nobody reads it.
    let mut stderr = std::io::BufReader::new(child.stderr.take().unwrap());
    let signal = |child: &std::process::Child| {
        assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    };
    let mut first = [0u8; 4];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut first).unwrap();
    signal(&child);
    let mut line = String::new();
    while !line.contains("second signal") {
        line.clear();
        assert!(std::io::BufRead::read_line(&mut stderr, &mut line).unwrap() > 0, "it says that it suspends");
    }
    signal(&child);
    let status = child.wait().unwrap();
    assert_ne!(status.code(), Some(0), "{status}");
}
