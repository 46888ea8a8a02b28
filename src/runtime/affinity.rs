//! Pinning threads to cores.

use std::sync::Once;

/// Cores that a set of the system's has room for; a greater number is not refused by it but ends the process.
const CORES_MAX: usize = 1024;

/// The cores that this process may use, in the order of their numbers.
#[must_use]
pub fn available_cores() -> Vec<usize> {
    let cores: Vec<_> =
        core_affinity::get_core_ids().unwrap_or_default().into_iter().map(|core| core.id).collect();
    if cores.is_empty() { vec![0] } else { cores }
}

/// Pins the calling thread. If the system refuses (as some containers do), it says so once and goes on.
pub fn pin_current_thread(core: usize) {
    static REFUSED: Once = Once::new();
    let is_pinned = core < CORES_MAX && core_affinity::set_for_current(core_affinity::CoreId { id: core });
    if !is_pinned {
        REFUSED.call_once(|| {
            eprintln!("stoplog: a thread cannot be pinned to core {core} here; going on without")
        });
    }
}
