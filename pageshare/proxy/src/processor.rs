//! Processor time, which unlike the clock does not count what else the processor did meanwhile.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// What this thread has used of a processor since it began.
pub(crate) fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    // The kernel counts it from zero, and its nanoseconds fit 30 bits.
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}
