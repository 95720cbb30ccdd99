//! What the channels of one migration share.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use pageshare_index::{HashKey, PAGE_SIZE, PageHash, Recent};
use pageshare_wire::PageSet;
use pageshare_wire::ask::{Answer, Ask};
use pageshare_wire::hello::MigrationId;
use pageshare_wire::segment::Held;
use tracing::info;

use super::Receiver;
use super::qemu::Seat;
use super::received::Received;
use super::search::Search;
use super::shelf::Shared;
use crate::buffers::Buffers;
use crate::counters::Counters;
use crate::error::Error;
use crate::handshake::Agreed;
use crate::kept::Keeping;
use crate::record::{Account, Record, add};
use crate::threads::locked;

/// Longest that a channel waits for the first one to reach QEMU. It goes on after that: the stream
/// is QEMU's business, and some QEMU may open its channels in another order.
const FIRST_CHANNEL: Duration = Duration::from_secs(10);

/// The migrations under way.
#[derive(Default)]
pub(super) struct Sessions {
    open: Mutex<HashMap<MigrationId, Open>>,
    seat: Seat,
}

/// How many channels one has, and what they share once the first of them has begun it.
#[derive(Default)]
struct Open {
    channels: usize,
    session: Arc<OnceLock<Session>>,
}

impl Sessions {
    /// Runs a channel of a session that it may be the first or the last of. Beginning and ending one
    /// takes as long as its files do, for which no other session waits.
    pub(super) fn with(
        &self,
        (receiver, agreed, known): (&Arc<Receiver>, &Agreed, bool),
        run: impl FnOnce(&Session),
    ) -> Option<Record> {
        let shared = {
            let mut open = self.open();
            let there = open.entry(agreed.migration).or_default();
            there.channels += 1;
            Arc::clone(&there.session)
        };
        let begin = || Session::begin(Arc::clone(receiver), self.seat.clone(), agreed, known);
        let session = shared.get_or_init(begin);
        run(session);
        let mut open = self.open();
        let last = open.get_mut(&agreed.migration).is_none_or(|there| {
            there.channels -= 1;
            there.channels == 0
        });
        if last {
            open.remove(&agreed.migration);
        }
        drop(open);
        if last { session.end() } else { None }
    }

    fn open(&self) -> MutexGuard<'_, HashMap<MigrationId, Open>> {
        locked(&self.open)
    }
}

/// One migration, from its first channel's opening to its last one's end.
pub(super) struct Session {
    pub(super) receiver: Arc<Receiver>,
    pub(super) account: Arc<Account>,
    /// The scope that sender and receiver share, if they share one.
    pub(super) scope: Option<String>,
    /// What may be shared in it.
    shared: Option<Shared>,
    recent: Mutex<Recent>,
    /// Of the copies that are held for segments.
    pub(super) buffers: Buffers,
    received: Mutex<Received>,
    pub(super) keeping: Keeping,
    id: MigrationId,
    seat: Seat,
    /// Whether it is known to be a sender's: by what was shown, or by a first record.
    known: AtomicBool,
    /// Whether channel 0 has reached QEMU, and who waits for that.
    first: (Mutex<bool>, Condvar),
}

impl Session {
    pub(super) fn begin(receiver: Arc<Receiver>, seat: Seat, agreed: &Agreed, known: bool) -> Self {
        let shelf =
            receiver.shelves.iter().find(|(scope, _)| agreed.scope.as_ref() == Some(&scope.name));
        let account = receiver.metrics.begin("receive", agreed.migration.0);
        account.speaks(agreed.version);
        let (place, scope) = (receiver.keep.as_ref(), shelf.map(|(scope, _)| scope));
        Self {
            keeping: Keeping::begin(place, scope, Arc::clone(&account)),
            account,
            scope: agreed.scope.clone(),
            shared: shelf.map(|(_, shelf)| shelf.shared()),
            recent: Mutex::new(Recent::with_room_for(receiver.recent_bytes)),
            buffers: Buffers::default(),
            received: Mutex::default(),
            id: agreed.migration,
            seat,
            known: AtomicBool::new(known),
            first: (Mutex::new(false), Condvar::new()),
            receiver,
        }
    }

    pub(super) fn is_known(&self) -> bool {
        self.known.load(Ordering::SeqCst)
    }

    /// A record has come.
    pub(super) fn becomes_known(&self) {
        self.known.store(true, Ordering::SeqCst);
    }

    /// Call before anything is done for QEMU.
    ///
    /// # Errors
    /// If another migration has it.
    pub(super) fn take_qemu(&self) -> Result<(), Error> {
        self.seat.take(self.id)
    }

    /// QEMU has hung up.
    pub(super) fn leave_qemu(&self) {
        self.seat.leave(self.id);
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
        let reached = locked(reached);
        let waited = changed.wait_timeout_while(reached, FIRST_CHANNEL, |reached| !*reached);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    /// Whether no channel has reached QEMU yet.
    pub(super) fn first_to_reach_qemu(&self) -> bool {
        !*locked(&self.first.0)
    }

    /// Call when a channel has reached QEMU, or never will.
    pub(super) fn pass_turn(&self, channel: u32) {
        if channel == 0 {
            *locked(&self.first.0) = true;
            self.first.1.notify_all();
        }
    }

    /// The last channel has closed: a copy of a VM that has arrived is finished. Nothing, if it was
    /// no migration: an estimate, or a connection of nobody who had anything to say.
    pub(super) fn end(&self) -> Option<Record> {
        self.leave_qemu();
        self.account.ends();
        self.keeping.end(self.account.has_arrived().then(|| self.received().names().clone()));
        let record = self.receiver.metrics.end(&self.account);
        let asked = self.account.record().counts.pages_asked;
        if record.is_none() && asked > 0 {
            info!("answered an estimate over {asked} pages");
        }
        record
    }

    /// Pages that have just arrived.
    pub(super) fn recent(&self) -> MutexGuard<'_, Recent> {
        locked(&self.recent)
    }

    /// Where pages that have arrived are found again.
    pub(super) fn received(&self) -> MutexGuard<'_, Received> {
        locked(&self.received)
    }

    /// Copies of those pages that are here, and what to answer.
    pub(super) fn hold(&self, ask: Ask, key: &HashKey) -> (Held, Answer) {
        let (Search { known, contents, .. }, sources) = self.find(&ask.hashes, key);
        // The earlier version of a page that is here is of no use.
        let wanted: Vec<(usize, u16, PageHash)> = (0..)
            .zip(&ask.bases)
            .filter(|(_, (page, _))| !known.contains((*page).into()))
            .map(|(number, (page, hash))| (number, *page, *hash))
            .collect();
        let earlier: Vec<PageHash> = wanted.iter().map(|(_, _, hash)| *hash).collect();
        let (versions, _) = self.find(&earlier, key);
        let mut answer = Answer { known: known.clone(), bases: PageSet::empty(ask.bases.len()) };
        let mut bases = Vec::new();
        let pages = versions.contents.as_chunks::<PAGE_SIZE>().0;
        for (at, (number, page, _)) in wanted.into_iter().enumerate() {
            if versions.known.contains(at) {
                answer.bases.insert(number);
                bases.push((page, Box::new(pages[at])));
            }
        }
        self.buffers.give(versions.contents);
        let Counters { found_recent, found_received, found_kept, found_indexed, .. } =
            &self.account.counts;
        let counters = [found_recent, found_received, found_kept, found_indexed];
        counters.into_iter().zip(sources).for_each(|(counter, count)| add(counter, count));
        let held = Held { hashes: ask.hashes, known, contents, bases, supplied: Vec::new() };
        (held, answer)
    }

    /// Copies the pages with these hashes out of wherever they are.
    fn find<'a>(&self, hashes: &'a [PageHash], key: &HashKey) -> (Search<'a>, [usize; 4]) {
        /// Pages with one prefix that an index holds, at most.
        const ALIKE: usize = 2;
        if hashes.is_empty() {
            // Most questions name no earlier version.
            return (Search::begin(hashes, Vec::new()), [0; 4]);
        }
        let mut search = Search::begin(hashes, self.buffers.take_pages(hashes.len()));
        let mut sources = [0; 4];
        {
            let recent = self.recent();
            sources[0] = search.take_each(None, |hash, copy| {
                recent.get(hash).is_some_and(|content| {
                    copy.copy_from_slice(content);
                    true
                })
            });
        }
        // Other channels' pages are noted while QEMU's memory is read. A place that is no longer its
        // page's by then does no harm: the copy is hashed, and only the right hash counts.
        sources[1] = search.take(Some(key), |wanted, pages| {
            let located = self.received().locate(wanted, key);
            located.map_or_else(Vec::new, |(memory, places)| memory.pages(&places, pages))
        });
        if let Some(Shared { kept, library }) = &self.shared {
            for nth in 0..ALIKE {
                sources[2] += search.take_each(Some(key), |hash, copy| kept.read(hash, nth, copy));
                if let Some(library) = library {
                    sources[3] +=
                        search.take(Some(key), |wanted, pages| library.read(wanted, nth, pages));
                }
            }
        }
        (search, sources)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use pageshare_index::ScopeKey;
    use pageshare_stream::RamBlock;
    use pageshare_wire::Versions;

    use super::super::addresses::Addresses;
    use super::*;
    use crate::metrics::Metrics;

    fn session(key: &HashKey) -> Session {
        let receiver = Receiver {
            qemu: "unix:/nowhere".parse().unwrap(),
            tls: None,
            qemu_pid: None,
            shelves: Vec::new(),
            keep: None,
            recent_bytes: 0,
            window: 1 << 20,
            versions: Versions::OURS,
            metrics: Metrics::default(),
        };
        let agreed = Agreed {
            version: Versions::OURS.newest,
            migration: MigrationId([0; 16]),
            channel: 0,
            window: 1 << 20,
            round_trip: Duration::ZERO,
            hash_key: key.clone(),
            scope: None,
        };
        Session::begin(Arc::new(receiver), Seat::default(), &agreed, true)
    }

    #[test]
    fn a_page_that_has_been_replaced_in_qemu_is_not_found() {
        let _turn = crate::guest_memory::TURNS.lock();
        let key = ScopeKey([7; 32]).hash_key();
        let session = session(&key);
        let mut ram = crate::guest_memory::mapped();
        let from = ram.as_ptr().align_offset(PAGE_SIZE);
        for (number, page) in (1_u64..).zip(ram[from..].as_chunks_mut::<PAGE_SIZE>().0) {
            page[..8].copy_from_slice(&number.to_le_bytes());
        }
        // Where QEMU would have mapped it.
        let from = from + (ram[from..].as_ptr()).align_offset(2 << 20);
        let page: [u8; PAGE_SIZE] = *ram[from..].first_chunk().unwrap();
        let hashes = [key.hash(&page)];
        {
            let mut received = session.received();
            received.arrives_in(Some(std::process::id()));
            received.learn(&[RamBlock { name: "ram".into(), bytes: 8 << 20 }]);
            let block = received.names().number(b"ram");
            received.note(hashes[0], block, 0);
        }
        let (search, sources) = session.find(&hashes, &key);
        assert_eq!((search.known.count(), sources), (1, [0, 1, 0, 0]));
        assert_eq!(search.contents[..PAGE_SIZE], page);
        std::hint::black_box(&mut ram)[from + 100] ^= 1;
        let (search, sources) = session.find(&hashes, &key);
        assert_eq!((search.known.count(), sources), (0, [0; 4]));
    }

    #[test]
    fn a_channel_is_followed_while_another_looks_pages_up() {
        let session = &session(&ScopeKey([7; 32]).hash_key());
        let stream = b"QEVM\0\0\0\x03\x01\0\0\0\x02\x03ram\0\0\0\0\0\0\0\x04";
        let page = [&0x28_u64.to_be_bytes()[..], &[7; PAGE_SIZE]].concat();
        let (done, followed) = mpsc::channel();
        std::thread::scope(|threads| {
            let looking_up = session.received();
            threads.spawn(move || {
                let bytes = [&stream[..], &page].concat();
                Addresses::of_channel(1).follow(&bytes, &[], session);
                done.send(()).unwrap();
            });
            // What only a hang exceeds.
            let ended = followed.recv_timeout(Duration::from_secs(60));
            drop(looking_up);
            ended.expect("it has not waited");
        });
    }
}
