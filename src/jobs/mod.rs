//! The built-in jobs, and the table of named jobs that the command line runs.

mod keyed_count;
mod registry;
mod sequence_check;
mod wordcount;
mod zipf;

pub use keyed_count::KeyedCountOptions;
pub use registry::{AlertCount, JobEntry, JobRegistry, JobSetup};
pub use sequence_check::SequenceCheckOptions;
pub use wordcount::{Emit, WordCountOptions};
pub use zipf::Zipf;

/// The jobs that come with the command.
#[must_use]
pub fn built_in() -> JobRegistry {
    JobRegistry::new()
        .add("wordcount", "Counts the words of files or of what a socket sends", wordcount::declare)
        .add("keyed-count", "Counts generated keys in keyed state", keyed_count::declare)
        .add(
            "sequence-check",
            "Numbers each key's records and looks for gaps and repeats, failing on the way if asked to",
            sequence_check::declare,
        )
}
