//! The nodes between a table and its entries; see the module above for the shape and for the bits of the hash.

use std::sync::Arc;

use hashbrown::HashTable;

use super::table::exclusive;

/// Entries in a segment before it is split: what 256 buckets hold at hashbrown's highest load of 7/8.
pub(super) const SEGMENT_ENTRIES_MAX: usize = 224;

/// Width of a level over key groups.
const GROUPS: usize = 128;
/// Width of the first directory of a group.
const WIDE: usize = 64;
/// Width of the directories below it: narrow, because most of them lead to few segments.
const NARROW: usize = 16;

/// Lowest bit of the hash that the first directory of a group looks at.
const FIRST_SHIFT: u32 = 26;
/// The same for the deepest directory.
const LAST_SHIFT: u32 = 14;

const _: () = assert!(FIRST_SHIFT + WIDE.ilog2() == 32, "directories start below the key group's bits");
const _: () = assert!((FIRST_SHIFT - LAST_SHIFT).is_multiple_of(NARROW.ilog2()));
const _: () = assert!(SEGMENT_ENTRIES_MAX <= 256 * 7 / 8 && LAST_SHIFT >= 8, "index bits stay apart");

/// An entry knows its hash, so that a segment can be split.
pub(super) trait Entry: Clone {
    fn slot_hash(&self) -> u64;
}

pub(super) type Segment<E> = HashTable<E>;

#[derive(Debug, Clone)]
pub(super) enum Slot<E> {
    Empty,
    Segment(Arc<Segment<E>>),
    Wide(Arc<Directory<E, WIDE>>),
    Narrow(Arc<Directory<E, NARROW>>),
    Groups(Arc<Groups<E>>),
}

/// A level over key groups.
#[derive(Debug, Clone)]
pub(super) struct Groups<E> {
    slots: [Slot<E>; GROUPS],
}

impl<E> Groups<E> {
    fn new() -> Self {
        Self { slots: [const { Slot::Empty }; GROUPS] }
    }
}

/// A level over bits of the hash.
#[derive(Debug, Clone)]
pub(super) struct Directory<E, const WIDTH: usize> {
    /// Which slot the bits lead to. The routes to one slot are neighbours, and their number is a power of two.
    routes: [u8; WIDTH],
    /// Slots in use; the others are empty.
    used: u8,
    /// Segments and narrow directories.
    slots: [Slot<E>; WIDTH],
}

impl<E, const WIDTH: usize> Directory<E, WIDTH> {
    /// A directory in which all routes lead to one segment.
    fn over(segment: &Arc<Segment<E>>) -> Arc<Self> {
        let mut slots = [const { Slot::Empty }; WIDTH];
        slots[0] = Slot::Segment(Arc::clone(segment));
        Arc::new(Self { routes: [0; WIDTH], used: 1, slots })
    }

    fn children(&self) -> &[Slot<E>] {
        &self.slots[..usize::from(self.used)]
    }

    /// Index of the slot to which the hash leads.
    #[inline]
    fn slot_index(&self, hash: u64, shift: u32) -> usize {
        // The mask changes nothing; it lets the compiler see that the index is within the slots.
        usize::from(self.routes[Self::route_index(hash, shift)]) & (WIDTH - 1)
    }

    #[inline]
    fn route_index(hash: u64, shift: u32) -> usize {
        (hash >> shift) as usize & (WIDTH - 1)
    }
}

/// Where an entry lies.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    /// Number of its group, counted from the subtask's first.
    pub(super) group: usize,
    /// Hash of key and namespace.
    pub(super) hash: u64,
}

/// The whole tree. A clone shares everything until one of the two is written to.
#[derive(Debug, Clone)]
pub(super) struct Tree<E> {
    root: Arc<Groups<E>>,
    /// How far a group's number is shifted for the root: 7 for each level below it.
    root_shift: u32,
}

#[inline]
fn group_index(group: usize, shift: u32) -> usize {
    (group >> shift) & (GROUPS - 1)
}

impl<E: Entry> Tree<E> {
    /// An empty tree over this many groups.
    pub(super) fn new(groups: usize) -> Self {
        let mut root_shift = 0;
        while groups > GROUPS << root_shift {
            root_shift += GROUPS.ilog2();
        }
        Self { root: Arc::new(Groups::new()), root_shift }
    }

    /// The node or segment of one group.
    #[inline]
    pub(super) fn group(&self, group: usize) -> &Slot<E> {
        let mut shift = self.root_shift;
        let mut slot = &self.root.slots[group_index(group, shift)];
        while let Slot::Groups(groups) = slot {
            shift -= GROUPS.ilog2();
            slot = &groups.slots[group_index(group, shift)];
        }
        slot
    }

    /// The same, exclusive; there is no level over groups to it.
    #[inline]
    fn group_mut(&mut self, group: usize) -> &mut Slot<E> {
        let mut shift = self.root_shift;
        let mut slot = &mut exclusive(&mut self.root, &mut 0).slots[group_index(group, shift)];
        while shift > 0 {
            shift -= GROUPS.ilog2();
            if let Slot::Empty = slot {
                *slot = Slot::Groups(Arc::new(Groups::new()));
            }
            let Slot::Groups(groups) = slot else { unreachable!("all groups lie equally deep") };
            slot = &mut exclusive(groups, &mut 0).slots[group_index(group, shift)];
        }
        slot
    }

    /// The segment in which the entry is, if it is anywhere.
    #[inline]
    pub(super) fn segment(&self, place: Place) -> Option<&Segment<E>> {
        let mut slot = self.group(place.group);
        let mut shift = FIRST_SHIFT;
        if let Slot::Wide(directory) = slot {
            slot = &directory.slots[directory.slot_index(place.hash, shift)];
            while let Slot::Narrow(directory) = slot {
                shift -= NARROW.ilog2();
                slot = &directory.slots[directory.slot_index(place.hash, shift)];
            }
        }
        if let Slot::Segment(segment) = slot { Some(segment) } else { None }
    }

    /// The segment in which the entry is or belongs, exclusive, and created if need be. Adds to `copies` what was copied.
    #[inline]
    pub(super) fn segment_mut(&mut self, place: Place, copies: &mut u64) -> &mut Segment<E> {
        let mut slot = self.group_mut(place.group);
        let mut shift = FIRST_SHIFT;
        if let Slot::Wide(directory) = slot {
            let directory = exclusive(directory, &mut 0);
            slot = &mut directory.slots[directory.slot_index(place.hash, shift)];
            while let Slot::Narrow(directory) = slot {
                shift -= NARROW.ilog2();
                let directory = exclusive(directory, &mut 0);
                slot = &mut directory.slots[directory.slot_index(place.hash, shift)];
            }
        } else if let Slot::Empty = slot {
            *slot = Slot::Segment(Arc::new(Segment::new()));
        }
        let Slot::Segment(segment) = slot else { unreachable!("every route ends at a segment") };
        exclusive(segment, copies)
    }

    /// Splits the segment to which `place` leads. False if the bits of the hash are used up.
    #[cold]
    pub(super) fn split(&mut self, place: Place, copies: &mut u64) -> bool {
        let slot = self.group_mut(place.group);
        if let Slot::Segment(segment) = slot {
            *slot = Slot::Wide(Directory::over(segment));
        }
        let Slot::Wide(directory) = slot else { return false };
        exclusive(directory, &mut 0).split(place.hash, FIRST_SHIFT, copies)
    }
}

impl<E: Entry, const WIDTH: usize> Directory<E, WIDTH> {
    /// Splits the segment to which the hash leads. False if the bits of the hash are used up.
    fn split(&mut self, hash: u64, shift: u32, copies: &mut u64) -> bool {
        let route = Self::route_index(hash, shift);
        let child = self.routes[route];
        let routes = self.routes.iter().filter(|route| **route == child).count();
        if routes > 1 {
            self.split_child(route, routes, shift, copies);
            return true;
        }
        if shift == LAST_SHIFT {
            return false;
        }
        let slot = &mut self.slots[usize::from(child)];
        if let Slot::Segment(segment) = slot {
            *slot = Slot::Narrow(Directory::over(segment));
        }
        let Slot::Narrow(directory) = slot else {
            unreachable!("below a directory lies a segment or a directory")
        };
        exclusive(directory, &mut 0).split(hash, shift - NARROW.ilog2(), copies)
    }

    /// Splits the segment that `route`, one of `routes` neighbours, leads to.
    fn split_child(&mut self, route: usize, routes: usize, shift: u32, copies: &mut u64) {
        debug_assert!(routes.is_power_of_two() && routes > 1, "a slot's routes halve with each split");
        let lower = usize::from(self.routes[route]);
        let upper = self.used;
        let Slot::Segment(segment) = &mut self.slots[lower] else {
            unreachable!("a directory replaces a segment only when one route leads to it")
        };
        let half = routes / 2;
        let bit = 1u64 << (shift + half.trailing_zeros());
        let full = std::mem::take(exclusive(segment, copies));
        let mut moved = Segment::with_capacity(SEGMENT_ENTRIES_MAX);
        let mut kept = Segment::with_capacity(SEGMENT_ENTRIES_MAX);
        for entry in full {
            let hash = entry.slot_hash();
            let target = if hash & bit == 0 { &mut kept } else { &mut moved };
            target.insert_unique(hash, entry, Entry::slot_hash);
        }
        *segment = Arc::new(kept);
        self.slots[usize::from(upper)] = Slot::Segment(Arc::new(moved));
        self.used += 1;
        let first_upper = (route & !(routes - 1)) + half;
        self.routes[first_upper..first_upper + half].fill(upper);
    }
}

impl<E> Slot<E> {
    /// The nodes and segments directly below.
    pub(super) fn children(&self) -> &[Self] {
        match self {
            Self::Empty | Self::Segment(_) => &[],
            Self::Wide(directory) => directory.children(),
            Self::Narrow(directory) => directory.children(),
            Self::Groups(groups) => &groups.slots,
        }
    }

    /// Number of entries below.
    pub(super) fn entries(&self) -> usize {
        match self {
            Self::Segment(segment) => segment.len(),
            node => node.children().iter().map(Self::entries).sum(),
        }
    }

    /// Calls `visit` for each segment below, until it fails.
    pub(super) fn try_for_each_segment<X>(
        &self,
        visit: &mut impl FnMut(&Segment<E>) -> Result<(), X>,
    ) -> Result<(), X> {
        match self {
            Self::Segment(segment) => visit(segment),
            node => node.children().iter().try_for_each(|child| child.try_for_each_segment(visit)),
        }
    }
}
