//! How the items of a list state are divided among the subtasks after a restore.

/// Divides the items that the old subtasks had among `new_parallelism` subtasks; each item goes to exactly one.
///
/// With the parallelism unchanged every subtask gets back what it had, even if that is nothing: moving an item without need
/// would, for instance, hand a partition to a reader that never had it. Otherwise the items are dealt out in turn, in the
/// order of the old subtasks, so that no two subtasks differ by more than one item. The answer depends on the arguments
/// alone.
///
/// ```
/// use stoplog::state::operator_state::redistribute;
///
/// assert_eq!(redistribute(&[vec![], vec!['p']], 2), [vec![], vec!['p']]);
/// assert_eq!(redistribute(&[vec![1, 2, 3], vec![4, 5]], 3), [vec![1, 4], vec![2, 5], vec![3]]);
/// ```
///
/// # Panics
/// If `new_parallelism` is 0.
#[must_use]
pub fn redistribute<Item: Clone>(old: &[Vec<Item>], new_parallelism: usize) -> Vec<Vec<Item>> {
    assert!(new_parallelism > 0, "a job has at least one subtask");
    if old.len() == new_parallelism {
        return old.to_vec();
    }
    let mut new = vec![Vec::new(); new_parallelism];
    for (item, turn) in old.iter().flatten().zip((0..new_parallelism).cycle()) {
        new[turn].push(item.clone());
    }
    new
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::rng::Rng;

    #[test]
    fn unchanged_parallelism_moves_nothing() {
        let old = [vec![], vec!["p1"], vec![], vec!["p2", "p3", "p4"]];
        assert_eq!(redistribute(&old, 4), old);
    }

    #[test]
    fn every_item_arrives_once_and_evenly() {
        let mut rng = Rng::new(7);
        for _ in 0..500 {
            let mut next = 0;
            let old: Vec<Vec<u64>> = (0..1 + rng.below(9))
                .map(|_| {
                    let start = next;
                    next += rng.below(6);
                    (start..next).collect()
                })
                .collect();
            let parallelism = 1 + rng.below(9) as usize;
            let new = redistribute(&old, parallelism);
            assert_eq!(new.len(), parallelism);
            let mut items: Vec<u64> = new.iter().flatten().copied().collect();
            items.sort_unstable();
            assert!(items.iter().copied().eq(0..next), "each item exactly once");
            if parallelism != old.len() {
                let sizes = new.iter().map(Vec::len);
                assert!(sizes.clone().max().unwrap() - sizes.min().unwrap() <= 1);
            }
            assert_eq!(redistribute(&old, parallelism), new, "the same answer again");
        }
    }

    #[test]
    fn nothing_becomes_empty_lists() {
        assert_eq!(redistribute::<u8>(&[], 2), vec![Vec::<u8>::new(); 2]);
    }
}
