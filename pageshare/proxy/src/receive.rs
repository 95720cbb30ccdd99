//! The proxy on the host that the VM goes to.
//!
//! It listens for the sender, rebuilds the streams, and writes them to QEMU where QEMU awaits its
//! migration. It connects to QEMU only when the first bytes are there: a connection is all that
//! QEMU waits for.

mod addresses;
mod answer;
mod channel;
mod received;
mod search;
mod session;
mod shelf;
mod waiting;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, mpsc};

use pageshare_wire::hello::MigrationId;
use tracing::warn;

use crate::address::Address;
use crate::error::Error;
use crate::handshake;
use crate::kept::KeepIn;
use crate::link::{Link, ServerTls};
use crate::metrics::Metrics;
use crate::record::Record;
use crate::scope::Scope;
use crate::socket::{Listener, Socket};
use session::Session;

pub use shelf::Shelf;

/// How to receive.
pub struct Receiver {
    /// Where the destination QEMU awaits its migration.
    pub qemu: Address,
    /// TLS; nothing with `--insecure`.
    pub tls: Option<ServerTls>,
    /// The destination QEMU's process, in whose memory pages that have arrived are found again;
    /// nothing to take the process that listens there.
    pub qemu_pid: Option<u32>,
    /// The scopes to answer in, and the pages that may be shared in each.
    pub shelves: Vec<(Scope, Arc<Shelf>)>,
    /// Where to keep a copy of the VM for the next time that it migrates; takes a scope.
    pub keep: Option<KeepIn>,
    /// Bytes of pages just received that are kept for references.
    pub recent_bytes: usize,
    /// Upper bound on expanded bytes in flight.
    pub window: u32,
    /// Where running migrations are counted.
    pub metrics: Metrics,
}

type Sessions = Arc<Mutex<HashMap<MigrationId, Arc<Session>>>>;

/// Serves senders in threads of its own. The records of migrations arrive as they end.
#[must_use]
pub fn serve(receiver: Receiver, listener: Arc<Listener>) -> mpsc::Receiver<Record> {
    let receiver = Arc::new(receiver);
    let (ended, records) = mpsc::channel();
    std::thread::spawn(move || {
        let sessions = Sessions::default();
        for socket in listener.incoming() {
            let (receiver, sessions) = (Arc::clone(&receiver), Arc::clone(&sessions));
            let ended = ended.clone();
            std::thread::spawn(move || greet(socket, &receiver, &sessions, &ended));
        }
    });
    records
}

/// One connection from its handshake to its end. One that is no sender's is turned away, and touches
/// no migration.
fn greet(
    socket: Socket,
    receiver: &Arc<Receiver>,
    sessions: &Sessions,
    ended: &mpsc::Sender<Record>,
) {
    let turn_away = |error: Error| warn!("a connection was turned away: {error}");
    let greeted = || -> Result<_, Error> {
        let mut link = match &receiver.tls {
            Some(tls) => tls.link(socket)?,
            None => Link::plain(socket)?,
        };
        let scopes = receiver.shelves.iter().map(|(scope, _)| scope);
        let agreed = handshake::receive(&mut link, receiver.window, scopes)?;
        Ok((link, agreed))
    };
    let (link, agreed) = match greeted() {
        Ok(greeted) => greeted,
        Err(error) => return turn_away(error),
    };
    let id = agreed.migration;
    let session = {
        let mut sessions = sessions.lock().unwrap_or_else(PoisonError::into_inner);
        let session = sessions
            .entry(id)
            .or_insert_with(|| Arc::new(Session::begin(Arc::clone(receiver), &agreed)));
        if session.scope != agreed.scope {
            let words = "a channel in another scope than its migration's first";
            return turn_away(Error::Refused(words.to_owned()));
        }
        session.open_channel();
        Arc::clone(session)
    };
    channel::run(link, &agreed, &session);
    let last = {
        let mut sessions = sessions.lock().unwrap_or_else(PoisonError::into_inner);
        let last = session.close_channel();
        if last {
            sessions.remove(&id);
        }
        last
    };
    if last && let Some(record) = session.end() {
        // Nobody listens any more when the program is about to end.
        let _ = ended.send(record);
    }
}
