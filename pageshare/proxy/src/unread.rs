//! What passes through a channel without its pages being seen: how much, from where on, and why.

use std::sync::atomic::Ordering;

use pageshare_stream::{Parser, Verbatim, Why};
use tracing::{info, warn};

use crate::record::{Account, VerbatimChannel};

/// Follows one channel's parser.
#[derive(Debug, Default)]
pub(crate) struct Unread {
    counted: u64,
    compressed: bool,
    verbatim: bool,
}

impl Unread {
    /// Counts, and says once, what has passed unread since the last look.
    pub(crate) fn look(&mut self, parser: &Parser, channel: u32, account: &Account) {
        let bytes = parser.unread();
        account.counts.verbatim_bytes.fetch_add(bytes - self.counted, Ordering::Relaxed);
        self.counted = bytes;
        for (found, told) in
            [(parser.compressed(), &mut self.compressed), (parser.verbatim(), &mut self.verbatim)]
        {
            if let Some(found) = found
                && !std::mem::replace(told, true)
            {
                tell(found, channel, account);
            }
        }
    }
}

fn tell(found: &Verbatim, channel: u32, account: &Account) {
    let Verbatim { at, why } = found;
    if matches!(why, Why::Postcopy(_)) {
        info!("channel {channel}: {why}; what still travels cannot be saved");
    } else if why.hides_pages() && !(*why == Why::Magic && account.is_in_postcopy()) {
        warn!(
            "channel {channel} is passed on unread from byte {at} on, so nothing is saved: {why}"
        );
    }
    account.verbatim(VerbatimChannel {
        channel,
        at: *at,
        hides_pages: why.hides_pages(),
        why: why.to_string(),
    });
}
