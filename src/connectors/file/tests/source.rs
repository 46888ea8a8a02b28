//! File sources with helpers that are stepped by hand.

use std::fs;

use super::*;
use crate::base::rng::Rng;
use crate::operator::context::{HelperStatus, Restored};
use crate::operator::{OpenContext, Output, Source, SourceStatus};

mod restored;

fn opened_from<R>(restored: Option<&Restored>, open: impl FnOnce(&mut OpenContext<'_>) -> R) -> (R, ByHand) {
    Opening::default().open_from(restored, open)
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
    let (result, helpers) = Opening::default().open(|cx| source.open(splits, cx));
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
            SourceStatus::Idle(_) => drop(helpers.step()),
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

/// The other side of a ring may go away at any moment, before the first item too.
#[test]
fn a_reader_whose_subtask_is_gone_ends_without_a_panic() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("a"), "one\n").unwrap();
    let source = FileSource::lines([directory.path()]);
    let (source, mut helpers) = open(&source, source.divide(1).unwrap());
    drop(source);
    assert_eq!(helpers.0[0].step().unwrap(), HelperStatus::Done);
}
