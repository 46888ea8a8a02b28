//! Divides a checkpoint among the subtasks of a new execution.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::base::error::{Error, ErrorKind, Recovery};
use crate::base::id::{OperatorUid, SubtaskIndex};
use crate::base::key_group::KeyGroups;
use crate::operator::context::{Restored, RestoredOperator};
use crate::snapshot::{CompletedCheckpoint, OperatorSnapshot, StateFiles};
use crate::state::RestoredKeyedState;
use crate::state::operator_state::redistribute;

/// What each of `parallelism` new subtasks restores, of all operators in `uids`.
///
/// # Errors
/// If some subtasks of an operator had handed on what was due at the end of the input and others had not: at another parallelism
/// the new ones would repeat a part of it.
pub fn divide(
    checkpoint: &CompletedCheckpoint,
    files: &Arc<dyn StateFiles>,
    uids: &[OperatorUid],
    parallelism: u32,
) -> Result<Vec<Restored>, Error> {
    let empty = Restored { checkpoint: checkpoint.id, operators: HashMap::new() };
    let mut parts = vec![empty; parallelism as usize];
    for uid in uids {
        let old = old_subtasks(checkpoint, uid);
        if old.is_empty() {
            continue;
        }
        let ended = old.iter().filter(|operator| operator.is_some_and(|operator| operator.ended)).count();
        if old.len() != parallelism as usize && ended > 0 && ended < old.len() {
            let message = format!(
                "checkpoint {} was taken while the operator was ending: {ended} of its {} subtasks had ended; restore it \
                 with parallelism {}, not {parallelism}",
                checkpoint.id,
                old.len(),
                old.len()
            );
            return Err(Error::new(ErrorKind::Snapshot, Recovery::GiveUp, message).in_operator(uid));
        }
        let divided = divide_operator(checkpoint, &old, files, parallelism);
        for (part, operator) in parts.iter_mut().zip(divided) {
            part.operators.insert(uid.clone(), operator);
        }
    }
    Ok(parts)
}

/// The operator's parts by old subtask, in order; a subtask without one has `None`.
fn old_subtasks<'a>(
    checkpoint: &'a CompletedCheckpoint,
    uid: &OperatorUid,
) -> Vec<Option<&'a OperatorSnapshot>> {
    let mut old: BTreeMap<SubtaskIndex, Option<&OperatorSnapshot>> = BTreeMap::new();
    for subtask in &checkpoint.subtasks {
        if let Some(operator) = subtask.operators.iter().find(|operator| operator.uid == *uid) {
            for index in 0..subtask.parallelism {
                old.entry(SubtaskIndex(index)).or_default();
            }
            old.insert(subtask.subtask.index, Some(operator));
        }
    }
    old.into_values().collect()
}

fn divide_operator(
    checkpoint: &CompletedCheckpoint,
    old: &[Option<&OperatorSnapshot>],
    files: &Arc<dyn StateFiles>,
    parallelism: u32,
) -> Vec<RestoredOperator> {
    let key_groups = KeyGroups::new(checkpoint.max_parallelism, parallelism);
    let mut lists: BTreeMap<&str, Vec<Vec<Vec<u8>>>> = BTreeMap::new();
    for (index, operator) in old.iter().enumerate() {
        for list in operator.iter().flat_map(|operator| &operator.list) {
            let by_subtask = lists.entry(&list.name).or_insert_with(|| vec![Vec::new(); old.len()]);
            by_subtask[index].clone_from(&list.items);
        }
    }
    let lists: Vec<_> =
        lists.into_iter().map(|(name, items)| (name, redistribute(&items, parallelism as usize))).collect();
    let all_ended = old.iter().all(|operator| operator.is_some_and(|operator| operator.ended));
    (0..parallelism)
        .map(|index| {
            let range = key_groups.range(SubtaskIndex(index));
            let keyed = old.iter().flatten().flat_map(|operator| &operator.keyed);
            let mine = keyed.filter(|state| state.sections.iter().any(|(group, _)| range.contains(*group)));
            let ended = if old.len() == parallelism as usize {
                old[index as usize].is_some_and(|operator| operator.ended)
            } else {
                all_ended
            };
            RestoredOperator {
                keyed: Some(RestoredKeyedState::new(Arc::clone(files), mine.cloned().collect())),
                list: lists
                    .iter()
                    .map(|(name, items)| ((*name).to_owned(), items[index as usize].clone()))
                    .collect(),
                ended,
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::{CheckpointId, JobId, SubtaskId, VertexId};
    use crate::snapshot::{MemoryStorage, SubtaskSnapshot};

    #[test]
    fn an_operator_caught_while_ending_is_restored_only_at_its_old_parallelism() {
        let uid = OperatorUid::new("sums");
        let subtasks = [true, false].into_iter().enumerate().map(|(index, ended)| SubtaskSnapshot {
            subtask: SubtaskId { vertex: VertexId(0), index: SubtaskIndex(index as u32) },
            parallelism: 2,
            operators: vec![OperatorSnapshot {
                uid: uid.clone(),
                keyed: Vec::new(),
                list: Vec::new(),
                ended,
            }],
            files: Vec::new(),
            bytes: 0,
        });
        let checkpoint = CompletedCheckpoint {
            id: CheckpointId(1),
            job: JobId::random(),
            max_parallelism: 128,
            triggered_at_ms: 0,
            completed_at_ms: 0,
            subtasks: subtasks.collect(),
        };
        let storage: Arc<dyn StateFiles> = Arc::new(MemoryStorage::new());
        let ended = |parallelism| {
            let parts = divide(&checkpoint, &storage, std::slice::from_ref(&uid), parallelism)?;
            Ok::<_, Error>(parts.iter().map(|part| part.operators[&uid].ended).collect::<Vec<_>>())
        };
        assert_eq!(ended(2).unwrap(), [true, false]);
        let error = ended(3).unwrap_err().to_string();
        assert!(error.contains("\"sums\"") && error.contains("parallelism 2, not 3"), "{error}");
    }
}
