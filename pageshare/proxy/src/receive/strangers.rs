//! Who has spoken and not yet shown who he is: each has threads, so there are few at once.

use std::net::Shutdown;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::gate::gives_way;
use crate::socket::{Party, Socket};
use crate::threads::locked;

/// How long one is not closed for the next of the same party: it may have shown who it is, and only
/// our thread, which says so, not have run yet.
const GRACE: Duration = Duration::from_millis(200);

/// Connections of whom nobody knows, in the order in which they came.
pub(super) struct Strangers {
    most: usize,
    grace: Duration,
    there: Mutex<Vec<Seat>>,
    fewer: Condvar,
}

/// The place that one takes.
struct Seat {
    socket: Arc<Socket>,
    party: Party,
    since: Instant,
}

/// One of them, as long as it lasts.
pub(super) struct Stranger {
    all: Arc<Strangers>,
    socket: Arc<Socket>,
}

impl Strangers {
    /// So many at once.
    pub(super) fn at_most(most: usize) -> Arc<Self> {
        Self::with_grace(most, GRACE)
    }

    fn with_grace(most: usize, grace: Duration) -> Arc<Self> {
        Arc::new(Self { most, grace, there: Mutex::default(), fewer: Condvar::new() })
    }

    /// Makes room for one more, once there is none: as at the gate, one has to give way, and another
    /// if somebody else who waits has taken its place.
    pub(super) fn admit(self: &Arc<Self>, socket: &Arc<Socket>, party: Party) -> Stranger {
        let mut there = self.there();
        while there.len() >= self.most {
            let parties = there.iter().map(|seat| seat.party).chain([party]);
            let seat = gives_way(parties, false).and_then(|at| there.get(at));
            if let Some(seat) = seat.filter(|seat| seat.party == party)
                && let Some(patience) = self.grace.checked_sub(seat.since.elapsed())
            {
                let waited = self.fewer.wait_timeout(there, patience);
                there = waited.unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            if let Some(seat) = seat {
                // Its thread wakes up and ends.
                seat.socket.shutdown(Shutdown::Both);
            }
            there = self.fewer.wait(there).unwrap_or_else(PoisonError::into_inner);
        }
        there.push(Seat { socket: Arc::clone(socket), party, since: Instant::now() });
        Stranger { all: Arc::clone(self), socket: Arc::clone(socket) }
    }

    fn there(&self) -> MutexGuard<'_, Vec<Seat>> {
        locked(&self.there)
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        self.all.there().retain(|seat| !Arc::ptr_eq(&seat.socket, &self.socket));
        self.all.fewer.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// Lets a second one of a party in, where there is room for one; what the first finds closed.
    fn second_after(grace: Duration, first_ends: bool) -> bool {
        const PARTY: Party = Party::Process(Some(1));
        let strangers = Strangers::with_grace(1, grace);
        let [(first, _far), (second, _other)] = [(); 2].map(|()| {
            let (near, far) =
                socket2::Socket::pair_raw(socket2::Domain::UNIX, socket2::Type::STREAM, None)
                    .expect("two ends");
            (Arc::new(Socket(near)), far)
        });
        let stranger = strangers.admit(&first, PARTY);
        thread::scope(|scope| {
            let enters = scope.spawn(|| strangers.admit(&second, PARTY));
            while !first_ends && !first.is_hung_up() {
                thread::yield_now();
            }
            thread::sleep(Duration::from_millis(50));
            drop(stranger);
            drop(enters.join().expect("it is let in"));
        });
        first.is_hung_up()
    }

    #[test]
    fn the_next_of_a_party_waits_a_moment_for_the_one_before_and_no_longer() {
        assert!(!second_after(Duration::from_secs(600), true), "it was closed at once");
        assert!(second_after(Duration::from_millis(1), false));
    }
}
