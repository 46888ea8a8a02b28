//! From values to bytes and back. Bytes that come in are never trusted: a decoder answers with an error, it does not panic.
#![deny(clippy::unwrap_used, clippy::indexing_slicing)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking"))]

pub mod frame;
pub mod serializer;

pub use frame::{FrameError, FrameKind};
pub use serializer::{CodecError, Key, PostcardSerializer, Record, Serializer, Value};
