//! The connection to the destination QEMU.

use std::io::{ErrorKind, Read, Write};
use std::sync::{Arc, Mutex, MutexGuard};

use pageshare_stream::{ReturnPath, says_nothing};
use pageshare_wire::hello::MigrationId;
use pageshare_wire::record::Kind;
use tracing::warn;

use super::session::Session;
use crate::command_line::{self, starts_by_itself};
use crate::error::Error;
use crate::fuse::Fuse;
use crate::link::LinkWriter;
use crate::socket::Socket;
use crate::sources::is_qemu;
use crate::threads::locked;

const QEMU: &str = "the destination QEMU";
const REVERSE_BYTES: usize = 16 << 10;

/// Which migration has QEMU: it awaits one, and might take another's connection for a channel of that.
#[derive(Debug, Clone, Default)]
pub(super) struct Seat(Arc<Mutex<Option<MigrationId>>>);

impl Seat {
    /// Takes it for a migration, unless another has it.
    pub(super) fn take(&self, migration: MigrationId) -> Result<(), Error> {
        match *self.taken().get_or_insert(migration) {
            holder if holder == migration => Ok(()),
            _ => Err(Error::Refused(
                "another VM is migrating to the QEMU that this receiver is for; give each VM a \
                 `pageshare receive` of its own"
                    .into(),
            )),
        }
    }

    /// Its migration is over, or QEMU has hung up.
    pub(super) fn leave(&self, migration: MigrationId) {
        self.taken().take_if(|holder| *holder == migration);
    }

    fn taken(&self) -> MutexGuard<'_, Option<MigrationId>> {
        locked(&self.0)
    }
}

/// Connects to QEMU.
pub(super) fn connect(session: &Session, fuse: &Fuse) -> Result<Arc<Socket>, Error> {
    let qemu = Arc::new(Socket::connect(QEMU, &session.receiver.qemu)?);
    fuse.protect(Arc::clone(&qemu));
    let pid = session.receiver.qemu_pid.or_else(|| qemu.peer().filter(|pid| is_qemu(*pid)));
    if let Some(name) = pid.and_then(command_line::name) {
        session.account.is_of(&name);
    }
    if let Some(pid) = pid
        && session.first_to_reach_qemu()
        && starts_by_itself(pid)
    {
        warn!(
            "the destination QEMU, process {pid}, was started without -S: if nobody has told it \
             `stop` since, as `pageshare migrate` does, it lets the guest run as soon as it has \
             loaded, before the source knows; should the last message be lost, the guest runs twice"
        );
    }
    session.received().arrives_in(pid);
    Ok(qemu)
}

/// Writes the next bytes of a channel's stream.
pub(super) fn write(mut qemu: &Socket, channel: u32, bytes: &[u8]) -> Result<(), Error> {
    match qemu.write_all(bytes) {
        Err(error) if has_closed(channel, error.kind()) && says_nothing(bytes) => Ok(()),
        written => written.map_err(Error::lost(QEMU, "writing the stream")),
    }
}

/// Passes on QEMU's return path until QEMU closes it.
pub(super) fn reverse(
    session: &Session,
    channel: u32,
    (mut qemu, fuse): (&Socket, &Fuse),
    link: &LinkWriter,
) -> Result<(), Error> {
    let mut said = ReturnPath::default();
    let mut buffer = vec![0; REVERSE_BYTES];
    loop {
        let read = match qemu.read(&mut buffer) {
            Err(error) if has_closed(channel, error.kind()) => Ok(0),
            read => read,
        };
        let length = read.map_err(Error::lost(QEMU, "reading its return path"))?;
        if length == 0 && fuse.has_blown() {
            // The fuse has cut it off.
            return Ok(());
        }
        if length == 0 {
            if channel == 0 {
                session.leave_qemu();
            }
            link.send(Kind::ReverseEnd, 0, &[])?;
            return Ok(());
        }
        session.account.heard(&mut said, &buffer[..length]);
        link.send(Kind::Reverse, 0, &[&buffer[..length]])?;
    }
}

/// Whether QEMU has merely closed a channel that is not the main one. It closes those as soon as it
/// has the guest's memory, and leaves unread what [says nothing](says_nothing), which resets the
/// connection. Whether the guest has been loaded is said on the main channel.
fn has_closed(channel: u32, error: ErrorKind) -> bool {
    channel > 0 && matches!(error, ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
}
