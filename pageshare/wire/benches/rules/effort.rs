//! The simple rule, beside the controller: what waits decides, as in zstd's `--adapt`.
//!
//! One effort, from nothing to all, first more asking and then more compressing. Ten milliseconds or
//! more at a time: where writes waited for more than half of it the wire is short, so the effort goes
//! up. Else, where QEMU was hardly waited for, or threads waited for a processor, and the stream came
//! slower than the wire would have carried it whole, the steps are in the way, so it goes down.

use pageshare_wire::adaptive::{Policy, UNSENT};

/// A judgement is about as many seconds at least.
const PERIOD: f64 = 10e-3;
/// Efforts in which a step goes from never to always.
const PARTS: u32 = 4;
/// In this part of a period writes waited: the wire is what is waited for.
const WIRE_SHORT: f64 = 0.5;
/// In less than this part of it QEMU was waited for: it is not what is waited for.
const QEMU_SHORT: f64 = 0.25;
/// Threads waited for a processor, together, for more than this part of it.
const PROCESSOR_SHORT: f64 = 0.25;
/// A migration goes slower than the wire allows whole if it goes at less than this part of its speed.
const SLOW: f64 = 0.9;
/// What a measure of the wire's speed counts.
const SMOOTH: f64 = 1.0 / 4.0;
/// Stream bytes before the first trial of the wire, and from one to the next, and of one.
const FIRST_TRIAL: usize = 4 << 20;
const TRIALS: usize = 256 << 20;
const TRIAL: usize = 4 * UNSENT as usize;
/// Asking has lately found less than this part of the pages: one segment in `SAMPLE` is asked for.
const USELESS: f64 = 0.03;
const SAMPLE: u32 = 64;

/// One write to the link.
#[derive(Debug, Clone, Copy)]
pub struct Write {
    /// Bytes written.
    pub bytes: usize,
    /// When the write began and ended, in seconds since any fixed time.
    pub span: (f64, f64),
    /// It had to wait, since [`UNSENT`] bytes were waiting.
    pub waited: bool,
    /// Stream bytes that they stand for.
    pub stream: usize,
}

/// How a segment is to travel, as far as it is not for the operator to say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Turn {
    /// Its pages are asked for.
    pub asks: bool,
    /// That is only to show whether any are found: it does not wait for the answer.
    pub samples: bool,
    /// It goes uncompressed, to show the link's speed.
    pub whole: bool,
}

/// What happened since the last judgement.
#[derive(Debug, Default)]
struct Period {
    began: f64,
    /// Seconds in which writes waited, and in which QEMU was waited for.
    blocked: f64,
    hungry: f64,
    /// Seconds that threads waited for a processor.
    queued: f64,
    written: usize,
    stream: usize,
}

/// What is done, and what was learnt.
#[derive(Debug)]
pub struct Effort {
    ask: Policy,
    compress: Policy,
    /// From nothing to all: first more is asked for, then more is compressed.
    effort: u32,
    /// Of each step, `PARTS` of which make a turn.
    parts: [u32; 2],
    /// Share of the pages asked for lately that were found.
    found: f64,
    turns: u32,
    /// Of the wire, in bytes a second.
    speed: Option<f64>,
    period: Period,
    /// Bytes that went whole one behind the other, and since when.
    run: Option<(f64, usize)>,
    /// Stream bytes that are yet to go whole, and those until the next trial.
    trial: usize,
    until_trial: usize,
}

impl Effort {
    /// All of it, at first: bytes that are sent cannot be taken back.
    #[must_use]
    pub fn new(ask: Policy, compress: Policy) -> Self {
        Self {
            ask,
            compress,
            effort: 2 * PARTS,
            parts: [0; 2],
            found: 0.5,
            turns: 0,
            speed: None,
            period: Period::default(),
            run: None,
            trial: 0,
            until_trial: FIRST_TRIAL,
        }
    }

    /// The stream's next `bytes` have come, after QEMU was waited for so many seconds.
    #[must_use]
    pub fn took(&mut self, bytes: usize, hungry: f64) -> Turn {
        self.period.hungry += hungry;
        self.period.stream += bytes;
        let whole = self.tries(bytes);
        let found = self.found >= USELESS;
        let asks = match self.ask {
            Policy::Always => true,
            Policy::Never => false,
            Policy::Adaptive => {
                self.turn(0, self.effort.min(PARTS)) && !whole && (found || self.sampled())
            }
        };
        Turn { asks, samples: asks && !found && self.ask == Policy::Adaptive, whole }
    }

    /// Whether to compress a segment that is to go `whole` or not.
    #[must_use]
    pub fn compresses(&mut self, whole: bool) -> bool {
        match self.compress {
            Policy::Always => true,
            Policy::Never => false,
            Policy::Adaptive => self.turn(1, self.effort.saturating_sub(PARTS)) && !whole,
        }
    }

    fn turn(&mut self, step: usize, parts: u32) -> bool {
        self.parts[step] += parts;
        let on = self.parts[step] >= PARTS;
        self.parts[step] %= PARTS;
        on
    }

    fn sampled(&mut self) -> bool {
        self.turns += 1;
        self.turns.is_multiple_of(SAMPLE)
    }

    /// Of the pages asked for so many were found.
    pub fn answered(&mut self, asked: usize, found: usize) {
        if asked > 0 {
            self.found += (as_f64(found) / as_f64(asked) - self.found) / 16.0;
        }
    }

    /// Threads have waited for a processor for so many seconds.
    pub fn queued(&mut self, queued: f64) {
        self.period.queued += queued;
    }

    /// Bytes were written to the link.
    pub fn wrote(&mut self, write: Write) {
        let (begin, end) = write.span;
        self.period.written += write.bytes;
        if write.waited {
            self.period.blocked += end - begin;
        }
        self.went(write);
        let seconds = end - self.period.began;
        if seconds >= PERIOD {
            let period =
                std::mem::replace(&mut self.period, Period { began: end, ..Period::default() });
            self.judge(&period, seconds);
        }
    }

    fn judge(&mut self, period: &Period, seconds: f64) {
        if period.blocked > WIRE_SHORT * seconds {
            let taken = as_f64(period.written) / seconds;
            self.speed = Some(self.speed.map_or(taken, |speed| speed + SMOOTH * (taken - speed)));
            self.until_trial = TRIALS;
            self.effort = (self.effort + 1).min(2 * PARTS);
            return;
        }
        let processor = period.queued > PROCESSOR_SHORT * seconds;
        let ours = processor || period.hungry < QEMU_SHORT * seconds;
        if ours && self.speed.is_some_and(|speed| as_f64(period.stream) < SLOW * speed * seconds) {
            self.effort = self.effort.saturating_sub(1);
        }
    }

    /// Follows bytes that go whole: of a run of them, what may not wait has been taken.
    fn went(&mut self, write: Write) {
        if write.bytes < write.stream / 4 * 3 {
            // Saved bytes do not show what the link would do with all of them.
            self.run = None;
            return;
        }
        let (since, before) = self.run.unwrap_or((write.span.0, 0));
        let bytes = before + write.bytes;
        self.run = Some((since, bytes));
        if bytes >= TRIAL - UNSENT as usize {
            let taken = as_f64(bytes - UNSENT as usize) / (write.span.1 - since).max(1e-9);
            self.speed = Some(self.speed.map_or(taken, |speed| speed.max(taken)));
            self.run = None;
        }
    }

    /// Whether the next `bytes` go whole, to show the link's speed.
    fn tries(&mut self, bytes: usize) -> bool {
        match self.until_trial.checked_sub(bytes) {
            Some(left) => self.until_trial = left,
            None => (self.until_trial, self.trial) = (TRIALS, TRIAL),
        }
        let tries = self.trial > 0;
        self.trial = self.trial.saturating_sub(bytes);
        tries
    }
}

fn as_f64(bytes: usize) -> f64 {
    bytes as f64
}
