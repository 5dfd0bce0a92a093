//! Taking locks that no panic makes useless: what they guard is whole between any two steps.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a value, also after a panic of another thread.
pub fn locked<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
