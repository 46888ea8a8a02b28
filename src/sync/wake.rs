//! How a worker that has nothing to do goes to sleep, and how it is woken without a lock on the data path.
//!
//! A worker owns one [`Parker`]. Whoever may give it work holds a [`Waker`] of it. "Work" is any change the worker polls
//! for: entries published in a ring, room released in a ring, a command in a mailbox.
//!
//! ```text
//! the one who publishes                        the worker
//! W1  publish (Release store)                  P1  state = SLEEPING           (prepare)
//! W2  fence SeqCst                 (wake)      P2  fence SeqCst               (prepare)
//! W3  state == SLEEPING? then unpark (wake)    P3  poll everything once more
//!                                              P4  work found: cancel; none: park
//! ```
//!
//! The fence W2 pairs with the fence P2. All `SeqCst` fences stand in one order. If W2 comes first, the poll P3 sees what
//! W1 published. If P2 comes first, the load W3 sees `SLEEPING` and the worker is woken. A wake-up is lost only if both
//! look past each other, and that no order of the two fences allows. Either fence alone is worth nothing.
//!
//! While both sides run, a wake-up costs the publisher one fence and one load of a line that rarely changes.
//!
//! It relies on one thing: P3 polls *everything*. A source of work skipped there can sleep through its wake-up.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use super::thread::{self, Thread, ThreadId};
use super::{Arc, AtomicU32, Mutex, Ordering, fence};

/// The worker is at work, or polls on its own: nobody needs to wake it.
const RUNNING: u32 = 0;
/// The worker has announced that it is about to sleep, or sleeps.
const SLEEPING: u32 = 1;
/// Somebody has taken it upon himself to wake the worker: no second `unpark` is needed.
const NOTIFIED: u32 = 2;

struct Shared {
    state: AtomicU32,
    /// The thread to unpark. Set by the worker before it announces `SLEEPING`; the lock is taken only to go to sleep on
    /// another thread than before and to wake a sleeper, never while both sides run.
    sleeper: Mutex<Option<Thread>>,
}

/// The worker's half: it sleeps here.
///
/// Used by one thread at a time (it can be moved to the worker's thread after its wakers were handed out).
pub struct Parker {
    shared: Arc<Shared>,
    /// The thread stored in `sleeper`, so that the lock is not taken again for the same one.
    registered: Cell<Option<ThreadId>>,
}

impl Parker {
    /// A parker whose worker is running.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "a parker is an identity, not a value with a default")]
    pub fn new() -> Self {
        Self {
            shared: Arc::new(Shared { state: AtomicU32::new(RUNNING), sleeper: Mutex::new(None) }),
            registered: Cell::new(None),
        }
    }

    /// A handle that wakes this worker. It may outlive the worker: waking is then without effect.
    #[must_use]
    pub fn waker(&self) -> Waker {
        Waker { shared: Some(Arc::clone(&self.shared)) }
    }

    /// Announces that the calling thread is about to sleep.
    ///
    /// After it the worker polls everything once more and calls [`cancel`](Self::cancel) if it found work,
    /// [`park`](Self::park) if it did not. Work published before the announcement is found by that poll; work published
    /// after it ends the `park`.
    pub fn prepare(&self) {
        let current = thread::current();
        if self.registered.get() != Some(current.id()) {
            self.registered.set(Some(current.id()));
            *lock(&self.shared.sleeper) = Some(current);
        }
        // Release: a waker that sees SLEEPING also sees the handle registered above (it takes the lock anyway).
        self.shared.state.store(SLEEPING, Ordering::Release);
        // Pairs with the fence in `Waker::wake`; see the module's text.
        fence(Ordering::SeqCst);
    }

    /// Takes the announcement back: the worker found work.
    pub fn cancel(&self) {
        // A waker that is faster leaves an unpark token behind; the next `park` takes it for a spurious return and looks
        // at the state, so it does no harm.
        self.shared.state.store(RUNNING, Ordering::Relaxed);
    }

    /// True from the announcement until somebody wakes this worker or it takes the announcement back; for a scheduler that
    /// lets its workers sleep without a thread of their own.
    #[must_use]
    pub fn is_asleep(&self) -> bool {
        self.shared.state.load(Ordering::Acquire) == SLEEPING
    }

    /// Sleeps until somebody wakes this worker, at most for `timeout` if there is one. Call it after
    /// [`prepare`](Self::prepare); without it it returns at once.
    ///
    /// With a timeout it may also return early, for no reason: the worker polls again and goes back to sleep. What was
    /// published before the wake-up is visible after it.
    ///
    /// Loom knows no time: there a timeout never expires.
    pub fn park(&self, timeout: Option<Duration>) {
        // Acquire: pairs with the exchange in `Waker::wake_sleeper`, so that the worker sees what the waker published.
        while self.shared.state.load(Ordering::Acquire) == SLEEPING {
            #[cfg(not(loom))]
            if let Some(timeout) = timeout {
                thread::park_timeout(timeout);
                break;
            }
            #[cfg(loom)]
            let _ = timeout;
            thread::park();
        }
        self.shared.state.store(RUNNING, Ordering::Relaxed);
        // A timeout says nothing about who published what; the poll that follows loads with Acquire itself.
    }
}

impl fmt::Debug for Parker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parker").finish_non_exhaustive()
    }
}

/// The other half: it wakes a worker. Cheap to clone, and held by everyone who can give the worker work.
#[derive(Clone)]
pub struct Waker {
    /// None for a scheduler that polls by itself and never sleeps.
    shared: Option<Arc<Shared>>,
}

impl Waker {
    /// A waker of nobody, for a scheduler with a single thread.
    #[must_use]
    pub const fn noop() -> Self {
        Self { shared: None }
    }

    /// Wakes the worker if it sleeps or is about to.
    ///
    /// Call it *after* the store that publishes the work, once for a whole batch.
    #[inline]
    pub fn wake(&self) {
        let Some(shared) = &self.shared else { return };
        // Pairs with the fence in `Parker::prepare`; see the module's text.
        fence(Ordering::SeqCst);
        if shared.state.load(Ordering::Relaxed) == SLEEPING {
            Self::wake_sleeper(shared);
        }
    }

    #[cold]
    #[inline(never)]
    fn wake_sleeper(shared: &Shared) {
        // Only one of several wakers unparks. An exchange and not a store: the worker may have gone back to RUNNING.
        // Release hands the worker what this thread published; Acquire is needed only by the lock below, which has its
        // own.
        let won =
            shared.state.compare_exchange(SLEEPING, NOTIFIED, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if won && let Some(thread) = &*lock(&shared.sleeper) {
            thread.unpark();
        }
    }

    /// Whether both wake the same worker: who runs on that worker himself need not wake it. Two wakers of nobody are the
    /// same.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        match (&self.shared, &other.shared) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (None, None) => true,
            _ => false,
        }
    }
}

impl fmt::Debug for Waker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.shared.is_some() { "Waker" } else { "Waker::noop" })
    }
}

fn lock(sleeper: &Mutex<Option<Thread>>) -> super::MutexGuard<'_, Option<Thread>> {
    // A thread handle cannot be left half written: a panic while it was locked spoils nothing.
    sleeper.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

// The wakers are kept by rings and mailboxes of every thread.
const _: () = {
    const fn shareable<T: Send + Sync>(_: PhantomData<T>) {}
    const fn movable<T: Send>(_: PhantomData<T>) {}
    shareable(PhantomData::<Waker>);
    movable(PhantomData::<Parker>);
};

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sync::AtomicBool;

    #[test]
    fn a_wake_between_prepare_and_park_is_not_lost() {
        let parker = Parker::new();
        parker.prepare();
        parker.waker().wake();
        parker.park(None);
    }

    #[test]
    fn a_wake_before_prepare_leaves_the_worker_to_its_own_poll() {
        let parker = Parker::new();
        parker.waker().wake();
        parker.prepare();
        assert_eq!(parker.shared.state.load(Ordering::Relaxed), SLEEPING);
        parker.park(Some(Duration::from_millis(1)));
        assert_eq!(parker.shared.state.load(Ordering::Relaxed), RUNNING);
    }

    #[test]
    fn a_cancelled_announcement_does_not_disturb_the_next_one() {
        let parker = Parker::new();
        parker.prepare();
        parker.waker().wake();
        parker.cancel();
        parker.prepare();
        assert_eq!(parker.shared.state.load(Ordering::Relaxed), SLEEPING);
        parker.waker().wake();
        parker.park(None);
    }

    #[test]
    fn a_sleeper_is_woken_from_another_thread_again_and_again() {
        const ROUNDS: usize = 2_000;
        let parker = Parker::new();
        let waker = parker.waker();
        let ball = Arc::new(AtomicBool::new(false));
        let other = {
            let ball = Arc::clone(&ball);
            thread::spawn(move || {
                for _ in 0..ROUNDS {
                    while ball.load(Ordering::Acquire) {
                        thread::yield_now();
                    }
                    ball.store(true, Ordering::Release);
                    waker.wake();
                }
            })
        };
        for _ in 0..ROUNDS {
            while !ball.load(Ordering::Acquire) {
                parker.prepare();
                if ball.load(Ordering::Acquire) {
                    parker.cancel();
                } else {
                    parker.park(None);
                }
            }
            ball.store(false, Ordering::Release);
        }
        other.join().unwrap();
    }

    #[test]
    fn a_waker_outlives_its_worker() {
        let waker = thread::spawn(|| {
            let parker = Parker::new();
            parker.prepare();
            parker.waker()
        })
        .join()
        .unwrap();
        waker.wake();
    }

    #[test]
    fn wakers_know_their_worker() {
        let (a, b) = (Parker::new(), Parker::new());
        assert!(a.waker().is_same(&a.waker().clone()));
        assert!(!a.waker().is_same(&b.waker()));
        assert!(!a.waker().is_same(&Waker::noop()));
        assert!(Waker::noop().is_same(&Waker::noop()));
        Waker::noop().wake();
    }
}
