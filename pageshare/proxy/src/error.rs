//! What can go wrong with a channel, in sentences for operators.

use std::io;

use pageshare_wire::WireError;

use crate::address::Address;

/// Why a channel, and with it the migration, did not go through.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nobody accepts connections there.
    #[error("cannot connect to {what} at {address}: {source}")]
    Connect {
        /// Whom we wanted to reach.
        what: &'static str,
        /// Where.
        address: Address,
        /// Why not.
        source: io::Error,
    },
    /// The socket cannot be listened on.
    #[error("cannot listen at {address}: {source}")]
    Listen {
        /// Where.
        address: Address,
        /// Why not.
        source: io::Error,
    },
    /// A connection broke.
    #[error("lost the connection to {what} while {doing}: {source}")]
    Lost {
        /// Whom it led to.
        what: &'static str,
        /// What we were doing.
        doing: &'static str,
        /// How it broke.
        source: io::Error,
    },
    /// A connection closed before its time.
    #[error("{what} closed the connection in the middle of the migration")]
    Closed {
        /// Whom it led to.
        what: &'static str,
    },
    /// A connection closed during the handshake.
    #[error(
        "the other proxy closed the connection before it agreed: see its log, its `--peer`, and \
         whether only one of the two has `--insecure`"
    )]
    Unagreed,
    /// A QEMU's monitor gives no answer.
    #[error("{what} at {address}: {reason}")]
    Monitor {
        /// Which one.
        what: &'static str,
        /// Where.
        address: Address,
        /// What came instead.
        reason: String,
    },
    /// The peer's bytes are not as they should be.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// TLS could not be set up.
    #[error("TLS: {0}")]
    Tls(String),
    /// A file that is needed cannot be used.
    #[error("{what} {path}: {reason}")]
    File {
        /// What the file is for.
        what: &'static str,
        /// Where it is.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The system gives no more threads.
    #[error(
        "no thread can be started ({0}): raise the limit on processes (ulimit -u, TasksMax=), or on \
         memory (ulimit -v)"
    )]
    Thread(#[source] io::Error),
    /// What was asked for cannot be done.
    #[error("{0}")]
    Refused(String),
}

impl Error {
    /// A connection to `what` that broke while `doing`.
    pub(crate) fn lost(what: &'static str, doing: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Lost { what, doing, source }
    }

    /// Whether nothing has come for as long as was waited.
    pub(crate) fn is_late(&self) -> bool {
        let late = [io::ErrorKind::TimedOut, io::ErrorKind::WouldBlock];
        matches!(self, Self::Lost { source, .. } if late.contains(&source.kind()))
    }

    /// Whether the other end has just closed the connection, and has not said why.
    pub(crate) fn is_cut(&self) -> bool {
        let cuts = [io::ErrorKind::ConnectionReset, io::ErrorKind::BrokenPipe];
        match self {
            Self::Closed { .. } => true,
            Self::Lost { source, .. } => cuts.contains(&source.kind()),
            _ => false,
        }
    }

    /// The same, of a handshake.
    pub(crate) fn of_handshake(self) -> Self {
        if self.is_cut() { Self::Unagreed } else { self }
    }
}
