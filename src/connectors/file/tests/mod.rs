mod claim;
mod model;
mod simulated;
mod sink;
mod source;
mod store;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::*;
use crate::base::error::{BoxError, Error, Recovery};
use crate::base::progress::Flow;
use crate::connectors::tests::{ByHand, Opening, Promise};
use crate::operator::{Sink, SinkClaim, SinkRecovery};
use crate::snapshot::Store;

type Sunk = LineSink<u64, fn(&u64, &mut Vec<u8>)>;

fn line_of(n: u64) -> String {
    format!("{n:010}\n")
}

/// Writes numbers of ten digits.
fn sink_to(directory: &Path) -> Sunk {
    Sunk::directory(directory, |n, line| line.extend(format!("{n:010}").bytes()))
}

fn open(prototype: &Sunk, opening: Opening) -> (Sunk, ByHand) {
    let mut sink = prototype.clone();
    let (opened, helpers) = opening.open(|cx| sink.open(cx));
    opened.unwrap();
    (sink, helpers)
}

/// A job that begins from nothing.
fn fresh() -> SinkClaim {
    SinkClaim {
        restored: None,
        resumes: false,
        is_finished: false,
        allows_repeated_output: false,
        owner: "job 7 (process 42)".to_owned(),
    }
}

/// A job of an earlier process that goes on from this checkpoint.
fn resuming(restored: Option<u64>) -> SinkClaim {
    SinkClaim { restored: restored.map(CheckpointId), resumes: true, ..fresh() }
}

fn recovery_of(error: &BoxError) -> Option<Recovery> {
    error.downcast_ref::<Error>().map(Error::recovery)
}

/// Names and contents of what anybody sees in the directory.
fn visible(store: &dyn Store, directory: &Path) -> BTreeMap<String, String> {
    let names = store.list(directory).unwrap().into_iter().map(|(name, _)| name);
    let content = |name: &String| String::from_utf8(store.read(&directory.join(name)).unwrap()).unwrap();
    names.filter(|name| !name.starts_with('.')).map(|name| (name.clone(), content(&name))).collect()
}

/// The names that are not to be seen.
fn hidden(store: &dyn Store, directory: &Path) -> Vec<String> {
    let names = store.list(directory).unwrap().into_iter().map(|(name, _)| name);
    names.filter(|name| name.starts_with('.')).collect()
}

/// One subtask that has written these numbers, each before the barrier of a checkpoint, and promised them.
fn written(prototype: &Sunk, numbers: &[(u64, u64)]) -> (Sunk, ByHand, Vec<Vec<u8>>) {
    let (mut sink, mut helpers) = open(prototype, Opening::default());
    let mut promised = Vec::new();
    for (number, checkpoint) in numbers {
        assert_eq!(sink.write(*number).unwrap(), Flow::Continue);
        let promise = Promise::of(&mut sink, *checkpoint);
        helpers.catch_up();
        let _ = sink.resume().unwrap();
        promised = promise.kept();
    }
    (sink, helpers, promised)
}

fn recovery(prototype: &Sunk) -> Box<dyn SinkRecovery> {
    prototype.recovery().expect("a transactional sink")
}

fn map<const N: usize>(files: [(&str, u64); N]) -> BTreeMap<String, String> {
    files.into_iter().map(|(name, number)| (name.to_owned(), line_of(number))).collect()
}

fn on(store: &Arc<impl Store + 'static>, directory: &Path) -> Sunk {
    sink_to(directory).with_store(Arc::clone(store) as Arc<dyn Store>)
}
