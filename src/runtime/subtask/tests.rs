//! A subtask driven by hand, with a head that plays a script and writes down what it is told.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use super::*;
use crate::base::id::{SubtaskIndex, VertexId};
use crate::operator::{OperatorLifecycle, Polled};
use crate::runtime::mailbox::Mailboxes;
use crate::runtime::snapshot_pool::Task;
use crate::snapshot::{Compression, MemoryStorage};
use crate::testing::VirtualClock;

/// What the subtask did to its head, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    Record(u64),
    Watermark(i64),
    Idle(bool),
    Barrier(u64),
    Snapshot(u64),
    Cancel(u64),
    EndInput,
    Complete(u64),
    Aborted(u64),
}

#[derive(Debug, Clone, Copy)]
enum Entry {
    Record(u64),
    Control(Control),
}

use Call as C;
use Control::{Barrier, CancelBarrier, EndOfInput};
use Entry as E;

type Calls = Arc<Mutex<Vec<Call>>>;

struct ScriptedHead {
    channels: Vec<VecDeque<Entry>>,
    parked: Vec<bool>,
    calls: Calls,
    /// The output refuses from the first call to `watermark` on, until `resume` was called this often.
    blocks_on_watermark: usize,
    refusals_left: usize,
}

impl ScriptedHead {
    fn note(&self, call: Call) {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).push(call);
    }
}

impl OperatorLifecycle for ScriptedHead {
    fn open(&mut self, _cx: &mut OpenContext<'_>) -> Result<(), Error> {
        Ok(())
    }

    fn resume(&mut self) -> Flow {
        if self.refusals_left == 0 {
            return Flow::Continue;
        }
        self.refusals_left -= 1;
        Flow::Blocked
    }

    fn watermark(&mut self, watermark: Watermark) -> Flow {
        self.note(C::Watermark(watermark.0));
        self.refusals_left = self.blocks_on_watermark;
        if self.refusals_left > 0 { Flow::Blocked } else { Flow::Continue }
    }

    fn idle(&mut self, idle: bool) {
        self.note(C::Idle(idle));
    }

    fn end_input(&mut self) -> Flow {
        self.note(C::EndInput);
        Flow::Continue
    }

    fn barrier(&mut self, checkpoint: CheckpointId) {
        self.note(C::Barrier(checkpoint.0));
    }

    fn cancel_barrier(&mut self, checkpoint: CheckpointId) {
        self.note(C::Cancel(checkpoint.0));
    }

    fn snapshot(&mut self, cx: &mut SnapshotContext) {
        self.note(C::Snapshot(cx.checkpoint.0));
    }

    fn flush(&mut self) {}

    fn notify_complete(&mut self, checkpoint: CheckpointId) -> Result<(), Error> {
        self.note(C::Complete(checkpoint.0));
        Ok(())
    }

    fn notify_aborted(&mut self, checkpoint: CheckpointId) -> Result<(), Error> {
        self.note(C::Aborted(checkpoint.0));
        Ok(())
    }

    fn close(&mut self, _cx: &mut CloseContext) -> Result<(), Error> {
        Ok(())
    }

    fn published(&mut self) -> Result<Flow, Error> {
        Ok(Flow::Continue)
    }
}

impl ChainHead for ScriptedHead {
    fn channels(&self) -> usize {
        self.channels.len()
    }

    fn poll(&mut self, channel: ChannelIndex, max: usize) -> Polled {
        assert!(!self.parked[channel.index()], "a parked channel is not read");
        let mut records = 0;
        while records < max {
            match self.channels[channel.index()].pop_front() {
                Some(E::Record(record)) => {
                    records += 1;
                    self.note(C::Record(record));
                }
                Some(E::Control(control)) => return Polled { records, stop: Stop::Control(control) },
                None => return Polled { records, stop: Stop::Empty(crate::base::clock::Nanos::MAX) },
            }
        }
        Polled { records, stop: Stop::Budget }
    }

    fn set_parked(&mut self, channel: ChannelIndex, parked: bool) {
        self.parked[channel.index()] = parked;
    }
}

/// Runs tasks where they are given.
#[derive(Debug)]
struct Inline;

impl TaskPool for Inline {
    fn spawn(&self, task: Task) {
        task();
    }
}

struct NoHelpers;

impl HelperPool for NoHelpers {
    fn spawn(
        &mut self,
        _name: String,
        _helper: Box<dyn crate::operator::context::Helper>,
    ) -> Result<Waker, crate::base::error::BoxError> {
        Err("no helpers here".into())
    }
}

struct Bench {
    subtask: Subtask,
    mailboxes: Mailboxes,
    id: SubtaskId,
    calls: Calls,
    signals: crossbeam::channel::Receiver<Signal>,
}

fn bench(channels: &[&[Entry]], blocks_on_watermark: usize) -> Bench {
    let calls = Calls::default();
    let head = ScriptedHead {
        channels: channels.iter().map(|entries| entries.iter().copied().collect()).collect(),
        parked: vec![false; channels.len()],
        calls: Arc::clone(&calls),
        blocks_on_watermark,
        refusals_left: 0,
    };
    let id = SubtaskId { vertex: VertexId(1), index: SubtaskIndex(0) };
    let mut mailboxes = Mailboxes::default();
    let (sender, signals) = crossbeam::channel::unbounded::<Signal>();
    let parts = SubtaskParts {
        id,
        chain: OperatorUid::new("script"),
        head: Box::new(head),
        is_source: false,
        key_groups: KeyGroups::new(1, 1),
        ports: Ports::default(),
        mailbox: mailboxes.add(id, Waker::noop()),
        waker: Waker::noop(),
        restored: None,
        counters: Arc::default(),
    };
    let env = SubtaskEnvironment {
        job: JobId::random(),
        attempt: Attempt(0),
        clock: Arc::new(VirtualClock::default()),
        signals: Arc::new(sender),
        pool: Arc::new(Inline),
        storage: Arc::new(MemoryStorage::new()),
        compression: Compression::default(),
        under_way: Arc::default(),
        async_snapshots: true,
        checkpointing: true,
    };
    let mut subtask = Subtask::new(parts, env);
    subtask.open(&mut NoHelpers).unwrap();
    mailboxes.send(id, SubtaskCommand::Start);
    Bench { subtask, mailboxes, id, calls, signals }
}

impl Bench {
    /// Steps until nothing moves any more, one record at a time.
    fn run(&mut self) -> Vec<Call> {
        let mut quiet = 0;
        while quiet < 20 {
            let progress = self.subtask.step(1).unwrap();
            quiet = if progress == Progress::Worked { 0 } else { quiet + 1 };
        }
        std::mem::take(&mut *self.calls.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn command(&self, command: Command) {
        self.mailboxes.send(self.id, SubtaskCommand::Checkpoint(command));
    }

    fn declined(&self) -> Vec<u64> {
        let declined = |signal| match signal {
            Signal::Report(Report { message: Message::Decline { checkpoint, .. }, .. }) => Some(checkpoint.0),
            _ => None,
        };
        self.signals.try_iter().filter_map(declined).collect()
    }
}

fn barrier(id: u64) -> Entry {
    E::Control(Barrier(CheckpointId(id)))
}

fn watermark(time: i64) -> Entry {
    E::Control(Control::Watermark(Watermark(time)))
}

#[test]
fn a_channel_is_parked_from_its_barrier_to_the_last_one() {
    let mut bench =
        bench(&[&[E::Record(1), barrier(1), E::Record(2)], &[E::Record(10), E::Record(11), barrier(1)]], 0);
    let calls = bench.run();
    let at = |call| {
        calls.iter().position(|other| *other == call).unwrap_or_else(|| panic!("{call:?} in {calls:?}"))
    };
    assert!(at(C::Record(11)) < at(C::Barrier(1)) && at(C::Snapshot(1)) < at(C::Record(2)), "{calls:?}");
    assert_eq!(calls.len(), 6, "{calls:?}");
}

/// One channel stops at its barrier while the other delivers a watermark and a late record in front of its own: on the output,
/// the watermark lies on the same side of the barrier as it did in its channel.
#[test]
fn a_watermark_never_changes_places_with_a_barrier() {
    let left = [watermark(100), barrier(1), watermark(300)];
    let right = [watermark(50), E::Record(99), watermark(200), barrier(1), watermark(250)];
    for order in [[&left[..], &right[..]], [&right[..], &left[..]]] {
        let calls = bench(&order, 0).run();
        let expected =
            [C::Watermark(50), C::Watermark(100), C::Barrier(1), C::Snapshot(1), C::Watermark(250)];
        let without_records: Vec<_> =
            calls.into_iter().filter(|call| !matches!(call, C::Record(_))).collect();
        assert_eq!(without_records, expected);
    }
}

/// The output is full when the first of two watermarks comes: nothing behind it goes past it.
#[test]
fn what_is_due_waits_in_order_while_the_output_is_blocked() {
    let mut bench =
        bench(&[&[watermark(10), barrier(1), watermark(20), E::Record(1), E::Control(EndOfInput)]], 3);
    let calls = bench.run();
    let expected = [
        C::Watermark(10),
        C::Barrier(1),
        C::Snapshot(1),
        C::Watermark(20),
        C::Record(1),
        C::Watermark(i64::MAX),
        C::EndInput,
    ];
    assert_eq!(calls, expected);
}

#[test]
fn idleness_is_handed_on_once_all_channels_are_idle_and_taken_back_first() {
    let idle = E::Control(Control::Idle);
    let active = E::Control(Control::Active);
    let calls = bench(&[&[idle, active, watermark(7)], &[watermark(3), idle]], 0).run();
    assert_eq!(calls.first(), Some(&C::Watermark(3)), "{calls:?}");
    assert_eq!(calls.last(), Some(&C::Watermark(7)), "{calls:?}");
    let idles: Vec<_> = calls.iter().filter(|call| matches!(call, C::Idle(_))).collect();
    assert!(idles.is_empty() || idles == [&C::Idle(true), &C::Idle(false)], "{calls:?}");
}

#[test]
fn an_abort_releases_the_parked_channel_and_is_told_to_the_operators() {
    let mut bench = bench(&[&[barrier(1), E::Record(1)], &[E::Record(2)]], 0);
    assert_eq!(bench.run(), [C::Record(2)]);
    bench.command(Command::Abort(CheckpointId(1)));
    assert_eq!(bench.run(), [C::Aborted(1), C::Cancel(1), C::Record(1)]);
    assert!(bench.declined().is_empty(), "the coordinator knows");
    bench.command(Command::Complete(CheckpointId(2)));
    assert_eq!(bench.run(), [C::Complete(2)]);
}

#[test]
fn a_checkpoint_cancelled_upstream_is_declined() {
    let cancel = E::Control(CancelBarrier(CheckpointId(1)));
    let mut bench = bench(&[&[barrier(1), E::Record(1)], &[cancel, E::Record(2)]], 0);
    let calls = bench.run();
    assert_eq!(calls.iter().filter(|call| **call == C::Cancel(1)).count(), 1, "{calls:?}");
    assert_eq!(bench.declined(), [1]);
}

#[test]
fn a_subtask_that_has_ended_still_takes_snapshots() {
    let end = E::Control(EndOfInput);
    let left = [end, barrier(1), barrier(2)];
    let right = [E::Record(1), end, barrier(1), barrier(2)];
    let calls = bench(&[&left, &right], 0).run();
    let (max, ended) = (C::Watermark(i64::MAX), C::EndInput);
    // The end of the right channel completes the first alignment: that snapshot belongs before what the end sets off.
    let expected = [C::Record(1), C::Barrier(1), C::Snapshot(1), max, ended, C::Barrier(2), C::Snapshot(2)];
    assert_eq!(calls, expected);
}
