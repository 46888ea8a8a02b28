//! The half that drains.

use std::fmt;
use std::ptr::NonNull;

use super::slots::{Lanes, Segment, closed};
use super::{Half, Mark, cursor};
use crate::sync::{AtomicPtr, Ordering};

/// What stands at the front of a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peek {
    /// Nothing for now. Out of date as soon as the producer publishes.
    Empty,
    /// This many records lie side by side: up to the next mark, the end of the segment's memory, what was published when
    /// the consumer last looked, or the maximum asked for. More may follow them.
    Records(usize),
    /// A control entry.
    Mark(Mark),
    /// The producer is gone and everything it pushed was consumed. Final.
    Closed,
}

/// The half of a [`ring`](super::ring) that drains. Dropping it drops the entries it has not consumed.
pub struct Consumer<T> {
    half: Half<T>,
    /// The first segment, the only one read from. None before the first entry arrived.
    segment: Option<NonNull<Segment<T>>>,
    /// Its lanes.
    lanes: Lanes<T>,
    /// Position of the next entry in it.
    head: usize,
    /// From `head` up to here stand records in adjacent slots; the tag lane was read that far. If it equals `head` and that
    /// is not `tail`, a mark may stand there, or the next run was not looked for.
    run_end: usize,
    /// Published entries end here. May be stale: there may be more, never fewer.
    tail: usize,
}

// SAFETY: the reason is the one given at `Producer`; here records come from the other thread, hence `T: Send`.
unsafe impl<T: Send> Send for Consumer<T> {}

/// What [`Consumer::arrive`] found behind the last entry known.
enum Arrival {
    Entries,
    Nothing,
    End,
}

impl<T> Consumer<T> {
    pub(super) fn new(half: Half<T>) -> Self {
        Self { half, segment: None, lanes: Lanes::none(), head: 0, run_end: 0, tail: 0 }
    }

    /// What stands at the front; a run of records is counted up to `max`.
    pub fn peek(&mut self, max: usize) -> Peek {
        if self.head == self.run_end
            && let Arrival::End = self.look()
        {
            return Peek::Closed;
        }
        if self.head != self.run_end {
            return Peek::Records(cursor::entries(self.head, self.run_end).min(max));
        }
        self.mark().map_or(Peek::Empty, Peek::Mark)
    }

    /// The run of records at the front, `max` of them at most, to look at before they are drained. Empty if a mark or
    /// nothing stands there.
    pub fn records(&mut self, max: usize) -> &[T] {
        let n = self.run().min(max);
        if n == 0 {
            return &[];
        }
        // SAFETY: the run lies between head and tail, side by side, without a mark. It stays there while `self` is borrowed.
        unsafe { self.lanes.records(self.head, n) }
    }

    /// Takes the run of records at the front, `max` of them at most, and hands them to `f` one by one until `f` returns
    /// false. Returns how many were handed over; all of them count as consumed, the last one included.
    ///
    /// Their slots are released together at the end. If `f` panics, the record it was given is consumed and the following
    /// ones stay in the ring.
    #[inline]
    pub fn drain(&mut self, max: usize, mut f: impl FnMut(T) -> bool) -> usize {
        let n = self.run().min(max);
        if n == 0 {
            return 0;
        }
        let (lanes, start) = (self.lanes, self.head);
        let end = start.wrapping_add(n);
        let mut progress = Progress { consumer: self, head: start };
        while progress.head != end {
            // SAFETY: the position lies in the run, so a record stands there; the next line, before `f` can unwind, makes
            // sure that it is not taken again.
            let record = unsafe { lanes.take(progress.head) };
            progress.head = progress.head.wrapping_add(1);
            if !f(record) {
                break;
            }
        }
        cursor::entries(start, progress.head)
    }

    /// Takes the mark at the front, if one stands there.
    pub fn pop_mark(&mut self) -> Option<Mark> {
        if self.run() != 0 {
            return None;
        }
        let mark = self.mark()?;
        // SAFETY: a mark stands at head, which is before tail. Wiped before the slot is released: the lane is zero wherever
        // the producer writes a record.
        unsafe { self.lanes.clear_tag(self.head) };
        self.run_end = self.head.wrapping_add(1);
        self.release(self.run_end);
        Some(mark)
    }

    /// Says whether the channel is parked: while it is, a full ring may link further segments within the parking budget.
    ///
    /// A producer that sleeps because the ring is full has to be woken after the channel was parked.
    pub fn set_parked(&mut self, parked: bool) {
        // Relaxed: see `Shared::parked`.
        self.half.shared.parked.store(parked, Ordering::Relaxed);
    }

    /// Whether nothing stands at the front: no record and no mark. True can go out of date, false cannot.
    pub fn is_empty(&mut self) -> bool {
        self.run() == 0 && self.head == self.tail
    }

    /// Published entries that are not consumed, over all segments. More may have come by the time it returns.
    pub fn backlog(&mut self) -> usize {
        let mut backlog = 0;
        let mut head = self.head;
        self.walk(|segment| {
            // Acquire is not needed for a number, but the value is a fresh one all the same.
            backlog += cursor::entries(head, segment.producer.tail.load(Ordering::Relaxed));
            head = 0;
        });
        backlog
    }

    /// Segments linked beyond the capacity and paid for by the parking budget, and not reached by the consumer yet.
    #[must_use]
    pub fn extra_segments(&self) -> usize {
        let mut extra = 0;
        let mut is_first = true;
        self.walk(|segment| {
            // The charge of the segment the consumer stands on was given back.
            extra += usize::from(!is_first && segment.producer.charged_bytes > 0);
            is_first = false;
        });
        extra
    }

    /// Records at the front that lie side by side.
    #[inline]
    fn run(&mut self) -> usize {
        if self.head == self.run_end {
            self.look();
        }
        cursor::entries(self.head, self.run_end)
    }

    /// Finds the next run. Afterwards `head == run_end` means that a mark stands at head, or nothing if `head == tail`.
    #[inline(never)]
    fn look(&mut self) -> Arrival {
        if self.head == self.tail {
            match self.arrive() {
                Arrival::Entries => {}
                nothing => return nothing,
            }
        }
        let n = cursor::contiguous(self.head, self.tail, self.lanes.mask);
        // SAFETY: these entries lie between head and tail, side by side.
        let records = unsafe { self.lanes.records_until_mark(self.head, n) };
        self.run_end = self.head.wrapping_add(records);
        Arrival::Entries
    }

    /// Learns what was published behind the last entry known, and moves on to the next segment if this one is drained.
    fn arrive(&mut self) -> Arrival {
        loop {
            if self.refresh() {
                return Arrival::Entries;
            }
            // Acquire: pairs with the Release stores of the link in `Producer`. A segment reached through it can be read,
            // and the tail of the one before is final.
            let next = self.link().load(Ordering::Acquire);
            let Some(next) = NonNull::new(next) else { return Arrival::Nothing };
            // Entries published between the two loads above come before whatever the link leads to.
            if self.refresh() {
                return Arrival::Entries;
            }
            if next.as_ptr() == closed() {
                return Arrival::End;
            }
            self.move_on(next);
        }
    }

    /// Loads the tail of this segment. True if there are entries.
    fn refresh(&mut self) -> bool {
        if let Some(segment) = self.segment {
            // SAFETY: only the consumer frees a segment, and then moves on.
            // Acquire: pairs with the Release store in `Producer::store_tail`. The entries below this tail can be read.
            self.tail = unsafe { segment.as_ref() }.producer.tail.load(Ordering::Acquire);
        }
        self.head != self.tail
    }

    /// The link that leads on from where the consumer stands.
    fn link(&self) -> &AtomicPtr<Segment<T>> {
        match &self.segment {
            // SAFETY: only the consumer frees a segment, and then moves on.
            Some(segment) => unsafe { &segment.as_ref().producer.next },
            None => &self.half.shared.oldest,
        }
    }

    /// Leaves the drained segment behind and starts in `next`.
    #[cold]
    fn move_on(&mut self, next: NonNull<Segment<T>>) {
        let shared = &self.half.shared;
        // Relaxed: read only by whoever frees the chain, after both halves have left.
        shared.oldest.store(next.as_ptr(), Ordering::Relaxed);
        let drained = self.segment.replace(next);
        // SAFETY: the link was loaded with Acquire, and only the consumer frees segments.
        let line = unsafe { &next.as_ref().producer };
        self.lanes = line.lanes;
        self.head = 0;
        self.run_end = 0;
        self.tail = 0;
        if line.charged_bytes > 0 {
            // `next` takes the place of the drained segment, so what it holds beyond the capacity is nothing now.
            shared.parking.give_back(line.charged_bytes);
        }
        if let Some(drained) = drained {
            // SAFETY: its last entry was consumed, and the store of its link was the producer's last access to it.
            unsafe { Segment::free(drained) };
        }
    }

    /// The mark at head. Call it with no run there.
    fn mark(&self) -> Option<Mark> {
        debug_assert_eq!(self.head, self.run_end, "a record stands at the front");
        if self.head == self.tail {
            return None;
        }
        // SAFETY: head lies before tail.
        unsafe { self.lanes.mark(self.head) }
    }

    /// Hands the slots below `head` back to the producer.
    #[inline(always)]
    fn release(&mut self, head: usize) {
        self.head = head;
        if let Some(segment) = self.segment {
            // SAFETY: only the consumer frees a segment, and then moves on.
            // Release: pairs with the Acquire load in `Producer::refresh`. The records were taken and the tags wiped before
            // the slots are written again.
            unsafe { segment.as_ref() }.head.store(head, Ordering::Release);
        }
    }

    /// Shows `f` all segments that are linked, the one the consumer stands on first.
    fn walk(&self, mut f: impl FnMut(&Segment<T>)) {
        // Acquire here and below: as in `arrive`.
        let mut link = match self.segment {
            Some(segment) => segment.as_ptr(),
            None => self.half.shared.oldest.load(Ordering::Acquire),
        };
        while let Some(segment) = NonNull::new(link).filter(|segment| segment.as_ptr() != closed()) {
            // SAFETY: linked segments are alive: only the consumer frees them, and it is busy here.
            let segment = unsafe { segment.as_ref() };
            f(segment);
            link = segment.producer.next.load(Ordering::Acquire);
        }
    }
}

/// Releases what was handed over when a drain ends, in whichever way it ends.
struct Progress<'a, T> {
    consumer: &'a mut Consumer<T>,
    head: usize,
}

impl<T> Drop for Progress<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.consumer.release(self.head);
    }
}

impl<T> Drop for Consumer<T> {
    fn drop(&mut self) {
        // What is visible is dropped now, not when the producer goes: the budget and the memory have other users.
        while self.drain(usize::MAX, |_| true) > 0 || self.pop_mark().is_some() {}
    }
}

impl<T> fmt::Debug for Consumer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer").field("extra_segments", &self.extra_segments()).finish_non_exhaustive()
    }
}
