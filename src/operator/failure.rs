//! Which operator failed, found without a cost per record.

use std::any::Any;
use std::cell::RefCell;

use crate::base::error::{BoxError, Error, ErrorKind, Recovery};
use crate::base::id::OperatorUid;

thread_local! {
    /// The innermost operator through which the current panic unwound.
    static FAILED: RefCell<Option<OperatorUid>> = const { RefCell::new(None) };
}

struct Scope<'a>(&'a OperatorUid);

impl Drop for Scope<'_> {
    fn drop(&mut self) {
        // Runs only while unwinding: on the ordinary path the scope is forgotten.
        FAILED.with_borrow_mut(|failed| {
            failed.get_or_insert_with(|| self.0.clone());
        });
    }
}

/// Runs a user's function. If it panics, the operator's name is kept for [`caught`]; otherwise this costs nothing.
#[inline]
pub fn in_operator<R>(uid: &OperatorUid, function: impl FnOnce() -> R) -> R {
    let scope = Scope(uid);
    let result = function();
    std::mem::forget(scope);
    result
}

/// Ends the current step with an error that a user's function returned. The subtask's boundary catches it. An error of the
/// engine's own type says itself whether a restart can help.
#[cold]
pub fn fail(uid: &OperatorUid, kind: ErrorKind, error: &BoxError) -> ! {
    let error = Error::caused_by(kind, Recovery::Restart, error).in_operator(uid);
    // Not `panic!`: this is an orderly report, the panic hook has nothing to say about it.
    std::panic::resume_unwind(Box::new(error))
}

/// Turns the payload of a caught panic into an error that names the operator. Never panics, whatever the payload is.
#[must_use]
pub fn caught(payload: Box<dyn Any + Send>) -> Error {
    let operator = FAILED.with_borrow_mut(Option::take);
    let error = match payload.downcast::<Error>() {
        Ok(error) => *error,
        Err(payload) => {
            let text = payload
                .downcast_ref::<&str>()
                .map(|text| (*text).to_owned())
                .or_else(|| payload.downcast_ref::<String>().cloned())
                .unwrap_or_else(|| "the panic carried no text".to_owned());
            // A payload of the user's own type may panic when it is dropped, outside of every guard.
            std::mem::forget(payload);
            Error::new(ErrorKind::UserFunction, Recovery::Restart, format!("panicked: {text}"))
        }
    };
    match operator {
        Some(uid) => error.in_operator(&uid),
        None => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn the_innermost_operator_is_named() {
        let outer = OperatorUid::new("outer");
        let inner = OperatorUid::new("inner");
        let payload = catch_unwind(AssertUnwindSafe(|| {
            in_operator(&outer, || in_operator(&inner, || std::panic::resume_unwind(Box::new("boom"))))
        }))
        .unwrap_err();
        let error = caught(payload);
        assert_eq!(error.operator(), Some(&inner));
        assert_eq!(error.message(), "panicked: boom");
        assert_eq!(in_operator(&outer, || 3), 3);
        assert_eq!(caught(Box::new("later")).operator(), None, "an old name must not stick");
    }
}
