//! A value that comes later, from another thread.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use crate::base::error::BoxError;

type Receive<T> = Box<dyn FnOnce(Result<T, BoxError>) + Send>;

enum State<T> {
    Open,
    Sent(Result<T, BoxError>),
    Awaited(Receive<T>),
    Received,
}

/// Takes the value, whenever it comes.
pub struct Later<T>(Arc<Mutex<State<T>>>);

/// Sends the value. Dropped without having sent one, it sends an error.
pub struct LaterSender<T>(Option<Arc<Mutex<State<T>>>>);

/// Both ends.
#[must_use]
pub fn later<T>() -> (LaterSender<T>, Later<T>) {
    let state = Arc::new(Mutex::new(State::Open));
    (LaterSender(Some(Arc::clone(&state))), Later(state))
}

impl<T> fmt::Debug for Later<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Later").finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for LaterSender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LaterSender").finish_non_exhaustive()
    }
}

impl<T> Later<T> {
    /// Calls the function once with the value: at once if it is there, else on the thread that sends it.
    pub fn on_ready(self, receive: impl FnOnce(Result<T, BoxError>) + Send + 'static) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match std::mem::replace(&mut *state, State::Received) {
            State::Sent(value) => {
                drop(state);
                receive(value);
            }
            _ => *state = State::Awaited(Box::new(receive)),
        }
    }
}

impl<T> LaterSender<T> {
    /// Sends the value.
    pub fn send(mut self, value: Result<T, BoxError>) {
        if let Some(state) = self.0.take() {
            deliver(&state, value);
        }
    }
}

impl<T> Drop for LaterSender<T> {
    fn drop(&mut self) {
        if let Some(state) = self.0.take() {
            deliver(&state, Err("what the checkpoint waited for was given up".into()));
        }
    }
}

fn deliver<T>(state: &Mutex<State<T>>, value: Result<T, BoxError>) {
    let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
    match std::mem::replace(&mut *state, State::Received) {
        State::Awaited(receive) => {
            drop(state);
            receive(value);
        }
        _ => *state = State::Sent(value),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn the_value_arrives_once_whoever_comes_first() {
        for first in [true, false] {
            let (sender, receiver) = later::<u32>();
            let (told, heard) = channel();
            if first {
                sender.send(Ok(7));
                receiver.on_ready(move |value| told.send(value.unwrap()).unwrap());
            } else {
                receiver.on_ready(move |value| told.send(value.unwrap()).unwrap());
                assert!(heard.try_recv().is_err());
                sender.send(Ok(7));
            }
            assert_eq!(heard.try_iter().collect::<Vec<_>>(), [7]);
        }
    }

    #[test]
    fn a_sender_that_is_dropped_is_an_error() {
        let (sender, receiver) = later::<u32>();
        drop(sender);
        let (told, heard) = channel();
        receiver.on_ready(move |value| told.send(value.is_err()).unwrap());
        assert!(heard.recv().unwrap());
    }
}
