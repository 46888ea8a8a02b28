//! The file `_metadata`: what a completed checkpoint consists of. Its presence means that the checkpoint is complete.
//!
//! It is a frame of the kind [`FrameKind::Metadata`]; `src/docs/formats.md` has the map of its payload. Files are named relative to the
//! directory of the checkpoint, so that the directory can be renamed and moved as a whole.

use std::collections::{BTreeMap, BTreeSet};

use super::fields::{FieldReader, FieldWriter, FormatError};
use super::layout;
use super::manifest::{
    CompletedCheckpoint, FileRange, KeyedStateSnapshot, ListStateSnapshot, Location, OperatorSnapshot,
    SnapshotFile, StateDeclaration, StateHandle, StateKind, SubtaskSnapshot,
};
use crate::base::id::{CheckpointId, JobId, OperatorUid, SubtaskId, SubtaskIndex, VertexId};
use crate::base::key_group::{KeyGroup, MAX_PARALLELISM_LIMIT};
use crate::codec::frame::{self, FrameKind};

/// Version of the payload.
pub const METADATA_VERSION: u16 = 1;

const IN_FILE: u8 = 0;
const INLINE: u8 = 1;

/// The bytes of `_metadata`. `prefix` is what the names of the checkpoint's files have in front of their names in its directory.
///
/// # Errors
/// If the checkpoint is not as [`decode`] wants it. Nothing is ever written that cannot be read.
pub fn encode(checkpoint: &CompletedCheckpoint, prefix: &str) -> Result<Vec<u8>, FormatError> {
    let mut out = FieldWriter::default();
    out.u64(checkpoint.id.0);
    out.array(checkpoint.job.to_bytes());
    out.u32(checkpoint.max_parallelism);
    out.u64(checkpoint.triggered_at_ms);
    out.u64(checkpoint.completed_at_ms);
    out.count("subtasks", checkpoint.subtasks.len())?;
    for subtask in &checkpoint.subtasks {
        encode_subtask(&mut out, subtask, prefix)?;
    }
    let mut bytes = Vec::new();
    frame::encode(FrameKind::Metadata, METADATA_VERSION, &out.bytes, &mut bytes);
    match decode(&bytes, prefix) {
        Ok(read) if read == *checkpoint => Ok(bytes),
        Ok(_) => Err(FormatError::Unwritable { reason: "it would read back as something else".to_owned() }),
        Err(error) => Err(FormatError::Unwritable { reason: error.to_string() }),
    }
}

fn encode_subtask(out: &mut FieldWriter, subtask: &SubtaskSnapshot, prefix: &str) -> Result<(), FormatError> {
    out.u32(subtask.subtask.vertex.0);
    out.u32(subtask.subtask.index.0);
    out.u32(subtask.parallelism);
    out.u64(subtask.bytes);
    out.count("files", subtask.files.len())?;
    let mut numbers = BTreeMap::new();
    for (number, file) in (0u32..).zip(&subtask.files) {
        let Some(name) = file.file.strip_prefix(prefix) else {
            let reason = format!("{} is not in the directory of the checkpoint", file.file);
            return Err(FormatError::Unwritable { reason });
        };
        out.run("file", name.as_bytes())?;
        out.u64(file.length);
        numbers.insert(file.file.as_str(), number);
    }
    out.count("operators", subtask.operators.len())?;
    for operator in &subtask.operators {
        out.run("uid", operator.uid.as_str().as_bytes())?;
        out.u8(u8::from(operator.ended));
        out.count("keyed states", operator.keyed.len())?;
        for state in &operator.keyed {
            encode_keyed(out, state, &numbers)?;
        }
        out.count("list states", operator.list.len())?;
        for state in &operator.list {
            out.run("name", state.name.as_bytes())?;
            out.count("items", state.items.len())?;
            state.items.iter().try_for_each(|item| out.run("item", item))?;
        }
    }
    Ok(())
}

fn encode_keyed(
    out: &mut FieldWriter,
    state: &KeyedStateSnapshot,
    files: &BTreeMap<&str, u32>,
) -> Result<(), FormatError> {
    out.run("name", state.declaration.name.as_bytes())?;
    out.u8(kind_code(state.declaration.kind));
    out.run("serializer", state.declaration.serializer.as_bytes())?;
    out.u32(state.declaration.serializer_version);
    out.run("key form", state.key_form.as_bytes())?;
    out.count("sections", state.sections.len())?;
    for (group, handle) in &state.sections {
        out.u16(group.0);
        out.u32(handle.checksum);
        match &handle.location {
            Location::File(range) => {
                let Some(number) = files.get(range.file.as_str()) else {
                    let reason = format!("{} is not among the files of its subtask", range.file);
                    return Err(FormatError::Unwritable { reason });
                };
                out.u8(IN_FILE);
                out.u32(*number);
                out.u64(range.offset);
                out.u64(range.length);
            }
            Location::Inline(bytes) => {
                out.u8(INLINE);
                out.run("section", bytes)?;
            }
        }
    }
    Ok(())
}

fn kind_code(kind: StateKind) -> u8 {
    match kind {
        StateKind::Value => 1,
        StateKind::Reducing => 2,
    }
}

fn kind_of(code: u8) -> Option<StateKind> {
    [StateKind::Value, StateKind::Reducing].into_iter().find(|kind| kind_code(*kind) == code)
}

/// The checkpoint that the bytes of a `_metadata` describe. Its files get `prefix` in front of their names.
///
/// # Errors
/// If they are not exactly such bytes, or what they say cannot be. Whatever the bytes are, memory is taken only in proportion to
/// their number.
pub fn decode(bytes: &[u8], prefix: &str) -> Result<CompletedCheckpoint, FormatError> {
    let frame = frame::decode(FrameKind::Metadata, METADATA_VERSION, bytes)?;
    let mut input = FieldReader::new(frame.payload);
    let id = CheckpointId(input.u64("checkpoint id")?);
    let job = JobId::from_bytes(input.array("job id")?);
    let max_parallelism = input.u32("max parallelism")?;
    if !(1..=MAX_PARALLELISM_LIMIT).contains(&max_parallelism) {
        return Err(input.invalid(format!("max parallelism {max_parallelism}")));
    }
    let triggered_at_ms = input.u64("time of the trigger")?;
    let completed_at_ms = input.u64("time of completion")?;
    let mut seen = Seen::default();
    let subtasks =
        input.list("subtasks", 28, |input| decode_subtask(input, max_parallelism, prefix, &mut seen))?;
    input.end()?;
    Ok(CompletedCheckpoint { id, job, max_parallelism, triggered_at_ms, completed_at_ms, subtasks })
}

/// What may be there only once.
#[derive(Default)]
struct Seen<'a> {
    subtasks: BTreeSet<SubtaskId>,
    files: BTreeSet<&'a str>,
}

fn decode_subtask<'a>(
    input: &mut FieldReader<'a>,
    max_parallelism: u32,
    prefix: &str,
    seen: &mut Seen<'a>,
) -> Result<SubtaskSnapshot, FormatError> {
    let vertex = VertexId(input.u32("vertex")?);
    let index = SubtaskIndex(input.u32("subtask")?);
    let subtask = SubtaskId { vertex, index };
    let parallelism = input.u32("parallelism")?;
    if parallelism > max_parallelism || index.0 >= parallelism {
        let reason =
            format!("subtask {subtask} with parallelism {parallelism} and max parallelism {max_parallelism}");
        return Err(input.invalid(reason));
    }
    if !seen.subtasks.insert(subtask) {
        return Err(input.invalid(format!("subtask {subtask} stands twice")));
    }
    let bytes = input.u64("bytes written")?;
    let files = input.list("files", 12, |input| {
        let name = input.text("file")?;
        if !layout::is_state_file(name) {
            return Err(input.invalid(format!("{name:?} is not the name of a file in this directory")));
        }
        if !seen.files.insert(name) {
            return Err(input.invalid(format!("the file {name:?} stands twice")));
        }
        Ok(SnapshotFile { file: format!("{prefix}{name}"), length: input.u64("length of the file")? })
    })?;
    let operators = input.list("operators", 13, |input| decode_operator(input, max_parallelism, &files))?;
    Ok(SubtaskSnapshot { subtask, parallelism, operators, files, bytes })
}

fn decode_operator(
    input: &mut FieldReader<'_>,
    max_parallelism: u32,
    files: &[SnapshotFile],
) -> Result<OperatorSnapshot, FormatError> {
    let uid = OperatorUid::new(input.text("uid")?);
    let ended = input.flag("ended")?;
    let keyed = input.list("keyed states", 21, |input| decode_keyed(input, max_parallelism, files))?;
    let list = input.list("list states", 8, |input| {
        let name = input.text("name")?.to_owned();
        let items = input.list("items", 4, |input| input.run("item").map(<[u8]>::to_vec))?;
        Ok(ListStateSnapshot { name, items })
    })?;
    Ok(OperatorSnapshot { uid, keyed, list, ended })
}

fn decode_keyed(
    input: &mut FieldReader<'_>,
    max_parallelism: u32,
    files: &[SnapshotFile],
) -> Result<KeyedStateSnapshot, FormatError> {
    let name = input.text("name")?.to_owned();
    let kind = input.u8("kind")?;
    let kind = kind_of(kind).ok_or_else(|| input.invalid(format!("unknown kind of state {kind}")))?;
    let serializer = input.text("serializer")?.to_owned();
    let serializer_version = input.u32("version of the serializer")?;
    let key_form = input.text("key form")?.to_owned();
    let mut before = None;
    let sections = input.list("sections", 11, |input| {
        let group = KeyGroup(input.u16("key group")?);
        if u32::from(group.0) >= max_parallelism || before.is_some_and(|before| before >= group) {
            return Err(input.invalid(format!("key group {} of {max_parallelism}, out of order", group.0)));
        }
        before = Some(group);
        let checksum = input.u32("checksum")?;
        let location = match input.u8("location")? {
            IN_FILE => Location::File(decode_range(input, files)?),
            INLINE => Location::Inline(input.run("section")?.to_vec()),
            other => return Err(input.invalid(format!("unknown location {other}"))),
        };
        Ok((group, StateHandle { location, checksum }))
    })?;
    let declaration = StateDeclaration { name, kind, serializer, serializer_version };
    Ok(KeyedStateSnapshot { declaration, key_form, sections })
}

fn decode_range(input: &mut FieldReader<'_>, files: &[SnapshotFile]) -> Result<FileRange, FormatError> {
    let number = input.u32("number of the file")?;
    let (offset, length) = (input.u64("offset")?, input.u64("length")?);
    let file = usize::try_from(number).ok().and_then(|number| files.get(number));
    let file = file.ok_or_else(|| input.invalid(format!("there is no file number {number}")))?;
    if offset.checked_add(length).is_none_or(|end| end > file.length) {
        let reason = format!("bytes {offset}..+{length} of {}, which has {}", file.file, file.length);
        return Err(input.invalid(reason));
    }
    Ok(FileRange { file: file.file.clone(), offset, length })
}
