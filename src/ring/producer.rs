//! The half that pushes.

use std::fmt;
use std::ptr::NonNull;

use super::slots::{Lanes, Segment, closed, lane_bytes};
use super::{CONSUMER_GONE, Half, Mark, cursor};
use crate::sync::Ordering;

/// The half of a [`ring`](super::ring) that pushes. Dropping it publishes what was pushed and closes the ring.
pub struct Producer<T> {
    half: Half<T>,
    /// The last segment, the only one written to. None before the first entry.
    segment: Option<NonNull<Segment<T>>>,
    /// Its lanes.
    lanes: Lanes<T>,
    /// Position of the next entry in it.
    tail: usize,
    /// Where `tail` has to stop. Computed from a `head` that may be stale: there may be more room, never less.
    limit: usize,
    /// The `tail` that the consumer can see.
    published: usize,
    /// Segments the consumer does not know of yet.
    hidden: Option<Hidden<T>>,
}

/// Growth since the last publish: a chain that is linked to the visible one only by the next publish.
struct Hidden<T> {
    first: NonNull<Segment<T>>,
    /// The last segment the consumer can see, if there is one, and where its entries end.
    after: Option<NonNull<Segment<T>>>,
    after_tail: usize,
    /// Unpublished entries in all segments but the last.
    entries: usize,
}

// SAFETY: a producer is one of the two users of its ring wherever it runs; the raw pointers lead to memory that it shares
// with the consumer alone, by the protocol of atomics that does not care which thread either runs on. It moves records to
// the consumer's thread and may drop records itself, hence `T: Send`.
unsafe impl<T: Send> Send for Producer<T> {}

impl<T> Producer<T> {
    pub(super) fn new(half: Half<T>) -> Self {
        Self { half, segment: None, lanes: Lanes::none(), tail: 0, limit: 0, published: 0, hidden: None }
    }

    /// Writes a record into its slot. The consumer does not see it before [`publish`](Self::publish).
    ///
    /// # Errors
    /// If the ring is full the record comes back. Published entries keep being consumed; unpublished ones do not.
    #[inline]
    pub fn push(&mut self, record: T) -> Result<(), T> {
        if self.tail == self.limit && !self.make_room() {
            return Err(record);
        }
        // SAFETY: `tail` has not reached `limit`, so its slot lies outside the consumer's head..tail, and `&mut self` rules
        // out a second writer. The last segment is freed only after it has a successor.
        unsafe { self.lanes.write(self.tail, record) };
        self.tail = self.tail.wrapping_add(1);
        Ok(())
    }

    /// Pushes records from the iterator until it ends or the ring is full. Returns how many. None is taken from the iterator
    /// without room for it, so that the rest can follow later.
    ///
    /// Cheaper than as many calls of [`push`](Self::push): nothing but the records is written in between, so the processor
    /// gathers the stores to a cache line that it has to fetch from the consumer's core first. Measured on 8-byte records in
    /// a ring that does not fit into the nearest cache, that is a factor of four.
    #[inline]
    pub fn push_from(&mut self, records: &mut impl Iterator<Item = T>) -> usize {
        let mut pushed = 0;
        loop {
            let n = cursor::contiguous(self.tail, self.limit, self.lanes.mask);
            let lanes = self.lanes;
            let mut advance = Advance { at: self.tail, tail: &mut self.tail };
            let end = advance.at.wrapping_add(n);
            while advance.at != end {
                let Some(record) = records.next() else { break };
                // SAFETY: as in `push`; `at` has not reached `limit`.
                unsafe { lanes.write(advance.at, record) };
                advance.at = advance.at.wrapping_add(1);
                pushed += 1;
            }
            let is_filled = advance.at == end;
            drop(advance);
            if !is_filled || records.size_hint().1 == Some(0) {
                return pushed;
            }
            if self.tail == self.limit && !self.make_room() {
                return pushed;
            }
        }
    }

    /// Like [`push`](Self::push), for a control entry.
    ///
    /// # Errors
    /// If the ring is full the mark comes back.
    pub fn push_mark(&mut self, mark: Mark) -> Result<(), Mark> {
        if self.tail == self.limit && !self.make_room() {
            return Err(mark);
        }
        // SAFETY: as in `push`.
        unsafe { self.lanes.write_mark(self.tail, mark) };
        self.tail = self.tail.wrapping_add(1);
        Ok(())
    }

    /// Makes everything pushed visible to the consumer, with one store. True if there was anything: then the consumer may
    /// have to be woken.
    #[inline]
    pub fn publish(&mut self) -> bool {
        if self.hidden.is_some() {
            return self.publish_hidden();
        }
        if self.tail == self.published {
            return false;
        }
        self.published = self.tail;
        self.store_tail(Ordering::Release);
        true
    }

    /// Entries pushed since the last publish.
    #[must_use]
    pub fn unpublished(&self) -> usize {
        self.hidden.as_ref().map_or(0, |hidden| hidden.entries) + cursor::entries(self.published, self.tail)
    }

    /// Whether the consumer was dropped. False can go out of date, true cannot.
    ///
    /// An abandoned ring takes entries until it is full, and drops them in the end.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        // Relaxed: the answer is all there is to know, no memory comes with it.
        self.half.shared.gone.load(Ordering::Relaxed) & CONSUMER_GONE != 0
    }

    /// Whether a push would succeed now. True stays true until the next push.
    ///
    /// It allocates nothing, unless the ring is full, parked, and only a further segment makes room.
    pub fn has_room(&mut self) -> bool {
        self.tail != self.limit || self.refresh() || self.may_grow() || self.grow()
    }

    /// The slow half of a push: true if there is room now.
    #[inline(never)]
    fn make_room(&mut self) -> bool {
        self.refresh() || self.grow()
    }

    /// Learns what the consumer has released meanwhile.
    fn refresh(&mut self) -> bool {
        if let Some(segment) = self.segment {
            // SAFETY: the last segment is freed only after it has a successor.
            let segment = unsafe { segment.as_ref() };
            // Acquire: pairs with the Release store in `Consumer::release`. The slots below this head were read, and their
            // tags wiped, before they are written again.
            self.limit = cursor::limit(segment.head.load(Ordering::Acquire), self.lanes.mask);
        }
        self.tail != self.limit
    }

    /// Whether a growth step needs nobody's permission.
    fn may_grow(&self) -> bool {
        let is_full_grown = self.segment.is_some() && self.lanes.slots() == self.half.shared.capacity;
        !is_full_grown && !self.is_abandoned()
    }

    /// Adds a segment if the rules of the module allow it.
    #[cold]
    fn grow(&mut self) -> bool {
        let shared = &self.half.shared;
        let (slots, charged_bytes) = if self.may_grow() {
            let slots = self
                .segment
                .map_or(shared.first_segment, |_| cursor::grown(self.lanes.slots(), shared.capacity));
            (slots, 0)
        } else {
            // Relaxed: see `Shared::parked`.
            if !shared.parked.load(Ordering::Relaxed) || self.is_abandoned() {
                return false;
            }
            let bytes = lane_bytes::<T>(shared.capacity);
            if !shared.parking.try_take(bytes) {
                return false;
            }
            (shared.capacity, bytes)
        };
        self.append(Segment::allocate(slots, charged_bytes));
        true
    }

    /// Goes on in `next`, which the consumer learns of with the next publish.
    fn append(&mut self, next: NonNull<Segment<T>>) {
        match &mut self.hidden {
            None => {
                self.hidden = Some(Hidden {
                    first: next,
                    after: self.segment,
                    after_tail: self.tail,
                    entries: cursor::entries(self.published, self.tail),
                });
            }
            Some(hidden) => {
                hidden.entries += cursor::entries(self.published, self.tail);
                // The segment left behind is hidden itself: Relaxed, the publish that links the chain covers it.
                self.store_tail(Ordering::Relaxed);
                if let Some(segment) = self.segment {
                    // SAFETY: the consumer cannot reach a hidden segment, let alone free it.
                    unsafe { segment.as_ref() }.producer.next.store(next.as_ptr(), Ordering::Relaxed);
                }
            }
        }
        self.segment = Some(next);
        // SAFETY: the segment was allocated for this call.
        self.lanes = unsafe { next.as_ref() }.producer.lanes;
        self.tail = 0;
        self.published = 0;
        self.limit = cursor::limit(0, self.lanes.mask);
    }

    #[cold]
    fn publish_hidden(&mut self) -> bool {
        let is_new = self.unpublished() > 0;
        let Some(hidden) = self.hidden.take() else { return is_new };
        self.published = self.tail;
        // Relaxed: the consumer comes here only through the link below.
        self.store_tail(Ordering::Relaxed);
        match hidden.after {
            Some(segment) => {
                // SAFETY: without a successor the segment is not freed. The store of `next` ends that, and is the last
                // access to it.
                let line = unsafe { &segment.as_ref().producer };
                // Release: pairs with the Acquire load in `Consumer::arrive`. It comes before the link, so that a consumer
                // that sees the link sees the last entry of this segment.
                line.tail.store(hidden.after_tail, Ordering::Release);
                // Release: pairs with the Acquire load in `Consumer::arrive`. The whole hidden chain goes with it.
                line.next.store(hidden.first.as_ptr(), Ordering::Release);
            }
            // Release: as above; the first segment of all.
            None => self.half.shared.oldest.store(hidden.first.as_ptr(), Ordering::Release),
        }
        is_new
    }

    /// Whether a segment was added since the last publish.
    #[cfg(all(test, not(loom)))]
    pub(super) fn hidden_growth(&self) -> bool {
        self.hidden.is_some()
    }

    #[inline(always)]
    fn store_tail(&self, order: Ordering) {
        if let Some(segment) = self.segment {
            // SAFETY: the last segment is freed only after it has a successor.
            //
            // A Release order pairs with the Acquire load in `Consumer::arrive`: the entries below the tail were written
            // before the consumer looks at them.
            unsafe { segment.as_ref() }.producer.tail.store(self.tail, order);
        }
    }
}

/// Keeps the tail out of memory while records are written, and puts it back even if the iterator panics.
struct Advance<'a> {
    at: usize,
    tail: &'a mut usize,
}

impl Drop for Advance<'_> {
    #[inline]
    fn drop(&mut self) {
        *self.tail = self.at;
    }
}

impl<T> Drop for Producer<T> {
    fn drop(&mut self) {
        self.publish();
        let link = match &self.segment {
            // SAFETY: the last segment is freed only after it has a successor, or is marked as the end below.
            Some(segment) => unsafe { &segment.as_ref().producer.next },
            None => &self.half.shared.oldest,
        };
        // Release: pairs with the Acquire load in `Consumer::arrive`, which finds all entries before it finds the end.
        link.store(closed(), Ordering::Release);
    }
}

impl<T> fmt::Debug for Producer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Producer")
            .field("unpublished", &self.unpublished())
            .field("is_abandoned", &self.is_abandoned())
            .finish_non_exhaustive()
    }
}
