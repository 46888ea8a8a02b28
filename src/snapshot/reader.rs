//! Reads sections back. Every byte is suspect: each length is compared with what is there before memory is taken, and
//! whatever is wrong becomes an error that names the place.

use super::compression::decompress;
use super::error::SnapshotError;
use super::manifest::{KeyedStateSnapshot, StateHandle};
use super::storage::StateFiles;
use super::writer::SECTION_VERSION;
use crate::base::key_group::{KeyGroup, KeyGroupRange};
use crate::codec::frame::{self, FrameKind, Reader};

/// Where errors say that a section held inline is.
const IN_METADATA: &str = "state in the metadata";

/// Reads one section, which the snapshot's metadata gives for `group`, and checks it. The answer is its contents: the number of
/// entries, then the entries.
///
/// # Errors
/// If the bytes are not exactly the section that was written, or the storage fails.
pub fn read_section(
    files: &dyn StateFiles,
    group: KeyGroup,
    handle: &StateHandle,
) -> Result<Vec<u8>, SnapshotError> {
    let bytes = files.read(handle)?;
    let name = handle.range().map_or_else(|| IN_METADATA.to_owned(), |range| files.full_name(&range.file));
    check_section(&name, group, handle, &bytes)
}

/// Checks the bytes of a section, which are in the file `name` at `handle`, and answers its contents.
///
/// # Errors
/// If the bytes are not exactly the section that was written.
pub fn check_section(
    name: &str,
    group: KeyGroup,
    handle: &StateHandle,
    bytes: &[u8],
) -> Result<Vec<u8>, SnapshotError> {
    let place = || (name.to_owned(), handle.range().map_or(0, |range| range.offset));
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
    if found_group != group.0 {
        return Err(invalid(format!("key group {found_group} where {} is expected", group.0)));
    }
    decompress(compression, reader.rest(), length).map_err(invalid)
}

/// Reads the sections of those key groups that lie in `range` and hands each one's contents to `restore`.
///
/// # Errors
/// The first error of the storage, of a section, or of `restore`.
pub fn read_state<E: From<SnapshotError>>(
    files: &dyn StateFiles,
    snapshot: &KeyedStateSnapshot,
    range: KeyGroupRange,
    mut restore: impl FnMut(KeyGroup, &[u8]) -> Result<(), E>,
) -> Result<(), E> {
    for (group, handle) in snapshot.sections.iter().filter(|(group, _)| range.contains(*group)) {
        restore(*group, &read_section(files, *group, handle)?)?;
    }
    Ok(())
}
