//! QEMU's migration is over, and the proxy's is not yet: the copy that it keeps may be long in
//! reaching its disk.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use tracing::{info, warn};

use crate::metrics::Metrics;
use crate::record::Record;

/// What makes no progress for so long is given up.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often is looked.
const LOOK: Duration = Duration::from_millis(100);
/// What takes no longer is not worth a word.
const SHORT: Duration = Duration::from_secs(1);

/// The migration's record, with its kept copy, if it `keeps` one: that is waited for as long as it
/// makes progress, or until the operator wants to `stop`. Nothing, if QEMU never came to the proxy.
pub(super) fn record(
    records: &Receiver<Record>,
    metrics: &Metrics,
    keeps: bool,
    stop: &AtomicBool,
) -> Option<Record> {
    let began = Instant::now();
    let (mut progress, mut said) = (Progress { bytes: 0, since: began }, false);
    let bar = ProgressBar::new_spinner();
    loop {
        match records.recv_timeout(LOOK) {
            Ok(record) => {
                bar.finish_and_clear();
                return Some(record);
            }
            Err(RecvTimeoutError::Disconnected) => return None,
            Err(RecvTimeoutError::Timeout) => {}
        }
        let account = metrics.under_way();
        if account.is_none() && began.elapsed() > SHORT {
            return None;
        }
        let bytes = account.as_ref().map_or(0, |account| account.bytes_copied());
        let stopped = stop.swap(false, Ordering::SeqCst);
        let idle = progress.is_idle(bytes, Instant::now());
        if !stopped && !idle {
            if keeps && !said && began.elapsed() > SHORT {
                info!("the copy of this VM is still being written: Ctrl-C gives it up");
                said = true;
            }
            bar.set_message(format!("{} MiB of the copy are written", bytes >> 20));
            bar.tick();
            continue;
        }
        bar.finish_and_clear();
        let account = account?;
        let why = if stopped {
            "as you wish".into()
        } else {
            format!("nothing happens for {PATIENCE:?}")
        };
        if keeps {
            warn!("the copy of this VM is given up, {why}; its return will cost more");
        } else {
            warn!("the receiving proxy is not waited for any longer, {why}");
        }
        account.forgo_copy();
        // A disk that takes anything lets the copy be removed.
        return Some(records.recv_timeout(SHORT).unwrap_or_else(|_| account.record()));
    }
}

/// How far a copy is, and since when.
struct Progress {
    bytes: u64,
    since: Instant,
}

impl Progress {
    /// Whether there has been none for too long by `now`.
    fn is_idle(&mut self, bytes: u64, now: Instant) -> bool {
        if bytes != self.bytes {
            *self = Self { bytes, since: now };
        }
        now.duration_since(self.since) > PATIENCE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_waited_for_as_long_as_it_makes_progress() {
        let begin = Instant::now();
        let mut progress = Progress { bytes: 0, since: begin };
        for step in 1..100 {
            assert!(!progress.is_idle(u64::from(step), begin + PATIENCE * step));
        }
        assert!(!progress.is_idle(99, begin + PATIENCE * 100));
        assert!(progress.is_idle(99, begin + PATIENCE * 101));
    }
}
