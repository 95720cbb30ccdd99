//! What the channels of one migration share.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Instant;

use pageshare_index::PageHash;
use pageshare_stream::RamBlock;
use pageshare_wire::adaptive::{Gains, Policy, Written};
use pageshare_wire::hello::MigrationId;
use pageshare_wire::segment::Draft;
use tracing::{debug, warn};

use super::versions::Versions;
use super::workers::{Done, Job, Pages, Workers};
use super::{Candidates, Sender};
use crate::blocks::BlockNames;
use crate::buffers::Buffers;
use crate::command_line;
use crate::error::Error;
use crate::handshake::{self, Agreed};
use crate::kept::{Earlier, Keeping};
use crate::ksm::Ksm;
use crate::link::{Link, Sent};
use crate::record::{Account, Record};
use crate::socket::Party;
use crate::sources::is_qemu;
use crate::threads::locked;

/// Channels that shake hands with the receiver at once. It has room for twice as many strangers, and of
/// more the oldest would give way to the newest.
const SHAKING: usize = 8;

/// One migration, from its first channel's opening to its last one's end.
pub(super) struct Migration {
    pub(super) sender: Arc<Sender>,
    pub(super) workers: Workers,
    pub(super) id: MigrationId,
    /// Whose migration it is: all its channels come from there.
    pub(super) party: Party,
    pub(super) account: Arc<Account>,
    pub(super) buffers: Buffers,
    began: Instant,
    gains: Mutex<Gains>,
    ksm: Option<Mutex<Ksm>>,
    versions: Option<Mutex<Versions>>,
    /// The copy to which differences are taken.
    earlier: Option<Arc<Earlier>>,
    pub(super) keeping: Keeping,
    /// RAM blocks, which have the numbers that `earlier` gives them.
    blocks: Mutex<BlockNames>,
    opened: AtomicU32,
    open: AtomicUsize,
    /// How many channels shake hands, and who waits for his turn.
    shaking: (Mutex<usize>, Condvar),
    /// The channel that had not spoken when it was opened, and has not turned out to be multifd's since.
    silent: Mutex<Option<u32>>,
}

impl Migration {
    /// A migration whose first connection comes from process `pid`, if that is known.
    pub(super) fn begin(
        sender: Arc<Sender>,
        workers: Workers,
        pid: Option<u32>,
        party: Party,
    ) -> Result<Self, Error> {
        let ksm = match (sender.ksm_pid, sender.candidates) {
            (Some(pid), _) => Some(pid),
            (None, Candidates::Ksm) => pid.filter(|pid| is_qemu(*pid)),
            (None, _) => None,
        };
        if sender.candidates == Candidates::Ksm && ksm.is_none() {
            warn!(
                "the source QEMU's process is not known, so no page is asked for: give --ksm-pid"
            );
        }
        let ksm = ksm.and_then(|pid| {
            Ksm::open(pid).inspect_err(|error| warn!("{error}; the migration goes on without")).ok()
        });
        let ksm = ksm.map(Mutex::new);
        let kept = sender.kept.as_ref().zip(sender.scope.as_ref());
        let earlier = kept.and_then(|(place, scope)| Earlier::open(place, scope)).map(Arc::new);
        let blocks = earlier.as_ref().map(|earlier| earlier.blocks().clone()).unwrap_or_default();
        let versions =
            (sender.delta_bytes > 0).then(|| Versions::with_room_for(sender.delta_bytes));
        let id = MigrationId(handshake::random()?);
        let account = sender.metrics.begin("send", id.0);
        if let Some(name) = pid.filter(|pid| is_qemu(*pid)).and_then(command_line::name) {
            account.is_of(&name);
        }
        let (place, scope) = (sender.keep.as_ref(), sender.scope.as_ref());
        Ok(Self {
            keeping: Keeping::begin(place, scope, Arc::clone(&account)),
            account,
            buffers: Buffers::default(),
            workers,
            id,
            party,
            silent: Mutex::new(None),
            began: Instant::now(),
            gains: Mutex::new(Gains::new(sender.ask, sender.compress)),
            ksm,
            versions: versions.map(Mutex::new),
            earlier,
            blocks: Mutex::new(blocks),
            opened: AtomicU32::new(0),
            open: AtomicUsize::new(0),
            shaking: (Mutex::new(0), Condvar::new()),
            sender,
        })
    }

    pub(super) fn gains(&self) -> MutexGuard<'_, Gains> {
        locked(&self.gains)
    }

    /// Seconds from the migration's beginning to this moment.
    pub(super) fn seconds_to(&self, moment: Instant) -> f64 {
        moment.saturating_duration_since(self.began).as_secs_f64()
    }

    /// `bytes` were written to a link, which stand for so many of the stream.
    pub(super) fn wrote(&self, bytes: usize, stream: usize, sent: Sent) {
        let span = (self.seconds_to(sent.began), self.seconds_to(sent.ended));
        self.gains().link.wrote(Written { bytes, span, waited: sent.waited, stream });
    }

    /// The main channel has listed the guest's RAM blocks.
    pub(super) fn learn_blocks(&self, blocks: &[RamBlock]) {
        if let Some(ksm) = &self.ksm {
            locked(ksm).learn(blocks);
        }
    }

    /// Has a segment encoded, compressed if that pays; a `whole` one is to show the link's speed.
    pub(super) fn encode(
        &self,
        draft: Draft,
        hashes: Vec<PageHash>,
        pages: Pages,
        whole: bool,
        done: mpsc::SyncSender<Done>,
    ) {
        let adapts = self.sender.compress == Policy::Adaptive;
        let noise = match &pages {
            Pages::Answered(answer, _) => adapts && draft.is_noise(&answer.known),
            // What is missing of them is compressed when it is supplied.
            Pages::AtOnce => false,
        };
        let compress = self.gains().compresses(whole, noise);
        self.workers.encode(Job { draft, hashes, pages, compress, noise, done });
    }

    /// Whether KSM has merged a page; nothing when KSM is not looked at.
    pub(super) fn merged(&self, (block, offset): (&[u8], u64), content: &[u8]) -> Option<bool> {
        self.ksm.as_ref().map(|ksm| locked(ksm).merged(block, offset, content))
    }

    /// The number of a RAM block.
    pub(super) fn block(&self, name: &[u8]) -> u32 {
        locked(&self.blocks).number(name)
    }

    /// What pages held when the VM was last copied here, if differences to that are sent.
    pub(super) fn earlier(&self) -> Option<&Arc<Earlier>> {
        self.earlier.as_ref()
    }

    /// What pages held when they were sent last, if differences to that are sent.
    pub(super) fn versions(&self) -> Option<MutexGuard<'_, Versions>> {
        self.versions.as_ref().map(locked)
    }

    /// The number of a new channel, which has spoken or stays silent.
    pub(super) fn open_channel(&self, silent: bool) -> u32 {
        self.open.fetch_add(1, Ordering::SeqCst);
        let number = self.opened.fetch_add(1, Ordering::SeqCst);
        if silent {
            *locked(&self.silent) = Some(number);
        }
        number
    }

    /// A channel is multifd's: if it was silent, it was merely slow.
    pub(super) fn is_multifd(&self, channel: u32) {
        locked(&self.silent).take_if(|silent| *silent == channel);
    }

    /// Connects a channel to the receiver, when it is its turn.
    ///
    /// # Errors
    /// As [`Sender::connect`].
    pub(super) fn connect(&self, channel: u32) -> Result<(Link, Agreed), Error> {
        let (shaking, fewer) = &self.shaking;
        let turn = fewer.wait_while(locked(shaking), |shaking| *shaking >= SHAKING);
        *turn.unwrap_or_else(PoisonError::into_inner) += 1;
        let greeted = self.sender.connect(self.id, channel, self.sender.scope.as_ref());
        *locked(shaking) -= 1;
        fewer.notify_one();
        greeted
    }

    /// Whether the one that may be silent has been opened.
    pub(super) fn has_silent_channel(&self) -> bool {
        locked(&self.silent).is_some()
    }

    /// Whether it was the last one.
    pub(super) fn close_channel(&self) -> bool {
        self.open.fetch_sub(1, Ordering::SeqCst) == 1
    }

    /// The migration is over: a copy of a VM that has left is finished. Nothing, if it was none: who
    /// connected had nothing to say.
    pub(super) fn end(&self) -> Option<Record> {
        debug!("learnt: {:?}", self.gains());
        self.account.ends();
        self.keeping.end(self.account.has_arrived().then(|| locked(&self.blocks).clone()));
        self.sender.metrics.end(&self.account)
    }
}
