//! Calls of the store that fail although the process lives on.

use std::io::{self, ErrorKind};

use crate::base::rng::Rng;
use crate::testing::faults::INJECTED;

/// A kind of store operation that can be made to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StoreFault {
    /// No space for a new file or directory. Nothing is created.
    Create,
    /// No space for more bytes. A part of them is written.
    Append,
    /// The bytes of a file cannot be made durable. Those not yet durable are in doubt for ever: see [`VirtualStore`](super::VirtualStore).
    Sync,
    /// The names in a directory cannot be made durable. They stay as they were: a later call may succeed.
    SyncDirectory,
    /// A rename does not happen.
    Rename,
    /// A file or directory is not removed.
    Remove,
    /// A directory cannot be listed.
    List,
    /// A file cannot be read or looked up.
    Read,
    /// A lock cannot be taken, though nobody has it.
    Lock,
}

impl StoreFault {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Create,
        Self::Append,
        Self::Sync,
        Self::SyncDirectory,
        Self::Rename,
        Self::Remove,
        Self::List,
        Self::Read,
        Self::Lock,
    ];

    pub(super) fn error(self) -> io::Error {
        let (kind, text) = match self {
            Self::Create | Self::Append => (ErrorKind::StorageFull, "no space left on device"),
            _ => (ErrorKind::Other, "input/output error"),
        };
        io::Error::new(kind, format!("{INJECTED}: {self:?}: {text}"))
    }
}

/// Which calls fail.
#[derive(Debug, Clone)]
pub(super) struct StorePlan {
    rng: Rng,
    /// So many more calls may fail by rate.
    budget: u32,
    /// One in so many calls fails; 0 for none. In the order of [`StoreFault::ALL`].
    one_in: [u64; StoreFault::ALL.len()],
    /// After so many more calls one fails.
    countdowns: [Option<u64>; StoreFault::ALL.len()],
    /// Most bytes that all files may have together.
    pub(super) quota: Option<u64>,
    pub(super) struck: u32,
}

impl StorePlan {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            rng: Rng::new(seed),
            budget: 0,
            one_in: Default::default(),
            countdowns: Default::default(),
            quota: None,
            struck: 0,
        }
    }

    pub(super) fn set_rate(&mut self, fault: StoreFault, one_in: u64) {
        self.one_in[fault as usize] = one_in;
    }

    pub(super) fn allow(&mut self, budget: u32) {
        self.budget = budget;
    }

    pub(super) fn fail_after(&mut self, fault: StoreFault, calls_before: u64) {
        self.countdowns[fault as usize] = Some(calls_before);
    }

    pub(super) fn strikes(&mut self, fault: StoreFault) -> bool {
        let countdown = &mut self.countdowns[fault as usize];
        let is_due = *countdown == Some(0);
        *countdown = countdown.and_then(|left| left.checked_sub(1));
        let one_in = self.one_in[fault as usize];
        let by_rate = !is_due && self.budget > 0 && one_in > 0 && self.rng.one_in(one_in);
        self.budget -= u32::from(by_rate);
        self.struck += u32::from(is_due || by_rate);
        is_due || by_rate
    }
}
