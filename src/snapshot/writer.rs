//! Turns frozen state into sections, one for each key group that has entries.
//!
//! A section is a frame of the kind [`FrameKind::KeyGroupSection`]; its payload:
//!
//! ```text
//! offset  bytes
//!      0      2  key group
//!      2      1  compression: 0 none, 1 zstd (one frame), 2 lz4 (one block)
//!      3      8  length of the contents before compression
//!     11      -  contents, perhaps compressed: number of entries (u64), then key, namespace and value of each
//! ```
//!
//! All numbers are little-endian.

use super::compression::{CODE_NONE, Compression, Compressor};
use super::error::SnapshotError;
use super::frozen::FrozenState;
use super::manifest::{FileRange, KeyedStateSnapshot, Location, StateHandle};
use super::storage::StateWriter;
use crate::base::key_group::KeyGroup;
use crate::codec::frame::{self, FrameKind};

/// Version of the payload of a section.
pub const SECTION_VERSION: u16 = 1;

/// Writes the state behind whatever the writer already has. Does not finish the file: several states may share one.
///
/// # Errors
/// If a value cannot be serialised, or the storage fails. The file is then of no use.
pub fn write_state(
    frozen: Box<dyn FrozenState>,
    writer: &mut dyn StateWriter,
    compression: Compression,
) -> Result<KeyedStateSnapshot, SnapshotError> {
    let declaration = frozen.declaration().clone();
    let key_form = frozen.key_form();
    let failed = |source| SnapshotError::Compress { state: declaration.name.clone(), source };
    let mut compressor = Compressor::new(compression).map_err(failed)?;
    let mut sections = Vec::new();
    let (mut contents, mut payload, mut section) = (Vec::new(), Vec::new(), Vec::new());
    for group in frozen.key_groups().iter() {
        contents.clear();
        let entries = frozen.encode_group(group, &mut contents).map_err(|source| SnapshotError::Encode {
            state: declaration.name.clone(),
            group,
            source,
        })?;
        if entries == 0 {
            continue;
        }
        payload.clear();
        payload.extend_from_slice(&group.0.to_le_bytes());
        let smaller = compressor.compress(&contents).map_err(failed)?;
        let (code, stored) =
            smaller.as_ref().map_or((CODE_NONE, &contents), |(code, compressed)| (*code, compressed));
        payload.push(code);
        payload.extend_from_slice(&(contents.len() as u64).to_le_bytes());
        payload.extend_from_slice(stored);
        section.clear();
        let checksum = frame::encode(FrameKind::KeyGroupSection, SECTION_VERSION, &payload, &mut section);
        sections.push((group, append(writer, &section, checksum)?));
    }
    assert!(sections.is_sorted_by_key(|(group, _): &(KeyGroup, _)| *group), "one section a group, in order");
    Ok(KeyedStateSnapshot { declaration, key_form, sections })
}

fn append(writer: &mut dyn StateWriter, section: &[u8], checksum: u32) -> Result<StateHandle, SnapshotError> {
    let offset = writer.append(section)?;
    let range = FileRange { file: writer.file().to_owned(), offset, length: section.len() as u64 };
    Ok(StateHandle { location: Location::File(range), checksum })
}
