//! Reading and writing that blocks, on a helper thread, linked to the subtask by rings.
//!
//! [`ReadAhead`] fetches what the subtask will need next; [`WriteBehind`] writes what the subtask has handed over; [`Orders`] hands
//! over work of any kind. Neither side ever waits for the other: a full or empty ring puts the helper to sleep until the subtask
//! wakes it, and blocks the subtask until the helper wakes it.
//!
//! What an item means for the position of a source travels in the item. The helper is ahead by as much as the ring holds, so its
//! own position means nothing to a checkpoint.

mod orders;
mod read_ahead;
mod write_behind;

#[cfg(all(test, not(loom)))]
mod tests;

use crate::ring::{Budget, Consumer, Producer, RingConfig, ring};

pub(crate) use orders::{BlockingWork, Orders};
pub(crate) use read_ahead::{BlockingRead, Read, ReadAhead};
pub(crate) use write_behind::{BlockingWrite, WriteBehind};

fn small_ring<T>(capacity: usize) -> (Producer<T>, Consumer<T>) {
    ring(&RingConfig { capacity, first_segment: capacity, parking: Budget::new(0) })
}

/// Puts an item into a ring in which there must be room for it, unless the other side is gone: then nobody wants it.
fn hand_over<T>(ring: &mut Producer<T>, item: T) {
    if ring.push(item).is_err() {
        assert!(ring.is_abandoned(), "a helper and its subtask lost count of what is on its way");
    }
    ring.publish();
}
