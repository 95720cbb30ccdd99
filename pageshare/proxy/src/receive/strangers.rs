//! Who has spoken and not yet shown who he is: each has threads, so there are few at once.

use std::net::Shutdown;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::gate::{Arrival, gives_way};
use crate::socket::{Party, Socket};
use crate::threads::locked;

/// Connections of whom nobody knows, in the order in which they came.
pub(super) struct Strangers {
    most: usize,
    there: Mutex<Vec<(Arc<Socket>, Party)>>,
    fewer: Condvar,
}

/// One of them, as long as it lasts.
pub(super) struct Stranger {
    all: Arc<Strangers>,
    socket: Arc<Socket>,
}

impl Strangers {
    /// So many at once.
    pub(super) fn at_most(most: usize) -> Arc<Self> {
        Arc::new(Self { most, there: Mutex::default(), fewer: Condvar::new() })
    }

    /// Makes room for one more, once there is none: as at the gate, one has to give way, and another
    /// if somebody else who waits has taken its place.
    pub(super) fn admit(self: &Arc<Self>, arrival: &Arrival) -> Stranger {
        let mut there = self.there();
        while there.len() >= self.most {
            let parties = there.iter().map(|(_, party)| *party).chain([arrival.party]);
            if let Some((socket, _)) = gives_way(parties, false).and_then(|at| there.get(at)) {
                // Its thread wakes up and ends.
                socket.shutdown(Shutdown::Both);
            }
            there = self.fewer.wait(there).unwrap_or_else(PoisonError::into_inner);
        }
        there.push((Arc::clone(&arrival.socket), arrival.party));
        Stranger { all: Arc::clone(self), socket: Arc::clone(&arrival.socket) }
    }

    fn there(&self) -> MutexGuard<'_, Vec<(Arc<Socket>, Party)>> {
        locked(&self.there)
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        self.all.there().retain(|(socket, _)| !Arc::ptr_eq(socket, &self.socket));
        self.all.fewer.notify_all();
    }
}
