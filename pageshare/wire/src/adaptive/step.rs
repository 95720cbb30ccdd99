//! One step of the pipeline: what it costs, what it saves, and whether it pays.

use super::{Link, Policy, SAMPLE, as_f64};

/// What a step may cost at most, in parts of the link time of what it is done on: the processors
/// have more to do for a page.
const HIDDEN: f64 = 0.75;
/// Seconds of link time that a second of processor time is worth.
const WORTH: f64 = 0.5;
/// The first one that is tried when the step has just been switched off; then twice as many are let
/// pass each time. What was dear for a moment would else stay off for a good part of a migration.
const FIRST_RETRY: u32 = 4;
const SMOOTH: f64 = 1.0 / 16.0;
/// Samples of fewer bytes than this count for less, or with the next ones.
const WHOLE_SAMPLE: usize = 32 << 10;
/// What a step costs is the median of so many samples, and unknown before there are
/// [`FIRST_SAMPLES`].
const SAMPLES: usize = 7;
const FIRST_SAMPLES: usize = 3;

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

    /// Whether it is for the measurements to say when the step is on.
    #[must_use]
    pub fn adapts(&self) -> bool {
        self.policy == Policy::Adaptive
    }

    /// Whether the step pays at the link's speed.
    #[must_use]
    pub fn pays(&self, link: &Link) -> bool {
        let whole = 1.0 / link.speed();
        self.cost.seconds_a_byte < whole * (self.saved / WORTH).min(HIDDEN)
    }

    /// Whether the step would no longer hide behind the link if both hosts together had so many
    /// times its cost to bear.
    pub(super) fn is_close(&self, link: &Link, times: f64) -> bool {
        self.cost.seconds_a_byte * times > HIDDEN / link.speed()
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
