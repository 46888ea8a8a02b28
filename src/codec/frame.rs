//! A checked frame around bytes at rest.
//!
//! ```text
//! offset  bytes
//!      0      4  magic "SLF1"
//!      4      2  kind of the payload
//!      6      2  version of the payload's format
//!      8      8  length of the payload
//!     16      4  crc32c of the bytes 4..16 and of the payload
//!     20      -  payload
//! ```
//!
//! All numbers are little-endian. A length is compared with what is there before it is used.

/// First bytes of a frame.
pub const MAGIC: [u8; 4] = *b"SLF1";

/// Bytes in front of the payload.
pub const HEADER_BYTES: usize = 20;

/// What a frame holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FrameKind {
    /// The entries of one key group of one keyed state.
    KeyGroupSection,
    /// The description of a completed checkpoint.
    Metadata,
    /// The record of a job beside its checkpoints.
    JobRecord,
}

impl FrameKind {
    /// The number that stands for this kind in the frame.
    #[must_use]
    pub const fn code(self) -> u16 {
        match self {
            Self::KeyGroupSection => 1,
            Self::Metadata => 2,
            Self::JobRecord => 3,
        }
    }
}

/// Bytes are not the expected frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// There are fewer bytes than the frame needs.
    #[error("cut short: {found} bytes where {expected} are needed")]
    Short {
        /// Bytes that the frame needs.
        expected: u64,
        /// Bytes that are there.
        found: u64,
    },
    /// The frame does not begin with the magic bytes.
    #[error("wrong magic bytes {found:02x?}")]
    Magic {
        /// The bytes that are there.
        found: [u8; 4],
    },
    /// The checksum in the header is not that of the bytes.
    #[error("wrong checksum: {found:08x}, the header says {expected:08x}")]
    Checksum {
        /// The checksum in the header.
        expected: u32,
        /// The checksum of the bytes.
        found: u32,
    },
    /// The frame holds something else.
    #[error("a frame of kind {found} where kind {expected} is expected")]
    Kind {
        /// Code of the expected kind.
        expected: u16,
        /// Code in the header.
        found: u16,
    },
    /// The payload's format is newer than this program.
    #[error("format version {found}; this program reads up to {supported}")]
    Version {
        /// Newest version that can be read.
        supported: u16,
        /// Version in the header.
        found: u16,
    },
    /// Bytes follow the frame.
    #[error("{bytes} bytes follow the frame")]
    Trailing {
        /// How many.
        bytes: u64,
    },
}

/// Appends a frame with this payload and answers its checksum.
pub fn encode(kind: FrameKind, version: u16, payload: &[u8], out: &mut Vec<u8>) -> u32 {
    let mut fields = [0; 12];
    let (kind_bytes, rest) = fields.split_at_mut(2);
    let (version_bytes, length_bytes) = rest.split_at_mut(2);
    kind_bytes.copy_from_slice(&kind.code().to_le_bytes());
    version_bytes.copy_from_slice(&version.to_le_bytes());
    length_bytes.copy_from_slice(&(payload.len() as u64).to_le_bytes());
    let checksum = crc32c::crc32c_append(crc32c::crc32c(&fields), payload);
    out.reserve(HEADER_BYTES + payload.len());
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&fields);
    out.extend_from_slice(&checksum.to_le_bytes());
    out.extend_from_slice(payload);
    checksum
}

/// A frame that was read and found whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Version of the payload's format.
    pub version: u16,
    /// The checksum in the header.
    pub checksum: u32,
    /// The payload.
    pub payload: &'a [u8],
}

/// Reads the frame that `input` consists of.
///
/// # Errors
/// If the input is not exactly one whole frame of this kind, in a version from 1 to `supported`.
pub fn decode(kind: FrameKind, supported: u16, input: &[u8]) -> Result<Frame<'_>, FrameError> {
    let mut reader = Reader::new(input);
    let magic = reader.array::<4>()?;
    if magic != MAGIC {
        return Err(FrameError::Magic { found: magic });
    }
    let fields = reader.array::<12>()?;
    let expected = u32::from_le_bytes(reader.array()?);
    let mut header = Reader::new(&fields);
    let found_kind = u16::from_le_bytes(header.array()?);
    let version = u16::from_le_bytes(header.array()?);
    let length = u64::from_le_bytes(header.array()?);
    let payload = reader.bytes(length)?;
    let found = crc32c::crc32c_append(crc32c::crc32c(&fields), payload);
    if found != expected {
        return Err(FrameError::Checksum { expected, found });
    }
    if found_kind != kind.code() {
        return Err(FrameError::Kind { expected: kind.code(), found: found_kind });
    }
    if version == 0 || version > supported {
        return Err(FrameError::Version { supported, found: version });
    }
    reader.end()?;
    Ok(Frame { version, checksum: expected, payload })
}

/// Takes checked pieces from the front of some bytes.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// A reader at the start of the bytes.
    #[must_use]
    pub fn new(input: &'a [u8]) -> Self {
        Self { rest: input }
    }

    /// The next `N` bytes.
    ///
    /// # Errors
    /// If there are fewer.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], FrameError> {
        let (head, rest) = self.rest.split_first_chunk::<N>().ok_or(self.short(N as u64))?;
        self.rest = rest;
        Ok(*head)
    }

    /// The next `length` bytes.
    ///
    /// # Errors
    /// If there are fewer.
    pub fn bytes(&mut self, length: u64) -> Result<&'a [u8], FrameError> {
        let short = self.short(length);
        let length = usize::try_from(length).map_err(|_| short)?;
        let (head, rest) = self.rest.split_at_checked(length).ok_or(short)?;
        self.rest = rest;
        Ok(head)
    }

    /// All bytes that are left; none are afterwards.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    /// Number of bytes that are left.
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// # Errors
    /// If bytes are left.
    pub fn end(&self) -> Result<(), FrameError> {
        match self.rest.len() {
            0 => Ok(()),
            bytes => Err(FrameError::Trailing { bytes: bytes as u64 }),
        }
    }

    fn short(&self, expected: u64) -> FrameError {
        FrameError::Short { expected, found: self.rest.len() as u64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        encode(FrameKind::Metadata, 3, payload, &mut out);
        out
    }

    #[test]
    fn a_frame_reads_back() {
        for payload in [&b""[..], b"x", &[7; 10_000]] {
            let bytes = frame(payload);
            assert_eq!(bytes.len(), HEADER_BYTES + payload.len());
            let frame = decode(FrameKind::Metadata, 3, &bytes).unwrap();
            assert_eq!((frame.payload, frame.version), (payload, 3));
        }
    }

    /// The bytes of a frame are part of the snapshot format.
    #[test]
    fn the_bytes_are_as_documented() {
        let bytes = frame(b"ab");
        assert_eq!(bytes[..16], *b"SLF1\x02\0\x03\0\x02\0\0\0\0\0\0\0");
        let checked = [&bytes[4..16], b"ab"].concat();
        assert_eq!(bytes[16..20], crc32c::crc32c(&checked).to_le_bytes());
        assert_eq!(bytes[20..], *b"ab");
    }

    #[test]
    fn every_flipped_bit_is_found() {
        let bytes = frame(b"some payload");
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(FrameKind::Metadata, 3, &damaged).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn cut_and_lengthened_frames_are_found() {
        let bytes = frame(b"some payload");
        for length in 0..bytes.len() {
            assert!(decode(FrameKind::Metadata, 3, &bytes[..length]).is_err(), "cut to {length}");
        }
        let longer = [&bytes[..], b"z"].concat();
        assert_eq!(decode(FrameKind::Metadata, 3, &longer), Err(FrameError::Trailing { bytes: 1 }));
    }

    #[test]
    fn another_kind_and_a_newer_version_are_refused() {
        let bytes = frame(b"p");
        let kind = decode(FrameKind::KeyGroupSection, 3, &bytes);
        assert_eq!(kind, Err(FrameError::Kind { expected: 1, found: 2 }));
        let version = decode(FrameKind::Metadata, 2, &bytes);
        assert_eq!(version, Err(FrameError::Version { supported: 2, found: 3 }));
    }
}
