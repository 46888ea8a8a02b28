//! The command `stoplog`: hands the built-in jobs to the library's command line.

use std::process::ExitCode;

/// Chunks of words and lines are made on one core and freed on another.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    stoplog::cli::run(&stoplog::jobs::built_in())
}
