//! Signals that ask a program to end.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::error::Error;
use crate::threads;

/// From now on does `work`, in a thread of its own, at each signal that asks for an end. One that
/// whoever started this program had it ignore, as `nohup` has the hangup, stays ignored.
pub(crate) fn on_end(mut work: impl FnMut() + Send + 'static) -> Result<(), Error> {
    let ignored = ignored(&std::fs::read_to_string("/proc/self/status").unwrap_or_default());
    let heard = [SIGHUP, SIGINT, SIGTERM].into_iter().filter(|signal| ignored & bit(*signal) == 0);
    let mut signals = Signals::new(heard)
        .map_err(|error| Error::Refused(format!("cannot catch signals: {error}")))?;
    threads::start(move || signals.forever().for_each(|_| work())).map(drop)
}

fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// The signals that a process ignores, by what `/proc` says of it; none, if it does not say.
fn ignored(status: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
