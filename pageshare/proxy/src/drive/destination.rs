//! The destination's monitor, at the end of a way that may break and come back, such as `ssh -L`.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use serde_json::json;
use tracing::{info, warn};

use super::decide::{Loss, Seen, There};
use super::monitor::Monitor;
use super::{GONE, look_while};
use crate::address::Address;
use crate::error::Error;

pub(super) struct Destination {
    monitor: Monitor,
    /// What is known while it cannot be asked, and since when.
    lost: Option<(Loss, Instant)>,
}

impl Destination {
    pub(super) fn new(address: Address, patience: Duration) -> Self {
        let monitor =
            Monitor::new(("the destination QEMU's monitor", "goes to"), address, None, patience);
        Self { monitor, lost: None }
    }

    pub(super) fn monitor(&mut self) -> &mut Monitor {
        &mut self.monitor
    }

    /// What it says now, or what is known instead; `waits` is as in [`crate::qmp::Qmp::execute_while`].
    pub(super) fn look(&mut self, waits: &mut dyn FnMut(Duration) -> bool) -> There {
        if let Some((how @ Loss::Ended, _)) = self.lost {
            return There::Lost { how, long: true };
        }
        let error = match self.monitor.ask(|qmp| look_while(qmp, waits)) {
            Ok(seen) => return self.found(seen),
            Err(error) => error,
        };
        let since = self.lost.map_or_else(Instant::now, |(_, since)| since);
        if self.lost.is_none() {
            warn!("{error}");
        }
        let how = if nobody_listens(&error) { Loss::Refused } else { Loss::Silent };
        self.lost = Some((how, since));
        There::Lost { how, long: since.elapsed() > GONE }
    }

    /// Tells its QEMU to end, whose guest nobody may run any more. If it gives no answer, the next
    /// look shows whether it has.
    pub(super) fn discard(&mut self) {
        if self.monitor.execute("quit", &json!({})).is_ok() {
            self.lost = Some((Loss::Ended, Instant::now()));
        }
    }

    fn found(&mut self, seen: Seen) -> There {
        if self.lost.take().is_some() {
            info!("the destination QEMU's monitor at {} answers again", self.monitor.address());
        }
        There::Seen(seen)
    }
}

fn nobody_listens(error: &Error) -> bool {
    let Error::Connect { source, .. } = error else { return false };
    matches!(source.kind(), ErrorKind::ConnectionRefused | ErrorKind::NotFound)
}
