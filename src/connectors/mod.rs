//! The ends of the pipe: sources and sinks.
//!
//! What waits for a file, a socket or a pipe does so on a helper thread, see `blocking`.

mod blocking;
pub mod collect;
pub mod discard;
pub mod file;
pub mod generator;
mod lines;
pub mod pace;
pub mod socket;
#[cfg(all(test, not(loom)))]
mod tests;
pub mod two_phase;
pub mod vec;

pub use collect::CollectSink;
pub use discard::DiscardSink;
pub use file::{FileError, FileSource, LineSink};
pub use generator::GeneratorSource;
pub use pace::Pace;
pub use socket::SocketSource;
pub use two_phase::TwoPhase;
pub use vec::VecSource;
