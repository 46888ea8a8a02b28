//! Index arithmetic of one segment, pure.
//!
//! A position counts all entries a segment has ever held and wraps around at `usize::MAX`; the slot of a position is its
//! low bits. `tail - head` (wrapping) is the number of entries, from 0 to the number of slots: a segment is full with all
//! its slots in use, and full and empty are told apart without a spare slot.

/// The slot of a position.
#[inline(always)]
pub(super) const fn slot(position: usize, mask: usize) -> usize {
    position & mask
}

/// Entries from `head` to `tail`.
#[inline(always)]
pub(super) const fn entries(head: usize, tail: usize) -> usize {
    tail.wrapping_sub(head)
}

/// The position that `tail` may not pass while `head` stands where it is.
#[inline(always)]
pub(super) const fn limit(head: usize, mask: usize) -> usize {
    head.wrapping_add(mask).wrapping_add(1)
}

/// Entries from `head` to `tail` that lie in adjacent slots, counted from `head`.
#[inline(always)]
pub(super) const fn contiguous(head: usize, tail: usize, mask: usize) -> usize {
    let until_wrap = mask + 1 - slot(head, mask);
    let entries = entries(head, tail);
    if entries < until_wrap { entries } else { until_wrap }
}

/// Slots of the segment after one of `slots` slots in a ring of this capacity.
pub(super) const fn grown(slots: usize, capacity: usize) -> usize {
    // Powers of two both, so a fourfold never jumps over the capacity by more than it is cut back here.
    if slots >= capacity / 4 { capacity } else { slots * 4 }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn positions_wrap_without_a_gap() {
        let (head, mask) = (usize::MAX - 1, 3);
        let tail = limit(head, mask);
        assert_eq!(tail, 2);
        assert_eq!(entries(head, tail), 4);
        assert_eq!(contiguous(head, tail, mask), 2);
        assert_eq!(contiguous(0, tail, mask), 2);
        assert_eq!(slot(usize::MAX, mask), 3);
        assert_eq!(slot(0, mask), 0);
    }

    #[test]
    fn an_empty_segment_has_no_run() {
        for head in 0..9 {
            assert_eq!(contiguous(head, head, 7), 0);
        }
    }

    #[test]
    fn growth_is_fourfold_and_ends_at_the_capacity() {
        assert_eq!(grown(1, 1), 1);
        assert_eq!(grown(1, 2), 2);
        assert_eq!(grown(16, 1024), 64);
        assert_eq!(grown(256, 1024), 1024);
        assert_eq!(grown(512, 1024), 1024);
        assert_eq!(grown(1024, 1024), 1024);
        assert_eq!(grown(1 << 62, 1 << 63), 1 << 63);
    }
}
