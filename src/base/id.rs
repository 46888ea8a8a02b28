//! Identifiers. Integers that mean different things have different types.

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Identity of one job; printed as 32 lower-case hexadecimal digits, as in Flink.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct JobId([u8; 16]);

impl JobId {
    /// A fresh identity, drawn from the operating system's randomness.
    #[must_use]
    pub fn random() -> Self {
        // `RandomState` is keyed from the system's entropy; two of them give 128 independent bits.
        let word = |salt: u64| {
            let mut hasher = RandomState::new().build_hasher();
            hasher.write_u64(salt);
            hasher.write_u32(std::process::id());
            hasher.finish()
        };
        Self::from_words(word(1), word(2))
    }

    /// The identity made of two words, for runs that must be reproducible.
    #[must_use]
    pub fn from_words(high: u64, low: u64) -> Self {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&high.to_be_bytes());
        bytes[8..].copy_from_slice(&low.to_be_bytes());
        Self(bytes)
    }

    /// The bytes of the identity, in the order in which they are printed.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0
    }

    /// The identity with these bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JobId({self})")
    }
}

impl FromStr for JobId {
    type Err = ParseJobIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.len() != 32 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(ParseJobIdError(text.to_owned()));
        }
        let value = u128::from_str_radix(text, 16).map_err(|_| ParseJobIdError(text.to_owned()))?;
        Ok(Self(value.to_be_bytes()))
    }
}

/// The text is not a job id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a job id: 32 hexadecimal digits are expected")]
pub struct ParseJobIdError(String);

/// The stable name of an operator; state is found again by it.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct OperatorUid(Arc<str>);

impl OperatorUid {
    /// The uid with this text.
    pub fn new(text: impl AsRef<str>) -> Self {
        Self(Arc::from(text.as_ref()))
    }

    /// The text of the uid.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for OperatorUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for OperatorUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(
            Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize,
        )]
        pub struct $name(pub $inner);

        impl $name {
            /// The number as an index.
            #[must_use]
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number!(
    /// Position of an operator in the logical graph, in the order in which operators were declared.
    OperatorId(u32)
);
number!(
    /// Position of a chain (a vertex of the physical plan).
    VertexId(u32)
);
number!(
    /// Position of a subtask among the subtasks of its chain, from 0.
    SubtaskIndex(u32)
);
number!(
    /// Position of an input channel of one subtask, from 0.
    ChannelIndex(u32)
);
number!(
    /// Number of a checkpoint. Ids grow for the whole life of a job and are never used twice.
    CheckpointId(u64)
);
number!(
    /// Counts the executions of a job: 0 is the first, each restart adds one.
    Attempt(u32)
);

impl CheckpointId {
    /// The id that follows.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// One subtask of one chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SubtaskId {
    /// The chain.
    pub vertex: VertexId,
    /// Which of the chain's subtasks.
    pub index: SubtaskIndex,
}

impl fmt::Display for SubtaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.vertex, self.index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_id_reads_back_what_it_prints() {
        let id = JobId::random();
        assert_eq!(id.to_string().len(), 32);
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_ne!(JobId::random(), id);
        assert!("+f".repeat(16).parse::<JobId>().is_err());
        assert!("abc".parse::<JobId>().is_err());
    }
}
