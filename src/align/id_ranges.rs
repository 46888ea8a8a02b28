//! A set of checkpoint ids that stays small because neighbours are kept as one range.

use crate::base::id::CheckpointId;

/// Sorted, disjoint, non-adjacent ranges, both ends included.
#[derive(Debug, Default)]
pub(super) struct IdRanges(Vec<(CheckpointId, CheckpointId)>);

impl IdRanges {
    pub(super) fn contains(&self, id: CheckpointId) -> bool {
        self.0.iter().any(|&(first, last)| first <= id && id <= last)
    }

    pub(super) fn insert(&mut self, id: CheckpointId) {
        if self.contains(id) {
            return;
        }
        let at = self.0.partition_point(|&(_, last)| last < id);
        let joins_left = at > 0 && self.0[at - 1].1.next() == id;
        let joins_right = self.0.get(at).is_some_and(|&(first, _)| id.next() == first);
        match (joins_left, joins_right) {
            (true, true) => {
                self.0[at - 1].1 = self.0[at].1;
                self.0.remove(at);
            }
            (true, false) => self.0[at - 1].1 = id,
            (false, true) => self.0[at].0 = id,
            (false, false) => self.0.insert(at, (id, id)),
        }
    }

    /// Forgets `id` and everything below it.
    pub(super) fn forget_through(&mut self, id: CheckpointId) {
        self.0.retain_mut(|(first, last)| {
            if *first <= id && id < *last {
                *first = id.next();
            }
            *last > id
        });
    }

    #[cfg(test)]
    pub(super) fn ranges(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::base::rng::Rng;

    #[test]
    fn behaves_like_a_set_and_keeps_neighbours_together() {
        for seed in 0..500 {
            let mut rng = Rng::new(seed);
            let (mut ranges, mut model) = (IdRanges::default(), BTreeSet::new());
            for _ in 0..60 {
                let id = rng.below(24);
                if rng.one_in(8) {
                    ranges.forget_through(CheckpointId(id));
                    model.retain(|other| *other > id);
                } else {
                    ranges.insert(CheckpointId(id));
                    model.insert(id);
                }
                for id in 0..25 {
                    assert_eq!(
                        ranges.contains(CheckpointId(id)),
                        model.contains(&id),
                        "seed {seed}, id {id}"
                    );
                }
                let runs = model.iter().filter(|id| **id == 0 || !model.contains(&(**id - 1))).count();
                assert_eq!(ranges.ranges(), runs, "seed {seed}");
            }
        }
    }
}
