//! When asking and compressing pay.
//!
//! Both spend processor time to save link time, and the pipeline does both at once: a migration takes
//! as long as the slower of the two. So a step is on while it hides behind the link: a page costs
//! less processor time than three quarters of what the link takes for it whole; and while it saves
//! at least half a second of link time for each second that it takes from processors which guests
//! need too. What is switched off is still tried, soon at first and then on one page (or segment) in
//! [`SAMPLE`], so that it comes back when it would pay; what is switched on is left out for a moment
//! now and then ([`Link::probe`]), for a link that is never filled does not show its speed.

/// What a step may cost at most, in parts of the link time of what it is done on: the processors
/// have more to do for a page.
const HIDDEN: f64 = 0.75;
/// Seconds of link time that a second of processor time is worth.
const WORTH: f64 = 0.5;
/// One in this many pages or segments is tried when the step has been off for a while.
pub const SAMPLE: u32 = 64;
/// The first one that is tried when the step has just been switched off; then twice as many are let
/// pass each time. What was dear for a moment would else stay off for a good part of a migration.
const FIRST_RETRY: u32 = 4;
/// Pages tried one behind the other: a question costs two records and four changes of threads
/// whatever it asks for, and so many pages are hashed together.
pub const PAGES_TOGETHER: u32 = 16;

/// The link is taken for this fast, in bytes a second, until it has shown its speed: 1 Gbit/s.
const FIRST_GUESS: f64 = 125e6;
/// No link is taken for faster, so that it is soon taken for slow when it begins to hinder.
const FASTEST: f64 = 10e9;
const SMOOTH: f64 = 1.0 / 16.0;
/// Samples of fewer bytes than this count for less, or with the next ones.
const WHOLE_SAMPLE: usize = 32 << 10;
/// What a step costs is the median of so many samples, and unknown before there are
/// [`FIRST_SAMPLES`].
const SAMPLES: usize = 7;
const FIRST_SAMPLES: usize = 3;
/// What the socket's buffer takes, whatever the link does.
const BUFFER: usize = 512 << 10;
/// The speed is judged by so many bytes at once: what the link has carried of them is known to
/// within a third, for the buffer was somewhere between empty and full before, and is after.
const RUN_BYTES: usize = 3 * BUFFER;
/// What a buffer that has just been full holds at least. Only where nothing was written for as
/// long as 1 Gbit/s takes for that, it is held to have run dry: on a faster link it may have
/// earlier, and what is then taken for the link's speed is the sender's.
const HELD: usize = 256 << 10;
/// Bytes to be compressed before the link is first tried without.
const FIRST_PROBE: usize = 4 << 20;

/// What the operator lets a step do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// On while it pays.
    Adaptive,
    /// Always on.
    Always,
    /// Never on, not even to sample.
    Never,
}

/// One step (asking or compressing): what it costs and what it saves.
#[derive(Debug, Clone)]
pub struct StepGain {
    policy: Policy,
    cost: Cost,
    /// Share of the bytes tried that needed not be sent.
    saved: f64,
    /// Pages or segments since the step was switched off, or last tried.
    turn: u32,
    /// While it is off one in so many is tried.
    interval: u32,
    /// How many are tried one behind the other.
    together: u32,
}

impl StepGain {
    /// A step that begins by hoping for half. While it is off, `together` pages or segments in a
    /// row are tried, in the end out of [`SAMPLE`] times as many.
    #[must_use]
    pub fn new(policy: Policy, together: u32) -> Self {
        Self { policy, cost: Cost::default(), saved: 0.5, turn: 0, interval: FIRST_RETRY, together }
    }

    /// Whether to do the step on the next page or segment.
    #[must_use]
    pub fn worth_it(&mut self, link: &Link) -> bool {
        match self.policy {
            Policy::Always => true,
            Policy::Never => false,
            Policy::Adaptive => {
                if self.pays(link) {
                    (self.turn, self.interval) = (0, FIRST_RETRY);
                    return true;
                }
                self.turn += 1;
                let pass = (self.interval - 1) * self.together;
                if self.turn == pass + self.together {
                    (self.turn, self.interval) = (0, SAMPLE.min(2 * self.interval));
                    return true;
                }
                self.turn > pass
            }
        }
    }

    /// Whether to do the step on the next `bytes`, where the link is to show its speed now and
    /// then by going without.
    #[must_use]
    pub fn worth_it_or_probe(&mut self, link: &mut Link, bytes: usize) -> bool {
        self.worth_it(link) && !(self.policy == Policy::Adaptive && link.probe(bytes))
    }

    /// Whether the step pays at the link's speed.
    #[must_use]
    pub fn pays(&self, link: &Link) -> bool {
        let whole = 1.0 / link.speed();
        self.cost.seconds_a_byte < whole * (self.saved / WORTH).min(HIDDEN)
    }

    /// Whether the step has lately spared at least a quarter of the bytes that it was tried on.
    #[must_use]
    pub fn often_saves(&self) -> bool {
        self.saved >= 0.25
    }

    /// The step took `seconds` of processor time on `bytes`.
    pub fn cost(&mut self, bytes: usize, seconds: f64) {
        self.cost.note(bytes, seconds);
    }

    /// Of `bytes` tried, `saved` needed not be sent.
    pub fn outcome(&mut self, bytes: usize, saved: usize) {
        if bytes > 0 {
            self.saved += weight(bytes) * (as_f64(saved) / as_f64(bytes) - self.saved);
        }
    }
}

/// What a sample of so many bytes counts.
fn weight(bytes: usize) -> f64 {
    SMOOTH * (as_f64(bytes) / as_f64(WHOLE_SAMPLE)).min(1.0)
}

/// What a step costs.
///
/// A median: processor time includes what a hypervisor takes away meanwhile, and one sample of a
/// hundred times the usual, in a mean, would keep a step off that pays.
#[derive(Debug, Clone, Default)]
struct Cost {
    /// Zero while it is unknown.
    seconds_a_byte: f64,
    latest: [f64; SAMPLES],
    count: usize,
    /// Bytes and seconds towards the next sample: what a step costs whatever the bytes would make a
    /// few of them look dear.
    bytes: usize,
    seconds: f64,
}

impl Cost {
    fn note(&mut self, bytes: usize, seconds: f64) {
        self.bytes += bytes;
        self.seconds += seconds;
        if self.bytes < WHOLE_SAMPLE {
            return;
        }
        self.latest[self.count % SAMPLES] = self.seconds / as_f64(self.bytes);
        self.count += 1;
        (self.bytes, self.seconds) = (0, 0.0);
        if self.count >= FIRST_SAMPLES {
            let mut sorted = self.latest;
            let known = &mut sorted[..self.count.min(SAMPLES)];
            known.sort_by(f64::total_cmp);
            self.seconds_a_byte = known[(known.len() - 1) / 2];
        }
    }
}

/// One write to the link.
#[derive(Debug, Clone, Copy)]
pub struct Written {
    /// Bytes written.
    pub bytes: usize,
    /// When the write began and ended, in seconds since any fixed time.
    pub span: (f64, f64),
    /// The socket's buffer was full at some point of the write.
    pub waited: bool,
    /// The bytes were compressed: they do not show what the link would do without.
    pub compressed: bool,
}

/// The link's speed, the receiver's included.
///
/// How long a write takes says little: up to a buffer's worth it goes at the speed of memory. But
/// from one write that met a full buffer to a later one, the link was never idle, unless the buffer
/// ran dry in between; so it has carried what was written, give or take a buffer: a writer that the
/// scheduler keeps waiting finds the buffer as empty as may be. And where the buffer never fills
/// although bytes come faster than the link was taken to be, it is faster.
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
    /// When the present run of uncompressed bytes that never filled the buffer began, and its
    /// bytes.
    run: Option<(f64, usize)>,
    /// Bytes that may yet go uncompressed to show the link's speed.
    budget: usize,
    since_probe: usize,
    probes: u32,
}

impl Link {
    /// A segment's or question's bytes were written.
    pub fn wrote(&mut self, written: Written) {
        let (begin, end) = written.span;
        if written.waited {
            // That is seen: the rest can be compressed.
            (self.run, self.budget) = (None, 0);
        } else {
            self.flowed(written, begin);
        }
        self.idle += (begin - self.ended).max(0.0);
        self.ended = end;
        if let Some(since) = self.full {
            self.carried += written.bytes;
            if written.waited && self.carried >= RUN_BYTES && end > since {
                let least = as_f64(self.carried - BUFFER) / (end - since);
                let most = as_f64(self.carried + BUFFER) / (end - since);
                self.speed = Some(self.speed().clamp(least, most).min(FASTEST));
                (self.full, self.carried) = (Some(end), 0);
            } else if !written.waited && self.idle > as_f64(HELD) / FIRST_GUESS {
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

    /// A write met no full buffer.
    fn flowed(&mut self, written: Written, begin: f64) {
        if written.compressed {
            self.run = None;
            return;
        }
        let (since, bytes) = self.run.unwrap_or((begin, 0));
        let bytes = bytes + written.bytes;
        self.run = Some((since, bytes));
        if bytes < RUN_BYTES {
            return;
        }
        let carried = as_f64(bytes - BUFFER) / (written.span.1 - since).max(1e-9);
        self.run = None;
        if carried > self.speed() {
            self.speed = Some((2.0 * self.speed()).min(FASTEST));
            // It may be faster still.
            self.budget = RUN_BYTES;
        }
    }

    /// Whether the next `bytes` are to go uncompressed although compressing seems to pay: a run
    /// after the first 4 MiB, and later one in [`SAMPLE`].
    #[must_use]
    pub fn probe(&mut self, bytes: usize) -> bool {
        self.since_probe += bytes;
        let due = if self.probes == 0 { FIRST_PROBE } else { SAMPLE as usize * RUN_BYTES };
        if self.since_probe >= due {
            self.since_probe = 0;
            self.probes += 1;
            self.budget = RUN_BYTES;
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

#[allow(clippy::cast_precision_loss)] // Counts of bytes in one batch.
fn as_f64(bytes: usize) -> f64 {
    bytes as f64
}

#[cfg(test)]
mod tests;
