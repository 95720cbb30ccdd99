//! What the channels of one migration share.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pageshare_index::{PAGE_SIZE, PageHash, Recent};
use pageshare_wire::PageSet;
use pageshare_wire::segment::Held;

use super::Receiver;
use crate::handshake::Agreed;
use crate::record::Account;
use crate::sources::Library;

/// Longest that a channel waits for the first one to reach QEMU. It goes on after that: the stream
/// is QEMU's business, and some QEMU may open its channels in another order.
const FIRST_CHANNEL: Duration = Duration::from_secs(10);

/// One migration, from its first channel's opening to its last one's end.
pub(super) struct Session {
    pub(super) receiver: Arc<Receiver>,
    pub(super) account: Account,
    /// Nothing when sender and receiver share no scope.
    library: Option<Arc<Library>>,
    recent: Mutex<Recent>,
    open: AtomicUsize,
    /// Whether channel 0 has reached QEMU, and who waits for that.
    first: (Mutex<bool>, Condvar),
}

impl Session {
    pub(super) fn begin(receiver: Arc<Receiver>, agreed: &Agreed) -> Self {
        let shelf = receiver.shelf.as_ref().filter(|_| agreed.scope.is_some());
        let library = shelf.map(|(_, shelf)| shelf.library());
        let recent = Mutex::new(Recent::with_room_for(receiver.recent_bytes));
        let account = Account::default();
        let first = (Mutex::new(false), Condvar::new());
        Self { receiver, account, library, recent, open: AtomicUsize::new(0), first }
    }

    /// Call before connecting to QEMU for a channel, with its number.
    ///
    /// QEMU before 8.0 takes the first connection that it gets for the main channel, whatever comes
    /// on it; the sender's first one is the main channel.
    pub(super) fn await_turn(&self, channel: u32) {
        if channel == 0 {
            return;
        }
        let (reached, changed) = &self.first;
        let reached = reached.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = changed.wait_timeout_while(reached, FIRST_CHANNEL, |reached| !*reached);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    /// Call when a channel has reached QEMU, or never will.
    pub(super) fn pass_turn(&self, channel: u32) {
        if channel == 0 {
            *self.first.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
            self.first.1.notify_all();
        }
    }

    pub(super) fn open_channel(&self) {
        self.open.fetch_add(1, Ordering::SeqCst);
    }

    /// Whether it was the last one.
    pub(super) fn close_channel(&self) -> bool {
        self.open.fetch_sub(1, Ordering::SeqCst) == 1
    }

    /// Pages that have just arrived.
    pub(super) fn recent(&self) -> MutexGuard<'_, Recent> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Copies of those pages that are here.
    pub(super) fn hold(&self, hashes: Vec<PageHash>) -> Held {
        let mut known = PageSet::empty(hashes.len());
        let mut contents = Vec::new();
        let mut copy = [0; PAGE_SIZE];
        for (index, hash) in hashes.iter().enumerate() {
            let found = match self.recent().get(*hash) {
                Some(content) => {
                    copy.copy_from_slice(content);
                    true
                }
                None => self.library.as_ref().is_some_and(|library| library.copy(*hash, &mut copy)),
            };
            if found {
                known.insert(index);
                contents.extend_from_slice(&copy);
            }
        }
        Held { hashes, known, contents }
    }
}
