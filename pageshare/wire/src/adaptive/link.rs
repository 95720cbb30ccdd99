//! The link's speed.

use super::as_f64;

/// The link is taken for this fast, in bytes a second, until it has shown its speed: 1 Gbit/s.
const FIRST_GUESS: f64 = 125e6;
/// No link is taken for faster, so that it is soon taken for slow when it begins to hinder.
const FASTEST: f64 = 10e9;
/// What may wait in the kernel without having left (`TCP_NOTSENT_LOWAT`): a write that would have more
/// wait does so itself. What has left and is not acknowledged is the kernel's business: how much that
/// is follows the round trip.
pub const UNSENT: u32 = 512 << 10;
const MAY_WAIT: usize = UNSENT as usize;
/// The speed is judged by so many bytes at once: what the link has taken of them is known to within a
/// third, for somewhere between nothing and [`UNSENT`] was waiting before, and is after.
const RUN_BYTES: usize = 3 * MAY_WAIT;
/// What waits at least once a write has had to: the kernel wakes it when so much is left.
const HELD: usize = MAY_WAIT / 2;
/// A link that made a write wait is faster than it was taken for where it has taken so many times
/// that: what waits is not known to the byte.
const CLEARLY: f64 = 1.5;
/// Stream bytes that go whole to show the link's speed: a run, whatever it begins with.
const PROBE_BYTES: usize = RUN_BYTES + MAY_WAIT;
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
    /// It had to wait, since [`UNSENT`] bytes were waiting.
    pub waited: bool,
    /// Stream bytes that they stand for.
    pub stream: usize,
}

/// The link's speed, the receiver's included.
///
/// How long a write takes says little: up to [`UNSENT`] bytes go at the speed of memory. But from one
/// write that had to wait to a later one, the link was never idle, unless it ran dry in between; so it
/// has taken what was written, give or take what may wait: a writer that the scheduler keeps waiting
/// finds as little there as may be. And where bytes go faster than the link was taken to be, more of
/// them than may wait, it is faster.
#[derive(Debug, Clone, Default)]
pub struct Link {
    speed: Option<f64>,
    /// When a write that had to wait ended, if the link cannot have run dry since.
    full: Option<f64>,
    /// Bytes written since then.
    carried: usize,
    /// When the last write ended, and what waited then at most, if the link is as fast as it is taken
    /// for.
    ended: f64,
    waiting: f64,
    /// When it last had run dry, if it is so fast, or the last write that had to wait ended, and the
    /// bytes written since.
    since: (f64, usize),
    /// When the present run of bytes that went whole began, its bytes, and whether they had to wait.
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
        self.waiting = (self.waiting - self.speed() * (begin - self.ended).max(0.0)).max(0.0);
        self.ended = end;
        if self.waiting < as_f64(MAY_WAIT - HELD) {
            // No more than that is known to have waited when the last write that had to went on.
            self.full = None;
        }
        if self.waiting == 0.0 {
            self.since = (begin, 0);
        }
        self.waiting += as_f64(written.bytes);
        self.since.1 += written.bytes;
        if let Some(since) = self.full {
            self.carried += written.bytes;
            if written.waited && self.carried >= RUN_BYTES && end > since {
                let least = as_f64(self.carried - MAY_WAIT) / (end - since);
                let most = as_f64(self.carried + MAY_WAIT) / (end - since);
                self.speed = Some(self.speed().clamp(least, most).min(FASTEST));
                self.shown = true;
                (self.full, self.carried) = (Some(end), 0);
            }
        }
        if written.waited {
            if self.waiting < as_f64(MAY_WAIT) {
                // As much waited as may, which cannot be if it is so fast.
                let (since, bytes) = self.since;
                let least = as_f64(bytes) / (end - since).max(1e-9);
                self.speed = Some(least.clamp(self.speed() / 2.0, self.speed()));
            }
            self.waiting = as_f64(MAY_WAIT);
            self.since = (end, 0);
            if self.full.is_none() {
                (self.full, self.carried) = (Some(end), 0);
            }
        }
        self.waiting = self.waiting.min(as_f64(MAY_WAIT));
    }

    /// Follows bytes that go whole: of a run of them, what may not wait has been taken.
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
        let carried = as_f64(bytes - MAY_WAIT) / (end - since).max(1e-9);
        let faster = if waited {
            // They filled the link, so this is about its speed.
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
