//! How the contents of a section are compressed. Each section says so itself, so a snapshot may be written one way and read by a
//! job that is configured another way.

use std::io::{self, Read as _};

pub(super) const CODE_NONE: u8 = 0;
pub(super) const CODE_ZSTD: u8 = 1;
pub(super) const CODE_LZ4: u8 = 2;

/// Contents above this many bytes are not compressed with lz4, whose blocks have 32-bit positions.
const LZ4_MAX_BYTES: usize = 1 << 30;

/// How the sections of a snapshot are compressed. A section that would not get smaller is stored as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    None,
    /// With zstd.
    Zstd {
        /// zstd's level, from 1 (fast) to 22.
        level: i32,
    },
    /// With lz4: faster than zstd, larger results. Contents above 1 GiB are stored as they are.
    Lz4,
}

impl Default for Compression {
    fn default() -> Self {
        Self::Zstd { level: 1 }
    }
}

/// Compresses one section after the other.
pub(super) enum Compressor {
    None,
    Zstd(zstd::bulk::Compressor<'static>),
    Lz4,
}

impl Compressor {
    /// # Errors
    /// If the library refuses the level.
    pub(super) fn new(compression: Compression) -> io::Result<Self> {
        Ok(match compression {
            Compression::None => Self::None,
            Compression::Zstd { level } => Self::Zstd(zstd::bulk::Compressor::new(level)?),
            Compression::Lz4 => Self::Lz4,
        })
    }

    /// The code of the compression and the compressed contents, or `None` if they would not be smaller.
    ///
    /// # Errors
    /// If the library fails.
    pub(super) fn compress(&mut self, contents: &[u8]) -> io::Result<Option<(u8, Vec<u8>)>> {
        let (code, compressed) = match self {
            Self::None => return Ok(None),
            Self::Zstd(zstd) => (CODE_ZSTD, zstd.compress(contents)?),
            Self::Lz4 if contents.len() > LZ4_MAX_BYTES => return Ok(None),
            Self::Lz4 => (CODE_LZ4, lz4_flex::block::compress(contents)),
        };
        Ok(Some((code, compressed)).filter(|(_, compressed)| compressed.len() < contents.len()))
    }
}

/// The contents, exactly `length` bytes. Takes memory only as far as `stored` really unfolds.
///
/// # Errors
/// The reason, if the code is unknown, or `stored` does not unfold to that many bytes.
pub(super) fn decompress(code: u8, stored: &[u8], length: u64) -> Result<Vec<u8>, String> {
    let unfolded = match code {
        CODE_NONE => check_length(stored.len() as u64, length).map(|()| stored.to_vec()),
        CODE_ZSTD => {
            let contents = unfold_zstd(stored, length).map_err(|error| format!("zstd: {error}"))?;
            check_length(contents.len() as u64, length).map(|()| contents)
        }
        CODE_LZ4 => {
            let real = lz4_length(stored).ok_or("lz4: the block is cut short")?;
            check_length(real, length)?;
            let length =
                usize::try_from(length).map_err(|_| "lz4: larger than the memory of this machine")?;
            lz4_flex::block::decompress(stored, length).map_err(|error| format!("lz4: {error}"))
        }
        other => Err(format!("unknown compression {other}")),
    }?;
    // Beside the checks above: a library may stop early without an error.
    check_length(unfolded.len() as u64, length).map(|()| unfolded)
}

fn check_length(found: u64, expected: u64) -> Result<(), String> {
    if found == expected {
        Ok(())
    } else {
        Err(format!("{found} bytes of contents where {expected} are expected"))
    }
}

/// At most one byte more than `length`.
fn unfold_zstd(stored: &[u8], length: u64) -> io::Result<Vec<u8>> {
    let mut decoder = zstd::stream::read::Decoder::with_buffer(stored)?;
    // No writer needs a window beyond the contents. The decoder would believe the frame and reserve up to 128 MiB.
    let bits_needed = u64::BITS - length.saturating_sub(1).leading_zeros();
    decoder.window_log_max(bits_needed.clamp(10, 27))?;
    let mut contents = Vec::new();
    decoder.take(length.saturating_add(1)).read_to_end(&mut contents)?;
    Ok(contents)
}

/// To how many bytes an lz4 block unfolds, without unfolding it; `None` if it ends in the midst of a sequence.
///
/// A sequence is a token, whose halves give the lengths of a run of literals and of a match, 15 being continued by bytes of which each
/// adds its value until one is below 255; the literals; and, except in the last sequence, two bytes for the place of the match, which
/// is 4 bytes longer than its half says.
fn lz4_length(block: &[u8]) -> Option<u64> {
    let mut rest = block;
    let mut total: u64 = 0;
    loop {
        let (token, after) = rest.split_first()?;
        rest = after;
        let literals = lz4_run(u64::from(token >> 4), &mut rest)?;
        rest = rest.split_at_checked(usize::try_from(literals).ok()?)?.1;
        total = total.checked_add(literals)?;
        if rest.is_empty() {
            return Some(total);
        }
        rest = rest.split_at_checked(2)?.1;
        total = total.checked_add(lz4_run(u64::from(token & 15), &mut rest)?)?.checked_add(4)?;
    }
}

fn lz4_run(nibble: u64, rest: &mut &[u8]) -> Option<u64> {
    let mut run = nibble;
    while run >= 15 {
        let (byte, after) = rest.split_first()?;
        *rest = after;
        run = run.checked_add(u64::from(*byte))?;
        if *byte < 255 {
            break;
        }
    }
    Some(run)
}
