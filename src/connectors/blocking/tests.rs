use std::sync::{Arc, Mutex};

use super::*;
use crate::base::error::{BoxError, Error, Recovery};
use crate::base::progress::Flow;
use crate::connectors::tests::Opening;
use crate::operator::context::HelperStatus;

/// Keeps what is written; full behind so many bytes.
#[derive(Clone, Default)]
struct Tape {
    written: Arc<Mutex<Vec<u8>>>,
    bytes_max: Option<usize>,
}

impl BlockingWrite for Tape {
    fn write(&mut self, chunk: &[u8]) -> Result<(), BoxError> {
        let mut written = self.written.lock().unwrap();
        if self.bytes_max.is_some_and(|max| written.len() + chunk.len() > max) {
            return Err("the tape is full".into());
        }
        written.extend(chunk);
        Ok(())
    }
}

fn spawned(tape: &Tape) -> (WriteBehind, crate::connectors::tests::ByHand) {
    let (writer, helpers) = Opening::default().open(|cx| WriteBehind::spawn(cx, "write", tape.clone()));
    (writer.unwrap(), helpers)
}

#[test]
fn a_writer_takes_far_more_than_a_ring_holds_and_writes_it_in_order() {
    let tape = Tape::default();
    let (mut writer, mut helpers) = spawned(&tape);
    let mut expected: Vec<u8> = Vec::new();
    for n in 0..1000u32 {
        let mut line = format!("{n}\n").into_bytes();
        expected.extend(&line);
        writer.write(&mut line);
        assert!(line.is_empty());
    }
    assert!(writer.is_full());
    while writer.end().unwrap() == Flow::Blocked {
        assert!(helpers.step(), "the helper waits for the subtask, and the subtask for the helper");
    }
    assert_eq!(*tape.written.lock().unwrap(), expected);
}

#[test]
fn what_was_handed_over_is_written_even_if_the_execution_fails() {
    for orderly in [true, false] {
        let tape = Tape::default();
        let (mut writer, mut helpers) = spawned(&tape);
        writer.write(&mut b"covered by a checkpoint\n".to_vec());
        drop(writer);
        if orderly {
            helpers.stop();
        }
        drop(helpers);
        assert_eq!(*tape.written.lock().unwrap(), b"covered by a checkpoint\n", "orderly: {orderly}");
    }
}

/// A plain sink has no way to write again what a completed checkpoint covers: a restart would go on behind it.
#[test]
fn a_writer_that_cannot_write_says_that_no_restart_helps() {
    let tape = Tape { bytes_max: Some(5), ..Tape::default() };
    let (mut writer, mut helpers) = spawned(&tape);
    writer.write(&mut b"fits\n".to_vec());
    writer.write(&mut b"does not fit\n".to_vec());
    helpers.catch_up();
    let error = writer.poll().unwrap_err();
    assert_eq!(error.downcast_ref::<Error>().map(Error::recovery), Some(Recovery::GiveUp));
    assert!(error.to_string().contains("the tape is full"), "{error}");
    // Late orders are dropped, whether or not the helper is still there.
    writer.write(&mut b"late\n".to_vec());
    assert_eq!(helpers.0[0].step().unwrap(), HelperStatus::Idle);
    drop(helpers);
    writer.write(&mut b"later\n".to_vec());
    assert_eq!(*tape.written.lock().unwrap(), b"fits\n");
}

/// The other side of a ring may go away at any moment.
#[test]
fn a_helper_whose_subtask_is_gone_ends_without_a_panic() {
    let tape = Tape::default();
    let (mut writer, mut helpers) = spawned(&tape);
    writer.write(&mut b"1".to_vec());
    drop(writer);
    while helpers.0[0].step().unwrap() == HelperStatus::Worked {}
    assert_eq!(helpers.0[0].step().unwrap(), HelperStatus::Done);
    assert_eq!(*tape.written.lock().unwrap(), b"1");
}
