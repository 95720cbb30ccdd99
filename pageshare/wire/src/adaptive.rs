//! When asking and compressing pay.
//!
//! Both spend processor time to save link time, and the pipeline does both at once: a step pays
//! while the link time that it saves on a page exceeds the processor time that it costs. What is
//! switched off is still tried on one page (or segment) in [`SAMPLE`], so that it comes back when
//! it would pay.

/// One in this many pages or segments is tried when the step is off.
pub const SAMPLE: u32 = 64;

/// The link is taken for this fast, in bytes a second, until it has shown its speed: 1 Gbit/s.
const FIRST_GUESS: f64 = 125e6;
/// A write that goes faster than this never waited for the link.
const UNHINDERED: f64 = 2e9;
const SMOOTH: f64 = 1.0 / 16.0;

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
    seconds_a_byte: f64,
    /// Share of the bytes tried that needed not be sent.
    saved: f64,
    turn: u32,
}

impl StepGain {
    /// A step that begins by hoping for half.
    #[must_use]
    pub fn new(policy: Policy) -> Self {
        Self { policy, seconds_a_byte: 0.0, saved: 0.5, turn: 0 }
    }

    /// Whether to do the step on the next page or segment.
    #[must_use]
    pub fn worth_it(&mut self, link: &Link) -> bool {
        match self.policy {
            Policy::Always => true,
            Policy::Never => false,
            Policy::Adaptive => {
                self.turn = (self.turn + 1) % SAMPLE;
                self.turn == 0 || self.pays(link)
            }
        }
    }

    /// Whether the step pays at the link's speed.
    #[must_use]
    pub fn pays(&self, link: &Link) -> bool {
        self.saved / link.speed() > self.seconds_a_byte
    }

    /// Whether the step has lately spared at least a quarter of the bytes that it was tried on.
    #[must_use]
    pub fn often_saves(&self) -> bool {
        self.saved >= 0.25
    }

    /// The step took `seconds` of processor time on `bytes`.
    pub fn cost(&mut self, bytes: usize, seconds: f64) {
        if bytes > 0 {
            let sample = seconds / as_f64(bytes);
            let first = self.seconds_a_byte == 0.0;
            let weight = if first { 1.0 } else { SMOOTH };
            self.seconds_a_byte += weight * (sample - self.seconds_a_byte);
        }
    }

    /// Of `bytes` tried, `saved` needed not be sent.
    pub fn outcome(&mut self, bytes: usize, saved: usize) {
        if bytes > 0 {
            self.saved += SMOOTH * (as_f64(saved) / as_f64(bytes) - self.saved);
        }
    }
}

/// The link's speed, learnt from how long writes to it take.
#[derive(Debug, Clone, Default)]
pub struct Link {
    speed: Option<f64>,
    bytes: usize,
    seconds: f64,
}

impl Link {
    /// Writing `bytes` took `seconds`.
    pub fn wrote(&mut self, bytes: usize, seconds: f64) {
        self.bytes += bytes;
        self.seconds += seconds;
        // One write may only have filled the socket's buffer.
        if self.bytes < 1 << 20 {
            return;
        }
        let speed = as_f64(self.bytes) / self.seconds.max(1e-9);
        (self.bytes, self.seconds) = (0, 0.0);
        let hindered = speed < UNHINDERED;
        self.speed = Some(match self.speed {
            Some(known) if hindered => known + 0.25 * (speed - known),
            // A write that never waited shows only that the link is not slower than it was used.
            Some(known) => known,
            None => speed,
        });
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
mod tests {
    use super::*;

    fn link(speed: f64) -> Link {
        let mut link = Link::default();
        link.wrote(1 << 20, f64::from(1 << 20) / speed);
        link
    }

    fn step(seconds_a_byte: f64, saved: usize) -> StepGain {
        let mut step = StepGain::new(Policy::Adaptive);
        for _ in 0..200 {
            step.cost(1000, 1000.0 * seconds_a_byte);
            step.outcome(100, saved);
        }
        step
    }

    #[test]
    fn a_slow_link_pays_for_hashing_and_a_fast_one_does_not() {
        let hashing = step(0.5e-9, 50);
        assert!(hashing.pays(&link(125e6)));
        assert!(!hashing.pays(&link(1.9e9)));
    }

    #[test]
    fn what_saves_nothing_stops_and_is_still_sampled() {
        let mut hashing = step(0.5e-9, 0);
        let tried = (0..SAMPLE * 10).filter(|_| hashing.worth_it(&link(125e6))).count();
        assert_eq!(tried, 10);
        for _ in 0..200 {
            hashing.outcome(100, 80);
        }
        assert!(hashing.pays(&link(125e6)), "it comes back when samples save");
    }
}
