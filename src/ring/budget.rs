//! A number of bytes that many rings share.

use std::fmt;

use crate::sync::{Arc, AtomicUsize, Ordering};

/// A limit on the bytes held at the same time by all that share it. Clones share one account.
#[derive(Clone)]
pub struct Budget {
    account: Arc<Account>,
}

struct Account {
    used_bytes: AtomicUsize,
    limit_bytes: usize,
}

impl Budget {
    /// An account that nothing was taken from; a limit of 0 admits nothing.
    #[must_use]
    pub fn new(limit_bytes: usize) -> Self {
        Self { account: Arc::new(Account { used_bytes: AtomicUsize::new(0), limit_bytes }) }
    }

    /// Takes `bytes` if that many are left, and says whether it did.
    pub fn try_take(&self, bytes: usize) -> bool {
        // Relaxed here and below: the number alone matters, it publishes nothing.
        let mut used = self.account.used_bytes.load(Ordering::Relaxed);
        loop {
            if bytes > self.account.limit_bytes.saturating_sub(used) {
                return false;
            }
            match self.account.used_bytes.compare_exchange_weak(
                used,
                used + bytes,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return true,
                Err(now) => used = now,
            }
        }
    }

    /// Gives back `bytes` that were taken before.
    pub fn give_back(&self, bytes: usize) {
        let before = self.account.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(before >= bytes, "gave back {bytes} bytes of {before}");
    }

    /// Bytes taken and not given back; out of date at once if others share the account.
    #[must_use]
    pub fn used_bytes(&self) -> usize {
        self.account.used_bytes.load(Ordering::Relaxed)
    }

    /// The most that can be taken.
    #[must_use]
    pub fn limit_bytes(&self) -> usize {
        self.account.limit_bytes
    }
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Budget")
            .field("used_bytes", &self.used_bytes())
            .field("limit_bytes", &self.limit_bytes())
            .finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_shared_and_never_exceeded() {
        let budget = Budget::new(10);
        let other = budget.clone();
        assert!(budget.try_take(6));
        assert!(!other.try_take(5));
        assert!(other.try_take(4));
        assert!(!budget.try_take(1));
        assert!(budget.try_take(0));
        budget.give_back(10);
        assert_eq!(other.used_bytes(), 0);
        assert!(!Budget::new(0).try_take(1));
    }
}
