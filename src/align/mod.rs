//! Barrier alignment: what a subtask does with the barriers of its input channels.
//!
//! Pure: channel, barrier and time go in, [`Action`]s come out. The rings, the parking itself and the snapshot
//! belong to the caller.
//!
//! Only exactly-once is here. Counting barriers without parking (at-least-once) takes the same events and gives the
//! same actions, except that it never asks to park; it will be a second type beside [`Aligner`].

mod aligner;
mod id_ranges;

pub use aligner::{Action, Aligner, Alignment, CancelCause};
