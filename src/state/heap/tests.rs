use std::collections::HashMap;
use std::fmt::Debug;
use std::hash::Hash;

use serde::{Deserialize, Serialize};

use super::tree::SEGMENT_ENTRIES_MAX;
use super::*;
use crate::base::id::SubtaskIndex;
use crate::base::key_group::{KeyGroups, StableHash};
use crate::base::rng::Rng;
use crate::codec::{Key, Value};
use crate::snapshot::{FrozenState, StateDeclaration, StateKind};
use crate::state::{CurrentKey, KeyedStateTable, Namespace};

fn declaration() -> StateDeclaration {
    let serializer = "postcard".to_owned();
    StateDeclaration { name: "s".to_owned(), kind: StateKind::Value, serializer, serializer_version: 1 }
}

fn table<K: Key, N: Namespace, V: Value>(max_parallelism: u32) -> (HeapTable<K, N, V>, KeyGroups) {
    let groups = KeyGroups::new(max_parallelism, 1);
    (HeapTable::new(declaration(), groups, groups.range(SubtaskIndex(0))), groups)
}

fn current<'a, K: Key, N: Namespace>(
    key: &'a K,
    namespace: &'a N,
    groups: &KeyGroups,
) -> CurrentKey<'a, K, N> {
    CurrentKey::new(key, namespace, key.stable_hash(), groups)
}

type Model<K, N> = HashMap<(K, N), u64>;

fn contents<K: Key + Hash, N: Namespace + Hash>(frozen: FrozenTable<K, N, u64>) -> Model<K, N> {
    let mut entries = 0;
    let model: Model<K, N> =
        frozen.entries().inspect(|_| entries += 1).map(|(k, n, v)| ((k, n), v)).collect();
    assert_eq!(entries, model.len(), "no entry twice");
    model
}

/// Random operations on a table and on a map, with forks taken, kept, read and dropped in between.
fn compare_with_model<K, N>(
    seed: u64,
    max_parallelism: u32,
    operations: u64,
    mut draw: impl FnMut(&mut Rng) -> (K, N),
) where
    K: Key + Hash + Debug,
    N: Namespace + Hash + Debug,
{
    let mut rng = Rng::new(seed);
    let (mut table, groups) = table::<K, N, u64>(max_parallelism);
    let mut model: Model<K, N> = HashMap::new();
    let mut forks = Vec::<(FrozenTable<K, N, u64>, _)>::new();
    for step in 0..operations {
        let id = draw(&mut rng);
        let at = current(&id.0, &id.1, &groups);
        match rng.below(16) {
            0..=6 => {
                let got = table.modify(&at, || 100, |value| std::mem::replace(value, *value + step));
                let entry = model.entry(id).or_insert(100);
                assert_eq!(got, *entry);
                *entry += step;
            }
            7..=9 => {
                table.set(&at, step);
                model.insert(id, step);
            }
            10..=11 => {
                table.merge(&at, step, |old, new| *old ^= new);
                model.entry(id).and_modify(|old| *old ^= step).or_insert(step);
            }
            12..=13 => assert_eq!(table.remove(&at), model.remove(&id)),
            _ => assert_eq!(table.get(&at), model.get(&id)),
        }
        assert_eq!(table.entries(), model.len());
        if rng.one_in(operations / 40) {
            forks.push((table.fork(), model.clone()));
        }
        if rng.one_in(operations / 20) && !forks.is_empty() {
            let index = rng.below(forks.len() as u64) as usize;
            assert_eq!(contents(forks[index].0.clone()), forks[index].1, "a fork never changes");
            if rng.one_in(2) {
                forks.swap_remove(index);
            }
        }
    }
    for (frozen, model) in forks {
        assert_eq!(contents(frozen), model, "a fork never changes");
    }
    assert_eq!(contents(table.fork()), model);
}

#[test]
fn integer_keys_behave_like_a_map_and_forks_never_change() {
    for seed in 0..6 {
        let keys = [3, 50, 1000, 20_000][seed as usize % 4];
        let max_parallelism = [1, 7, 128, 4096][seed as usize % 4];
        compare_with_model(seed, max_parallelism, 20_000, |rng| (rng.below(keys), ()));
    }
}

#[test]
fn one_group_behaves_like_a_map_through_several_levels_of_directories() {
    compare_with_model(1, 1, 60_000, |rng| (rng.below(40_000), ()));
}

#[test]
fn text_keys_behave_like_a_map() {
    compare_with_model(2, 128, 20_000, |rng| (format!("key-{}", rng.below(3000)), ()));
}

#[test]
fn namespaces_of_one_key_are_apart() {
    compare_with_model(3, 16, 20_000, |rng| (rng.below(40), rng.below(40)));
    compare_with_model(6, 16, 20_000, |rng| (rng.below(40), Colliding(rng.below(40))));
}

/// A key with few hashes, so that many keys collide in all 64 bits.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Colliding(u64);

impl StableHash for Colliding {
    fn canonical_form() -> String {
        "colliding".to_owned()
    }

    type Carried = crate::base::key_group::Carried;

    fn canonical_bytes(&self, out: &mut Vec<u8>) {
        self.0.canonical_bytes(out);
    }

    fn stable_hash(&self) -> u64 {
        (self.0 % 3).stable_hash()
    }
}

#[test]
fn keys_that_collide_are_told_apart() {
    compare_with_model(4, 4, 20_000, |rng| (Colliding(rng.below(3000)), ()));
}

#[test]
fn the_most_key_groups_that_there_can_be() {
    compare_with_model(5, 32_768, 20_000, |rng| (rng.below(100_000), ()));
}

#[test]
fn a_large_table_is_found_again_and_its_segments_stay_small() {
    let (mut table, groups) = table::<u64, (), u64>(128);
    let mut forks = Vec::new();
    for key in 0..200_000u64 {
        if key % 50_000 == 25_000 {
            forks.push((key, table.fork()));
        }
        table.set(&current(&key, &(), &groups), !key);
    }
    for key in 0..200_000u64 {
        assert_eq!(table.get(&current(&key, &(), &groups)), Some(&!key));
    }
    assert_eq!(table.entries(), 200_000);
    let frozen = table.fork();
    let mut segments = 0;
    for group in frozen.key_groups().iter() {
        let visited = frozen.group(group).try_for_each_segment::<()>(&mut |segment| {
            segments += 1;
            assert!(segment.len() <= SEGMENT_ENTRIES_MAX);
            Ok(())
        });
        assert_eq!(visited, Ok(()));
    }
    assert!(200_000 / segments > SEGMENT_ENTRIES_MAX / 3, "{segments} segments are far from full");
    for (keys, frozen) in forks {
        assert_eq!(contents(frozen), (0..keys).map(|key| ((key, ()), !key)).collect());
    }
}

#[test]
fn after_a_fork_a_segment_is_copied_once_and_only_when_written() {
    let (mut table, groups) = table::<u64, (), u64>(32_768);
    for key in 0..5000u64 {
        table.set(&current(&key, &(), &groups), key);
    }
    let frozen = table.fork();
    for key in 0..5000u64 {
        assert_eq!(table.get(&current(&key, &(), &groups)), Some(&key));
        assert_eq!(table.remove(&current(&(key + 1_000_000), &(), &groups)), None);
    }
    assert_eq!(table.statistics().segments_copied, 0, "reading copies nothing");
    for value in 0..3 {
        table.set(&current(&17, &(), &groups), value);
        assert_eq!(table.statistics().segments_copied, 1);
    }
    assert_eq!(contents(frozen), (0..5000).map(|key| ((key, ()), key)).collect());
}

#[test]
fn once_a_fork_is_dropped_nothing_more_is_copied() {
    let (mut table, groups) = table::<u64, (), u64>(128);
    for key in 0..5000u64 {
        table.set(&current(&key, &(), &groups), key);
    }
    let (first, second) = (table.fork(), table.fork());
    table.set(&current(&1, &(), &groups), 0);
    assert_eq!(table.statistics().segments_copied, 1);
    drop(first);
    table.set(&current(&2, &(), &groups), 0);
    assert_eq!(table.statistics().segments_copied, 2, "the second fork is still there");
    drop(second);
    for key in 0..5000u64 {
        table.set(&current(&key, &(), &groups), 0);
    }
    assert_eq!(table.statistics().segments_copied, 2);
    drop(table.fork());
    assert_eq!(table.statistics().segments_copied, 0, "counted from the last fork on");
}

/// The reading threads drop their forks while the table is written: what they saw must not change, and the table must see
/// in time that a segment is its own again.
#[test]
fn forks_are_read_and_dropped_on_other_threads_while_the_table_is_written() {
    const KEYS: u64 = 3000;
    let (mut table, groups) = table::<u64, (), u64>(64);
    for key in 0..KEYS {
        table.set(&current(&key, &(), &groups), 0);
    }
    std::thread::scope(|scope| {
        let mut readers = Vec::new();
        for round in 1..=60u64 {
            let frozen = table.fork();
            readers.push(scope.spawn(move || {
                for (key, (), value) in frozen.clone().entries() {
                    assert_eq!(value, round - 1, "key {key}");
                }
                let mut bytes = Vec::new();
                for group in frozen.key_groups().iter() {
                    assert!(frozen.encode_group(group, &mut bytes).is_ok());
                }
            }));
            for key in 0..KEYS {
                table.modify(&current(&key, &(), &groups), || 0, |value| *value = round);
            }
            if round % 4 == 0 {
                for reader in readers.drain(..) {
                    reader.join().expect("a reader saw what it must");
                }
            }
        }
    });
    assert_eq!(contents(table.fork()), (0..KEYS).map(|key| ((key, ()), 60)).collect());
}

#[test]
fn entries_of_a_fork_can_be_read_bit_by_bit_while_the_table_changes() {
    let (mut table, groups) = table::<u64, (), u64>(8);
    for key in 0..4000u64 {
        table.set(&current(&key, &(), &groups), key);
    }
    let mut entries = table.fork().entries();
    let mut seen = Vec::new();
    for key in 0..4000u64 {
        table.remove(&current(&key, &(), &groups));
        seen.extend(entries.next());
    }
    assert_eq!(entries.next(), None);
    seen.sort_unstable();
    assert!(seen.into_iter().eq((0..4000).map(|key| (key, (), key))));
    assert_eq!(table.entries(), 0);
}

#[test]
#[should_panic(expected = "does not own its key group")]
fn a_key_of_another_subtask_is_refused() {
    let groups = KeyGroups::new(128, 2);
    let mut table = HeapTable::<u64, (), u64>::new(declaration(), groups, groups.range(SubtaskIndex(0)));
    for key in 0..1000u64 {
        table.set(&current(&key, &(), &groups), key);
    }
}

#[test]
fn a_panic_in_a_users_function_leaves_the_table_whole() {
    let (mut table, groups) = table::<u64, (), u64>(8);
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        table.modify(&current(&1, &(), &groups), || panic!("user's"), |_| ());
    }));
    assert!(result.is_err());
    assert_eq!(table.entries(), 0);
    assert!(contents(table.fork()).is_empty());
}

#[test]
fn looking_ahead_changes_nothing_and_takes_any_number_of_keys() {
    let (mut table, groups) = table::<u64, u64, u64>(128);
    for key in 0..60_000u64 {
        table.set(&current(&key, &7, &groups), key);
    }
    let frozen = table.fork();
    for keys in [0, 1, 31, 32, 33, 1000] {
        let mut taken = 0;
        table.prepare((0..keys).map(|key| key * 101).inspect(|_| taken += 1).map(|key| key.stable_hash()));
        assert_eq!(taken, keys, "the whole batch is taken");
    }
    assert_eq!(table.statistics(), TableStatistics { entries: 60_000, segments_copied: 0 });
    assert_eq!(contents(frozen), contents(table.fork()));
}
