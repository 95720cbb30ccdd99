//! Threads that may not be had: a process at its limit must say so, and not end with every migration.
//! And what they share.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle, Scope, ScopedJoinHandle};

use crate::error::Error;

/// Starts a thread.
pub(crate) fn start<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, Error> {
    Builder::new().spawn(work).map_err(Error::Thread)
}

/// Starts a thread that ends within `scope`.
pub(crate) fn start_in<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>, Error> {
    Builder::new().spawn_scoped(scope, work).map_err(Error::Thread)
}

/// What threads share is whole between any two changes of it, also where one has panicked.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
