//! The builder: streams, typed from end to end.

pub mod env;
pub mod keyed;
mod pipes;
pub mod sink;
pub mod stream;

pub use env::{JobGraph, StreamEnvironment};
pub use keyed::KeyedStream;
pub use pipes::Placeable;
pub use sink::StreamSink;
pub use stream::{SharedStream, Stream};

pub use crate::graph::Pipe;
