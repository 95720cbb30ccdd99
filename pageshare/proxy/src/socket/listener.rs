//! Where connections come from.

use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixListener;
use std::path::Path;

use socket2::{Domain, SockAddr, Type};

use super::{Socket, resolve};
use crate::address::Address;
use crate::error::Error;

/// Connections that the kernel holds until they are accepted.
const QUEUE: i32 = 4096;

/// A listening socket.
#[derive(Debug)]
pub struct Listener {
    inner: socket2::Socket,
    address: Address,
}

impl Listener {
    /// Listens at `address`. The file of a Unix socket on which nobody listens any more is
    /// replaced.
    ///
    /// # Errors
    /// If the address is taken or not ours.
    pub fn bind(address: &Address) -> Result<Self, Error> {
        let failed = |source: io::Error| {
            let source = match source.kind() {
                io::ErrorKind::AddrInUse => io::Error::new(
                    io::ErrorKind::AddrInUse,
                    format!(
                        "{source}: a program that was started before waits there; use it or end it"
                    ),
                ),
                _ => source,
            };
            Error::Listen { address: address.clone(), source }
        };
        let inner: socket2::Socket = match address {
            Address::Unix(path) => {
                if path.symlink_metadata().is_ok_and(|it| it.file_type().is_socket())
                    && is_abandoned(path)
                {
                    std::fs::remove_file(path).map_err(failed)?;
                }
                UnixListener::bind(path).map_err(failed)?.into()
            }
            Address::Tcp(host) => {
                let found = resolve(host).and_then(|found| TcpListener::bind(&found[..]));
                found.map_err(failed)?.into()
            }
        };
        // Port 0 has become a real one.
        let real = inner.local_addr().map_err(failed)?.as_socket();
        let address = real.map_or_else(|| address.clone(), |at| Address::Tcp(at.to_string()));
        // The library's own queue is over in an instant where many connect at once.
        inner.listen(QUEUE).map_err(failed)?;
        inner.set_nonblocking(true).map_err(failed)?;
        Ok(Self { inner, address })
    }

    /// Where it really listens.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Removes the file of a Unix socket, so that nobody connects to it any more.
    pub fn remove(&self) {
        if let Address::Unix(path) = &self.address {
            // Someone may have removed it before us.
            let _ = std::fs::remove_file(path);
        }
    }

    /// The next connection that waits to be accepted; nothing, if none does.
    ///
    /// # Errors
    /// If the process lacks what it takes, such as a file descriptor.
    pub(crate) fn accept(&self) -> io::Result<Option<Socket>> {
        let given_up = [io::ErrorKind::WouldBlock, io::ErrorKind::ConnectionAborted];
        match self.inner.accept().and_then(|(socket, _)| Socket::tuned(socket)) {
            Ok(socket) => Ok(Some(socket)),
            Err(error) if given_up.contains(&error.kind()) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Whether nobody has the socket at `path` any more; who may be there, but not for us, has it. A QEMU that
/// awaits a migration would take any connection for that, and end: one of another type never comes to it.
fn is_abandoned(path: &Path) -> bool {
    let ask = || {
        let socket = socket2::Socket::new(Domain::UNIX, Type::SEQPACKET.nonblocking(), None)?;
        socket.connect(&SockAddr::unix(path)?)
    };
    ask().is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.as_fd()
    }
}
