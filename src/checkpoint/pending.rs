//! A checkpoint under way: which acknowledgements it has and which it waits for.

use std::collections::BTreeMap;

use super::protocol::RequestId;
use crate::base::clock::Nanos;
use crate::base::id::{CheckpointId, SubtaskId};

/// Why a checkpoint was begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Periodic,
    ByHand,
    /// The last one of a job that has read all of its input.
    Final,
}

/// A checkpoint under way.
#[derive(Debug)]
pub struct Pending<S> {
    id: CheckpointId,
    pub(super) kind: Kind,
    triggered: Nanos,
    /// The requests that its outcome answers.
    pub(super) requests: Vec<RequestId>,
    /// One entry per subtask; filled by its acknowledgement.
    snapshots: BTreeMap<SubtaskId, Option<S>>,
    missing: usize,
    storing: bool,
}

impl<S> Pending<S> {
    pub(super) fn new(
        id: CheckpointId,
        kind: Kind,
        triggered: Nanos,
        requests: Vec<RequestId>,
        subtasks: &[SubtaskId],
    ) -> Self {
        let snapshots: BTreeMap<_, _> = subtasks.iter().map(|subtask| (*subtask, None)).collect();
        let missing = snapshots.len();
        Self { id, kind, triggered, requests, snapshots, missing, storing: false }
    }

    /// Its number.
    #[must_use]
    pub fn id(&self) -> CheckpointId {
        self.id
    }

    /// When it was triggered.
    #[must_use]
    pub fn triggered(&self) -> Nanos {
        self.triggered
    }

    /// The subtasks that have not acknowledged it, in order.
    pub fn waiting_for(&self) -> impl Iterator<Item = SubtaskId> + '_ {
        let storing = self.storing;
        self.snapshots.iter().filter(move |(_, part)| !storing && part.is_none()).map(|(subtask, _)| *subtask)
    }

    /// True while it is being made durable. Until that is answered it is neither completed nor aborted.
    #[must_use]
    pub fn is_storing(&self) -> bool {
        self.storing
    }

    pub(super) fn missing(&self) -> usize {
        self.missing
    }

    /// True while acknowledgements are missing.
    pub(super) fn is_collecting(&self) -> bool {
        self.missing > 0
    }

    pub(super) fn is_ready_to_store(&self) -> bool {
        self.missing == 0 && !self.storing
    }

    /// Takes one part. A second one of the same subtask, or one of a stranger, is dropped.
    pub(super) fn acknowledge(&mut self, subtask: SubtaskId, snapshot: S) {
        if self.storing {
            return;
        }
        if let Some(part @ None) = self.snapshots.get_mut(&subtask) {
            *part = Some(snapshot);
            self.missing -= 1;
        }
    }

    /// Hands the parts out for storing, in the order of the subtasks.
    pub(super) fn start_storing(&mut self) -> Vec<(SubtaskId, S)> {
        assert!(self.is_ready_to_store(), "checkpoint {} is stored once, with all of its parts", self.id);
        self.storing = true;
        let parts = self.snapshots.iter_mut();
        parts.filter_map(|(subtask, part)| Some((*subtask, part.take()?))).collect()
    }

    /// The parts that arrived, to be discarded.
    pub(super) fn into_parts(self) -> Vec<S> {
        self.snapshots.into_values().flatten().collect()
    }
}
