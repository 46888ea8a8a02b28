//! The one public error of the engine.

use std::fmt;

use super::id::{OperatorUid, SubtaskIndex};

/// An error from a user's function or from a system that the engine only passes on.
pub type BoxError = Box<dyn std::error::Error + Send + Sync + 'static>;

/// The error's text followed by that of each cause.
#[must_use]
pub fn message_with_causes(error: &(dyn std::error::Error + 'static)) -> String {
    let mut message = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let text = inner.to_string();
        // Many errors show their cause themselves.
        if !message.contains(&text) {
            message = format!("{message}: {text}");
        }
        cause = inner.source();
    }
    message
}

/// What the engine does about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recovery {
    /// The job as described cannot run: nothing was started.
    RejectJob,
    /// The job goes back to its newest completed checkpoint, as often as its restart strategy allows.
    Restart,
    /// Nothing can be done.
    GiveUp,
}

/// What went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The job graph or its configuration is not valid.
    Plan,
    /// A user's function panicked or returned an error.
    UserFunction,
    /// A source or sink failed.
    Connector,
    /// A snapshot could not be written or read.
    Snapshot,
    /// Too many checkpoints failed.
    Checkpoint,
    /// The machine refused a thread, memory or another resource.
    Resource,
}

/// An error of the engine, with the operator and subtask where it happened.
#[derive(Debug, Clone)]
pub struct Error {
    kind: ErrorKind,
    recovery: Recovery,
    operator: Option<OperatorUid>,
    subtask: Option<SubtaskIndex>,
    message: String,
}

impl Error {
    /// An error with this message; it belongs to no operator yet.
    pub fn new(kind: ErrorKind, recovery: Recovery, message: impl Into<String>) -> Self {
        Self { kind, recovery, operator: None, subtask: None, message: message.into() }
    }

    /// The error that a user's function or another system caused. If it is an error of this type already, it says itself what it
    /// is and whether a restart can help.
    #[must_use]
    pub fn caused_by(kind: ErrorKind, recovery: Recovery, cause: &BoxError) -> Self {
        match cause.downcast_ref::<Self>() {
            Some(error) => error.clone(),
            None => Self::new(kind, recovery, message_with_causes(cause.as_ref())),
        }
    }

    /// The same error, with another answer to it.
    #[must_use]
    pub fn with_recovery(self, recovery: Recovery) -> Self {
        Self { recovery, ..self }
    }

    /// Adds the operator, unless one is named already: the innermost knows best.
    #[must_use]
    pub fn in_operator(mut self, operator: &OperatorUid) -> Self {
        self.operator.get_or_insert_with(|| operator.clone());
        self
    }

    /// Adds the subtask, unless one is named already.
    #[must_use]
    pub fn in_subtask(mut self, subtask: SubtaskIndex) -> Self {
        self.subtask.get_or_insert(subtask);
        self
    }

    /// What went wrong.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// What the engine does about it.
    #[must_use]
    pub fn recovery(&self) -> Recovery {
        self.recovery
    }

    /// The operator in which it happened, if it happened in one.
    #[must_use]
    pub fn operator(&self) -> Option<&OperatorUid> {
        self.operator.as_ref()
    }

    /// The subtask in which it happened, if it happened in one.
    #[must_use]
    pub fn subtask(&self) -> Option<SubtaskIndex> {
        self.subtask
    }

    /// The message without the place.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.operator, self.subtask) {
            (Some(operator), Some(subtask)) => {
                write!(f, "operator {operator:?}, subtask {subtask}: {}", self.message)
            }
            (Some(operator), None) => write!(f, "operator {operator:?}: {}", self.message),
            (None, Some(subtask)) => write!(f, "subtask {subtask}: {}", self.message),
            (None, None) => f.write_str(&self.message),
        }
    }
}

impl std::error::Error for Error {}
