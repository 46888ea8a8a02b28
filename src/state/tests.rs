//! States, snapshots and restores together.

use std::collections::HashMap;

use super::*;
use crate::base::id::{CheckpointId, SubtaskId, SubtaskIndex, VertexId};
use crate::base::key_group::{KeyGroup, KeyGroups, StableHash};
use crate::base::rng::Rng;
use crate::codec::Key;
use crate::snapshot::{
    CheckpointStorage, Compression, KeyedStateSnapshot, Location, MemoryStorage, SnapshotError, write_state,
};

const MAX_PARALLELISM: u32 = 100;

fn sum(a: &mut u64, b: u64) {
    *a += b;
}

type Sum = ReducingStateDescriptor<u64, fn(&mut u64, u64)>;

fn set() -> (ValueStateDescriptor<String>, Sum) {
    (ValueStateDescriptor::new("last"), ReducingStateDescriptor::new("sum", sum as fn(&mut u64, u64)))
}

/// The subtasks of one operator.
struct Operator<S: StateSet, K: Key> {
    set: S,
    groups: KeyGroups,
    tables: Vec<S::Tables<K, ()>>,
}

impl<S: StateSet, K: Key> Operator<S, K> {
    fn new(set: S, parallelism: u32) -> Self {
        let groups = KeyGroups::new(MAX_PARALLELISM, parallelism);
        let tables =
            (0..parallelism).map(|index| set.create(groups, groups.range(SubtaskIndex(index)))).collect();
        Self { set, groups, tables }
    }

    fn with<R>(&mut self, key: &K, call: impl FnOnce(S::Handles<'_, K, ()>) -> R) -> R {
        let hash = key.stable_hash();
        let current = CurrentKey::new(key, &(), hash, &self.groups);
        let subtask = self.groups.subtask_of_group(current.group());
        call(self.set.bind(&mut self.tables[subtask.index()], &current))
    }

    fn snapshot(
        &mut self,
        storage: &MemoryStorage,
        id: u64,
        compression: Compression,
    ) -> Vec<KeyedStateSnapshot> {
        let mut snapshots = Vec::new();
        for (index, tables) in self.tables.iter_mut().enumerate() {
            let subtask = SubtaskId { vertex: VertexId(0), index: SubtaskIndex(index as u32) };
            let mut writer = storage.begin(CheckpointId(id), subtask).unwrap();
            for (declaration, frozen) in self.set.fork_all(tables) {
                let snapshot = write_state(frozen, &mut *writer, compression).unwrap();
                assert_eq!(snapshot.declaration, declaration);
                snapshots.push(snapshot);
            }
            writer.finish().unwrap();
        }
        snapshots
    }

    fn restore(
        &mut self,
        storage: &MemoryStorage,
        snapshots: &[KeyedStateSnapshot],
    ) -> Result<bool, StateError> {
        let mut known = true;
        for (index, tables) in self.tables.iter_mut().enumerate() {
            let range = self.groups.range(SubtaskIndex(index as u32));
            for snapshot in snapshots {
                known &= restore_keyed_state(&self.set, tables, range, storage, snapshot)?;
            }
        }
        Ok(known)
    }
}

#[test]
fn state_comes_back_at_any_parallelism() {
    for compression in [Compression::None, Compression::default()] {
        let mut rng = Rng::new(11);
        let storage = MemoryStorage::new();
        let mut model: HashMap<u64, (String, u64)> = HashMap::new();
        let mut operator = Operator::<_, u64>::new(set(), 1);
        for (round, parallelism) in [3, 7, 2, 100, 1].into_iter().enumerate() {
            for _ in 0..8000 {
                let (key, value) = (rng.below(20_000), rng.below(1000));
                operator.with(&key, |(mut last, mut sum)| {
                    last.update(format!("v{value}"));
                    sum.add(value);
                    assert_eq!(last.get(), last.value().as_ref());
                });
                let entry = model.entry(key).or_default();
                *entry = (format!("v{value}"), entry.1 + value);
            }
            let snapshots = operator.snapshot(&storage, round as u64, compression);
            operator = Operator::new(set(), parallelism);
            assert!(operator.restore(&storage, &snapshots).unwrap());
            for key in 0..20_000 {
                let state = operator.with(&key, |(last, sum)| last.value().zip(sum.get()));
                assert_eq!(state.as_ref(), model.get(&key));
            }
            let entries: usize = operator.tables.iter().map(|tables| tables.1.entries()).sum();
            assert_eq!(entries, model.len(), "no key came back twice");
        }
    }
}

#[test]
fn a_handle_changes_the_current_key_only() {
    let mut operator = Operator::<_, String>::new(set(), 2);
    let (a, b) = ("a".to_owned(), "b".to_owned());
    for key in [&a, &b] {
        operator.with(key, |(mut last, mut sum)| {
            last.update("x".to_owned());
            sum.add(1);
        });
    }
    operator.with(&a, |(mut last, mut sum)| {
        assert_eq!(last.modify(String::new, |text| (text.push('y'), text.len()).1), 2);
        sum.add(4);
        sum.add(5);
    });
    assert_eq!(operator.with(&a, |(last, sum)| (last.value(), sum.get())), (Some("xy".to_owned()), Some(10)));
    operator.with(&a, |(mut last, mut sum)| {
        last.clear();
        sum.clear();
    });
    assert_eq!(operator.with(&a, |(last, sum)| (last.value(), sum.get())), (None, None));
    assert_eq!(operator.with(&b, |(last, sum)| (last.value(), sum.get())), (Some("x".to_owned()), Some(1)));
}

fn written<K: Key>(keys: impl Iterator<Item = K>) -> (MemoryStorage, Vec<KeyedStateSnapshot>) {
    let storage = MemoryStorage::new();
    let mut operator = Operator::<_, K>::new(set(), 1);
    for key in keys {
        operator.with(&key, |(_, mut sum)| sum.add(1));
    }
    let snapshots = operator.snapshot(&storage, 1, Compression::default());
    (storage, snapshots)
}

#[test]
fn another_kind_of_state_or_a_newer_serializer_is_refused() {
    let (storage, mut snapshots) = written(0..10u64);
    let mut other = Operator::<_, u64>::new((ValueStateDescriptor::<u64>::new("sum"),), 1);
    let error = other.restore(&storage, &snapshots[1..]).unwrap_err();
    assert_eq!(
        error.to_string(),
        r#"state "sum" is value state in the job and reducing state in the snapshot"#
    );
    snapshots[1].declaration.serializer_version = 2;
    let error = Operator::<_, u64>::new(set(), 1).restore(&storage, &snapshots[1..]).unwrap_err();
    assert!(matches!(error, StateError::Serializer { .. }), "{error}");
}

#[test]
fn a_state_that_the_job_no_longer_has_is_reported() {
    let (storage, snapshots) = written(0..10u64);
    assert!(!Operator::<_, u64>::new((), 1).restore(&storage, &snapshots[1..]).unwrap());
}

#[test]
fn a_changed_type_of_key_is_refused() {
    let (storage, snapshots) = written(0..1000u64);
    let error = Operator::<_, i64>::new(set(), 1).restore(&storage, &snapshots).unwrap_err();
    assert!(matches!(error, StateError::Key { .. }), "{error}");
}

#[test]
fn another_max_parallelism_is_refused() {
    let (storage, snapshots) = written(0..1000u64);
    let groups = KeyGroups::new(MAX_PARALLELISM + 1, 1);
    let range = groups.range(SubtaskIndex(0));
    let mut tables = set().create::<u64, ()>(groups, range);
    let error = restore_keyed_state(&set(), &mut tables, range, &storage, &snapshots[1]).unwrap_err();
    assert!(matches!(error, StateError::KeyMoved { .. }), "{error}");
}

#[test]
fn a_section_restored_twice_is_refused() {
    let (storage, snapshots) = written(0..10u64);
    let mut operator = Operator::<_, u64>::new(set(), 1);
    operator.restore(&storage, &snapshots).unwrap();
    let error = operator.restore(&storage, &snapshots).unwrap_err();
    assert!(matches!(error, StateError::Duplicate { .. }), "{error}");
}

#[test]
fn a_group_of_another_subtask_is_refused() {
    let groups = KeyGroups::new(MAX_PARALLELISM, 2);
    let mut tables = set().create::<u64, ()>(groups, groups.range(SubtaskIndex(0)));
    let error = set().restore(&mut tables, "sum", KeyGroup(99), &0u64.to_le_bytes()).unwrap_err();
    assert!(matches!(error, StateError::ForeignGroup { .. }), "{error}");
}

/// Contents that passed no checksum, for instance from a program with a bug: errors, never a panic.
#[test]
fn damaged_contents_are_errors() {
    let groups = KeyGroups::new(1, 1);
    let range = groups.range(SubtaskIndex(0));
    let mut source = set().create::<String, ()>(groups, range);
    for key in ["a", "bc", "def"] {
        let key = key.to_owned();
        let current = CurrentKey::new(&key, &(), key.stable_hash(), &groups);
        set().bind(&mut source, &current).1.add(7);
    }
    let frozen = set().fork_all(&mut source).remove(1).1;
    let mut contents = Vec::new();
    frozen.encode_group(KeyGroup(0), &mut contents).unwrap();
    let restore = |contents: &[u8]| {
        let mut tables = set().create::<String, ()>(groups, range);
        set().restore(&mut tables, "sum", KeyGroup(0), contents).map(|known| (known, tables.1.entries()))
    };
    assert_eq!(restore(&contents).unwrap(), (true, 3));
    for length in 0..contents.len() {
        assert!(restore(&contents[..length]).is_err(), "cut to {length}");
    }
    assert!(restore(&[&contents[..], &[0]].concat()).is_err());
    let mut rng = Rng::new(3);
    for _ in 0..2000 {
        let mut damaged = contents.clone();
        for _ in 0..=rng.below(3) {
            let at = rng.below(damaged.len() as u64) as usize;
            damaged[at] = rng.next_u64() as u8;
        }
        let _no_panic = restore(&damaged);
    }
}

#[test]
fn a_damaged_file_is_an_error_that_names_it() {
    let (storage, mut snapshots) = written(0..10u64);
    let Location::File(range) = &mut snapshots[1].sections[0].1.location else { unreachable!("in a file") };
    range.offset += 1;
    let error = Operator::<_, u64>::new(set(), 1).restore(&storage, &snapshots).unwrap_err();
    assert!(matches!(error, StateError::Snapshot(SnapshotError::Frame { .. })), "{error}");
    assert!(error.to_string().starts_with("chk-1/0.0-0, offset "), "{error}");
}
