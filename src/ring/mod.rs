//! The ring: how records go from one subtask to one other.
//!
//! One [`Producer`], one [`Consumer`], entries in order. An entry is a record of type `T` or a [`Mark`] (a control entry:
//! watermark, barrier, end of input). Records are written in place and cost no tag: a lane of one byte per slot stands
//! beside them, in which only a mark leaves a trace.
//!
//! ```
//! use std::num::NonZeroU8;
//! use stoplog::ring::{Budget, Mark, Peek, RingConfig, ring};
//!
//! let config = RingConfig { capacity: 1024, first_segment: 16, parking: Budget::new(1 << 20) };
//! let (mut producer, mut consumer) = ring::<u64>(&config);
//!
//! let barrier = Mark { tag: NonZeroU8::new(2).unwrap(), word: 7 };
//! producer.push(1).unwrap();
//! producer.push(2).unwrap();
//! producer.push_mark(barrier).unwrap();
//! assert_eq!(consumer.peek(100), Peek::Empty);
//! assert!(producer.publish());
//!
//! let mut sum = 0;
//! assert_eq!(consumer.peek(100), Peek::Records(2));
//! assert_eq!(consumer.drain(100, |record| { sum += record; true }), 2);
//! assert_eq!(sum, 3);
//! assert_eq!(consumer.pop_mark(), Some(barrier));
//!
//! drop(producer);
//! assert_eq!(consumer.peek(100), Peek::Closed);
//! ```
//!
//! # What is promised
//! * Every entry pushed is handed on once and in order, or dropped once if a side goes away before.
//! * The consumer sees an entry after the `publish` that follows its push, not before. Dropping the producer publishes.
//! * A full ring refuses and hands the entry back; an empty one says so. Nobody waits in here: whoever wants to sleep uses
//!   [`sync::wake`](crate::sync::wake) and wakes the other side after *each* of its changes: `publish`, a drain or
//!   `pop_mark` that released entries, `set_parked(true)`, and dropping its half.
//! * `Empty` and "full" can go out of date at once. `Closed` and "abandoned" never turn back.
//!
//! # Size
//! The slots are a chain of segments, each of them a circular buffer. The producer writes to the last one, the consumer
//! reads from the first one and frees it once it is drained and has a successor. Most of the time there is one.
//!
//! * A ring without a first entry has no segment. The first has `first_segment` slots; when the last one is full, the next
//!   has four times as many, up to `capacity`. A step may be taken before the older segments are drained, so a ring that
//!   is still growing can hold up to `capacity * 4 / 3` entries. Growth never reverses.
//! * At `capacity` slots the ring is full-grown, and full when its last segment is full.
//! * Only while the consumer has [*parked*](Consumer::set_parked) the channel (it waits for barriers of others), a full
//!   ring links further segments of `capacity` slots, as long as the [`Budget`] admits them. When the consumer moves on
//!   from one segment to the next, what the next one was charged is given back: a drained ring has one segment again and
//!   owes nothing.
//!
//! # Who may touch what
//! Between `head` and `tail` of a segment the slots and their tag bytes belong to the consumer, the others to the
//! producer. The producer hands over by a Release store of `tail`, the consumer by a Release store of `head`; each loads
//! the other's counter with Acquire and keeps the value until it is used up. The tag lane is zero wherever no unconsumed
//! mark stands: the producer writes the tag of a mark, the consumer zeroes it before it releases the slot.
//!
//! No lock, no read-modify-write and no fence is executed per entry or per batch.
#![allow(unsafe_code)] // The halves share raw memory; `slots` has the accesses, each half says why they are its own.

mod budget;
mod consumer;
mod cursor;
mod producer;
mod slots;

#[cfg(all(test, loom))]
mod loom;
#[cfg(all(test, not(loom)))]
mod tests;

use std::num::NonZeroU8;

use crate::sync::{Arc, AtomicBool, AtomicPtr, AtomicU8, Ordering};

pub use budget::Budget;
pub use consumer::{Consumer, Peek};
pub use producer::Producer;

use slots::Segment;

/// How large a ring may become.
#[derive(Debug, Clone)]
pub struct RingConfig {
    /// Slots of a full-grown ring; a power of two.
    pub capacity: usize,
    /// Slots of the first segment, which is allocated with the first entry; a power of two, at most `capacity`.
    pub first_segment: usize,
    /// Pays for the segments linked while the channel is parked. Shared by all rings of a job.
    pub parking: Budget,
}

/// A control entry, as the ring sees it: what tag and word mean is not its business.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// What kind of entry it is.
    pub tag: NonZeroU8,
    /// Its content.
    pub word: u64,
}

/// A ring without entries: its two halves.
///
/// # Panics
/// If `capacity` or `first_segment` is not a power of two, or `first_segment` is larger than `capacity`.
#[must_use]
pub fn ring<T>(config: &RingConfig) -> (Producer<T>, Consumer<T>) {
    assert!(config.capacity.is_power_of_two(), "the capacity of a ring is a power of two");
    assert!(config.first_segment.is_power_of_two(), "the first segment of a ring is a power of two");
    assert!(config.first_segment <= config.capacity, "the first segment is not larger than the ring");
    let shared = Arc::new(Shared {
        oldest: AtomicPtr::new(slots::open()),
        gone: AtomicU8::new(0),
        parked: AtomicBool::new(false),
        first_segment: config.first_segment,
        capacity: config.capacity,
        parking: config.parking.clone(),
    });
    let consumer = Consumer::new(Half { shared: Arc::clone(&shared), bit: CONSUMER_GONE });
    (Producer::new(Half { shared, bit: PRODUCER_GONE }), consumer)
}

/// What both halves know of a ring.
struct Shared<T> {
    /// Start of the chain. The producer links the first segment here; from then on only the consumer writes, when it moves
    /// on to the next.
    oldest: AtomicPtr<Segment<T>>,
    /// Which halves have been dropped.
    gone: AtomicU8,
    /// Whether the producer may link segments beyond the capacity. Relaxed on both sides: no other memory depends on it.
    parked: AtomicBool,
    first_segment: usize,
    capacity: usize,
    parking: Budget,
}

const PRODUCER_GONE: u8 = 1;
const CONSUMER_GONE: u8 = 2;

/// One half's share in the ring. The last one to be dropped frees the chain.
struct Half<T> {
    shared: Arc<Shared<T>>,
    bit: u8,
}

impl<T> Drop for Half<T> {
    fn drop(&mut self) {
        // Release: all this half did happens before the other half frees the chain. Acquire: the reverse.
        let before = self.shared.gone.fetch_or(self.bit, Ordering::AcqRel);
        if before != 0 {
            // SAFETY: the other half has left before, and this one does nothing after this.
            unsafe { slots::free_chain(&self.shared.oldest, &self.shared.parking) };
        }
    }
}
