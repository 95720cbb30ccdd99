//! How many expanded stream bytes may be between the two QEMUs.
//!
//! QEMU judges convergence by how fast the stream is accepted: whatever waits in the proxies when it
//! stops the guest is downtime that it does not know of. So what may wait is what the path delivers in
//! an eighth of the downtime limit (or a quarter of a round trip, if that is longer), at most
//! [`MOST_WAITING`], at least [`SMALLEST`] so that the pipeline stays filled. To that comes what is on
//! its way: what the path delivers in a round trip, until a Credit is back, and in one more where
//! segments wait for their Answers. At the beginning nobody knows what the path delivers: the window
//! grows until the rate no longer follows.

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
    /// A segment waits for its Answer, or did in the last so many measures (at most [`ASKED`]).
    asked: u32,
    taken: u64,
    sent: u64,
    accepted: u64,
    /// Contents that are kept until the peer has said whether it lacks them, and then until it has
    /// them.
    owed: u64,
    /// Accepted bytes a second, smoothed; nothing until the first measure.
    rate: Option<f64>,
    /// Measures in a row in which the rate has not gone up by a quarter although the window was full.
    flat: u32,
    /// The window has been full in the present measure: it is what the rate is bound by.
    filled: bool,
    measure: Option<Measure>,
}

/// From a Credit until all is accepted that had been taken by then: as long as the path with all that waits
/// on it, so that what comes in bursts, a window at a time, is measured by whole windows.
#[derive(Debug, Clone, Copy)]
struct Measure {
    since: Duration,
    accepted: u64,
    taken: u64,
}

/// Shorter measures say more about scheduling than about the path.
const SHORTEST: Duration = Duration::from_millis(50);

/// A measure ends after so many times the path, or the shortest measure: what had been taken waits longer on a
/// path that has become slow.
const SLOW: u32 = 3;

/// The window grows until the rate has so often not grown by a quarter: every other measure does not show
/// yet what the last growth has brought.
const FLAT: u32 = 3;

/// Answers come in bursts too, between which no segment waits.
const ASKED: u32 = 2;

impl Window {
    /// `agreed` is the smaller of what the two sides offered. The handshake took a `round_trip`.
    #[must_use]
    pub fn new(agreed: u32, downtime_limit: Duration, round_trip: Duration) -> Self {
        Self {
            agreed: agreed.clamp(SMALLEST, LARGEST),
            downtime_limit,
            round_trip,
            asked: 0,
            taken: 0,
            sent: 0,
            accepted: 0,
            owed: 0,
            rate: None,
            flat: 0,
            filled: false,
            measure: None,
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
        self.filled |= self.room() < self.size() / 4;
    }

    /// Of them, `bytes` are about to leave for the peer: it may accept them from now on.
    pub fn sends(&mut self, bytes: u64) {
        self.sent += bytes;
    }

    /// A segment waits for the Answer to what was asked for it.
    pub fn waits(&mut self) {
        self.asked = ASKED;
    }

    /// The Answer to a question is there after so long.
    pub fn answered(&mut self, after: Duration) {
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
        let begin = Measure { since: now, accepted, taken: self.taken };
        let Measure { since, accepted: before, taken } = *self.measure.get_or_insert(begin);
        let elapsed = now.saturating_sub(since);
        let path = SHORTEST.max(self.path());
        if accepted >= taken && elapsed >= SHORTEST || elapsed >= SLOW * path {
            #[allow(clippy::cast_precision_loss)] // A rate needs no 53 bits.
            let rate = (accepted - before) as f64 / elapsed.as_secs_f64();
            self.measured(rate, elapsed.div_duration_f64(path));
            // What is taken after a rest, of whatever length, is not measured by it.
            self.measure = (self.in_flight() > 0).then_some(begin);
        }
        Some(more)
    }

    /// The rate for so many times the path.
    fn measured(&mut self, rate: f64, times: f64) {
        self.asked = self.asked.saturating_sub(1);
        let full = std::mem::take(&mut self.filled);
        let Some(before) = self.rate else {
            // Of a source that has had little to send until now nothing is known.
            self.rate = full.then_some(rate);
            return;
        };
        let grows = rate >= 1.25 * before;
        if self.flat < FLAT {
            self.flat = if grows { 0 } else { self.flat + u32::from(full) };
        }
        // Up at once: over a distance a window that grows slowly is what the rate is bound by. Where the
        // source had no more to send, less says nothing about the path.
        let stays = if full { 0.75_f64.powf(times) } else { 1.0 };
        self.rate = Some(rate.max(rate + stays * (before - rate)));
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
            // TCP grows as fast, until it has found out what the path holds.
            waiting = waiting.max(2.0 * on_its_way);
        }
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // At most 32 bits.
        let size = (on_its_way + waiting).min(f64::from(self.agreed)) as u64;
        size
    }

    /// From when bytes are taken until a Credit for them is back, if nothing waits.
    fn path(&self) -> Duration {
        if self.asked > 0 { 2 * self.round_trip } else { self.round_trip }
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
        window.took(5 * MIB);
        window.sends(5 * MIB);
        assert!(window.credit(MIB, Duration::from_secs(9)).is_some(), "however long nothing came");
        assert_eq!(window.size(), 8 * MIB);
        window.took(3 * MIB);
        window.sends(3 * MIB);
        assert!(window.credit(5 * MIB, Duration::from_millis(9100)).is_some());
        // 4 MiB in 100 ms, of which an eighth of 300 ms is 1.5 MiB, less 3 MiB in flight.
        assert_eq!(window.size(), 3 << 19);
        assert_eq!(window.room(), 0);
    }

    /// A source that always has more, and a path that carries so many bytes a millisecond, over which
    /// a round trip takes so many. Returns what is in flight after so long.
    fn in_flight(round_trip: u64, rate: u64, asks: bool, milliseconds: u64) -> u64 {
        in_flight_at(round_trip, |_| rate, asks, milliseconds)
    }

    /// The same where the path's rate changes.
    fn in_flight_at(
        round_trip: u64,
        rate: impl Fn(u64) -> u64,
        asks: bool,
        milliseconds: u64,
    ) -> u64 {
        let mut window = Window::new(LARGEST, LIMIT, Duration::from_millis(round_trip));
        let trips = if asks { 2 } else { 1 };
        // What had been taken at each millisecond, and is known to be accepted so much later.
        let mut taken = Vec::new();
        let mut accepted = 0;
        for now in 0..milliseconds {
            let room = window.room();
            if asks {
                window.waits();
            }
            window.took(room);
            window.sends(room);
            taken.push(accepted + window.in_flight());
            let late = now.checked_sub(round_trip * trips).and_then(|at| usize::try_from(at).ok());
            accepted = late.map_or(0, |late| taken[late].min(accepted + rate(now)));
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
    fn a_path_that_becomes_slow_has_less_in_flight_within_a_second() {
        let rate = |now| if now < 2000 { 118_000 } else { 5_000 };
        assert!(in_flight_at(1, rate, true, 2000) > 4 * MIB);
        assert!(in_flight_at(1, rate, true, 3000) < 3 * MIB / 2);
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
    fn a_source_that_has_no_more_says_nothing_about_the_path() {
        let mut window = Window::new(LARGEST, LIMIT, Duration::from_millis(100));
        let (mut accepted, mut now) = (0, Duration::ZERO);
        let mut sends = |window: &mut Window, times, bytes| {
            for _ in 0..times {
                let bytes = window.room().min(bytes);
                window.took(bytes);
                window.sends(bytes);
                accepted += bytes;
                now += Duration::from_millis(100);
                assert!(window.credit(accepted, now).is_some());
            }
            window.size()
        };
        assert_eq!(sends(&mut window, 20, MIB), 8 * MIB, "as at the beginning");
        let full = sends(&mut window, 2, u64::MAX);
        assert!(full > 8 * MIB && full < LARGEST.into());
        assert_eq!(sends(&mut window, 20, MIB), full);
        assert_eq!(sends(&mut window, 8, u64::MAX), LARGEST.into(), "it grows on");
    }

    #[test]
    fn between_answers_that_come_in_bursts_the_path_is_as_long() {
        let mut window = Window::new(LARGEST, LIMIT, Duration::from_millis(100));
        for now in [0, 200, 400] {
            let room = window.room();
            window.waits();
            window.took(room);
            window.sends(room);
            let waiting = window.size();
            window.answered(Duration::from_millis(100));
            assert_eq!(window.size(), waiting);
            assert!(window.credit(window.accepted + room, Duration::from_millis(now)).is_some());
        }
    }

    #[test]
    fn the_shortest_round_trip_counts() {
        let mut window = Window::new(LARGEST, LIMIT, Duration::from_millis(100));
        window.took(8 * MIB);
        window.sends(8 * MIB);
        assert!(window.credit(0, Duration::ZERO).is_some());
        assert!(window.credit(8 * MIB, Duration::from_secs(8)).is_some());
        let far = window.size();
        window.answered(NEAR);
        window.answered(2 * NEAR);
        assert!(window.size() < far);
        assert_eq!(window.size(), MIB + MIB * 2 / 10_000);
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
