//! The wrapper with a sink that notes every call, and a helper that is stepped by hand.

use std::sync::{Arc, Mutex};

use super::*;
use crate::base::error::{Error, ErrorKind, Recovery};
use crate::connectors::tests::{ByHand, Opening, Promise};
use crate::operator::context::HelperStatus;
use crate::operator::{SinkClaim, SinkRecovery};

/// So many records fill a buffer.
const PER_BUFFER: usize = 4;

/// Notes calls, and fails those it was told to.
#[derive(Clone, Default)]
struct Script<const EAGER: bool = false> {
    calls: Arc<Mutex<Vec<String>>>,
    /// Calls that fail the next time.
    fails: Arc<Mutex<Vec<String>>>,
    begun: u64,
}

impl<const EAGER: bool> Script<EAGER> {
    fn note(&self, call: String) -> Result<(), BoxError> {
        let mut fails = self.fails.lock().unwrap();
        let failing = fails.iter().position(|fail| call.starts_with(fail.as_str()));
        self.calls.lock().unwrap().push(call.clone());
        match failing {
            Some(at) => Err(format!("{} fails on purpose", fails.remove(at)).into()),
            None => Ok(()),
        }
    }

    fn fail_once(&self, call: &str) {
        self.fails.lock().unwrap().push(call.to_owned());
    }

    /// The calls since the last time.
    fn calls(&self) -> Vec<String> {
        std::mem::take(&mut self.calls.lock().unwrap())
    }
}

impl<const EAGER: bool> TwoPhaseCommitSink<u64> for Script<EAGER> {
    type Buffer = Vec<u64>;
    type Transaction = u64;
    const BEGINS_EAGERLY: bool = EAGER;

    fn buffer(&mut self, record: u64, buffer: &mut Vec<u64>) -> Result<usize, BoxError> {
        buffer.push(record);
        Ok(buffer.len() * BUFFER_BYTES / PER_BUFFER)
    }

    fn open(&mut self, cx: &TransactionContext) -> Result<(), BoxError> {
        self.note(format!("open {}/{}", cx.subtask, cx.parallelism))
    }

    fn begin(&mut self) -> Result<u64, BoxError> {
        self.begun += 1;
        self.note(format!("begin {}", self.begun))?;
        Ok(self.begun)
    }

    fn write(&mut self, transaction: &mut u64, buffer: &mut Vec<u64>) -> Result<(), BoxError> {
        self.note(format!("write {transaction}: {buffer:?}"))?;
        buffer.clear();
        Ok(())
    }

    fn pre_commit(
        &mut self,
        transaction: &mut u64,
        checkpoint: Option<CheckpointId>,
    ) -> Result<(), BoxError> {
        let checkpoint = checkpoint.map_or("the end".to_owned(), |checkpoint| checkpoint.to_string());
        self.note(format!("pre-commit {transaction} for {checkpoint}"))
    }

    fn commit(&mut self, transaction: &u64) -> Result<(), BoxError> {
        self.note(format!("commit {transaction}"))
    }

    fn abort(&mut self, transaction: &u64) -> Result<(), BoxError> {
        self.note(format!("abort {transaction}"))
    }

    fn recover_and_commit(&mut self, transaction: &u64) -> Result<(), BoxError> {
        self.note(format!("recover and commit {transaction}"))
    }

    fn recover_and_abort(&mut self, transaction: &u64) -> Result<(), BoxError> {
        self.note(format!("recover and abort {transaction}"))
    }

    fn claim(&mut self, claim: &SinkClaim) -> Result<(), BoxError> {
        self.note(format!("claim for {}", claim.owner))
    }

    fn remove_leftovers(&mut self) -> Result<(), BoxError> {
        self.note("remove leftovers".to_owned())
    }
}

/// Does what it must, and no more.
#[derive(Clone, Default)]
struct Bare {
    tokens: Arc<Mutex<Vec<(u32, String)>>>,
    gives_up: bool,
}

impl TwoPhaseCommitSink<u64> for Bare {
    type Buffer = ();
    type Transaction = ();

    fn buffer(&mut self, _record: u64, (): &mut ()) -> Result<usize, BoxError> {
        Ok(0)
    }

    fn open(&mut self, cx: &TransactionContext) -> Result<(), BoxError> {
        self.tokens.lock().unwrap().push((cx.subtask.0, cx.token.clone()));
        Ok(())
    }

    fn begin(&mut self) -> Result<(), BoxError> {
        match self.gives_up {
            true => Err(Error::new(ErrorKind::Connector, Recovery::GiveUp, "no use").into()),
            false => Ok(()),
        }
    }

    fn write(&mut self, (): &mut (), (): &mut ()) -> Result<(), BoxError> {
        Ok(())
    }

    fn pre_commit(&mut self, (): &mut (), _checkpoint: Option<CheckpointId>) -> Result<(), BoxError> {
        Ok(())
    }

    fn commit(&mut self, (): &()) -> Result<(), BoxError> {
        Ok(())
    }

    fn abort(&mut self, (): &()) -> Result<(), BoxError> {
        Ok(())
    }
}

struct Rig<const EAGER: bool> {
    script: Script<EAGER>,
    sink: TwoPhase<u64, Script<EAGER>>,
    helpers: ByHand,
}

impl Rig<false> {
    fn new() -> Self {
        Self::opened(Opening::default())
    }
}

impl<const EAGER: bool> Rig<EAGER> {
    fn opened(opening: Opening) -> Self {
        let script = Script::default();
        let mut sink = TwoPhase::new(script.clone());
        let (opened, helpers) = opening.open(|cx| sink.open(cx));
        opened.unwrap();
        Self { script, sink, helpers }
    }

    fn write(&mut self, records: impl IntoIterator<Item = u64>) {
        for record in records {
            let _ = self.sink.write(record).unwrap();
        }
    }

    fn barrier(&mut self, checkpoint: u64) -> Promise {
        Promise::of(&mut self.sink, checkpoint)
    }

    fn complete(&mut self, checkpoint: u64) {
        self.sink.notify_complete(CheckpointId(checkpoint)).unwrap();
    }

    fn abort(&mut self, checkpoint: u64) {
        self.sink.notify_aborted(CheckpointId(checkpoint)).unwrap();
    }

    /// The calls of a helper that does all it was asked for.
    fn calls(&mut self) -> Vec<String> {
        self.helpers.catch_up();
        self.script.calls()
    }
}

fn recovery<const EAGER: bool>(script: &Script<EAGER>) -> Box<dyn SinkRecovery> {
    TwoPhase::new(script.clone()).recovery().unwrap()
}

fn recovery_of(error: &BoxError) -> Option<Recovery> {
    error.downcast_ref::<Error>().map(Error::recovery)
}

#[test]
fn records_are_written_pre_committed_and_committed_in_order() {
    let mut rig = Rig::new();
    rig.write(1..=6);
    let first = rig.barrier(1);
    rig.write([7]);
    assert!(first.get().is_none(), "nothing is promised before the helper has done it");
    assert_eq!(
        rig.calls(),
        ["open 0/1", "begin 1", "write 1: [1, 2, 3, 4]", "write 1: [5, 6]", "pre-commit 1 for 1"]
    );
    assert_eq!(first.kept().len(), 1);
    rig.complete(1);
    assert_eq!(rig.sink.published().unwrap(), Flow::Blocked, "a commit is not done when it is asked for");
    assert_eq!(rig.calls(), ["commit 1"]);
    assert_eq!(rig.sink.published().unwrap(), Flow::Continue);
    let second = rig.barrier(2);
    assert_eq!(rig.calls(), ["begin 2", "write 2: [7]", "pre-commit 2 for 2"]);
    assert_eq!(second.kept().len(), 1, "what is committed is not in the snapshot any more");
}

#[test]
fn without_records_there_is_no_transaction() {
    let mut rig = Rig::new();
    for checkpoint in 1..=3 {
        let promise = rig.barrier(checkpoint);
        rig.sink.flush().unwrap();
        rig.complete(checkpoint);
        rig.helpers.catch_up();
        assert!(promise.kept().is_empty());
        assert_eq!(rig.sink.published().unwrap(), Flow::Continue);
    }
    assert_eq!(rig.calls(), ["open 0/1"]);
}

#[test]
fn a_barrier_does_not_wait_for_a_helper_that_is_behind() {
    let mut rig = Rig::new();
    let mut written = 0;
    while rig.sink.write(written).unwrap() == Flow::Continue {
        written += 1;
        assert!(written < 1000, "the helper has done nothing, yet records are never held back");
    }
    // More orders than any ring holds, each with all that belongs to it.
    let mut promises = Vec::new();
    for checkpoint in 1..=200 {
        assert_eq!(rig.sink.resume().unwrap(), Flow::Blocked);
        rig.sink.flush().unwrap();
        promises.push(rig.barrier(checkpoint));
        rig.complete(checkpoint);
        rig.abort(checkpoint);
    }
    assert_eq!(rig.sink.published().unwrap(), Flow::Blocked);
    while rig.sink.published().unwrap() == Flow::Blocked {
        assert!(rig.helpers.step(), "the helper waits for the subtask, and the subtask for the helper");
    }
    assert_eq!(rig.sink.resume().unwrap(), Flow::Continue);
    assert_eq!(promises[0].kept().len(), 1);
    assert!(promises[1..].iter().all(|promise| promise.kept().is_empty()));
    let calls = rig.script.calls();
    assert_eq!(calls[calls.len() - 2..], ["pre-commit 1 for 1", "commit 1"]);
    let records: usize = calls.iter().filter(|call| call.starts_with("write")).count() * PER_BUFFER;
    assert_eq!(records as u64, written + 1);
}

#[test]
fn a_helper_that_has_nothing_to_do_is_given_what_there_is_and_a_busy_one_whole_buffers() {
    let mut rig = Rig::new();
    for record in 1..=3 {
        rig.write([record]);
        rig.sink.flush().unwrap();
    }
    assert_eq!(rig.calls(), ["open 0/1", "begin 1", "write 1: [1]"]);
    rig.sink.flush().unwrap();
    assert_eq!(rig.calls(), ["write 1: [2, 3]"]);
}

#[test]
fn transactions_of_all_pending_checkpoints_stand_in_each_snapshot() {
    let mut rig = Rig::new();
    let mut promises = Vec::new();
    for checkpoint in 1..=4 {
        rig.write([checkpoint]);
        promises.push(rig.barrier(checkpoint));
    }
    rig.helpers.catch_up();
    let counts: Vec<_> = promises.iter().map(|promise| promise.kept().len()).collect();
    assert_eq!(counts, [1, 2, 3, 4]);
    assert_eq!(promises[3].kept()[..3], promises[2].kept());
    rig.script.calls();
    rig.complete(3);
    assert_eq!(rig.calls(), ["commit 1", "commit 2", "commit 3"]);
    // Whoever was told of a later one may still be told of an earlier one.
    rig.complete(2);
    rig.complete(3);
    assert_eq!(rig.calls(), Vec::<String>::new());
    assert_eq!(rig.sink.published().unwrap(), Flow::Continue);
    rig.complete(4);
    assert_eq!(rig.calls(), ["commit 4"]);
}

/// The records of an abandoned checkpoint were lost if its transaction was aborted with it: the source does not go back for them.
#[test]
fn an_abandoned_checkpoint_leaves_its_records_to_the_next_one() {
    let mut rig = Rig::new();
    rig.write([1]);
    let abandoned = rig.barrier(1);
    rig.abort(1);
    rig.write([2]);
    let next = rig.barrier(2);
    rig.helpers.catch_up();
    assert_eq!((abandoned.kept().len(), next.kept().len()), (1, 2));
    rig.script.calls();
    rig.complete(2);
    assert_eq!(rig.calls(), ["commit 1", "commit 2"]);
}

#[test]
fn a_lost_notice_is_made_up_for_when_the_job_goes_on() {
    let mut rig = Rig::new();
    rig.write([1]);
    let _ = rig.barrier(1);
    rig.write([2]);
    let promise = rig.barrier(2);
    rig.helpers.catch_up();
    rig.write([3]);
    rig.sink.flush().unwrap();
    rig.helpers.catch_up();
    rig.script.calls();
    drop(rig.sink);
    drop(rig.helpers);
    assert_eq!(rig.script.calls(), ["abort 3"], "only what no checkpoint can cover");
    let mut recovery = recovery(&rig.script);
    recovery.settle(&promise.kept()).unwrap();
    recovery.settle(&promise.kept()).unwrap();
    let once = ["recover and commit 1", "recover and commit 2", "remove leftovers"];
    assert_eq!(rig.script.calls(), [once, once].concat());
}

/// The subtask notices, the execution fails, and before the next one everything is committed again.
#[test]
fn a_commit_that_fails_is_repeated_when_the_job_goes_on() {
    let mut rig = Rig::new();
    rig.write([1]);
    let _ = rig.barrier(1);
    rig.write([2]);
    let promise = rig.barrier(2);
    rig.helpers.catch_up();
    rig.script.fail_once("commit 1");
    rig.complete(2);
    rig.helpers.catch_up();
    let error = rig.sink.published().unwrap_err();
    assert!(error.to_string().contains("commit 1 fails on purpose"), "{error}");
    assert_eq!(recovery_of(&error), None, "nothing speaks against a restart");
    // Late orders do no harm.
    rig.complete(3);
    assert!(rig.barrier(4).get().expect("nobody is left to promise anything").is_err());
    assert_eq!(rig.helpers.0[0].step().unwrap(), HelperStatus::Idle);
    rig.script.calls();
    drop((rig.sink, rig.helpers));
    assert!(rig.script.calls().is_empty());
    recovery(&rig.script).settle(&promise.kept()).unwrap();
    assert_eq!(rig.script.calls(), ["recover and commit 1", "recover and commit 2", "remove leftovers"]);
}

#[test]
fn what_cannot_be_pre_committed_declines_the_checkpoint_and_fails_the_execution() {
    for failing in ["pre-commit", "write", "begin", "open"] {
        let mut rig = Rig::new();
        rig.script.fail_once(failing);
        rig.write([1]);
        let promise = rig.barrier(1);
        rig.helpers.catch_up();
        let error = rig.sink.resume().unwrap_err();
        assert!(error.to_string().contains(&format!("{failing} fails on purpose")), "{error}");
        drop(rig.sink);
        drop(rig.helpers);
        let declined = promise.get().expect("decided").unwrap_err();
        assert!(declined.contains(&format!("{failing} fails on purpose")), "{declined}");
        let calls = rig.script.calls();
        let was_begun = matches!(failing, "pre-commit" | "write");
        assert_eq!(calls.last().is_some_and(|call| call == "abort 1"), was_begun, "{calls:?}");
    }
}

#[test]
fn an_error_says_itself_that_no_restart_helps() {
    let mut sink = TwoPhase::new(Bare { gives_up: true, ..Bare::default() });
    let (opened, mut helpers) = Opening::default().open(|cx| sink.open(cx));
    opened.unwrap();
    assert_eq!(sink.write(1).unwrap(), Flow::Continue);
    sink.flush().unwrap();
    helpers.catch_up();
    assert_eq!(recovery_of(&sink.flush().unwrap_err()), Some(Recovery::GiveUp));
}

#[test]
fn at_the_end_of_the_input_all_is_written_and_nothing_seen() {
    let mut rig = Rig::new();
    rig.write([1]);
    assert_eq!(rig.sink.end_input().unwrap(), Flow::Continue);
    assert_eq!(rig.calls(), ["open 0/1", "begin 1", "write 1: [1]"]);
    let _ = rig.barrier(1);
    rig.complete(1);
    rig.sink.close().unwrap();
    assert_eq!(rig.calls(), ["pre-commit 1 for 1", "commit 1"]);
    assert_eq!(rig.sink.published().unwrap(), Flow::Continue);
}

#[test]
fn with_checkpoints_off_everything_is_committed_when_the_job_is_finished() {
    let mut rig = Rig::<false>::opened(Opening { checkpointing: false, ..Opening::default() });
    rig.write([1]);
    // Taken by hand: one is abandoned, one completes, the third is not heard of.
    for checkpoint in 1..=3 {
        let _ = rig.barrier(checkpoint);
        rig.write([checkpoint + 1]);
    }
    rig.abort(1);
    rig.complete(2);
    assert_eq!(rig.sink.end_input().unwrap(), Flow::Continue);
    let calls = rig.calls();
    let commits: Vec<_> = calls.iter().filter(|call| call.starts_with("commit")).collect();
    assert_eq!(commits, ["commit 1", "commit 2"]);
    rig.sink.close().unwrap();
    assert_eq!(rig.sink.published().unwrap(), Flow::Blocked);
    assert_eq!(rig.calls(), ["pre-commit 4 for the end", "commit 3", "commit 4"]);
    assert_eq!(rig.sink.published().unwrap(), Flow::Continue);
}

/// Whatever was asked for and not done when an execution ends, in whatever way: nothing is committed by it, an open transaction is
/// aborted, and no promise stays open.
#[test]
fn an_execution_may_end_before_any_order() {
    for orderly in [true, false] {
        let mut steps = 0;
        loop {
            let mut rig = Rig::new();
            rig.write([1]);
            let first = rig.barrier(1);
            rig.write([2]);
            let second = rig.barrier(2);
            rig.complete(1);
            rig.write([3]);
            assert_eq!(rig.sink.end_input().unwrap(), Flow::Continue);
            let done = (0..steps).take_while(|_| rig.helpers.step()).count();
            let before = rig.script.calls();
            drop(rig.sink);
            if orderly {
                rig.helpers.stop();
            }
            drop(rig.helpers);
            let open = match before.last().map_or("", |call| call.split(':').next().unwrap_or_default()) {
                "write 1" => vec!["abort 1"],
                "write 2" => vec!["abort 2"],
                "write 3" => vec!["abort 3"],
                _ => Vec::new(),
            };
            assert_eq!(rig.script.calls(), open, "after {before:?}");
            assert!(first.get().is_some() && second.get().is_some(), "after {before:?}");
            if done < steps {
                break;
            }
            steps += 1;
        }
        assert!(steps > 5);
    }
}

#[test]
fn a_transaction_begun_ahead_is_known_to_the_snapshot_and_aborted_if_it_comes_to_nothing() {
    let mut rig = Rig::<true>::opened(Opening::default());
    assert_eq!(rig.calls(), ["open 0/1"], "when it is opened, leftovers may still be removed");
    let empty = rig.barrier(1);
    let still_empty = rig.barrier(2);
    assert_eq!(rig.calls(), ["begin 1"], "an empty one stays open");
    assert_eq!(empty.kept(), still_empty.kept());
    rig.write([1]);
    let promise = rig.barrier(3);
    assert_eq!(rig.calls(), ["write 1: [1]", "pre-commit 1 for 3", "begin 2"]);
    let mut recovery = recovery(&rig.script);
    recovery.settle(&promise.kept()).unwrap();
    recovery.settle(&empty.kept()).unwrap();
    assert_eq!(
        rig.script.calls(),
        [
            "recover and commit 1",
            "recover and abort 2",
            "remove leftovers",
            "recover and abort 1",
            "remove leftovers"
        ]
    );
}

#[test]
fn a_transaction_that_cannot_be_recovered_keeps_back_no_other_and_nothing_is_removed() {
    let mut rig = Rig::new();
    for checkpoint in 1..=3 {
        rig.write([checkpoint]);
        let _ = rig.barrier(checkpoint);
    }
    let promise = rig.barrier(4);
    rig.helpers.catch_up();
    rig.script.calls();
    rig.script.fail_once("recover and commit 2");
    let mut recovery = recovery(&rig.script);
    let error = recovery.settle(&promise.kept()).unwrap_err();
    assert!(error.to_string().contains("recover and commit 2 fails"), "{error}");
    let all = ["recover and commit 1", "recover and commit 2", "recover and commit 3"];
    assert_eq!(rig.script.calls(), all);
    recovery.settle(&promise.kept()).unwrap();
    assert_eq!(rig.script.calls(), [&all[..], &["remove leftovers"]].concat());
    rig.script.fail_once("remove leftovers");
    assert!(recovery.settle(&promise.kept()).is_err());
}

#[test]
fn bytes_that_are_no_transaction_are_refused_before_anything_is_done() {
    let mut rig = Rig::new();
    rig.write([1]);
    let promise = rig.barrier(1);
    rig.helpers.catch_up();
    rig.script.calls();
    let mut items = promise.kept();
    items.push(vec![9, 9]);
    for damaged in [items, vec![[promise.kept()[0].clone(), vec![0]].concat()], vec![Vec::new()]] {
        let error = recovery(&rig.script).settle(&damaged).unwrap_err();
        assert_eq!(recovery_of(&error), Some(Recovery::GiveUp));
        assert!(error.to_string().contains("transactions cannot be read"), "{error}");
    }
    assert!(rig.script.calls().is_empty());
}

#[test]
fn a_claim_that_is_refused_rejects_the_job() {
    let script = Script::<false>::default();
    let claim = SinkClaim {
        restored: None,
        resumes: false,
        is_finished: false,
        allows_repeated_output: false,
        owner: "job 7".to_owned(),
    };
    script.fail_once("claim");
    let mut recovery = recovery(&script);
    assert_eq!(recovery_of(&recovery.claim(&claim).unwrap_err()), Some(Recovery::RejectJob));
    recovery.claim(&claim).unwrap();
    assert_eq!(script.calls(), ["claim for job 7", "claim for job 7"]);
}

/// All output of a finished job was seen. That it cannot be found any more means nothing.
#[test]
fn a_finished_job_has_nothing_to_recover() {
    let mut rig = Rig::new();
    rig.write([1]);
    let promise = rig.barrier(1);
    rig.helpers.catch_up();
    rig.script.calls();
    let mut recovery = recovery(&rig.script);
    let claim = SinkClaim {
        restored: Some(CheckpointId(1)),
        resumes: true,
        is_finished: true,
        allows_repeated_output: false,
        owner: "job".to_owned(),
    };
    recovery.claim(&claim).unwrap();
    recovery.settle(&promise.kept()).unwrap();
    assert_eq!(rig.script.calls(), ["claim for job", "remove leftovers"]);
}

#[test]
fn no_two_executions_have_the_same_token_even_if_time_stands_still() {
    let bare = Bare::default();
    let prototype = TwoPhase::new(bare.clone());
    for _execution in 0..3 {
        for subtask in 0..2 {
            let mut sink = prototype.clone();
            let opening = Opening { subtask, parallelism: 2, checkpointing: true };
            let (opened, mut helpers) = opening.open(|cx| sink.open(cx));
            opened.unwrap();
            helpers.catch_up();
        }
    }
    let mut tokens = bare.tokens.lock().unwrap().clone();
    tokens.sort();
    tokens.dedup();
    assert_eq!(tokens.len(), 6);
}
