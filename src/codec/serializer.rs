//! Serializers, and the bounds that a type must meet to be a record, a key or a value.

use std::fmt;
use std::marker::PhantomData;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::base::key_group::StableHash;

/// What can cross an exchange. Implemented by every type that meets the bounds.
pub trait Record: Serialize + DeserializeOwned + Send + 'static {}
impl<T: Serialize + DeserializeOwned + Send + 'static> Record for T {}

/// What a stream can be keyed by. Implemented by every type that meets the bounds.
pub trait Key: StableHash + Eq + Clone + Send + Sync + Serialize + DeserializeOwned + 'static {}
impl<T: StableHash + Eq + Clone + Send + Sync + Serialize + DeserializeOwned + 'static> Key for T {}

/// What can be kept in state. Implemented by every type that meets the bounds.
///
/// `Sync`, because a snapshot reads a value on another thread while the operator goes on; `Clone`, because the operator's
/// next write must not change what that snapshot sees.
pub trait Value: Clone + Send + Sync + Serialize + DeserializeOwned + 'static {}
impl<T: Clone + Send + Sync + Serialize + DeserializeOwned + 'static> Value for T {}

/// Writes values of type `T` as bytes and reads them back.
///
/// The id and the version are stored with the bytes, so that a later reader can tell whether it understands them.
pub trait Serializer<T>: Send + Sync {
    /// Name of the format, stable for ever.
    fn id(&self) -> &'static str;

    /// Version of the format, from 1.
    fn version(&self) -> u32;

    /// Appends the bytes of `value`.
    ///
    /// # Errors
    /// If the value has no representation in this format; `out` may then end with a part of it.
    fn serialize(&self, value: &T, out: &mut Vec<u8>) -> Result<(), CodecError>;

    /// Reads one value from the front of `input` and moves `input` behind it.
    ///
    /// # Errors
    /// If the bytes are not those of a value; `input` is then unchanged.
    fn deserialize(&self, input: &mut &[u8]) -> Result<T, CodecError>;
}

/// Bytes and values do not fit together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CodecError {
    /// The value has no representation in the format.
    #[error("a value cannot be serialised: {reason}")]
    Encode {
        /// What the format said.
        reason: String,
    },
    /// The bytes are not those of a value.
    #[error("the bytes are not those of a value: {reason}")]
    Decode {
        /// What the format said.
        reason: String,
    },
    /// Bytes are left where none were expected.
    #[error("{bytes} bytes are left after the last value")]
    Trailing {
        /// How many.
        bytes: usize,
    },
}

/// Writes any type that serde knows, in the compact format of the crate `postcard`.
pub struct PostcardSerializer<T>(PhantomData<fn() -> T>);

impl<T> PostcardSerializer<T> {
    /// The serializer.
    #[must_use]
    pub const fn new() -> Self {
        Self(PhantomData)
    }
}

impl<T> Default for PostcardSerializer<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Clone for PostcardSerializer<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for PostcardSerializer<T> {}

impl<T> fmt::Debug for PostcardSerializer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PostcardSerializer")
    }
}

impl<T: Serialize + DeserializeOwned> Serializer<T> for PostcardSerializer<T> {
    fn id(&self) -> &'static str {
        "postcard"
    }

    fn version(&self) -> u32 {
        1
    }

    #[inline]
    fn serialize(&self, value: &T, out: &mut Vec<u8>) -> Result<(), CodecError> {
        postcard::serialize_with_flavor(value, Appending(out))
            .map_err(|error| CodecError::Encode { reason: error.to_string() })
    }

    #[inline]
    fn deserialize(&self, input: &mut &[u8]) -> Result<T, CodecError> {
        let (value, rest) = postcard::take_from_bytes(input)
            .map_err(|error| CodecError::Decode { reason: error.to_string() })?;
        *input = rest;
        Ok(value)
    }
}

/// Lets postcard write behind the bytes that a vector already has.
struct Appending<'a>(&'a mut Vec<u8>);

impl postcard::ser_flavors::Flavor for Appending<'_> {
    type Output = ();

    #[inline]
    fn try_extend(&mut self, data: &[u8]) -> postcard::Result<()> {
        self.0.extend_from_slice(data);
        Ok(())
    }

    #[inline]
    fn try_push(&mut self, data: u8) -> postcard::Result<()> {
        self.0.push(data);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_follow_each_other_and_read_back() {
        let serializer = PostcardSerializer::<(String, Option<i64>)>::new();
        let values = [("a".to_owned(), Some(-5)), (String::new(), None)];
        let mut bytes = vec![0xAA];
        for value in &values {
            serializer.serialize(value, &mut bytes).unwrap();
        }
        let mut input = &bytes[1..];
        for value in &values {
            assert_eq!(serializer.deserialize(&mut input).as_ref(), Ok(value));
        }
        assert!(input.is_empty());
    }

    #[test]
    fn a_length_beyond_the_input_is_an_error() {
        let mut input: &[u8] = &[0xFF, 0xFF, 0xFF, 0xFF, 0x0F, b'x'];
        let before = input;
        assert!(PostcardSerializer::<String>::new().deserialize(&mut input).is_err());
        assert!(PostcardSerializer::<Vec<u64>>::new().deserialize(&mut input).is_err());
        assert_eq!(input, before);
    }
}
