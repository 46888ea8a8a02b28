//! Runs chains: subtasks, the workers that step them, and the threads for what blocks.
//!
//! One worker thread per core, pinned to it, steps the subtasks placed there in turn; a step never blocks and is bounded.
//! Helper threads do blocking work and are linked to their subtask by rings. A pool of its own writes snapshots.
//!
//! Nothing in here knows the job: what happens is told by [`signal::Signal`], what to do comes by [`mailbox`]. A scheduler other
//! than the threads can step the same subtasks: [`deploy::deploy`] makes them, [`subtask::Subtask::step`] moves them.
//!
//! Shutdown. The job tells every worker to stop ([`worker::Workers::stop`]); a worker finishes its current step and returns, which
//! drops its subtasks and with them the rings. Only then are the helpers told to stop, and joined; the snapshot pool goes last,
//! since its tasks hold no ring and report to nobody who is gone.

pub mod affinity;
pub mod blocking;
pub mod deploy;
pub mod idle;
pub mod mailbox;
pub mod restore;
pub mod signal;
pub mod snapshot_pool;
pub mod subtask;
pub mod under_way;
pub mod worker;
