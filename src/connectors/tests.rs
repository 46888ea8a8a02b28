//! What the tests of connectors have in common: helpers that are stepped by hand, and promises that are looked at.

use std::sync::{Arc, Mutex};

use crate::base::clock::{Clock, Nanos};
use crate::base::error::BoxError;
use crate::base::id::{CheckpointId, SubtaskIndex};
use crate::base::key_group::KeyGroups;
use crate::operator::context::{Helper, HelperPool, HelperStatus, Ports, Restored};
use crate::operator::{OpenContext, PreCommitContext, Sink};
use crate::sync::wake::Waker;

/// Keeps the helpers instead of starting threads.
#[derive(Default)]
pub(super) struct ByHand(pub(super) Vec<Box<dyn Helper>>);

impl HelperPool for ByHand {
    fn spawn(&mut self, _name: String, helper: Box<dyn Helper>) -> Result<Waker, BoxError> {
        self.0.push(helper);
        Ok(Waker::noop())
    }
}

impl ByHand {
    /// Steps each helper once. True if one of them did something.
    pub(super) fn step(&mut self) -> bool {
        let step = |helper: &mut Box<dyn Helper>| helper.step().unwrap() == HelperStatus::Worked;
        self.0.iter_mut().map(step).fold(false, |worked, works| worked | works)
    }

    /// Steps the helpers until they have nothing to do.
    pub(super) fn catch_up(&mut self) {
        while self.step() {}
    }

    pub(super) fn stop(&mut self) {
        self.0.iter_mut().for_each(|helper| helper.stop().unwrap());
    }
}

/// A clock that stands still, as it may seem to for executions that follow each other quickly.
#[derive(Debug)]
struct Standing;

impl Clock for Standing {
    fn now(&self) -> Nanos {
        Nanos(7)
    }

    fn epoch_millis(&self) -> u64 {
        1_700_000_000_000
    }
}

/// Which subtask is opened.
#[derive(Debug, Clone, Copy)]
pub(super) struct Opening {
    pub(super) subtask: u32,
    pub(super) parallelism: u32,
    pub(super) checkpointing: bool,
}

impl Default for Opening {
    fn default() -> Self {
        Self { subtask: 0, parallelism: 1, checkpointing: true }
    }
}

impl Opening {
    pub(super) fn open<R>(self, open: impl FnOnce(&mut OpenContext<'_>) -> R) -> (R, ByHand) {
        self.open_from(None, open)
    }

    pub(super) fn open_from<R>(
        self,
        restored: Option<&Restored>,
        open: impl FnOnce(&mut OpenContext<'_>) -> R,
    ) -> (R, ByHand) {
        let mut helpers = ByHand::default();
        let result = open(&mut OpenContext {
            subtask: SubtaskIndex(self.subtask),
            key_groups: KeyGroups::new(128, self.parallelism),
            clock: Arc::new(Standing),
            waker: Waker::noop(),
            restored,
            counters: Arc::default(),
            checkpointing: self.checkpointing,
            ports: &mut Ports::default(),
            helpers: &mut helpers,
        });
        (result, helpers)
    }
}

type Promised = Result<Vec<Vec<u8>>, String>;

/// What a sink has promised to a checkpoint, once it has.
#[derive(Debug, Clone, Default)]
pub(super) struct Promise(Arc<Mutex<Option<Promised>>>);

impl Promise {
    /// Shows the barrier of a checkpoint to a sink.
    pub(super) fn of<T>(sink: &mut impl Sink<T>, checkpoint: u64) -> Self {
        let mut cx = PreCommitContext::new(CheckpointId(checkpoint));
        sink.pre_commit(&mut cx).unwrap();
        let promise = Self::default();
        let kept = promise.clone();
        let keep = move |items: Result<_, BoxError>| {
            *kept.0.lock().unwrap() = Some(items.map_err(|error| error.to_string()));
        };
        cx.later.expect("a transactional sink promises its transactions").on_ready(keep);
        promise
    }

    /// The transactions, or why the checkpoint is declined; nothing as long as the helper has not said.
    pub(super) fn get(&self) -> Option<Promised> {
        self.0.lock().unwrap().clone()
    }

    pub(super) fn kept(&self) -> Vec<Vec<u8>> {
        self.get().expect("promised").expect("not declined")
    }
}
