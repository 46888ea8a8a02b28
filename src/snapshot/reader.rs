//! Reads sections back. Every byte is suspect: each length is compared with what is there before memory is taken, and
//! whatever is wrong becomes an error that names the place.

use std::io::Read;

use super::error::SnapshotError;
use super::manifest::{KeyedStateSnapshot, StateHandle};
use super::storage::StateFiles;
use super::writer::{CODE_NONE, CODE_ZSTD, SECTION_VERSION};
use crate::base::key_group::{KeyGroup, KeyGroupRange};
use crate::codec::frame::{self, FrameKind, Reader};

/// Checks one section and answers its contents: the number of entries, then the entries.
///
/// `bytes` is what the storage has at `handle`, which the snapshot's metadata gives for `group`.
///
/// # Errors
/// If the bytes are not exactly the section that was written.
pub fn read_section(handle: &StateHandle, group: KeyGroup, bytes: &[u8]) -> Result<Vec<u8>, SnapshotError> {
    let place = || (handle.file.clone(), handle.offset);
    let damaged = |source| {
        let (file, offset) = place();
        SnapshotError::Frame { file, offset, source }
    };
    let invalid = |reason: String| {
        let (file, offset) = place();
        SnapshotError::Content { file, offset, reason }
    };
    let frame = frame::decode(FrameKind::KeyGroupSection, SECTION_VERSION, bytes).map_err(damaged)?;
    if frame.checksum != handle.checksum {
        let (file, offset) = place();
        let (expected, found) = (handle.checksum, frame.checksum);
        return Err(SnapshotError::OtherSection { file, offset, expected, found });
    }
    let mut reader = Reader::new(frame.payload);
    let found_group = u16::from_le_bytes(reader.array().map_err(damaged)?);
    let [compression] = reader.array().map_err(damaged)?;
    let length = u64::from_le_bytes(reader.array().map_err(damaged)?);
    let stored = reader.rest();
    if found_group != group.0 {
        return Err(invalid(format!("key group {found_group} where {} is expected", group.0)));
    }
    let contents = match compression {
        CODE_NONE => stored.to_vec(),
        CODE_ZSTD => decompress(stored, length).map_err(|error| invalid(format!("zstd: {error}")))?,
        other => return Err(invalid(format!("unknown compression {other}"))),
    };
    if contents.len() as u64 != length {
        return Err(invalid(format!("{} bytes of contents where {length} are expected", contents.len())));
    }
    Ok(contents)
}

/// At most one byte more than `length`, and memory only as far as the input really unfolds.
fn decompress(stored: &[u8], length: u64) -> std::io::Result<Vec<u8>> {
    let mut contents = Vec::new();
    zstd::stream::read::Decoder::with_buffer(stored)?
        .take(length.saturating_add(1))
        .read_to_end(&mut contents)?;
    Ok(contents)
}

/// Reads the sections of those key groups that lie in `range` and hands each one's contents to `restore`.
///
/// # Errors
/// The first error of the storage, of a section, or of `restore`.
pub fn read_state<E: From<SnapshotError>>(
    storage: &dyn StateFiles,
    snapshot: &KeyedStateSnapshot,
    range: KeyGroupRange,
    mut restore: impl FnMut(KeyGroup, &[u8]) -> Result<(), E>,
) -> Result<(), E> {
    for (group, handle) in snapshot.sections.iter().filter(|(group, _)| range.contains(*group)) {
        let bytes = storage.read(handle)?;
        restore(*group, &read_section(handle, *group, &bytes)?)?;
    }
    Ok(())
}
