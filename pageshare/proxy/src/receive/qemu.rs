//! The connection to the destination QEMU.

use std::io::Read;
use std::sync::Arc;

use pageshare_stream::ReturnPath;
use pageshare_wire::record::Kind;
use tracing::warn;

use super::session::Session;
use crate::command_line::{self, starts_by_itself};
use crate::error::Error;
use crate::fuse::Fuse;
use crate::link::LinkWriter;
use crate::socket::Socket;
use crate::sources::is_qemu;

pub(super) const QEMU: &str = "the destination QEMU";
const REVERSE_BYTES: usize = 16 << 10;

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

/// Passes on QEMU's return path until QEMU closes it.
pub(super) fn reverse(
    session: &Session,
    mut qemu: &Socket,
    link: &LinkWriter,
) -> Result<(), Error> {
    let mut said = ReturnPath::default();
    let mut buffer = vec![0; REVERSE_BYTES];
    loop {
        match qemu.read(&mut buffer) {
            Ok(0) => {
                link.send(Kind::ReverseEnd, 0, &[])?;
                return Ok(());
            }
            Ok(length) => {
                session.account.heard(&mut said, &buffer[..length]);
                link.send(Kind::Reverse, 0, &[&buffer[..length]])?;
            }
            Err(error) => return Err(Error::lost(QEMU, "reading its return path")(error)),
        }
    }
}
