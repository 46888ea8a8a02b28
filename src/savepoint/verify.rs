//! Whether a snapshot is all there, and undamaged.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use serde::Serialize;

use crate::snapshot::{
    JobRecord, SnapshotDirectory, SnapshotError, SnapshotPath, StateFiles as _, Store, layout, read_section,
};

/// What was looked at, and all that is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verification {
    /// The directory of the snapshot or of the run.
    pub path: String,
    /// True if nothing is wrong.
    pub whole: bool,
    /// Number of snapshots.
    pub snapshots: u64,
    /// Number of files, `_metadata` and the record of a run included.
    pub files: u64,
    /// Number of sections with keyed state.
    pub sections: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Everything that is wrong.
    pub damage: Vec<Damage>,
}

/// Something that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Damage {
    /// The file.
    pub file: String,
    /// What is wrong with it.
    pub reason: String,
}

/// Reads all that belongs to the snapshot, or to the run and its completed checkpoints, and checks it: that each file is there with the
/// length that it must have, and the frame, checksum and compression of each section. Does not stop at the first damage. Takes no more
/// memory than the metadata and the largest section.
///
/// # Errors
/// If there is nothing at the path, or something that is neither a snapshot nor a run. Damage is an answer, not an error.
pub fn verify(store: Arc<dyn Store>, path: &Path) -> Result<Verification, SnapshotError> {
    let found = SnapshotPath::find(store.as_ref(), path)?;
    let mut verification = Verification {
        path: String::new(),
        whole: true,
        snapshots: 0,
        files: 0,
        sections: 0,
        bytes: 0,
        damage: Vec::new(),
    };
    match found {
        SnapshotPath::Snapshot(directory) => {
            verification.snapshot(&store, &directory);
            verification.path = directory.display().to_string();
        }
        SnapshotPath::Run { directory, checkpoints } => {
            verification.files += 1;
            let record = JobRecord::read(store.as_ref(), &directory);
            let path = directory.join(layout::JOB_RECORD).display().to_string();
            match record {
                Ok(Some(record)) => {
                    if let Err(error) = record.check_newest(&directory, checkpoints.last().copied()) {
                        verification.add(&directory.display().to_string(), &error);
                    }
                }
                Ok(None) => verification.add(&path, &SnapshotError::MissingFile { file: path.clone() }),
                Err(error) => verification.add(&path, &error),
            }
            for id in checkpoints {
                let directory = directory.join(layout::checkpoint(id));
                if let Some(found) = verification.snapshot(&store, &directory).filter(|found| *found != id) {
                    let file = directory.join(layout::METADATA).display().to_string();
                    let (expected, found) = (format!("checkpoint {id}"), format!("checkpoint {found}"));
                    let error = SnapshotError::Misplaced { file: file.clone(), expected, found };
                    verification.add(&file, &error);
                }
            }
            verification.path = directory.display().to_string();
        }
    }
    verification.whole = verification.damage.is_empty();
    Ok(verification)
}

impl Verification {
    fn add(&mut self, file: &str, error: &SnapshotError) {
        let text = error.to_string();
        // Most errors name the file first.
        let reason = text.strip_prefix(file).unwrap_or(&text);
        let reason = reason.strip_prefix(" is damaged").unwrap_or(reason);
        let reason = reason.trim_start_matches([':', ',', ' ']).to_owned();
        self.damage.push(Damage { file: file.to_owned(), reason });
    }

    /// Answers the id of the checkpoint, if its metadata can be read.
    fn snapshot(
        &mut self,
        store: &Arc<dyn Store>,
        directory: &Path,
    ) -> Option<crate::base::id::CheckpointId> {
        self.snapshots += 1;
        self.files += 1;
        let (checkpoint, files) = match SnapshotDirectory::open_unchecked(Arc::clone(store), directory) {
            Ok(opened) => opened,
            Err(error) => {
                self.add(&directory.join(layout::METADATA).display().to_string(), &error);
                return None;
            }
        };
        // Of a file that is missing or too short it is said once, not for each of its sections.
        let mut wrong = BTreeMap::new();
        for file in checkpoint.files() {
            self.files += 1;
            if let Err(error) = files.check_file(&file.file, file.length) {
                self.add(&files.full_name(&file.file), &error);
                wrong.insert(&file.file, matches!(error, SnapshotError::WrongLength { .. }));
            }
        }
        let operators = checkpoint.subtasks.iter().flat_map(|subtask| &subtask.operators);
        for state in operators.flat_map(|operator| &operator.keyed) {
            for (group, handle) in &state.sections {
                self.sections += 1;
                self.bytes += handle.length();
                let range = handle.range();
                if range.is_some_and(|range| wrong.get(&range.file) == Some(&false)) {
                    continue;
                }
                match read_section(&files, *group, handle) {
                    Ok(_) => {}
                    Err(SnapshotError::OutOfFile { .. })
                        if range.is_some_and(|range| wrong.contains_key(&range.file)) => {}
                    Err(error) => {
                        let in_metadata = || directory.join(layout::METADATA).display().to_string();
                        let file = range.map_or_else(in_metadata, |range| files.full_name(&range.file));
                        self.add(&file, &error);
                    }
                }
            }
        }
        Some(checkpoint.id)
    }
}
