//! What the channels of one migration share.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pageshare_stream::RamBlock;
use pageshare_wire::adaptive::{Link, StepGain};
use pageshare_wire::hello::MigrationId;

use tracing::warn;

use super::Sender;
use super::workers::Workers;
use crate::error::Error;
use crate::handshake;
use crate::ksm::Layout;
use crate::record::{Account, Record};

/// One migration, from its first channel's opening to its last one's end.
pub(super) struct Migration {
    pub(super) sender: Arc<Sender>,
    pub(super) workers: Workers,
    pub(super) id: MigrationId,
    pub(super) account: Account,
    gains: Mutex<Gains>,
    /// Where the guest's RAM lies, once the main channel has listed its blocks.
    layout: Mutex<Option<Layout>>,
    opened: AtomicU32,
    open: AtomicUsize,
}

/// What was learnt about the link and about what pays on it.
pub(super) struct Gains {
    pub(super) link: Link,
    pub(super) ask: StepGain,
    pub(super) compress: StepGain,
}

impl Migration {
    pub(super) fn begin(sender: Arc<Sender>, workers: Workers) -> Result<Self, Error> {
        let (ask, compress) = (StepGain::new(sender.ask), StepGain::new(sender.compress));
        Ok(Self {
            sender,
            workers,
            id: MigrationId(handshake::random()?),
            account: Account::default(),
            gains: Mutex::new(Gains { link: Link::default(), ask, compress }),
            layout: Mutex::default(),
            opened: AtomicU32::new(0),
            open: AtomicUsize::new(0),
        })
    }

    pub(super) fn gains(&self) -> MutexGuard<'_, Gains> {
        self.gains.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The main channel has listed the guest's RAM blocks.
    pub(super) fn learn_blocks(&self, blocks: &[RamBlock]) {
        if let Some(ksm) = &self.sender.ksm {
            let mut known = self.layout.lock().unwrap_or_else(PoisonError::into_inner);
            match ksm.layout(blocks) {
                Ok(layout) => *known = Some(layout),
                Err(error) => warn!("the source QEMU's memory is not found: {error}"),
            }
        }
    }

    /// Whether a page may be asked for at all: with KSM's candidates, only if it is merged.
    pub(super) fn may_ask(&self, (block, offset): (&[u8], u64), content: &[u8]) -> bool {
        self.sender.ksm.as_ref().is_none_or(|ksm| {
            let mut layout = self.layout.lock().unwrap_or_else(PoisonError::into_inner);
            layout.as_mut().is_some_and(|layout| ksm.merged(layout, block, offset, content))
        })
    }

    /// The number of a new channel.
    pub(super) fn open_channel(&self) -> u32 {
        self.open.fetch_add(1, Ordering::SeqCst);
        self.opened.fetch_add(1, Ordering::SeqCst)
    }

    /// Whether it was the last one.
    pub(super) fn close_channel(&self) -> bool {
        self.open.fetch_sub(1, Ordering::SeqCst) == 1
    }

    pub(super) fn record(&self) -> Record {
        self.account.record("send", self.id.0)
    }
}
