//! How many expanded stream bytes may be between the two QEMUs.
//!
//! QEMU judges convergence by how fast the stream is accepted: whatever waits in the proxies when it
//! stops the guest is downtime that it does not know of. So what may wait is what the path delivers in
//! an eighth of the downtime limit (or a quarter of a round trip, if that is longer), at most
//! [`MOST_WAITING`], at least [`SMALLEST`] so that the pipeline stays filled. To that comes what is on its way: what the path delivers in a round trip,
//! until a Credit is back, and in one more while segments wait for their Answers.

use std::time::Duration;

/// Never more than this in flight.
pub const LARGEST: u32 = 64 << 20;
/// The smallest window.
pub const SMALLEST: u32 = 1 << 20;
/// Never more than this waits, beside what is on its way.
const MOST_WAITING: u32 = 8 << 20;

/// The sender's account of one channel.
#[derive(Debug)]
pub struct Window {
    agreed: u32,
    downtime_limit: Duration,
    /// The shortest that was seen.
    round_trip: Duration,
    /// Segments that wait for their Answers.
    unanswered: u32,
    taken: u64,
    sent: u64,
    accepted: u64,
    /// Contents that are kept until the peer has said whether it lacks them, and then until it has
    /// them.
    owed: u64,
    /// Accepted bytes a second, smoothed; nothing until the first measure.
    rate: Option<f64>,
    /// Measures in which the rate has not gone up by a quarter, since the stream flows.
    flat: u32,
    /// When, and at how many bytes, the present measure began: with a Credit, not with whatever
    /// comes before the stream flows.
    measured: Option<(Duration, u64)>,
}

/// Shorter measures than this, or than a round trip, say more about scheduling than about the path.
const MEASURE: Duration = Duration::from_millis(50);

/// The window doubles until the rate has so often not grown by a quarter: every other measure does not
/// show yet what the last doubling has brought.
const FLAT: u32 = 3;

impl Window {
    /// `agreed` is the smaller of what the two sides offered. The handshake took a `round_trip`.
    #[must_use]
    pub fn new(agreed: u32, downtime_limit: Duration, round_trip: Duration) -> Self {
        Self {
            agreed: agreed.clamp(SMALLEST, LARGEST),
            downtime_limit,
            round_trip,
            unanswered: 0,
            taken: 0,
            sent: 0,
            accepted: 0,
            owed: 0,
            rate: None,
            flat: 0,
            measured: None,
        }
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

    /// A segment waits for the Answer to what was asked for it.
    pub fn waits(&mut self) {
        self.unanswered += 1;
    }

    /// The Answer to a question is there after so long, for which a segment has waited or not.
    pub fn answered(&mut self, after: Duration, waited: bool) {
        self.unanswered -= u32::from(waited);
        self.round_trip = self.round_trip.min(after);
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
    /// Returns how many more that is than before; nothing, if it cannot be true: a peer that could
    /// accept what it was not sent would have this side take, and keep, all that there is.
    #[must_use]
    pub fn credit(&mut self, accepted: u64, now: Duration) -> Option<u64> {
        if accepted > self.sent {
            return None;
        }
        let more = accepted.checked_sub(self.accepted)?;
        self.accepted = accepted;
        let (since, before) = *self.measured.get_or_insert((now, accepted));
        let elapsed = now.saturating_sub(since);
        if elapsed >= MEASURE.max(self.path()) {
            #[allow(clippy::cast_precision_loss)] // A rate needs no 53 bits.
            let rate = (accepted - before) as f64 / elapsed.as_secs_f64();
            self.flat += u32::from(self.rate.is_some_and(|before| rate < 1.25 * before));
            // Up at once: over a distance a window that grows slowly is what the rate is bound by.
            self.rate =
                Some(self.rate.map_or(rate, |smooth| rate.max(0.75 * smooth + 0.25 * rate)));
            self.measured = Some((now, accepted));
        }
        Some(more)
    }

    /// The window now.
    #[must_use]
    pub fn size(&self) -> u64 {
        let Some(rate) = self.rate else { return self.agreed.min(MOST_WAITING).into() };
        let on_its_way = rate * self.path().as_secs_f64();
        // It is also what the window grows by, in a round trip, until it fills the path.
        let time = (self.downtime_limit / 8).max(self.round_trip / 4).as_secs_f64();
        let mut waiting = (rate * time).clamp(f64::from(SMALLEST), f64::from(MOST_WAITING));
        if self.flat < FLAT {
            // TCP doubles too, until it has found out what the path holds.
            waiting = waiting.max(on_its_way);
        }
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // At most 32 bits.
        let size = (on_its_way + waiting).min(f64::from(self.agreed)) as u64;
        size
    }

    /// From when bytes are taken until a Credit for them is back, if nothing waits.
    fn path(&self) -> Duration {
        if self.unanswered > 0 { 2 * self.round_trip } else { self.round_trip }
    }

    /// Bytes taken and not yet accepted.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        self.taken - self.accepted
    }

    /// Bytes that are kept for the peer.
    #[must_use]
    pub fn owed(&self) -> u64 {
        self.owed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_millis(300);
    const NEAR: Duration = Duration::from_micros(200);
    const MIB: u64 = 1 << 20;

    #[test]
    fn the_window_follows_the_measured_rate() {
        let mut window = Window::new(LARGEST, LIMIT, Duration::ZERO);
        assert_eq!(window.room(), 8 * MIB);
        window.took(7 * MIB);
        window.sends(7 * MIB);
        assert!(window.credit(MIB, Duration::from_secs(9)).is_some(), "however long nothing came");
        assert_eq!(window.size(), 8 * MIB);
        assert!(window.credit(5 * MIB, Duration::from_millis(9100)).is_some());
        // 4 MiB in 100 ms, of which an eighth of 300 ms is 1.5 MiB, less 2 MiB in flight.
        assert_eq!(window.size(), 3 << 19);
        assert_eq!(window.room(), 0);
    }

    /// A source that always has more, and a path that carries so many bytes a millisecond, over which
    /// a round trip takes so many. Returns what is in flight after so long.
    fn in_flight(round_trip: u64, rate: u64, asks: bool, milliseconds: u64) -> u64 {
        let mut window = Window::new(LARGEST, LIMIT, Duration::from_millis(round_trip));
        let mut trips = 1;
        if asks {
            window.waits();
            trips = 2;
        }
        // What had been taken at each millisecond, and is known to be accepted so much later.
        let mut taken = Vec::new();
        let mut accepted = 0;
        for now in 0..milliseconds {
            let room = window.room();
            window.took(room);
            window.sends(room);
            taken.push(accepted + window.in_flight());
            let late = now.checked_sub(round_trip * trips).and_then(|at| usize::try_from(at).ok());
            accepted = late.map_or(0, |late| taken[late].min(accepted + rate));
            assert!(window.credit(accepted, Duration::from_millis(now)).is_some());
        }
        window.in_flight()
    }

    #[test]
    fn what_is_in_flight_fills_the_path_at_any_distance_and_an_eighth_of_the_limit_waits() {
        for (round_trip, asks) in [(1, false), (10, true), (40, true), (100, false), (100, true)] {
            for rate in [12_000, 118_000] {
                let path = rate * round_trip * if asks { 2 } else { 1 };
                let waits = (rate * 300 / 8).clamp(SMALLEST.into(), MOST_WAITING.into());
                let in_flight = in_flight(round_trip, rate, asks, 20_000);
                let right = path + waits * 9 / 10..path + waits * 11 / 10;
                assert!(right.contains(&in_flight), "{in_flight}: {rate}, {round_trip} ms, {asks}");
            }
        }
    }

    #[test]
    fn what_a_peer_that_answers_late_has_in_flight_is_bounded() {
        assert!(in_flight(4000, 118_000, true, 20_000) <= LARGEST.into());
    }

    #[test]
    fn a_long_path_is_full_after_a_few_round_trips() {
        for (round_trip, asks) in [(40, true), (100, false), (100, true), (300, false)] {
            let path = round_trip * if asks { 2 } else { 1 };
            let in_flight = in_flight(round_trip, 118_000, asks, 8 * path);
            assert!(in_flight >= 118_000 * path, "{in_flight}: {round_trip} ms, {asks}");
        }
    }

    #[test]
    fn the_shortest_round_trip_counts() {
        let mut window = Window::new(LARGEST, LIMIT, Duration::from_millis(100));
        window.took(MIB);
        window.sends(MIB);
        assert!(window.credit(0, Duration::ZERO).is_some());
        assert!(window.credit(MIB, Duration::from_millis(100)).is_some());
        let far = window.size();
        window.answered(NEAR, false);
        window.answered(2 * NEAR, false);
        assert!(window.size() < far);
        assert_eq!(window.size(), MIB + MIB * 2 / 1000);
    }

    #[test]
    fn a_peer_cannot_accept_what_was_not_sent_or_take_back() {
        let mut window = Window::new(LARGEST, LIMIT, NEAR);
        window.took(200);
        assert!(window.credit(1, Duration::ZERO).is_none(), "taken, but not sent");
        window.sends(100);
        assert!(window.credit(101, Duration::ZERO).is_none());
        assert!(window.credit(100, Duration::ZERO).is_some());
        assert!(window.credit(99, Duration::ZERO).is_none());
    }

    #[test]
    fn what_is_kept_for_the_peer_takes_room_until_it_is_dropped() {
        let mut window = Window::new(SMALLEST, LIMIT, NEAR);
        let all = u64::from(SMALLEST);
        window.took(all);
        window.sends(all);
        window.keeps(all);
        assert!(window.credit(all, Duration::ZERO).is_some());
        assert_eq!(window.room(), 0);
        window.drops(all);
        assert_eq!(window.room(), all);
    }
}
