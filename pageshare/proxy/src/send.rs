//! The proxy on the host that the VM leaves.
//!
//! It listens where QEMU is told to migrate to. Every connection of QEMU's becomes a channel to
//! the receiver; channels that are open at the same time are one migration.

mod channel;
mod ingest;
mod migration;
mod outlet;
mod versions;
mod workers;

use std::io;
use std::net::Shutdown;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use pageshare_wire::WireError;
use pageshare_wire::adaptive::Policy;
use pageshare_wire::hello::MigrationId;
use pageshare_wire::record::Kind;
use tracing::{debug, error, warn};

use crate::address::Address;
use crate::error::Error;
use crate::handshake::{self, Agreed};
use crate::kept::{KeepIn, KeptIn};
use crate::link::{Body, ClientTls, Link};
use crate::metrics::Metrics;
use crate::record::Record;
use crate::scope::Scope;
use crate::socket::{Listener, Socket};
use migration::Migration;
use workers::Workers;

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
    /// Connects to the receiver, in TLS or plainly.
    ///
    /// # Errors
    /// If it does not listen, or TLS fails.
    pub fn connect(&self) -> Result<Link, Error> {
        let socket = Socket::connect("the receiving proxy", &self.peer)?;
        match &self.tls {
            Some((tls, name)) => tls.link(socket, name),
            None => Link::plain(socket),
        }
    }
}

impl Sender {
    /// Connects to the receiver for a migration of which nothing will come: what may be asked is
    /// answered, and no QEMU notices.
    ///
    /// # Errors
    /// If it cannot be reached, or is none that would take a migration.
    pub fn ask_only(&self, scope: Option<&Scope>) -> Result<(Link, Agreed), Error> {
        let mut link = self.connect()?;
        let id = MigrationId(handshake::random()?);
        let agreed = handshake::send(&mut link, id, 0, self.window, scope)?;
        Ok((link, agreed))
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
    match link.reader.receive(&mut Body::default())? {
        Some(header) if header.kind == Kind::ReverseEnd => Ok(()),
        Some(_) => Err(WireError::Protocol("no end to a sender's questions").into()),
        None => Err(Error::Closed { what: "the receiving proxy" }),
    }
}

/// Serves QEMU's connections in threads of its own. The records of migrations arrive as they end.
///
/// # Errors
/// If the compressing threads cannot be started.
pub fn serve(sender: Sender, listener: Arc<Listener>) -> Result<mpsc::Receiver<Record>, Error> {
    let workers = Workers::start(sender.threads, sender.level)?;
    let sender = Arc::new(sender);
    let (ended, records) = mpsc::channel();
    std::thread::spawn(move || {
        let current: Arc<Mutex<Option<Arc<Migration>>>> = Arc::default();
        for qemu in listener.incoming() {
            // Looked at before it is a channel: what is none shall neither begin a migration nor
            // meddle with one.
            let opening = opening(&qemu).unwrap_or(Opening::Gone);
            if opening == Opening::Gone {
                debug!("a connection was closed without a word");
                continue;
            }
            let mut slot = current.lock().unwrap_or_else(PoisonError::into_inner);
            let migration = match &*slot {
                Some(_) if opening == Opening::Main => {
                    warn!(
                        "another QEMU was told to migrate here while a migration is running, and \
                         was turned away; give each VM a `pageshare send` of its own"
                    );
                    qemu.shutdown(Shutdown::Both);
                    continue;
                }
                Some(migration) => Arc::clone(migration),
                None => match Migration::begin(Arc::clone(&sender), workers.clone(), qemu.peer()) {
                    Ok(migration) => Arc::clone(slot.insert(Arc::new(migration))),
                    Err(error) => {
                        error!("{error}");
                        continue;
                    }
                },
            };
            let number = migration.open_channel();
            drop(slot);
            let (current, ended) = (Arc::clone(&current), ended.clone());
            std::thread::spawn(move || {
                channel::run(qemu, &migration, number);
                let last = {
                    let mut slot = current.lock().unwrap_or_else(PoisonError::into_inner);
                    let last = migration.close_channel();
                    if last {
                        *slot = None;
                    }
                    last
                };
                // Its kept copy may take a while to reach the disk, and another migration may begin.
                if last && let Some(record) = migration.end() {
                    // Nobody listens any more when the program is about to end.
                    let _ = ended.send(record);
                }
            });
        }
    });
    Ok(records)
}

/// What a connection is, as far as its first bytes tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Opening {
    /// A main channel: QEMU writes on it at once.
    Main,
    /// Another channel. One that stays silent is held ready for `postcopy-preempt`.
    Other,
    /// None: closed before a byte came. Somebody wanted to know whether anybody listens.
    Gone,
}

fn opening(qemu: &Socket) -> io::Result<Opening> {
    const PATIENCE: Duration = Duration::from_millis(200);
    let mut first = [0; 4];
    qemu.set_read_timeout(Some(PATIENCE))?;
    let seen = qemu.peek(&mut first);
    qemu.set_read_timeout(None)?;
    Ok(match seen {
        Ok(0) => Opening::Gone,
        Ok(length) if &first[..length] == b"QEVM" => Opening::Main,
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Opening::Gone,
        _ => Opening::Other,
    })
}
