//! The link's speed.

use super::as_f64;

/// The link is taken for this fast, in bytes a second, until it has shown its speed: 1 Gbit/s.
const FIRST_GUESS: f64 = 125e6;
/// No link is taken for faster, so that it is soon taken for slow when it begins to hinder.
const FASTEST: f64 = 10e9;
/// What the socket's buffer takes, whatever the link does.
const BUFFER: usize = 512 << 10;
/// The speed is judged by so many bytes at once: what the link has carried of them is known to
/// within a third, for the buffer was somewhere between empty and full before, and is after.
const RUN_BYTES: usize = 3 * BUFFER;
/// What a buffer that has just been full holds at least. Where nothing was written for as long as the
/// link takes for that, it is held to have run dry.
const HELD: usize = 256 << 10;
/// A link whose buffer was full is faster than it was taken for where it has carried so many times
/// that: what the buffer holds is not known to the byte.
const CLEARLY: f64 = 1.5;
/// Stream bytes that go whole to show the link's speed: a run, whatever it begins with.
const PROBE_BYTES: usize = RUN_BYTES + BUFFER;
/// Stream bytes before the link is first tried with all of them.
const FIRST_PROBE: usize = 4 << 20;
/// Stream bytes from one such trial to the next.
const PROBE: usize = 256 << 20;

/// One write to the link.
#[derive(Debug, Clone, Copy)]
pub struct Written {
    /// Bytes written.
    pub bytes: usize,
    /// When the write began and ended, in seconds since any fixed time.
    pub span: (f64, f64),
    /// The socket's buffer was full at some point of the write.
    pub waited: bool,
    /// Stream bytes that they stand for.
    pub stream: usize,
}

/// The link's speed, the receiver's included.
///
/// How long a write takes says little: up to a buffer's worth it goes at the speed of memory. But
/// from one write that met a full buffer to a later one, the link was never idle, unless the buffer
/// ran dry in between; so it has carried what was written, give or take a buffer: a writer that the
/// scheduler keeps waiting finds the buffer as empty as may be. And where bytes go faster than the
/// link was taken to be, more of them than a buffer holds, it is faster.
#[derive(Debug, Clone, Default)]
pub struct Link {
    speed: Option<f64>,
    /// When a write that met a full buffer ended, if the buffer has not run dry since.
    full: Option<f64>,
    /// Bytes written since then.
    carried: usize,
    /// When the last write ended, and the seconds since the last full buffer in which none ran.
    ended: f64,
    idle: f64,
    /// When the present run of bytes that went whole began, its bytes, and whether they filled the
    /// buffer.
    run: Option<(f64, usize, bool)>,
    /// Stream bytes that may yet go whole to show the link's speed.
    budget: usize,
    since_probe: usize,
    probes: u32,
    /// It has shown its speed since the last such trial was due.
    shown: bool,
}

impl Link {
    /// A segment's or question's bytes were written.
    pub fn wrote(&mut self, written: Written) {
        let (begin, end) = written.span;
        self.went(written);
        self.idle += (begin - self.ended).max(0.0);
        self.ended = end;
        if let Some(since) = self.full {
            self.carried += written.bytes;
            if written.waited && self.carried >= RUN_BYTES && end > since {
                let least = as_f64(self.carried - BUFFER) / (end - since);
                let most = as_f64(self.carried + BUFFER) / (end - since);
                self.speed = Some(self.speed().clamp(least, most).min(FASTEST));
                self.shown = true;
                (self.full, self.carried) = (Some(end), 0);
            } else if !written.waited && self.idle > as_f64(HELD) / self.speed() {
                self.full = None;
            }
        }
        if written.waited {
            self.idle = 0.0;
            if self.full.is_none() {
                (self.full, self.carried) = (Some(end), 0);
            }
        }
    }

    /// Follows bytes that go whole: of a run of them, what the buffer cannot hold has been carried.
    fn went(&mut self, written: Written) {
        if written.bytes < written.stream / 4 * 3 {
            // Saved bytes do not show what the link would do with all of them.
            self.run = None;
            return;
        }
        let (begin, end) = written.span;
        let (since, bytes, waited) = self.run.unwrap_or((begin, 0, false));
        let (bytes, waited) = (bytes + written.bytes, waited || written.waited);
        self.run = Some((since, bytes, waited));
        if bytes < RUN_BYTES {
            return;
        }
        self.run = None;
        let carried = as_f64(bytes - BUFFER) / (end - since).max(1e-9);
        let faster = if waited {
            // The buffer was full, so this is about the link's speed.
            carried > CLEARLY * self.speed()
        } else {
            carried > self.speed()
        };
        if faster {
            let speed = if waited { carried } else { 2.0 * self.speed() };
            self.speed = Some(speed.min(FASTEST));
            // It may be faster still.
            self.budget = PROBE_BYTES;
        }
    }

    /// Whether the next `bytes` of the stream are to go whole although asking or compressing seems
    /// to pay: a run after the first [`FIRST_PROBE`], and later one in each [`PROBE`], unless the
    /// link has been filled meanwhile.
    #[must_use]
    pub(super) fn probe(&mut self, bytes: usize) -> bool {
        self.since_probe += bytes;
        let due = if self.probes == 0 { FIRST_PROBE } else { PROBE };
        if self.since_probe >= due {
            self.since_probe = 0;
            self.probes += 1;
            if !std::mem::take(&mut self.shown) {
                self.budget = PROBE_BYTES;
            }
        }
        let probe = self.budget > 0;
        self.budget = self.budget.saturating_sub(bytes);
        probe
    }

    /// Bytes a second.
    #[must_use]
    pub fn speed(&self) -> f64 {
        self.speed.unwrap_or(FIRST_GUESS)
    }
}
