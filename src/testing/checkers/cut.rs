//! What a completed checkpoint says: decoded from its bytes, without the engine's own reader of state.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;

use crate::base::id::OperatorUid;
use crate::base::key_group::KeyGroups;
use crate::operator::source::SPLITS;
use crate::snapshot::{CompletedCheckpoint, StateFiles, read_section};

/// The splits of a source, with the positions in them.
///
/// # Errors
/// If they cannot be decoded.
pub fn source_splits<S: DeserializeOwned>(
    checkpoint: &CompletedCheckpoint,
    uid: &OperatorUid,
) -> Result<Vec<S>, String> {
    let operators = checkpoint.subtasks.iter().flat_map(|subtask| &subtask.operators);
    let lists = operators.filter(|operator| operator.uid == *uid).flat_map(|operator| &operator.list);
    let items = lists.filter(|list| list.name == SPLITS).flat_map(|list| &list.items);
    items.map(|item| postcard::from_bytes(item).map_err(|error| format!("{uid}: {error}"))).collect()
}

/// The keyed state of an operator. Each key stands in one subtask only, the one that owns its group.
///
/// # Errors
/// If the state cannot be decoded, a key stands in two places or in the wrong one.
pub fn keyed_state<K, V>(
    checkpoint: &CompletedCheckpoint,
    storage: &dyn StateFiles,
    uid: &OperatorUid,
    name: &str,
) -> Result<BTreeMap<K, V>, String>
where
    K: DeserializeOwned + Ord + crate::base::key_group::StableHash,
    V: DeserializeOwned,
{
    let mut all = BTreeMap::new();
    for subtask in &checkpoint.subtasks {
        let groups = KeyGroups::new(checkpoint.max_parallelism, subtask.parallelism);
        let operators = subtask.operators.iter().filter(|operator| operator.uid == *uid);
        let states = operators.flat_map(|operator| &operator.keyed);
        for state in states.filter(|state| state.declaration.name == name) {
            for (group, handle) in &state.sections {
                let contents = read_section(storage, *group, handle).map_err(|error| error.to_string())?;
                let (count, mut rest) = contents.split_first_chunk::<8>().ok_or("no number of entries")?;
                for _ in 0..u64::from_le_bytes(*count) {
                    let ((key, value), left): ((K, V), _) =
                        postcard::take_from_bytes(rest).map_err(|error| error.to_string())?;
                    rest = left;
                    let owner = groups.subtask(key.stable_hash());
                    if groups.group(key.stable_hash()) != *group || owner != subtask.subtask.index {
                        return Err(format!("{uid}: a key of group {} in {}", group.0, subtask.subtask));
                    }
                    if all.insert(key, value).is_some() {
                        return Err(format!("{uid}: a key stands twice in {}", subtask.subtask));
                    }
                }
                if !rest.is_empty() {
                    return Err(format!("{uid}: {} bytes left over", rest.len()));
                }
            }
        }
    }
    Ok(all)
}
