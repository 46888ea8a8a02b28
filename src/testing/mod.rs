//! The deterministic scheduler and what watches it, for tests of jobs.
//!
//! [`Simulation`] steps the very subtasks, alignment, coordinator and supervisor of a job on one thread. A seed decides who is
//! next; time is a [`VirtualClock`] and moves only when the scheduler says so; [`FaultyStorage`] and [`Faults`] make things go wrong
//! where recovery is owed; a [`VirtualStore`] is the disk, and shows what a crash leaves of it. The [`checkers`] look from outside at what really happened.
//!
//! A seed reproduces a run to the last decision: [`Simulation::trace`] is the same number again. Functions of the job under test
//! must therefore not read clocks, threads or randomness of their own.

pub mod checkers;
pub mod clock;
pub mod executor;
pub mod faults;
pub mod sim;
pub mod store;

pub use clock::VirtualClock;
pub use faults::{Fault, Faults, FaultyStorage};
pub use sim::{SimOptions, Simulation};
pub use store::{CrashKind, StoreFault, VirtualStore};
