//! Commands to subtasks, in order, from any thread.

use std::collections::BTreeMap;

use crossbeam::channel::{Receiver, Sender, unbounded};

use crate::base::id::SubtaskId;
use crate::checkpoint::protocol::Command;
use crate::sync::wake::Waker;

/// One command to one subtask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SubtaskCommand {
    /// All subtasks are open: records may flow.
    Start,
    /// About a checkpoint.
    Checkpoint(Command),
    /// The job is finished: close the operators.
    Finish,
}

/// The subtask's end.
#[derive(Debug)]
pub struct Mailbox {
    receiver: Receiver<SubtaskCommand>,
}

impl Mailbox {
    /// The oldest command that has not been taken.
    #[inline]
    pub fn take(&self) -> Option<SubtaskCommand> {
        self.receiver.try_recv().ok()
    }
}

/// The ends of those who send commands.
#[derive(Debug, Default)]
pub struct Mailboxes {
    senders: BTreeMap<SubtaskId, (Sender<SubtaskCommand>, Waker)>,
}

impl Mailboxes {
    /// Makes the mailbox of one subtask; `waker` wakes the worker that steps it.
    pub fn add(&mut self, subtask: SubtaskId, waker: Waker) -> Mailbox {
        let (sender, receiver) = unbounded();
        self.senders.insert(subtask, (sender, waker));
        Mailbox { receiver }
    }

    /// Sends to one subtask. If it is gone already, nothing happens.
    pub fn send(&self, subtask: SubtaskId, command: SubtaskCommand) {
        if let Some((sender, waker)) = self.senders.get(&subtask) {
            let _ = sender.send(command);
            waker.wake();
        }
    }

    /// Sends to all subtasks.
    pub fn broadcast(&self, command: SubtaskCommand) {
        self.senders.keys().for_each(|subtask| self.send(*subtask, command));
    }
}
