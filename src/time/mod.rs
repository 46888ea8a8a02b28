//! Event time.

mod merge;

pub use merge::{MergeOutput, WatermarkMerge};
