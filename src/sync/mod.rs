//! Atomics, cells and threads under one name: std, or loom when the interleavings are being checked.
//!
//! Code that two threads share takes everything from here, so that the very source that runs in production also runs
//! under loom (`tools/loom.sh`). [`wake`] is the one protocol that lives in this module: how a worker goes to sleep and
//! is woken.

pub mod wake;

pub use crossbeam::utils::CachePadded;

#[cfg(not(loom))]
mod real;
#[cfg(not(loom))]
pub use real::UnsafeCell;
#[cfg(not(loom))]
pub use std::{
    hint,
    sync::{Arc, Mutex, MutexGuard, atomic},
    thread,
};

#[cfg(loom)]
pub use loom::{
    cell::UnsafeCell,
    hint,
    sync::{Arc, Mutex, MutexGuard, atomic},
    thread,
};

pub use atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
