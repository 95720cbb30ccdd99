//! Who has spoken and not yet shown who he is: each has a thread, so there are few at once.

use std::net::Shutdown;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::gate::{Arrival, gives_way};
use crate::socket::{Party, Socket};

/// Handshakes at once.
const MOST: usize = 16;

/// The handshakes under way, in the order in which they began.
#[derive(Default)]
pub(super) struct Strangers {
    shaking: Mutex<Vec<(Arc<Socket>, Party)>>,
    fewer: Condvar,
}

/// One of them, as long as it lasts.
pub(super) struct Stranger {
    all: Arc<Strangers>,
    socket: Arc<Socket>,
}

impl Strangers {
    /// Makes room for one more, once there is none: as at the gate, one has to give way.
    pub(super) fn admit(self: &Arc<Self>, arrival: &Arrival) -> Stranger {
        let mut shaking = self.shaking();
        if shaking.len() >= MOST {
            let parties = shaking.iter().map(|(_, party)| *party).chain([arrival.party]);
            if let Some((socket, _)) = gives_way(parties).and_then(|at| shaking.get(at)) {
                // Its thread wakes up and ends.
                socket.shutdown(Shutdown::Both);
            }
            let full = |shaking: &mut Vec<_>| shaking.len() >= MOST;
            let waited = self.fewer.wait_while(shaking, full);
            shaking = waited.unwrap_or_else(PoisonError::into_inner);
        }
        shaking.push((Arc::clone(&arrival.socket), arrival.party));
        Stranger { all: Arc::clone(self), socket: Arc::clone(&arrival.socket) }
    }

    fn shaking(&self) -> MutexGuard<'_, Vec<(Arc<Socket>, Party)>> {
        self.shaking.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        self.all.shaking().retain(|(socket, _)| !Arc::ptr_eq(socket, &self.socket));
        self.all.fewer.notify_one();
    }
}
