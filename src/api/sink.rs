//! The end of a stream.

use super::env::StreamEnvironment;
use crate::base::id::{OperatorId, OperatorUid};

/// A sink that was added to a job; gives it a uid or a parallelism of its own.
#[derive(Debug)]
pub struct StreamSink {
    env: StreamEnvironment,
    id: OperatorId,
}

impl StreamSink {
    pub(super) fn new(env: StreamEnvironment, id: OperatorId) -> Self {
        Self { env, id }
    }

    /// Gives the sink its uid, by which its state is found again.
    #[allow(
        clippy::must_use_candidate,
        clippy::return_self_not_must_use,
        reason = "the sink is added already"
    )]
    pub fn uid(self, uid: &str) -> Self {
        self.env.edit(|graph| graph.operator_mut(self.id).uid = Some(OperatorUid::new(uid)));
        self
    }

    /// Sets the number of subtasks of the sink. Without it there are as many as of the operator that it follows.
    #[allow(
        clippy::must_use_candidate,
        clippy::return_self_not_must_use,
        reason = "the sink is added already"
    )]
    pub fn parallelism(self, parallelism: u32) -> Self {
        self.env.edit(|graph| graph.operator_mut(self.id).parallelism = Some(parallelism));
        self
    }
}
