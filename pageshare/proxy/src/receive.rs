//! The proxy on the host that the VM goes to.
//!
//! It listens for the sender, rebuilds the streams, and writes them to QEMU where QEMU awaits its
//! migration. It connects to QEMU only when the first bytes are there: a connection is all that
//! QEMU waits for.

mod addresses;
mod answer;
mod channel;
mod qemu;
mod received;
mod search;
mod session;
mod shelf;
mod strangers;

use std::sync::{Arc, mpsc};

use pageshare_wire::Versions;
use pageshare_wire::hello::{HELLO_BYTES, MAGIC};

use crate::address::Address;
use crate::error::Error;
use crate::gate::{Arrival, Gate, Rules, Said};
use crate::handshake;
use crate::kept::KeepIn;
use crate::link::{Link, PATIENCE, ServerTls};
use crate::metrics::Metrics;
use crate::record::Record;
use crate::scope::Scope;
use crate::socket::Listener;
use crate::threads;
use session::Sessions;
use strangers::{Stranger, Strangers};

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
    /// The versions of the protocol to take.
    pub versions: Versions,
    /// Where running migrations are counted.
    pub metrics: Metrics,
}

/// Serves senders in threads of its own. The records of migrations arrive as they end.
///
/// # Errors
/// If the process has no thread or file descriptor left.
pub fn serve(receiver: Receiver, listener: Arc<Listener>) -> Result<mpsc::Receiver<Record>, Error> {
    let rules = Rules {
        most: Rules::room(WAITING),
        patience: PATIENCE,
        ticks: false,
        looks_at: OPENING_BYTES,
        keeps_first: false,
    };
    let secure = receiver.tls.is_some();
    let opens = move |_: &Arrival, said: &Said<'_>| said.ended || opens(secure, said.bytes);
    let mut gate = Gate::open(listener, rules, receiver.metrics.clone(), opens)?;
    let receiver = Arc::new(receiver);
    let (ended, records) = mpsc::channel();
    threads::start(move || {
        let sessions = Arc::new(Sessions::default());
        let strangers = Strangers::at_most(SHAKING);
        let silent = Strangers::at_most(Rules::room(WAITING));
        loop {
            let arrival = gate.next();
            let stranger = strangers.admit(&arrival);
            let (greeter, sessions) = (Arc::clone(&receiver), Arc::clone(&sessions));
            let (silent, ended) = (Arc::clone(&silent), ended.clone());
            let greet = move || greet(&arrival, stranger, &silent, &greeter, &sessions, &ended);
            if let Err(error) = threads::start(greet) {
                receiver.metrics.turned_away(&error.to_string());
            }
        }
    })?;
    Ok(records)
}

/// Connections that may wait until they have spoken; with `--insecure`, as many again until they have
/// sent something of a migration.
const WAITING: usize = 256;

/// Handshakes at once.
const SHAKING: usize = 16;

/// Of what a sender says first, no more need be looked at: a record of TLS, which is longer than our
/// own Hello.
const OPENING_BYTES: usize = TLS_HEADER_BYTES + (16 << 10);
const TLS_HEADER_BYTES: usize = 5;

/// Whether a connection has said all that opens a handshake, or something else.
fn opens(secure: bool, said: &[u8]) -> bool {
    /// A handshake's record in TLS.
    const HANDSHAKE: u8 = 22;
    match said {
        [] => false,
        _ if !secure => said.len() >= HELLO_BYTES || !MAGIC.starts_with(&said[..said.len().min(4)]),
        [HANDSHAKE, _, _, high, low, ..] => {
            let length = usize::from(u16::from_be_bytes([*high, *low]));
            said.len() >= (TLS_HEADER_BYTES + length).min(OPENING_BYTES)
        }
        [first, ..] => *first != HANDSHAKE,
    }
}

/// One connection from its handshake to its end. One that is no sender's is turned away, and touches
/// no migration.
fn greet(
    arrival: &Arrival,
    stranger: Stranger,
    silent: &Arc<Strangers>,
    receiver: &Arc<Receiver>,
    sessions: &Sessions,
    ended: &mpsc::Sender<Record>,
) {
    let turn_away = |error: &Error| receiver.metrics.turned_away(&error.to_string());
    let greeted = || -> Result<_, Error> {
        let (socket, end) = (Arc::clone(&arrival.socket), arrival.came + PATIENCE);
        let mut link = match &receiver.tls {
            Some(tls) => tls.link(socket, end)?,
            None => Link::plain(socket, end),
        };
        let scopes = receiver.shelves.iter().map(|(scope, _)| scope);
        let agreed = handshake::receive(&mut link, receiver.window, scopes, receiver.versions)?;
        let shown = receiver.tls.is_some() || agreed.scope.is_some();
        if shown {
            link.reader.lift_deadline()?;
        }
        Ok((link, agreed, shown))
    };
    let (link, agreed, shown) = match greeted() {
        Ok(greeted) => greeted,
        Err(error) => return turn_away(&error.of_handshake()),
    };
    // Who has shown neither a certificate nor that he knows a scope's key remains a stranger.
    let silent = (!shown).then(|| silent.admit(arrival));
    drop(stranger);
    let record = sessions.with((receiver, &agreed, shown), |session| {
        if session.scope == agreed.scope {
            channel::run(link, &agreed, session, silent);
        } else {
            let words = "a channel in another scope than its migration's first";
            turn_away(&Error::Refused(words.to_owned()));
        }
    });
    if let Some(record) = record {
        // Nobody listens any more when the program is about to end.
        let _ = ended.send(record);
    }
}
