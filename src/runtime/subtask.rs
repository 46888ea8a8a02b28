//! One subtask: a chain, its channels and its part in checkpoints, as a state machine that is stepped.
//!
//! ```text
//! Opening --Start--> Running --all input ended--> Ending --all handed on--> Ended --Finish--> Closing --all published--> Finished
//! ```
//!
//! A subtask that has ended still takes part in checkpoints until the job is finished.
//!
//! What has to be done between two records (a watermark, a snapshot, the end of the input) is put into one queue and done in
//! order, each as soon as the output is not blocked. While the queue is not empty no record is taken, so that order holds
//! whatever blocks.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use self::log::Place;
use super::mailbox::{Mailbox, SubtaskCommand};
use super::signal::{Signal, SignalSink};
use super::snapshot_pool::TaskPool;
use super::under_way::CheckpointsUnderWay;
use crate::align::{Action, Aligner, CancelCause};
use crate::base::clock::Clock;
use crate::base::error::Error;
use crate::base::id::{Attempt, ChannelIndex, CheckpointId, JobId, OperatorUid, SubtaskId};
use crate::base::key_group::KeyGroups;
use crate::base::progress::{Flow, Progress};
use crate::checkpoint::protocol::{Command, Message, Report};
use crate::element::{ChannelOrder, Control, Watermark};
use crate::metrics::SubtaskCounters;
use crate::operator::context::{HelperPool, Ports, Restored};
use crate::operator::{ChainHead, CloseContext, OpenContext, SnapshotContext, Stop};
use crate::snapshot::{CheckpointStorage, Compression};
use crate::sync::wake::Waker;
use crate::time::WatermarkMerge;

mod log;
#[cfg(all(test, not(loom)))]
mod tests;
mod write;

/// What all subtasks of an attempt have in common.
#[derive(Clone)]
pub struct SubtaskEnvironment {
    /// The job, for the log.
    pub job: JobId,
    /// The attempt.
    pub attempt: Attempt,
    /// The engine's clock.
    pub clock: Arc<dyn Clock>,
    /// Takes what subtasks have to say.
    pub signals: Arc<dyn SignalSink>,
    /// Writes snapshots.
    pub pool: Arc<dyn TaskPool>,
    /// Keeps snapshots.
    pub storage: Arc<dyn CheckpointStorage>,
    /// How keyed state is compressed.
    pub compression: Compression,
    /// The checkpoints for which snapshots are worth writing.
    pub under_way: Arc<CheckpointsUnderWay>,
    /// False to write snapshots in the step that takes them.
    pub async_snapshots: bool,
    /// True if checkpoints are taken at all.
    pub checkpointing: bool,
}

impl fmt::Debug for SubtaskEnvironment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SubtaskEnvironment").field("attempt", &self.attempt).finish_non_exhaustive()
    }
}

/// What one subtask is made of.
pub struct SubtaskParts {
    /// Its identity.
    pub id: SubtaskId,
    /// The uids of its operators, joined, for the log.
    pub chain: OperatorUid,
    /// Its operators.
    pub head: Box<dyn ChainHead>,
    /// True if the head is a source.
    pub is_source: bool,
    /// Division of keys on its vertex.
    pub key_groups: KeyGroups,
    /// Its ends of rings.
    pub ports: Ports,
    /// Its commands.
    pub mailbox: Mailbox,
    /// Wakes the worker that steps it.
    pub waker: Waker,
    /// What it restores.
    pub restored: Option<Restored>,
    /// Its numbers.
    pub counters: Arc<SubtaskCounters>,
}

impl fmt::Debug for SubtaskParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SubtaskParts").field("id", &self.id).finish_non_exhaustive()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Opening,
    Running,
    Ending,
    Ended,
    Closing,
    Finished,
}

/// Something to be done between two records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Due {
    Watermark(Watermark),
    Idle(bool),
    Snapshot { checkpoint: CheckpointId, alignment: Duration },
    CancelBarrier(CheckpointId),
    EndInput,
}

/// One subtask of one attempt.
pub struct Subtask {
    id: SubtaskId,
    place: Place,
    env: SubtaskEnvironment,
    head: Box<dyn ChainHead>,
    is_source: bool,
    key_groups: KeyGroups,
    ports: Ports,
    mailbox: Mailbox,
    waker: Waker,
    restored: Option<Restored>,
    counters: Arc<SubtaskCounters>,
    phase: Phase,
    /// The last completed checkpoint for which not everything is published yet.
    publishing: Option<CheckpointId>,
    /// What the closed operators have accumulated, until everything is published.
    closed: CloseContext,
    /// The output refused: `resume` comes before anything else.
    blocked: bool,
    due: VecDeque<Due>,
    aligner: Aligner,
    watermarks: WatermarkMerge,
    channels: Vec<ChannelState>,
    /// Channel with which the next round begins.
    next_channel: usize,
    /// Kept to spare an allocation per barrier.
    actions: Vec<Action>,
}

#[derive(Debug, Clone, Copy, Default)]
struct ChannelState {
    /// Nothing will come any more, not even a barrier.
    closed: bool,
    /// Watched where debug assertions are on.
    order: ChannelOrder,
}

impl fmt::Debug for Subtask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subtask")
            .field("id", &self.id)
            .field("phase", &self.phase)
            .field("blocked", &self.blocked)
            .field("due", &self.due)
            .field("aligning", &self.aligner.aligning())
            .finish_non_exhaustive()
    }
}

impl Subtask {
    /// A subtask that is not open yet.
    #[must_use]
    pub fn new(parts: SubtaskParts, env: SubtaskEnvironment) -> Self {
        let SubtaskParts {
            id,
            chain,
            head,
            is_source,
            key_groups,
            ports,
            mailbox,
            waker,
            restored,
            counters,
        } = parts;
        Self {
            id,
            place: Place { job: env.job, chain, subtask: id },
            env,
            head,
            is_source,
            key_groups,
            ports,
            mailbox,
            waker,
            restored,
            counters,
            phase: Phase::Opening,
            publishing: None,
            closed: CloseContext::default(),
            blocked: false,
            due: VecDeque::new(),
            aligner: Aligner::new(0),
            watermarks: WatermarkMerge::new(0),
            channels: Vec::new(),
            next_channel: 0,
            actions: Vec::new(),
        }
    }

    /// Its identity.
    #[must_use]
    pub fn id(&self) -> SubtaskId {
        self.id
    }

    /// The job that it belongs to.
    #[must_use]
    pub fn job(&self) -> JobId {
        self.env.job
    }

    /// The attempt that it belongs to.
    #[must_use]
    pub fn attempt(&self) -> Attempt {
        self.env.attempt
    }

    /// Takes signals about this subtask.
    #[must_use]
    pub fn signals(&self) -> &Arc<dyn SignalSink> {
        &self.env.signals
    }

    /// Opens the operators and restores their state. Called once, on the thread that will step the subtask; may take as long
    /// as reading the state takes.
    ///
    /// # Errors
    /// If an operator cannot start. May panic if a user's function does.
    pub fn open(&mut self, helpers: &mut dyn HelperPool) -> Result<(), Error> {
        // What the operators log while they start, and their helpers for ever, is said in the name of this subtask.
        let span = self.span();
        let inside = span.enter();
        let started = self.env.clock.now();
        let mut cx = OpenContext {
            subtask: self.id.index,
            key_groups: self.key_groups,
            clock: Arc::clone(&self.env.clock),
            waker: self.waker.clone(),
            restored: self.restored.as_ref(),
            counters: Arc::clone(&self.counters),
            checkpointing: self.env.checkpointing,
            ports: &mut self.ports,
            helpers,
        };
        self.head.open(&mut cx)?;
        drop(inside);
        let restored = self.restored.take();
        self.log_opened(restored.as_ref(), self.env.clock.now().since(started));
        let channels = self.head.channels();
        self.channels = vec![ChannelState::default(); channels];
        self.aligner = Aligner::new(channels);
        self.watermarks = WatermarkMerge::new(channels);
        self.env.signals.send(Signal::Opened { attempt: self.env.attempt, subtask: self.id });
        Ok(())
    }

    /// Does a bounded piece of work: commands, what is due, then up to `budget` records.
    ///
    /// # Errors
    /// If an operator failed; the subtask must not be stepped again. May panic if a user's function does.
    pub fn step(&mut self, budget: usize) -> Result<Progress, Error> {
        let mut progress = self.take_commands()?;
        if self.publishing.is_some() || self.phase == Phase::Closing {
            self.publish()?;
        }
        match self.phase {
            Phase::Opening | Phase::Closing => return Ok(progress),
            Phase::Finished => return Ok(Progress::Done),
            Phase::Running | Phase::Ending | Phase::Ended => {}
        }
        if self.blocked {
            let flow = self.head.resume();
            self.blocked = flow.is_blocked();
            if flow != Flow::Blocked {
                progress = Progress::Worked;
            }
            if self.blocked {
                self.head.flush();
                return Ok(progress);
            }
        }
        if self.do_due() {
            progress = Progress::Worked;
        }
        if !self.is_held_up() {
            let polled = if self.is_source { self.poll_source(budget) } else { self.poll_channels(budget) };
            progress = progress.and(polled);
        }
        self.head.flush();
        Ok(progress)
    }

    /// True while no record may be taken.
    fn is_held_up(&self) -> bool {
        self.blocked || !self.due.is_empty()
    }

    fn take_commands(&mut self) -> Result<Progress, Error> {
        let mut progress = Progress::IDLE;
        while let Some(command) = self.mailbox.take() {
            progress = Progress::Worked;
            match command {
                SubtaskCommand::Start => self.phase = Phase::Running,
                SubtaskCommand::Finish => {
                    self.head.close(&mut self.closed)?;
                    self.phase = Phase::Closing;
                }
                SubtaskCommand::Checkpoint(Command::Trigger(checkpoint)) => {
                    self.due.push_back(Due::Snapshot { checkpoint, alignment: Duration::ZERO });
                }
                SubtaskCommand::Checkpoint(Command::Complete(checkpoint)) => {
                    self.head.notify_complete(checkpoint)?;
                    self.publishing = self.publishing.max(Some(checkpoint));
                }
                SubtaskCommand::Checkpoint(Command::Abort(checkpoint)) => self.abort(checkpoint)?,
            }
        }
        Ok(progress)
    }

    fn abort(&mut self, checkpoint: CheckpointId) -> Result<(), Error> {
        // A barrier that has not left yet must not leave any more.
        self.due
            .retain(|due| !matches!(due, Due::Snapshot { checkpoint: other, .. } if *other == checkpoint));
        if !self.is_source {
            let now = self.env.clock.now();
            let mut actions = std::mem::take(&mut self.actions);
            self.aligner.abort(checkpoint, now, &mut actions);
            self.carry_out(&mut actions);
            self.actions = actions;
        }
        self.head.notify_aborted(checkpoint)
    }

    /// Says so once everything is published. What is published for a checkpoint includes all that was due for earlier ones.
    fn publish(&mut self) -> Result<(), Error> {
        if self.head.published()?.is_blocked() {
            return Ok(());
        }
        if let Some(checkpoint) = self.publishing.take() {
            self.report(Message::Notified { checkpoint });
        }
        if self.phase == Phase::Closing {
            self.phase = Phase::Finished;
            self.env.signals.send(Signal::Finished {
                attempt: self.env.attempt,
                subtask: self.id,
                accumulators: std::mem::take(&mut self.closed).into_accumulators(),
            });
        }
        Ok(())
    }

    /// Does what is due, in order, until the output blocks. True if something was done.
    fn do_due(&mut self) -> bool {
        let mut worked = false;
        while !self.blocked {
            let Some(due) = self.due.pop_front() else { break };
            worked = true;
            self.blocked = match due {
                Due::Watermark(watermark) => self.head.watermark(watermark).is_blocked(),
                Due::Idle(idle) => {
                    self.head.idle(idle);
                    self.head.resume().is_blocked()
                }
                Due::CancelBarrier(checkpoint) => {
                    self.head.cancel_barrier(checkpoint);
                    self.head.resume().is_blocked()
                }
                Due::Snapshot { checkpoint, alignment } => {
                    self.take_snapshot(checkpoint, alignment);
                    self.head.resume().is_blocked()
                }
                Due::EndInput => self.end_input(),
            };
        }
        worked
    }

    /// True if the output blocked; what is left is done when it takes more.
    fn end_input(&mut self) -> bool {
        self.phase = Phase::Ending;
        if self.head.end_input().is_blocked() {
            self.due.push_front(Due::EndInput);
            return true;
        }
        self.phase = Phase::Ended;
        self.report(Message::EndOfInput);
        false
    }

    fn poll_source(&mut self, budget: usize) -> Progress {
        if self.phase != Phase::Running {
            return Progress::IDLE;
        }
        let polled = self.head.poll(ChannelIndex(0), budget);
        let worked = if polled.records > 0 { Progress::Worked } else { Progress::IDLE };
        match polled.stop {
            Stop::Budget => Progress::Worked,
            Stop::Empty(until) => worked.and(Progress::Idle(until)),
            Stop::Blocked => {
                self.blocked = true;
                worked
            }
            Stop::Ended => {
                self.due.push_back(Due::Watermark(Watermark::MAX));
                self.due.push_back(Due::EndInput);
                self.do_due();
                Progress::Worked
            }
            Stop::Control(_) | Stop::Abandoned => unreachable!("a source has no channel"),
        }
    }

    fn poll_channels(&mut self, budget: usize) -> Progress {
        let mut progress = Progress::IDLE;
        let mut left = budget;
        let count = self.channels.len();
        for offset in 0..count {
            let index = (self.next_channel + offset) % count;
            if self.poll_channel(index, &mut left) {
                progress = Progress::Worked;
            }
            if left == 0 || self.is_held_up() {
                // The next round begins behind the channel that got the most now.
                self.next_channel = (index + 1) % count;
                break;
            }
        }
        progress
    }

    /// Drains one channel until it is empty, parked or closed, the output blocks, or nothing is left of the budget. True if
    /// anything was taken.
    fn poll_channel(&mut self, index: usize, left: &mut usize) -> bool {
        let channel = ChannelIndex(u32::try_from(index).expect("a subtask has fewer than 2^32 channels"));
        let mut worked = false;
        while *left > 0
            && !self.channels[index].closed
            && !self.aligner.is_parked(channel)
            && !self.is_held_up()
        {
            let polled = self.head.poll(channel, *left);
            *left -= polled.records;
            worked |= polled.records > 0;
            debug_assert!(
                polled.records == 0 || self.channels[index].order.takes_records(),
                "channel {channel} of {} has records behind its end",
                self.id
            );
            match polled.stop {
                Stop::Budget | Stop::Empty(_) => break,
                Stop::Blocked => self.blocked = true,
                Stop::Control(control) => {
                    worked = true;
                    self.take_control(channel, control);
                    self.do_due();
                }
                // The producer is gone. If it had not ended, its subtask has failed and reported so itself.
                Stop::Abandoned | Stop::Ended => self.channels[index].closed = true,
            }
        }
        worked
    }

    fn take_control(&mut self, channel: ChannelIndex, control: Control) {
        if cfg!(debug_assertions)
            && let Err((order, control)) = self.channels[channel.index()].order.control(control)
        {
            panic!("channel {channel} of {}: {control:?} cannot follow {order:?}", self.id);
        }
        let now = self.env.clock.now();
        let mut actions = std::mem::take(&mut self.actions);
        let merged = match control {
            Control::Watermark(watermark) => self.watermarks.watermark(channel, watermark),
            Control::Idle => self.watermarks.idle(channel),
            Control::Active => self.watermarks.active(channel),
            Control::Barrier(checkpoint) => {
                self.aligner.barrier(channel, checkpoint, now, &mut actions);
                Default::default()
            }
            Control::CancelBarrier(checkpoint) => {
                self.aligner.cancel_barrier(channel, checkpoint, now, &mut actions);
                Default::default()
            }
            Control::EndOfInput => {
                // First the alignment that may complete by it: the snapshot belongs before what the end sets off.
                self.aligner.end_of_input(channel, now, &mut actions);
                self.watermarks.end_of_input(channel)
            }
        };
        self.carry_out(&mut actions);
        self.actions = actions;
        self.due.extend(merged.entries().map(|entry| match entry {
            Control::Watermark(watermark) => Due::Watermark(watermark),
            Control::Idle => Due::Idle(true),
            _ => Due::Idle(false),
        }));
        if control == Control::EndOfInput && self.phase == Phase::Running && self.aligner.all_ended() {
            self.due.push_back(Due::EndInput);
        }
    }

    fn carry_out(&mut self, actions: &mut Vec<Action>) {
        for action in actions.drain(..) {
            match action {
                Action::Park(channel) => self.head.set_parked(channel, true),
                Action::Unpark { channel, .. } => self.head.set_parked(channel, false),
                Action::TakeSnapshot(alignment) => self.due.push_back(Due::Snapshot {
                    checkpoint: alignment.checkpoint,
                    alignment: alignment.duration(),
                }),
                Action::ForwardCancel { checkpoint, cause } => {
                    self.log_cancelled(checkpoint, cause);
                    self.due.push_back(Due::CancelBarrier(checkpoint));
                    // The coordinator knows of its own aborts; of the others it would learn only by the timeout.
                    if cause != CancelCause::Coordinator {
                        self.report(Message::Decline { checkpoint, reason: cause.to_string() });
                    }
                }
            }
        }
    }

    /// Forwards the barrier, forks the state, and hands the fork to those who write it.
    fn take_snapshot(&mut self, checkpoint: CheckpointId, alignment: Duration) {
        let started = self.env.clock.now();
        self.head.barrier(checkpoint);
        let mut cx = SnapshotContext::new(checkpoint);
        self.head.snapshot(&mut cx);
        self.head.flush();
        let report = self.reporter();
        if let Some(error) = cx.declined {
            report.send(Message::Decline { checkpoint, reason: error.to_string() });
        } else {
            let task = write::WriteSnapshot {
                checkpoint,
                subtask: self.id,
                place: self.place.clone(),
                parallelism: self.key_groups.parallelism(),
                forks: cx.forks,
                forked_at: self.env.clock.now(),
                clock: Arc::clone(&self.env.clock),
                storage: Arc::clone(&self.env.storage),
                compression: self.env.compression,
                under_way: Arc::clone(&self.env.under_way),
                report,
            };
            if self.env.async_snapshots {
                self.env.pool.spawn(Box::new(|| task.run()));
            } else {
                task.run();
            }
        }
        let sync_pause = self.env.clock.now().since(started);
        self.log_snapshot(checkpoint, sync_pause, alignment);
        let alignment = (!self.is_source).then_some(alignment);
        self.env.signals.send(Signal::Forked { checkpoint, alignment, sync_pause });
    }

    fn reporter(&self) -> Reporter {
        Reporter { attempt: self.env.attempt, subtask: self.id, signals: Arc::clone(&self.env.signals) }
    }

    fn report(&self, message: Message<crate::snapshot::SubtaskSnapshot>) {
        self.reporter().send(message);
    }
}

/// Speaks to the coordinator in the name of one subtask.
#[derive(Debug, Clone)]
struct Reporter {
    attempt: Attempt,
    subtask: SubtaskId,
    signals: Arc<dyn SignalSink>,
}

impl Reporter {
    fn send(&self, message: Message<crate::snapshot::SubtaskSnapshot>) {
        let report = Report { attempt: self.attempt, subtask: self.subtask, message };
        self.signals.send(Signal::Report(report));
    }
}
