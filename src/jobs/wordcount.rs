//! `wordcount`: how often does each word occur?

use std::io::Write as _;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::registry::JobSetup;
use crate::api::{Pipe, Stream};
use crate::connectors::{FileSource, LineSink, SocketSource};

/// Options of `wordcount`.
#[derive(Debug, Clone, Args)]
pub struct WordCountOptions {
    /// A file, a directory (its own files, not those of sub-directories), or tcp://HOST:PORT; may be given more than once
    #[arg(long, value_name = "PATH|tcp://HOST:PORT", required = true)]
    pub input: Vec<String>,
    /// Directory for the result, empty unless the job goes on from a checkpoint; without it the result goes to standard output
    #[arg(long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// A line for every record, or one for each word at the end of the input
    #[arg(long, value_enum, default_value_t = Emit::Updates)]
    pub emit: Emit,
}

/// When results are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Emit {
    /// After every record.
    Updates,
    /// At the end of the input.
    Final,
}

/// Not quoted: the count stands behind the last comma.
fn format((word, count): &(String, u64), line: &mut Vec<u8>) {
    line.extend_from_slice(word.as_bytes());
    let _ = write!(line, ",{count}");
}

type Format = fn(&(String, u64), &mut Vec<u8>);
type CountSink = LineSink<(String, u64), Format>;

pub(super) fn declare(options: WordCountOptions, job: &mut JobSetup) {
    let sink = job.lines(options.output.as_deref(), format as Format, CountSink::stdout);
    let mut paths = Vec::new();
    let mut addresses = Vec::new();
    for input in &options.input {
        match input.strip_prefix("tcp://") {
            Some(address) => {
                let port = address.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
                if port.is_none() {
                    job.mistake(format_args!("--input is {input:?}; tcp://HOST:PORT is expected"));
                }
                addresses.push(address.to_owned());
            }
            None => paths.push(PathBuf::from(input)),
        }
    }
    let files = FileSource::lines(paths.iter().cloned());
    // A run that goes on compares its files itself, and one that is finished needs none.
    if let Err(error) = if job.env().config().recovery.resumes { Ok(()) } else { files.check() } {
        job.mistake(format_args!("--input: {error}"));
    }
    let env = job.env();
    match (paths.is_empty(), addresses.is_empty()) {
        (false, true) => count(env.source("files", files).uid("files"), options.emit, sink),
        (true, _) => {
            count(env.source("sockets", SocketSource::all(addresses)).uid("sockets"), options.emit, sink);
        }
        (false, false) => {
            let files = env.source("files", files).uid("files");
            let sockets = env.source("sockets", SocketSource::all(addresses)).uid("sockets");
            count(files.union(sockets), options.emit, sink);
        }
    }
}

fn count<P: Pipe<Out = String>>(lines: Stream<String, P>, emit: Emit, sink: CountSink) {
    let words = lines.flat_map(Words::of).uid("split").key_by_parts(|word| (word, 1u64));
    let sum = |count: &mut u64, one| *count += one;
    let _ = match emit {
        Emit::Updates => words.reduce(sum).uid("count").sink("lines", sink).uid("output"),
        // Under another uid: the state of the one is not taken over by the other, which would tell of some counts twice.
        Emit::Final => words.reduce_final(sum).uid("count-final").sink("lines", sink).uid("output"),
    };
}

/// The words of a line, divided by Unicode white space.
#[derive(Debug)]
struct Words {
    line: String,
    at: usize,
}

impl Words {
    fn of(line: String) -> Self {
        Self { line, at: 0 }
    }
}

impl Iterator for Words {
    type Item = String;

    #[inline]
    fn next(&mut self) -> Option<String> {
        let word = self.line.get(self.at..)?.split_whitespace().next()?;
        let start = word.as_ptr().addr() - self.line.as_ptr().addr();
        self.at = start + word.len();
        Some(word.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_split_whitespace() {
        for text in ["", " ", "a", " to  be\t\u{3000}ö\u{2003}x ", "a\u{85}b", "käse,1\u{a0}2"] {
            let expected: Vec<_> = text.split_whitespace().collect();
            assert_eq!(Words::of(text.to_owned()).collect::<Vec<_>>(), expected, "{text:?}");
        }
    }
}
