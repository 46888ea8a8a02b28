//! The ends of the pipe: sources and sinks.
//!
//! What waits for a file, a socket or a pipe does so on a helper thread, see `blocking`.

pub mod collect;
pub mod discard;
pub mod generator;
pub mod pace;
pub mod vec;

pub use collect::CollectSink;
pub use discard::DiscardSink;
pub use generator::GeneratorSource;
pub use pace::Pace;
pub use vec::VecSource;
