//! When asking and compressing pay.
//!
//! Both spend processor time to save link time, and the pipeline does both at once: a migration takes
//! as long as the slower of the two. So a step is on while it hides behind the link: a page costs
//! less processor time than three quarters of what the link takes for it whole; and while it saves
//! at least half a second of link time for each second that it takes from processors which guests
//! need too. What is switched off is still tried, soon at first and then on one page (or segment) in
//! `SAMPLE`, so that it comes back when it would pay; what is switched on is left out for a moment
//! now and then (`Link::probe`), for a link that is never filled does not show its speed.
//!
//! Asking costs the other host about as much as this one, and more of both hosts' QEMUs than can be
//! told from here. On a link so fast that this matters, both ways race (`race`).

mod link;
mod race;
mod step;

pub use link::{Link, UNSENT, Written};
use race::Race;
pub use step::StepGain;

/// One in this many pages or segments is tried when the step has been off for a while.
const SAMPLE: u32 = 64;
/// Pages tried one behind the other: a question costs two records and four changes of threads
/// whatever it asks for, and so many pages are hashed together.
const PAGES_TOGETHER: u32 = 16;
/// What asking costs both hosts together, in parts of the hashing that is measured here: the receiver
/// looks up, copies, hashes and copies again. Four to six have been measured.
const BOTH_HOSTS: f64 = 6.0;

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

/// What was learnt about the link and about what pays on it.
#[derive(Debug)]
pub struct Gains {
    /// The link.
    pub link: Link,
    /// Asking whether the destination has a page.
    pub ask: StepGain,
    /// Compressing a segment's literal bytes: those that look like noise, and others.
    noise: StepGain,
    compress: StepGain,
    race: Race,
    asks: bool,
}

impl Gains {
    /// Nothing is known yet.
    #[must_use]
    pub fn new(ask: Policy, compress: Policy) -> Self {
        Self {
            link: Link::default(),
            ask: StepGain::new(ask, PAGES_TOGETHER),
            noise: StepGain::new(compress, 1),
            compress: StepGain::new(compress, 1),
            race: Race::default(),
            asks: true,
        }
    }

    /// The stream's next `bytes` have come at `now`, in seconds since any fixed time. Whether they
    /// are to go whole, as far as it is not for the operator to say: neither asked for nor
    /// compressed, so that the link shows its speed.
    #[must_use]
    pub fn took(&mut self, bytes: usize, now: f64) -> bool {
        let whole = self.link.probe(bytes);
        // A race that has begun is not given up for an estimate that goes up and down.
        let cost = if self.race.is_on() { 2.0 * BOTH_HOSTS } else { BOTH_HOSTS };
        let close = self.ask.pays(&self.link) && self.ask.is_close(&self.link, cost);
        self.race.took(bytes, now, close);
        self.asks = !self.ask.adapts() || (self.race.asks() && !whole);
        whole
    }

    /// Whether to ask for the next page of what has come.
    #[must_use]
    pub fn asks(&mut self) -> bool {
        self.asks && self.ask.worth_it(&self.link)
    }

    /// Whether what is asked for now is only to show whether asking would pay.
    #[must_use]
    pub fn samples(&self) -> bool {
        self.ask.adapts() && !self.ask.pays(&self.link)
    }

    /// Whether to compress the literal bytes of a segment that is to go `whole` or not, and looks
    /// like `noise` or not.
    #[must_use]
    pub fn compresses(&mut self, whole: bool, noise: bool) -> bool {
        let step = if noise { &mut self.noise } else { &mut self.compress };
        !(whole && step.adapts()) && step.worth_it(&self.link)
    }

    /// Bytes that look like `noise` or not have been compressed from a length to another, in
    /// `seconds` of processor time.
    pub fn compressed(&mut self, noise: bool, (from, to): (usize, usize), seconds: f64) {
        let step = if noise { &mut self.noise } else { &mut self.compress };
        step.cost(from, seconds);
        step.outcome(from, from - to);
    }
}

#[allow(clippy::cast_precision_loss)] // Counts of bytes in one batch.
fn as_f64(bytes: usize) -> f64 {
    bytes as f64
}

#[cfg(test)]
mod tests;
