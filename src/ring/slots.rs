//! The memory of a segment: one allocation with the two counters, the records, the words of marks and the tag lane.
//!
//! ```text
//! | tail, next, what never changes | head | records: slots x T | words: slots x u64, only if T < 8 bytes | tags: slots x u8 |
//!   cache line of the producer       and of the consumer
//! ```
//!
//! The records lie densely, so that a run of them is a slice. A mark occupies a slot like a record; its word stands in
//! the place of the record if it fits, else in a lane of its own that records never touch.
//!
//! This module knows which byte lies where. Who may touch which slot when is decided by its callers, and is the safety
//! condition of every access.
#![allow(unsafe_code)] // The storage of the ring: nothing below it is safe, everything above it goes through it.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::num::NonZeroU8;
use std::ptr::{self, NonNull};

use super::{Budget, Mark, cursor};
use crate::sync::{AtomicPtr, AtomicUsize, CachePadded, Ordering};

/// Head of a segment's allocation; its lanes follow.
pub(super) struct Segment<T> {
    pub(super) producer: CachePadded<ProducerLine<T>>,
    /// Position of the first entry that is not consumed. Written by the consumer only.
    pub(super) head: CachePadded<AtomicUsize>,
}

/// What the consumer polls when it has nothing to do, on one line.
pub(super) struct ProducerLine<T> {
    /// Position behind the last published entry. Written by the producer only.
    pub(super) tail: AtomicUsize,
    /// The segment after this one; see [`open`] and [`closed`]. Written by the producer only.
    pub(super) next: AtomicPtr<Segment<T>>,
    pub(super) lanes: Lanes<T>,
    /// Taken from the parking budget for this segment; given back when the consumer arrives here.
    pub(super) charged_bytes: usize,
    /// What loom knows of the slots; `lanes` leads to them.
    #[cfg(loom)]
    _accesses: Box<[crate::sync::UnsafeCell<()>]>,
}

/// The link of a segment that has no successor yet.
pub(super) const fn open<T>() -> *mut Segment<T> {
    ptr::null_mut()
}

/// The link of a segment that will have none: the producer is gone.
pub(super) const fn closed<T>() -> *mut Segment<T> {
    ptr::without_provenance_mut(align_of::<Segment<T>>())
}

impl<T> Segment<T> {
    /// An empty segment of this many slots; whoever gets it calls [`Segment::free`] once.
    pub(super) fn allocate(slots: usize, charged_bytes: usize) -> NonNull<Self> {
        let places = Places::of::<T>(slots);
        // SAFETY: the layout is not of size zero, it contains the header.
        let memory = unsafe { alloc(places.layout) };
        let Some(base) = NonNull::new(memory) else { handle_alloc_error(places.layout) };
        // SAFETY: all three places lie inside the allocation, that is how they were computed.
        let (records, words, tags) =
            unsafe { (base.add(places.records), base.add(places.words), base.add(places.tags)) };
        // SAFETY: `slots` bytes from `tags` on belong to the allocation, and nobody else has it yet.
        unsafe { tags.write_bytes(0, slots) };
        #[cfg(loom)]
        let accesses: Box<[_]> = (0..slots).map(|_| crate::sync::UnsafeCell::new(())).collect();
        let line = ProducerLine {
            tail: AtomicUsize::new(0),
            next: AtomicPtr::new(open()),
            lanes: Lanes {
                records: records.cast(),
                words,
                tags,
                mask: slots - 1,
                #[cfg(loom)]
                accesses: NonNull::from(&*accesses).cast(),
            },
            charged_bytes,
            #[cfg(loom)]
            _accesses: accesses,
        };
        let segment = base.cast::<Self>();
        // SAFETY: the allocation begins with room for the header, aligned for it, and nobody else has it yet.
        unsafe {
            segment.write(Self {
                producer: CachePadded::new(line),
                head: CachePadded::new(AtomicUsize::new(0)),
            });
        }
        segment
    }

    /// Frees the memory; does not drop the records still in it.
    ///
    /// # Safety
    /// The segment came from [`Segment::allocate`], and nobody uses it any more.
    pub(super) unsafe fn free(segment: NonNull<Self>) {
        // SAFETY: the caller vouches that the segment is alive and his alone.
        unsafe {
            let lanes = segment.as_ref().producer.lanes;
            #[cfg(loom)]
            for position in 0..lanes.slots() {
                lanes.note_write(position);
            }
            segment.drop_in_place();
            dealloc(segment.cast().as_ptr(), Places::of::<T>(lanes.slots()).layout);
        }
    }
}

/// What a segment of this many slots of `T` costs its ring beyond its header.
pub(super) const fn lane_bytes<T>(slots: usize) -> usize {
    slots * (size_of::<T>() + if WordInRecord::<T>::YES { 0 } else { size_of::<u64>() } + 1)
}

/// Frees a chain that no half uses any more, together with the records left in it.
///
/// If the drop of a record panics, the rest of the chain is leaked.
///
/// # Safety
/// Both halves are gone: the caller is alone with the chain, and nobody looks at it again.
pub(super) unsafe fn free_chain<T>(oldest: &AtomicPtr<Segment<T>>, parking: &Budget) {
    // Relaxed throughout: the halves have synchronised by leaving.
    let mut link = oldest.load(Ordering::Relaxed);
    let mut is_first = true;
    while let Some(segment) = NonNull::new(link).filter(|segment| segment.as_ptr() != closed()) {
        // SAFETY: a linked segment is alive until it is freed below.
        let (lanes, charged_bytes, next, mut head, tail) = unsafe {
            let Segment { producer, head } = segment.as_ref();
            (
                producer.lanes,
                producer.charged_bytes,
                producer.next.load(Ordering::Relaxed),
                head.load(Ordering::Relaxed),
                producer.tail.load(Ordering::Relaxed),
            )
        };
        while head != tail {
            // SAFETY: the entries between head and tail were written and not consumed, and nobody else is left.
            unsafe {
                if lanes.tag(head).is_none() {
                    drop(lanes.take(head));
                }
            }
            head = head.wrapping_add(1);
        }
        // The charge of the segment the consumer stands on was given back when it arrived there.
        if !is_first {
            parking.give_back(charged_bytes);
        }
        is_first = false;
        // SAFETY: both halves are gone, and `link` leaves this segment behind.
        unsafe { Segment::free(segment) };
        link = next;
    }
}

/// Where the lanes of a segment begin. Each half keeps a copy, so that no entry has to look at the header, whose lines the
/// other half writes.
pub(super) struct Lanes<T> {
    records: NonNull<T>,
    /// Bytes, because only a lane of their own is aligned for words; unused if a word fits into a record.
    words: NonNull<u8>,
    tags: NonNull<u8>,
    pub(super) mask: usize,
    #[cfg(loom)]
    accesses: NonNull<crate::sync::UnsafeCell<()>>,
}

impl<T> Clone for Lanes<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Lanes<T> {}

impl<T> Lanes<T> {
    /// The lanes of no segment: not to be accessed.
    pub(super) const fn none() -> Self {
        Self {
            records: NonNull::dangling(),
            words: NonNull::dangling(),
            tags: NonNull::dangling(),
            mask: 0,
            #[cfg(loom)]
            accesses: NonNull::dangling(),
        }
    }

    /// Number of slots.
    pub(super) const fn slots(self) -> usize {
        self.mask + 1
    }

    /// Writes a record.
    ///
    /// # Safety
    /// The segment is alive and the slot belongs to the caller, who is the producer.
    #[inline(always)]
    pub(super) unsafe fn write(self, position: usize, record: T) {
        self.note_write(position);
        // SAFETY: a slot index is within the lane; the slot is the caller's.
        unsafe { self.records.add(cursor::slot(position, self.mask)).write(record) }
    }

    /// Writes a mark.
    ///
    /// # Safety
    /// As for [`Lanes::write`].
    pub(super) unsafe fn write_mark(self, position: usize, mark: Mark) {
        self.note_write(position);
        // SAFETY: a slot index is within the lanes; the slot is the caller's.
        unsafe {
            self.word(position).write_unaligned(mark.word);
            self.tags.add(cursor::slot(position, self.mask)).write(mark.tag.get());
        }
    }

    /// Takes the record out of its slot.
    ///
    /// # Safety
    /// The segment is alive, the slot belongs to the caller, holds a record, and is not taken again.
    #[inline(always)]
    pub(super) unsafe fn take(self, position: usize) -> T {
        self.note_reads(position, 1);
        // SAFETY: a slot index is within the lane; the record in it is the caller's.
        unsafe { self.records.add(cursor::slot(position, self.mask)).read() }
    }

    /// The `n` records from this position on.
    ///
    /// # Safety
    /// The segment is alive; the slots belong to the caller, lie side by side, hold records, and stay as they are for the
    /// lifetime `'a`.
    pub(super) unsafe fn records<'a>(self, position: usize, n: usize) -> &'a [T] {
        self.note_reads(position, n);
        // SAFETY: the lane is dense and the caller vouches for the slots.
        unsafe {
            NonNull::slice_from_raw_parts(self.records.add(cursor::slot(position, self.mask)), n).as_ref()
        }
    }

    /// The tag of the mark at this position, none if a record stands there.
    ///
    /// # Safety
    /// The segment is alive and the slot belongs to the caller.
    pub(super) unsafe fn tag(self, position: usize) -> Option<NonZeroU8> {
        self.note_reads(position, 1);
        // SAFETY: a slot index is within the lane, and all bytes of this lane are initialised.
        NonZeroU8::new(unsafe { self.tags.add(cursor::slot(position, self.mask)).read() })
    }

    /// The mark at this position.
    ///
    /// # Safety
    /// As for [`Lanes::tag`].
    pub(super) unsafe fn mark(self, position: usize) -> Option<Mark> {
        // SAFETY: the caller vouches for the slot, and a tag says that a word was written.
        unsafe { self.tag(position).map(|tag| Mark { tag, word: self.word(position).read_unaligned() }) }
    }

    /// Wipes out the trace of a mark, so that the slot is fit for a record again.
    ///
    /// # Safety
    /// The segment is alive and the slot belongs to the caller, who is the consumer.
    pub(super) unsafe fn clear_tag(self, position: usize) {
        self.note_write(position);
        // SAFETY: a slot index is within the lane; the slot is the caller's.
        unsafe { self.tags.add(cursor::slot(position, self.mask)).write(0) }
    }

    /// How many of the `n` entries from this position on are records, counted up to the first mark.
    ///
    /// # Safety
    /// The segment is alive; the slots belong to the caller and lie side by side.
    pub(super) unsafe fn records_until_mark(self, position: usize, n: usize) -> usize {
        self.note_reads(position, n);
        // SAFETY: the lane is dense and initialised. Neither side writes to these bytes meanwhile: they are the caller's.
        let tags = unsafe {
            NonNull::slice_from_raw_parts(self.tags.add(cursor::slot(position, self.mask)), n).as_ref()
        };
        leading_zeroes(tags)
    }

    /// # Safety
    /// The segment is alive.
    unsafe fn word(self, position: usize) -> *mut u64 {
        let slot = cursor::slot(position, self.mask);
        // SAFETY: a slot index is within the lane, whichever of the two it is.
        unsafe {
            if WordInRecord::<T>::YES {
                self.records.add(slot).cast().as_ptr()
            } else {
                self.words.cast::<u64>().as_ptr().add(slot)
            }
        }
    }

    /// Tells loom about accesses, which it cannot see in raw memory. Nothing otherwise.
    #[inline(always)]
    fn note_reads(self, position: usize, n: usize) {
        #[cfg(loom)]
        for i in 0..n {
            // SAFETY: called with the segment alive, like the access it stands for.
            unsafe { self.access(position.wrapping_add(i)) }.with(|_| ());
        }
        #[cfg(not(loom))]
        let _ = (position, n);
    }

    /// Like [`Lanes::note_reads`], for an access that tolerates no other.
    #[inline(always)]
    fn note_write(self, position: usize) {
        #[cfg(loom)]
        // SAFETY: called with the segment alive, like the access it stands for.
        unsafe { self.access(position) }.with_mut(|_| ());
        #[cfg(not(loom))]
        let _ = position;
    }

    /// # Safety
    /// The segment is alive.
    #[cfg(loom)]
    unsafe fn access<'a>(self, position: usize) -> &'a crate::sync::UnsafeCell<()> {
        // SAFETY: one cell was made for each slot.
        unsafe { self.accesses.add(cursor::slot(position, self.mask)).as_ref() }
    }
}

/// Whether the word of a mark fits where a record would stand.
struct WordInRecord<T>(T);

impl<T> WordInRecord<T> {
    const YES: bool = size_of::<T>() >= size_of::<u64>();
}

/// Offsets of the lanes in a segment's allocation.
struct Places {
    layout: Layout,
    records: usize,
    words: usize,
    tags: usize,
}

impl Places {
    fn of<T>(slots: usize) -> Self {
        let words = if WordInRecord::<T>::YES { 0 } else { slots };
        let place = |before: Layout, lane: Result<Layout, _>| lane.and_then(|lane| before.extend(lane));
        let header = Layout::new::<Segment<T>>();
        let all = place(header, Layout::array::<T>(slots)).and_then(|(layout, records)| {
            let (layout, words) = place(layout, Layout::array::<u64>(words))?;
            let (layout, tags) = place(layout, Layout::array::<u8>(slots))?;
            Ok(Self { layout, records, words, tags })
        });
        all.expect("a segment fits into the address space")
    }
}

/// Length of the run of zeroes at the start.
fn leading_zeroes(bytes: &[u8]) -> usize {
    // Blocks without an early exit become a few vector instructions each.
    const BLOCK: usize = 32;
    let mut at = 0;
    for block in bytes.chunks_exact(BLOCK) {
        if block.iter().fold(0, |seen, byte| seen | byte) != 0 {
            break;
        }
        at += BLOCK;
    }
    at + bytes[at..].iter().take_while(|&&byte| byte == 0).count()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_first_mark_is_found_wherever_it_stands() {
        for length in 0..130 {
            let mut tags = vec![0; length];
            assert_eq!(leading_zeroes(&tags), length);
            for at in (0..length).rev() {
                tags[at] = 1;
                assert_eq!(leading_zeroes(&tags), at);
            }
        }
    }

    #[test]
    fn a_record_of_at_least_a_word_costs_one_byte_beside_itself() {
        assert_eq!(lane_bytes::<u64>(16), 16 * 9);
        assert_eq!(lane_bytes::<[u8; 64]>(16), 16 * 65);
        assert_eq!(lane_bytes::<u8>(16), 16 * 10);
        assert_eq!(lane_bytes::<()>(16), 16 * 9);
        let places = Places::of::<u64>(16);
        assert_eq!(places.layout.size() - size_of::<Segment<u64>>(), lane_bytes::<u64>(16));
    }
}
