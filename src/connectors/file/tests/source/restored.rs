//! What a restored source finds of the files with which the job began.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use super::*;
use crate::base::error::{Error, Recovery};

/// The lines that a source reads that is restored with these splits.
fn read_restored(source: &FileSource, splits: Vec<FileSplit>) -> Result<Vec<String>, Error> {
    let from = Restored { checkpoint: CheckpointId(1), operators: HashMap::new() };
    let mut source = source.clone();
    let (opened, mut helpers) = opened_from(Some(&from), |cx| source.open(splits, cx));
    opened.unwrap();
    let mut lines = Lines(Vec::new(), Flow::Continue);
    loop {
        match source.poll(&mut lines, 10) {
            Ok(SourceStatus::Ended) => return Ok(lines.0),
            Ok(_) => drop(helpers.step()),
            Err(error) => {
                let error = error.downcast::<Error>().expect("it says whether a restart helps");
                assert!(lines.0.is_empty(), "a line of another file was handed on before {error}");
                return Err(*error);
            }
        }
    }
}

/// Two files, of which the first is read to its end and of the second one line of three.
struct Begun {
    directory: tempfile::TempDir,
    source: FileSource,
    splits: Vec<FileSplit>,
}

fn begun() -> Begun {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("a"), "one\n").unwrap();
    fs::write(directory.path().join("b"), "two\nthree\nfour\n").unwrap();
    let source = FileSource::lines([directory.path()]).with_block_bytes(3);
    let (lines, positions) = read(&source, source.divide(1).unwrap(), Flow::Blocked);
    assert_eq!(lines, ["one", "two", "three", "four"]);
    Begun { directory, source, splits: positions[2].clone() }
}

impl Begun {
    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The change is found, no restart helps, and the file and what it was are named.
    fn refused(&self, name: &str, words: &[&str]) {
        let error = read_restored(&self.source, self.splits.clone()).unwrap_err();
        assert_eq!(error.recovery(), Recovery::GiveUp, "{error}");
        for word in [&[self.path(name).to_str().unwrap()], words].concat() {
            assert!(error.to_string().contains(word), "{word:?} is missing in {error}");
        }
    }
}

fn set_time(path: &Path, time: SystemTime) {
    fs::File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
}

#[test]
fn unchanged_files_are_read_on_exactly_where_they_were() {
    let begun = begun();
    assert_eq!(read_restored(&begun.source, begun.splits.clone()).unwrap(), ["three", "four"]);
    // The same file put back, with its time, is unchanged too.
    let path = begun.path("b");
    let modified = fs::metadata(&path).unwrap().modified().unwrap();
    fs::remove_file(&path).unwrap();
    fs::write(&path, "two\nthree\nfour\n").unwrap();
    set_time(&path, modified);
    assert_eq!(read_restored(&begun.source, begun.splits.clone()).unwrap(), ["three", "four"]);
}

#[test]
fn a_file_that_vanished_is_named_even_if_it_was_read_to_its_end() {
    for (name, was) in [("a", "4 bytes, modified at @"), ("b", "15 bytes, modified at @")] {
        let begun = begun();
        fs::remove_file(begun.path(name)).unwrap();
        begun.refused(name, &["has vanished", was, "put it back"]);
    }
    let begun = begun();
    fs::remove_dir_all(begun.directory.path()).unwrap();
    begun.refused("a", &["has vanished"]);
}

#[test]
fn a_file_of_another_length_or_time_is_told_as_it_was_and_as_it_is() {
    let longer = begun();
    fs::write(longer.path("b"), "two\nthree\nfour\nfive\n").unwrap();
    longer.refused("b", &["has changed", "it had 15 bytes", "now it has 20 bytes", "touch -d"]);
    let shorter = begun();
    fs::write(shorter.path("b"), "two\n").unwrap();
    shorter.refused("b", &["it had 15 bytes", "now it has 4 bytes"]);
    let other = begun();
    let path = other.path("a");
    let later = fs::metadata(&path).unwrap().modified().unwrap() + Duration::from_nanos(1);
    set_time(&path, later);
    other.refused("a", &["it had 4 bytes, modified at @", "now it has 4 bytes, modified at @"]);
}

#[test]
fn an_empty_file_must_stay_empty() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("empty");
    fs::write(&path, "").unwrap();
    let source = FileSource::lines([directory.path()]);
    let splits = source.divide(3).unwrap();
    assert_eq!(read_restored(&source, splits.clone()).unwrap(), [""; 0]);
    fs::write(&path, "something\n").unwrap();
    let error = read_restored(&source, splits).unwrap_err().to_string();
    assert!(error.contains("it had 0 bytes") && error.contains("now it has 10 bytes"), "{error}");
}

#[test]
fn a_file_that_became_a_directory_is_told() {
    let begun = begun();
    fs::remove_file(begun.path("b")).unwrap();
    fs::create_dir(begun.path("b")).unwrap();
    begun.refused("b", &["is a directory now", "a file of 15 bytes"]);
}

#[test]
fn a_directory_that_became_a_file_has_lost_its_files() {
    let begun = begun();
    fs::remove_dir_all(begun.directory.path()).unwrap();
    fs::write(begun.directory.path(), "no directory").unwrap();
    begun.refused("a", &["has vanished"]);
    fs::remove_file(begun.directory.path()).unwrap();
}

#[test]
fn other_inputs_than_the_job_began_with_are_refused() {
    let mut begun = begun();
    let elsewhere = tempfile::tempdir().unwrap();
    begun.source = FileSource::lines([elsewhere.path()]);
    begun.refused("a", &["began with", "is not in its input now", elsewhere.path().to_str().unwrap()]);
    // The files themselves, or their directory by another way: the same input.
    begun.source = FileSource::lines([begun.path("a"), begun.path("b")]);
    assert_eq!(read_restored(&begun.source, begun.splits.clone()).unwrap(), ["three", "four"]);
    let link = elsewhere.path().join("link");
    std::os::unix::fs::symlink(begun.directory.path(), &link).unwrap();
    begun.source = FileSource::lines([elsewhere.path().join("./link/.")]);
    assert_eq!(read_restored(&begun.source, begun.splits.clone()).unwrap(), ["three", "four"]);
}

#[test]
fn a_file_added_to_the_directory_later_is_not_read() {
    let begun = begun();
    fs::write(begun.path("c"), "new\n").unwrap();
    assert_eq!(read_restored(&begun.source, begun.splits.clone()).unwrap(), ["three", "four"]);
}

#[test]
fn links_in_a_directory_are_followed_and_what_they_lead_to_is_watched() {
    let (directory, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let target = elsewhere.path().join("target");
    fs::write(&target, "one\n").unwrap();
    let link = directory.path().join("link");
    std::os::unix::fs::symlink(&target, &link).unwrap();
    let source = FileSource::lines([directory.path()]);
    let splits = source.divide(1).unwrap();
    assert_eq!(read_restored(&source, splits.clone()).unwrap(), ["one"]);
    fs::write(&target, "one\ntwo\n").unwrap();
    let error = read_restored(&source, splits).unwrap_err().to_string();
    assert!(error.contains(link.to_str().unwrap()) && error.contains("has changed"), "{error}");
}

/// However the restored splits are divided anew, all lines that are left are read once.
#[test]
fn a_restored_source_may_have_another_parallelism() {
    for seed in 0..60 {
        let mut rng = Rng::new(2_000_000 + seed);
        let directory = tempfile::tempdir().unwrap();
        for file in ["a", "b", "c"] {
            fs::write(directory.path().join(file), random_content(&mut rng)).unwrap();
        }
        let source = FileSource::lines([directory.path()]).with_block_bytes(1 + rng.below(30) as usize);
        let mut left = Vec::new();
        let mut expected = Vec::new();
        for split in source.divide(3).unwrap() {
            let (lines, positions) = read(&source, vec![split], Flow::Blocked);
            let taken = rng.below(positions.len() as u64) as usize;
            left.extend(positions[taken].clone());
            expected.extend_from_slice(&lines[taken..]);
        }
        let parallelism = 1 + rng.below(6) as usize;
        let mut parts = vec![Vec::new(); parallelism];
        left.into_iter().enumerate().for_each(|(index, split)| parts[index % parallelism].push(split));
        let mut lines = Vec::new();
        for part in parts {
            lines.extend(read_restored(&source, part).unwrap());
        }
        lines.sort();
        expected.sort();
        assert_eq!(lines, expected, "seed {seed}, {parallelism} ways");
    }
}
