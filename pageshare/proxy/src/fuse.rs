//! One failure ends a channel: its sockets are shut, so that every thread that waits on one of
//! them wakes up and ends too.

use std::net::Shutdown;
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::Error;
use crate::socket::Socket;
use crate::threads::locked;

/// Holds the first error of a channel, and the sockets to shut when it comes.
pub struct Fuse {
    blown: Mutex<Option<Error>>,
    sockets: Mutex<Vec<Arc<Socket>>>,
}

impl Fuse {
    /// A fuse on these sockets.
    #[must_use]
    pub fn new(sockets: Vec<Arc<Socket>>) -> Self {
        Self { blown: Mutex::new(None), sockets: Mutex::new(sockets) }
    }

    /// Adds a socket; shuts it at once if the fuse has blown already.
    pub fn protect(&self, socket: Arc<Socket>) {
        let mut sockets = locked(&self.sockets);
        if self.has_blown() {
            socket.shutdown(Shutdown::Both);
        }
        sockets.push(socket);
    }

    /// Ends the channel with this error, unless it has ended with another already. What the peer said
    /// takes the place of the mere fact that the connection was lost, whichever was noticed first.
    pub fn blow(&self, error: Error) {
        let sockets = locked(&self.sockets);
        let mut blown = locked(&self.blown);
        let is_lost = matches!(*blown, Some(Error::Lost { .. }));
        if blown.is_none() || is_lost && matches!(error, Error::Wire(_)) {
            *blown = Some(error);
        }
        drop(blown);
        for socket in sockets.iter() {
            socket.shutdown(Shutdown::Both);
        }
    }

    /// Whether the channel has failed.
    #[must_use]
    pub fn has_blown(&self) -> bool {
        locked(&self.blown).is_some()
    }

    /// The error, if there was one.
    pub fn error(self) -> Option<Error> {
        self.blown.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use pageshare_wire::WireError;

    use super::*;

    #[test]
    fn what_the_peer_said_names_the_failure_and_not_the_broken_pipe_that_came_of_it() {
        let lost = || Error::lost("the peer", "sending")(io::ErrorKind::BrokenPipe.into());
        let broke = || Error::Wire(WireError::Protocol("more accepted than sent"));
        for errors in [[lost(), broke()], [broke(), lost()]] {
            let fuse = Fuse::new(Vec::new());
            errors.into_iter().for_each(|error| fuse.blow(error));
            assert!(matches!(fuse.error(), Some(Error::Wire(_))));
        }
    }
}
