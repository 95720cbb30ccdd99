//! What the channels of one migration share.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pageshare_index::{PAGE_SIZE, PageHash, Recent};
use pageshare_wire::PageSet;
use pageshare_wire::segment::Held;

use super::Receiver;
use crate::handshake::Agreed;
use crate::record::Account;
use crate::sources::Library;

/// One migration, from its first channel's opening to its last one's end.
pub(super) struct Session {
    pub(super) receiver: Arc<Receiver>,
    pub(super) account: Account,
    /// Nothing when sender and receiver share no scope.
    library: Option<Arc<Library>>,
    recent: Mutex<Recent>,
    open: AtomicUsize,
}

impl Session {
    pub(super) fn begin(receiver: Arc<Receiver>, agreed: &Agreed) -> Self {
        let shelf = receiver.shelf.as_ref().filter(|_| agreed.scope.is_some());
        let library = shelf.map(|(_, shelf)| shelf.library());
        let recent = Mutex::new(Recent::with_room_for(receiver.recent_bytes));
        let account = Account::default();
        Self { receiver, account, library, recent, open: AtomicUsize::new(0) }
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
