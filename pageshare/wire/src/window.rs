//! How many expanded stream bytes may be between the two QEMUs.
//!
//! QEMU judges convergence by how fast the stream is accepted: whatever the proxies hold when it
//! stops the guest is downtime that it does not know of. So the window is what the path delivers
//! in a quarter of the downtime limit, at most [`LARGEST`], at least [`SMALLEST`] so that the
//! pipeline stays filled.

use std::time::Duration;

/// Never more than this in flight.
pub const LARGEST: u32 = 8 << 20;
/// Never less than this.
pub const SMALLEST: u32 = 1 << 20;

/// The sender's account of one channel.
#[derive(Debug)]
pub struct Window {
    agreed: u32,
    downtime_limit: Duration,
    taken: u64,
    sent: u64,
    accepted: u64,
    /// Contents that are kept until the peer has said whether it lacks them, and then until it has
    /// them.
    owed: u64,
    /// Accepted bytes a second, smoothed; nothing until the first measure.
    rate: Option<f64>,
    measured: (Duration, u64),
}

/// Shorter measures than this say more about scheduling than about the path.
const MEASURE: Duration = Duration::from_millis(50);

impl Window {
    /// `agreed` is the smaller of what the two sides offered.
    #[must_use]
    pub fn new(agreed: u32, downtime_limit: Duration) -> Self {
        let agreed = agreed.clamp(SMALLEST, LARGEST);
        let measured = (Duration::ZERO, 0);
        let (taken, sent, accepted, owed) = (0, 0, 0, 0);
        Self { agreed, downtime_limit, taken, sent, accepted, owed, rate: None, measured }
    }

    /// Bytes that may be taken from the source QEMU now. What is kept for the peer counts whatever
    /// it says that it has accepted.
    #[must_use]
    pub fn room(&self) -> u64 {
        self.size().saturating_sub(self.in_flight().max(self.owed))
    }

    /// `bytes` were taken from the source QEMU.
    pub fn took(&mut self, bytes: u64) {
        self.taken += bytes;
    }

    /// Of them, `bytes` are about to leave for the peer: it may accept them from now on.
    pub fn sends(&mut self, bytes: u64) {
        self.sent += bytes;
    }

    /// `bytes` have gone as references before the peer has answered, and are kept.
    pub fn keeps(&mut self, bytes: u64) {
        self.owed += bytes;
    }

    /// `bytes` of them need be kept no longer.
    pub fn drops(&mut self, bytes: u64) {
        self.owed = self.owed.saturating_sub(bytes);
    }

    /// The destination QEMU has accepted `accepted` bytes in all, at `now` since any fixed time.
    /// Returns whether that can be true: a peer that could accept what it was not sent would have
    /// this side take, and keep, all that there is.
    #[must_use]
    pub fn credit(&mut self, accepted: u64, now: Duration) -> bool {
        if accepted < self.accepted || accepted > self.sent {
            return false;
        }
        self.accepted = accepted;
        let (since, before) = self.measured;
        let elapsed = now.saturating_sub(since);
        if elapsed >= MEASURE {
            #[allow(clippy::cast_precision_loss)] // A rate needs no 53 bits.
            let rate = (accepted - before) as f64 / elapsed.as_secs_f64();
            self.rate = Some(self.rate.map_or(rate, |smooth| 0.75 * smooth + 0.25 * rate));
            self.measured = (now, accepted);
        }
        true
    }

    /// The window now.
    #[must_use]
    pub fn size(&self) -> u64 {
        let wanted = match self.rate {
            None => f64::from(self.agreed),
            Some(rate) => rate * self.downtime_limit.as_secs_f64() / 4.0,
        };
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // Clamped to 32 bits.
        let size = wanted.clamp(f64::from(SMALLEST), f64::from(self.agreed)) as u64;
        size
    }

    /// Bytes taken and not yet accepted.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        self.taken - self.accepted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_follows_the_measured_rate() {
        let mut window = Window::new(LARGEST, Duration::from_millis(300));
        assert_eq!(window.room(), u64::from(LARGEST));
        window.took(4 << 20);
        window.sends(4 << 20);
        assert!(window.credit(2 << 20, Duration::from_millis(100)));
        // 2 MiB in 100 ms, of which a quarter of 300 ms is 1.5 MiB, less 2 MiB in flight.
        assert_eq!(window.size(), 3 << 19);
        assert_eq!(window.room(), 0);
    }

    #[test]
    fn a_peer_cannot_accept_what_was_not_sent_or_take_back() {
        let mut window = Window::new(LARGEST, Duration::from_millis(300));
        window.took(200);
        assert!(!window.credit(1, Duration::ZERO), "taken, but not sent");
        window.sends(100);
        assert!(!window.credit(101, Duration::ZERO));
        assert!(window.credit(100, Duration::ZERO));
        assert!(!window.credit(99, Duration::ZERO));
    }

    #[test]
    fn what_is_kept_for_the_peer_takes_room_until_it_is_dropped() {
        let mut window = Window::new(SMALLEST, Duration::from_millis(300));
        let all = u64::from(SMALLEST);
        window.took(all);
        window.sends(all);
        window.keeps(all);
        assert!(window.credit(all, Duration::ZERO));
        assert_eq!(window.room(), 0);
        window.drops(all);
        assert_eq!(window.room(), all);
    }
}
