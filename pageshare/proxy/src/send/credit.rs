//! How much of the stream may be taken.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pageshare_wire::window::Window;

use crate::buffers::SEGMENT_BYTES;
use crate::fuse::Fuse;

/// The window, and those who wait for room in it.
pub(super) struct Credit {
    window: Mutex<Window>,
    changed: Condvar,
    began: Instant,
}

impl Credit {
    pub(super) fn new(agreed: u32, downtime_limit: Duration, round_trip: Duration) -> Self {
        let window = Mutex::new(Window::new(agreed, downtime_limit, round_trip));
        Self { window, changed: Condvar::new(), began: Instant::now() }
    }

    fn locked(&self) -> MutexGuard<'_, Window> {
        self.window.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The peer's account of what QEMU has accepted in all; returns how much more that is than
    /// before, or nothing if it cannot be true.
    #[must_use]
    pub(super) fn accepted(&self, bytes: u64) -> Option<u64> {
        let more = {
            let mut window = self.locked();
            let before = window.in_flight();
            let sound = window.credit(bytes, self.began.elapsed());
            sound.then(|| before - window.in_flight())
        };
        self.changed.notify_all();
        more
    }

    /// So many bytes of the stream were taken; returns how many are in flight now.
    pub(super) fn takes(&self, bytes: usize) -> u64 {
        let mut window = self.locked();
        window.took(bytes as u64);
        window.in_flight()
    }

    /// A segment waits for the Answer to what was asked for it.
    pub(super) fn waits(&self) {
        self.locked().waits();
    }

    /// So many bytes of the stream are about to be sent.
    pub(super) fn sends(&self, bytes: usize) {
        self.locked().sends(bytes as u64);
    }

    /// A question has been answered, for which a segment has waited or not.
    pub(super) fn answered(&self, after: Duration, waited: bool) {
        self.locked().answered(after, waited);
    }

    /// So many bytes are kept until the peer has them.
    pub(super) fn keeps(&self, bytes: usize) {
        self.locked().keeps(bytes as u64);
    }

    /// So many bytes of them are kept no longer.
    pub(super) fn drops(&self, bytes: usize) {
        self.locked().drops(bytes as u64);
        self.changed.notify_all();
    }

    /// Wakes whoever waits, to look at the fuse.
    pub(super) fn wake(&self) {
        self.changed.notify_all();
    }

    /// Waits until a segment has room in the window, or the fuse has blown.
    pub(super) fn wait_for_room(&self, fuse: &Fuse) {
        let mut window = self.locked();
        while window.room() < SEGMENT_BYTES as u64 && !fuse.has_blown() {
            // The limit is for a fuse that blows between the look at it and the wait.
            let limit = Duration::from_millis(200);
            window = self
                .changed
                .wait_timeout(window, limit)
                .map_or_else(|poisoned| poisoned.into_inner().0, |(window, _)| window);
        }
    }
}
