//! The proxy on the host that the VM leaves.
//!
//! It listens where QEMU is told to migrate to. Every connection of QEMU's becomes a channel to
//! the receiver; channels that are open at the same time are one migration.

mod channel;
mod cut;
mod ingest;
mod machine;
mod migration;
mod outlet;
mod versions;
mod workers;

use std::net::Shutdown;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use pageshare_wire::adaptive::Policy;
use pageshare_wire::hello::MigrationId;
use pageshare_wire::record::Kind;
use pageshare_wire::{Versions, WireError};
use tracing::{debug, error};

use crate::address::Address;
use crate::error::Error;
use crate::gate::{Arrival, Gate, Rules, Said};
use crate::handshake::{self, Agreed};
use crate::kept::{KeepIn, KeptIn};
use crate::link::{self, Body, ClientTls, Link};
use crate::metrics::Metrics;
use crate::record::Record;
use crate::scope::Scope;
use crate::socket::{Listener, Socket};
use crate::threads::{self, locked};
use migration::Migration;
use workers::Workers;
pub(crate) use workers::compressor;

/// How to send.
pub struct Sender {
    /// Where the receiver listens.
    pub peer: Address,
    /// TLS, and the name that the receiver's certificate must bear; nothing with `--insecure`.
    pub tls: Option<(ClientTls, String)>,
    /// The scope to ask in.
    pub scope: Option<Scope>,
    /// Whether to ask for pages.
    pub ask: Policy,
    /// Which pages may be asked for.
    pub candidates: Candidates,
    /// The source QEMU, whose pages KSM's verdict is read of; nothing to take the process that
    /// connects.
    pub ksm_pid: Option<u32>,
    /// Refer to KSM's candidates before the receiver has answered.
    pub at_once: bool,
    /// Bytes of pages sent that are remembered, so that changes can travel as differences; 0 for
    /// no differences.
    pub delta_bytes: usize,
    /// Where to keep a copy of the VM for its return; needs a scope.
    pub keep: Option<KeepIn>,
    /// Where to find the copy of the VM to which differences are taken; needs a scope.
    pub kept: Option<KeptIn>,
    /// Whether to compress what is not referenced.
    pub compress: Policy,
    /// zstd's level.
    pub level: i32,
    /// Threads that compress.
    pub threads: usize,
    /// QEMU's `downtime-limit`, which bounds what is kept in flight.
    pub downtime_limit: Duration,
    /// Upper bound on expanded bytes in flight.
    pub window: u32,
    /// The versions of the protocol to offer.
    pub versions: Versions,
    /// Where running migrations are counted.
    pub metrics: Metrics,
}

/// Which pages the receiver may be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Candidates {
    /// Every page.
    All,
    /// Those that KSM has merged at the source, as in the paper.
    Ksm,
    /// None.
    Off,
}

impl Sender {
    /// Opens a channel to the receiver, in TLS or plainly. A receiver on which many press may close
    /// a connection that has not shown yet what it is: that is tried again.
    ///
    /// # Errors
    /// If it does not listen, refuses, or TLS fails.
    pub fn connect(
        &self,
        migration: MigrationId,
        channel: u32,
        scope: Option<&Scope>,
    ) -> Result<(Link, Agreed), Error> {
        /// Before each new attempt.
        const PAUSES: [u64; 5] = [100, 200, 400, 800, 1600];
        let mut pauses = PAUSES.into_iter().map(Duration::from_millis);
        loop {
            match (self.attempt(migration, channel, scope), pauses.next()) {
                (Err(error), Some(pause)) if error.is_cut() => {
                    debug!("the receiver did not let channel {channel} in; once more: {error}");
                    std::thread::sleep(pause);
                }
                (greeted, _) => return greeted.map_err(Error::of_handshake),
            }
        }
    }

    fn attempt(
        &self,
        migration: MigrationId,
        channel: u32,
        scope: Option<&Scope>,
    ) -> Result<(Link, Agreed), Error> {
        let socket = Arc::new(Socket::connect("the receiving proxy", &self.peer)?);
        let end = link::deadline();
        let mut link = match &self.tls {
            Some((tls, name)) => tls.link(socket, name, end)?,
            None => Link::plain(socket, end),
        };
        let agreed =
            handshake::send(&mut link, migration, channel, self.window, scope, self.versions)?;
        Ok((link, agreed))
    }

    /// Connects to the receiver for a migration of which nothing will come: what may be asked is
    /// answered, and no QEMU notices.
    ///
    /// # Errors
    /// If it cannot be reached, or is none that would take a migration.
    pub fn ask_only(&self, scope: Option<&Scope>) -> Result<(Link, Agreed), Error> {
        self.connect(MigrationId(handshake::random()?), 0, scope)
    }

    /// Makes sure that a migration would reach the receiver: its address, both certificates.
    ///
    /// # Errors
    /// As [`Sender::ask_only`].
    pub fn greet(&self) -> Result<(), Error> {
        end_questions(&mut self.ask_only(None)?.0)
    }
}

/// Ends what [`Sender::ask_only`] has begun.
///
/// # Errors
/// If the receiver does not take it so.
pub fn end_questions(link: &mut Link) -> Result<(), Error> {
    link.writer.send(Kind::End, 0, &[])?;
    // It has nothing to look up for that.
    link.reader.limit(link::deadline());
    let late = |error: Error| if error.is_late() { link::silent() } else { error };
    match link.reader.receive(&mut Body::default()).map_err(late)? {
        Some(header) if header.kind == Kind::ReverseEnd => Ok(()),
        Some(_) => Err(WireError::Protocol("no end to a sender's questions").into()),
        None => Err(Error::Closed { what: "the receiving proxy" }),
    }
}

/// The migration under way.
type Current = Arc<Mutex<Option<Arc<Migration>>>>;

/// Serves QEMU's connections in threads of its own. The records of migrations arrive as they end.
///
/// # Errors
/// If the compressing threads cannot be started, or the process has no file descriptor left.
pub fn serve(sender: Sender, listener: Arc<Listener>) -> Result<mpsc::Receiver<Record>, Error> {
    let workers = Workers::start(sender.threads, sender.level)?;
    let current = Current::default();
    let rules = Rules {
        most: Rules::room(WAITING),
        patience: PATIENCE,
        ticks: true,
        looks_at: Opening::BYTES,
        // Which is the main one, for which all others wait.
        keeps_first: true,
    };
    let passes = {
        let current = Arc::clone(&current);
        move |arrival: &Arrival, said: &Said<'_>| passes(&current, arrival, said)
    };
    let mut gate = Gate::open(listener, rules, sender.metrics.clone(), passes)?;
    let sender = Arc::new(sender);
    let (ended, records) = mpsc::channel();
    threads::start(move || {
        loop {
            let arrival = gate.next();
            let turn_away = |why: &str| {
                arrival.socket.shutdown(Shutdown::Both);
                sender.metrics.turned_away(why);
            };
            let opening = Opening::of(&arrival.socket);
            let mut slot = locked(&current);
            let migration = match &*slot {
                Some(_) if opening == Opening::Main => {
                    turn_away(
                        "another QEMU was told to migrate here while a migration is running; give \
                         each VM a `pageshare send` of its own",
                    );
                    continue;
                }
                Some(migration) if migration.party != arrival.party => {
                    turn_away("it is not of the QEMU that migrates here");
                    continue;
                }
                Some(migration) => Arc::clone(migration),
                None if matches!(opening, Opening::Silent | Opening::Multifd) => {
                    turn_away("the migration is over that it could have belonged to");
                    continue;
                }
                None => {
                    let (sender, qemu) = (Arc::clone(&sender), &arrival);
                    match Migration::begin(sender, workers.clone(), qemu.socket.peer(), qemu.party)
                    {
                        Ok(migration) => Arc::clone(slot.insert(Arc::new(migration))),
                        Err(error) => {
                            error!("{error}");
                            continue;
                        }
                    }
                }
            };
            let number = migration.open_channel(opening == Opening::Silent);
            drop(slot);
            let carrying = Arc::clone(&migration);
            let (slot, ended_here) = (Arc::clone(&current), ended.clone());
            let started = threads::start(move || {
                channel::run(&arrival.socket, &carrying, number);
                close(&slot, &carrying, &ended_here);
            });
            if let Err(error) = started {
                error!("channel {number}: {error}");
                migration.account.broke(&error.to_string());
                close(&current, &migration, &ended);
            }
        }
    })?;
    Ok(records)
}

/// A channel has ended, and with the last one the migration.
fn close(current: &Current, migration: &Migration, ended: &mpsc::Sender<Record>) {
    let mut slot = locked(current);
    let last = migration.close_channel();
    if last {
        *slot = None;
    }
    drop(slot);
    // Its kept copy may take a while to reach the disk, and another migration may begin.
    if last && let Some(record) = migration.end() {
        // Nobody listens any more when the program is about to end.
        let _ = ended.send(record);
    }
}

/// Connections of nobody knows whom that may wait: QEMU from 9.0 on opens all channels, of which 255 may
/// be multifd's, before the main one speaks.
const WAITING: usize = 256;

/// QEMU speaks on its main channel as soon as its main thread has the time.
const PATIENCE: Duration = Duration::from_secs(60);

/// A channel that has not spoken after this long is the one that stays silent.
const SILENCE: Duration = Duration::from_millis(200);

/// Whether a connection is a channel: what is none shall neither begin a migration nor meddle with
/// one. A main channel begins one; the others are of the same QEMU. One of them may be silent: it is
/// held ready for `postcopy-preempt`.
fn passes(current: &Current, arrival: &Arrival, said: &Said<'_>) -> bool {
    let slot = locked(current);
    let settled =
        said.ended || said.bytes.len() >= Opening::BYTES || arrival.came.elapsed() >= SILENCE;
    match (Opening::from(said.bytes), &*slot) {
        (Opening::Main, _) => true,
        // Its main channel comes first, and may speak later.
        (Opening::Other, None) => settled && said.first,
        (Opening::Silent | Opening::Multifd, None) => false,
        (_, Some(migration)) if migration.party != arrival.party => false,
        (Opening::Silent, Some(migration)) => settled && !migration.has_silent_channel(),
        (Opening::Multifd | Opening::Other, Some(_)) => settled,
    }
}

/// What a connection is, as far as its first bytes tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Opening {
    /// A main channel: QEMU writes on it at once.
    Main,
    /// One of several, which QEMU opens before it has written on the main one.
    Multifd,
    /// No byte has come yet.
    Silent,
    /// Something else, such as QEMU's own TLS.
    Other,
}

impl Opening {
    /// So many bytes tell.
    const BYTES: usize = 4;

    fn of(qemu: &Socket) -> Self {
        let mut first = [0; Self::BYTES];
        let length = qemu.look(&mut first).unwrap_or(0);
        Self::from(&first[..length])
    }

    fn from(said: &[u8]) -> Self {
        match said {
            [] => Self::Silent,
            b"QEVM" => Self::Main,
            [0x11, 0x22, 0x33, 0x44] => Self::Multifd,
            _ => Self::Other,
        }
    }
}
