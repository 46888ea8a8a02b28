//! File sources and sinks with helpers that are stepped by hand.

use std::fs;
use std::sync::Arc;

use super::*;
use crate::base::clock::SystemClock;
use crate::base::error::BoxError;
use crate::base::id::{CheckpointId, SubtaskIndex};
use crate::base::key_group::KeyGroups;
use crate::base::progress::Flow;
use crate::base::rng::Rng;
use crate::operator::context::{Helper, HelperPool, HelperStatus, Ports, Restored};
use crate::operator::{OpenContext, Output, PreCommitContext, Sink, Source, SourceStatus};
use crate::sync::wake::Waker;

mod restored;

/// Keeps the helpers instead of starting threads.
#[derive(Default)]
struct ByHand(Vec<Box<dyn Helper>>);

impl HelperPool for ByHand {
    fn spawn(&mut self, _name: String, helper: Box<dyn Helper>) -> Result<Waker, BoxError> {
        self.0.push(helper);
        Ok(Waker::noop())
    }
}

impl ByHand {
    fn step(&mut self) {
        self.0.iter_mut().for_each(|helper| {
            helper.step().unwrap();
        });
    }
}

fn opened<R>(open: impl FnOnce(&mut OpenContext<'_>) -> R) -> (R, ByHand) {
    opened_from(None, open)
}

fn opened_from<R>(restored: Option<&Restored>, open: impl FnOnce(&mut OpenContext<'_>) -> R) -> (R, ByHand) {
    let mut helpers = ByHand::default();
    let result = open(&mut OpenContext {
        subtask: SubtaskIndex(0),
        key_groups: KeyGroups::new(1, 1),
        clock: Arc::new(SystemClock::new()),
        waker: Waker::noop(),
        restored,
        counters: Arc::default(),
        checkpointing: true,
        ports: &mut Ports::default(),
        helpers: &mut helpers,
    });
    (result, helpers)
}

/// Blocks after every record if it is told to.
struct Lines(Vec<String>, Flow);

impl Output<String> for Lines {
    fn collect(&mut self, line: String) -> Flow {
        self.0.push(line);
        self.1
    }
}

fn open(source: &FileSource, splits: Vec<FileSplit>) -> (FileSource, ByHand) {
    let mut source = source.clone();
    let (result, helpers) = opened(|cx| source.open(splits, cx));
    result.unwrap();
    (source, helpers)
}

/// The lines of the splits, and the positions before each of them and at the end.
fn read(source: &FileSource, splits: Vec<FileSplit>, flow: Flow) -> (Vec<String>, Vec<Vec<FileSplit>>) {
    let (mut source, mut helpers) = open(source, splits);
    let mut lines = Lines(Vec::new(), flow);
    let mut positions = vec![source.snapshot()];
    loop {
        let before = lines.0.len();
        let status = source.poll(&mut lines, 1).unwrap();
        if lines.0.len() > before {
            positions.push(source.snapshot());
        }
        match status {
            SourceStatus::Ended => return (lines.0, positions),
            SourceStatus::Idle(_) => helpers.step(),
            SourceStatus::Ready => {}
        }
    }
}

/// The lines of one file, found in the simplest way there is.
fn plain_lines(content: &[u8]) -> Vec<String> {
    let mut parts: Vec<_> = content.split(|byte| *byte == b'\n').collect();
    let rest = parts.pop().unwrap_or_default();
    let mut lines: Vec<_> = parts.iter().map(|line| line.strip_suffix(b"\r").unwrap_or(line)).collect();
    if !rest.is_empty() {
        lines.push(rest);
    }
    lines.iter().map(|line| String::from_utf8_lossy(line).into_owned()).collect()
}

fn random_content(rng: &mut Rng) -> Vec<u8> {
    const ALPHABET: [&[u8]; 8] = [b"a", b"b", b"long", b"\n", b"\n", b"\r\n", "\u{20ac}".as_bytes(), b"\xFF"];
    let length = if rng.one_in(5) { 0 } else { rng.below(120) };
    (0..length).flat_map(|_| ALPHABET[rng.below(8) as usize].iter().copied()).collect()
}

#[test]
fn every_division_gives_exactly_the_lines_of_a_plain_reader() {
    for seed in 0..400 {
        let mut rng = Rng::new(seed);
        let directory = tempfile::tempdir().unwrap();
        let mut expected = Vec::new();
        for file in 0..=rng.below(4) {
            let content = random_content(&mut rng);
            fs::write(directory.path().join(format!("{file}.txt")), &content).unwrap();
            expected.extend(plain_lines(&content));
        }
        fs::write(directory.path().join(".hidden"), "not this").unwrap();
        fs::create_dir(directory.path().join("nor this")).unwrap();
        let block_bytes = 1 + rng.below(50) as usize;
        let source = FileSource::lines([directory.path()]).with_block_bytes(block_bytes);
        for parallelism in 1..=9 {
            let splits = source.divide(parallelism).unwrap();
            let mut lines = Vec::new();
            for split in &splits {
                lines.extend(read(&source, vec![split.clone()], Flow::Continue).0);
            }
            assert_eq!(
                lines, expected,
                "seed {seed}, {parallelism} ways, blocks of {block_bytes}: {splits:?}"
            );
        }
    }
}

#[test]
fn a_restored_source_reads_exactly_the_rest_from_any_position() {
    for seed in 0..60 {
        let mut rng = Rng::new(1_000_000 + seed);
        let directory = tempfile::tempdir().unwrap();
        for file in ["a", "b"] {
            fs::write(directory.path().join(file), random_content(&mut rng)).unwrap();
        }
        let source = FileSource::lines([directory.path()]).with_block_bytes(1 + rng.below(30) as usize);
        let splits = source.divide(1 + rng.below(6) as u32).unwrap();
        let (lines, positions) = read(&source, splits, Flow::Blocked);
        assert_eq!(positions.len(), lines.len() + 1);
        for (taken, position) in positions.into_iter().enumerate() {
            let (rest, _) = read(&source, position.clone(), Flow::Continue);
            assert_eq!(rest, lines[taken..], "seed {seed} after {taken} lines: {position:?}");
        }
    }
}

#[test]
fn a_line_may_be_much_longer_than_a_block() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("long");
    let long = "x".repeat(10_000);
    fs::write(&path, format!("{long}\nshort")).unwrap();
    let source = FileSource::lines([&path]).with_block_bytes(64);
    let splits = source.divide(4).unwrap();
    assert_eq!(read(&source, splits, Flow::Continue).0, [long, "short".to_owned()]);
}

#[test]
fn an_input_that_is_missing_or_no_file_is_named() {
    let missing = FileSource::lines(["/no/such/file"]).check().unwrap_err().to_string();
    assert!(missing.contains("/no/such/file") && missing.contains("No such file"), "{missing}");
    let device = FileSource::lines(["/dev/null"]).check().unwrap_err().to_string();
    assert!(device.contains("/dev/null is not a regular file"), "{device}");
}

#[test]
fn a_file_that_lost_its_end_is_an_error_and_not_an_early_end() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cut");
    fs::write(&path, "one\ntwo\nthree\n").unwrap();
    let source = FileSource::lines([&path]);
    let splits = source.divide(1).unwrap();
    fs::write(&path, "one\n").unwrap();
    let (mut source, mut helpers) = open(&source, splits);
    let mut lines = Lines(Vec::new(), Flow::Continue);
    let error = loop {
        match source.poll(&mut lines, 10) {
            Ok(status) => assert_ne!(status, SourceStatus::Ended),
            Err(error) => break error.to_string(),
        }
        helpers.step();
    };
    assert!(error.contains("cut ends at byte 4, but 14 bytes were there"), "{error}");
}

type Sunk = LineSink<u64, fn(&u64, &mut Vec<u8>)>;

fn sink_to(directory: &Path) -> (Sunk, ByHand) {
    let mut sink = Sunk::directory(directory, |n, line| line.extend(format!("{n:010}").bytes()));
    let (result, helpers) = opened(|cx| sink.open(cx));
    result.unwrap();
    (sink, helpers)
}

#[test]
fn a_sink_blocks_when_its_writer_is_behind_and_goes_on_when_it_has_caught_up() {
    let directory = tempfile::tempdir().unwrap();
    let (mut sink, mut helpers) = sink_to(directory.path());
    let mut written = 0;
    while sink.write(written).unwrap() == Flow::Continue {
        written += 1;
        assert!(written < 1_000_000, "the writer has written nothing, yet the sink is never blocked");
    }
    // Barriers do not wait for the writer.
    for checkpoint in 1..=20 {
        sink.flush().unwrap();
        sink.pre_commit(&mut PreCommitContext::new(CheckpointId(checkpoint))).unwrap();
        assert_eq!(sink.resume().unwrap(), Flow::Blocked);
    }
    while sink.resume().unwrap() == Flow::Blocked {
        helpers.step();
    }
    assert_eq!(sink.write(written + 1).unwrap(), Flow::Continue);
    while sink.end_input().unwrap() == Flow::Blocked {
        helpers.step();
    }
    let expected: String = (0..=written + 1).map(|n| format!("{n:010}\n")).collect();
    assert_eq!(fs::read_to_string(directory.path().join("part-0")).unwrap(), expected);
}

#[test]
fn what_a_checkpoint_covers_is_written_even_if_the_execution_fails() {
    let directory = tempfile::tempdir().unwrap();
    let (mut sink, helpers) = sink_to(directory.path());
    assert_eq!(sink.write(1).unwrap(), Flow::Continue);
    sink.pre_commit(&mut PreCommitContext::new(CheckpointId(1))).unwrap();
    drop(sink);
    drop(helpers);
    assert_eq!(fs::read_to_string(directory.path().join("part-0")).unwrap(), "0000000001\n");
}

#[test]
fn an_orderly_stop_writes_what_was_flushed_and_the_next_execution_appends() {
    let directory = tempfile::tempdir().unwrap();
    for n in 1..=2 {
        let (mut sink, mut helpers) = sink_to(directory.path());
        assert_eq!(sink.write(n).unwrap(), Flow::Continue);
        sink.flush().unwrap();
        drop(sink);
        helpers.0.iter_mut().for_each(|helper| helper.stop().unwrap());
    }
    assert_eq!(fs::read_to_string(directory.path().join("part-0")).unwrap(), "0000000001\n0000000002\n");
}

#[test]
fn a_file_that_cannot_be_written_is_named() {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join("part-0")).unwrap();
    let (mut sink, mut helpers) = sink_to(directory.path());
    assert_eq!(helpers.0[0].step().unwrap(), HelperStatus::Done);
    let error = sink.resume().unwrap_err().to_string();
    assert!(error.contains("cannot write") && error.contains("part-0"), "{error}");
}

/// The other side of a ring may go away at any moment, before the first item too.
#[test]
fn a_helper_whose_subtask_is_gone_ends_without_a_panic() {
    let directory = tempfile::tempdir().unwrap();
    let (mut sink, mut helpers) = sink_to(directory.path());
    assert_eq!(sink.write(1).unwrap(), Flow::Continue);
    sink.flush().unwrap();
    drop(sink);
    while helpers.0[0].step().unwrap() == HelperStatus::Worked {}
    assert_eq!(fs::read_to_string(directory.path().join("part-0")).unwrap(), "0000000001\n");

    let source = FileSource::lines([directory.path()]);
    let (source, mut helpers) = open(&source, source.divide(1).unwrap());
    drop(source);
    assert_eq!(helpers.0[0].step().unwrap(), HelperStatus::Done);
}

#[test]
fn a_writer_that_failed_before_the_first_record_is_heard_of() {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join("part-0")).unwrap();
    let (mut sink, mut helpers) = sink_to(directory.path());
    assert_eq!(helpers.0[0].step().unwrap(), HelperStatus::Done);
    drop(helpers);
    assert_eq!(sink.write(1).unwrap(), Flow::Continue);
    sink.pre_commit(&mut PreCommitContext::new(CheckpointId(1))).unwrap();
    assert!(sink.resume().unwrap_err().to_string().contains("part-0"));
}
