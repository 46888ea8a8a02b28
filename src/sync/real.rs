//! The std half of what std and loom do not name alike.

use std::cell;

/// [`std::cell::UnsafeCell`] with loom's interface; it costs nothing.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct UnsafeCell<T>(cell::UnsafeCell<T>);

impl<T> UnsafeCell<T> {
    /// A cell that holds `value`.
    pub const fn new(value: T) -> Self {
        Self(cell::UnsafeCell::new(value))
    }

    /// Hands `f` a pointer through which it may read the value; whoever dereferences it answers for the absence of a
    /// concurrent write.
    #[inline(always)]
    pub fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        f(self.0.get().cast_const())
    }

    /// Hands `f` a pointer through which it may read and write the value; whoever dereferences it answers for the
    /// absence of any other access meanwhile.
    #[inline(always)]
    pub fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }

    /// The value, taken out of the cell.
    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }
}
