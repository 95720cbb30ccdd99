//! Unix and TCP sockets behind one type.

use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream, ToSocketAddrs};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, sendmsg};
use socket2::{Domain, SockAddr, SockRef, TcpKeepalive, Type};
use tracing::error;

use crate::address::Address;
use crate::error::Error;

/// A peer that acknowledges nothing for this long, or accepts nothing, is dead.
const DEAD_AFTER: Duration = Duration::from_secs(20);

/// How long to wait for what keeps connections from being accepted: a file descriptor becomes free.
const UNTIL_NEXT: Duration = Duration::from_millis(100);

/// Kernel buffers hold stream bytes too, so they are kept small.
const BUFFER_BYTES: usize = 256 << 10;

/// A connected stream socket.
#[derive(Debug)]
pub enum Socket {
    /// A Unix socket.
    Unix(UnixStream),
    /// A TCP connection.
    Tcp(TcpStream),
}

impl Socket {
    /// Connects to `what` at `address`.
    ///
    /// # Errors
    /// If nobody accepts there, or nobody says so in time.
    pub fn connect(what: &'static str, address: &Address) -> Result<Self, Error> {
        let connected = match address {
            Address::Unix(path) => connect_unix(path).map(Self::Unix),
            Address::Tcp(host) => connect_tcp(host).map(Self::Tcp),
        };
        let socket = connected.map_err(|source| Error::Connect {
            what,
            address: address.clone(),
            source,
        })?;
        socket.tune().map_err(|source| Error::Connect {
            what,
            address: address.clone(),
            source,
        })?;
        Ok(socket)
    }

    /// A second handle on the same connection.
    ///
    /// # Errors
    /// If the process has no file descriptor left.
    pub fn try_clone(&self) -> io::Result<Self> {
        match self {
            Self::Unix(socket) => socket.try_clone().map(Self::Unix),
            Self::Tcp(socket) => socket.try_clone().map(Self::Tcp),
        }
    }

    /// Closes one direction or both. A connection that is gone already is no error.
    pub fn shutdown(&self, how: Shutdown) {
        // It fails only when there is nothing left to shut.
        let _ = match self {
            Self::Unix(socket) => socket.shutdown(how),
            Self::Tcp(socket) => socket.shutdown(how),
        };
    }

    /// Lets a read fail that waits longer than this.
    ///
    /// # Errors
    /// If the socket is closed.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Unix(socket) => socket.set_read_timeout(timeout),
            Self::Tcp(socket) => socket.set_read_timeout(timeout),
        }
    }

    /// Lets a write fail that waits longer than this.
    ///
    /// # Errors
    /// If the socket is closed.
    pub fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Unix(socket) => socket.set_write_timeout(timeout),
            Self::Tcp(socket) => socket.set_write_timeout(timeout),
        }
    }

    /// Lets a read or a write fail that waits longer than this.
    ///
    /// # Errors
    /// If the socket is closed.
    pub fn limit_wait(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.set_read_timeout(timeout)?;
        self.set_write_timeout(timeout)
    }

    /// Writes all of these parts, one behind the other; returns whether the kernel's buffer was
    /// full, so that it had to wait.
    ///
    /// # Errors
    /// If the connection breaks.
    pub fn write_parts(&mut self, parts: &[&[u8]]) -> io::Result<bool> {
        let mut slices: Vec<IoSlice<'_>> =
            parts.iter().filter(|part| !part.is_empty()).map(|part| IoSlice::new(part)).collect();
        let mut rest = slices.as_mut_slice();
        let mut waited = false;
        while !rest.is_empty() {
            let attempt = if waited { self.write_vectored(rest) } else { self.write_now(rest) };
            match attempt {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => IoSlice::advance_slices(&mut rest, written),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && !waited => {
                    waited = true;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(waited)
    }

    /// Writes what the kernel takes at once.
    ///
    /// # Errors
    /// If it takes nothing now, or the connection breaks.
    pub fn write_now(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let mut nothing = SendAncillaryBuffer::default();
        let written = match self {
            Self::Unix(socket) => sendmsg(socket, parts, &mut nothing, flags)?,
            Self::Tcp(socket) => sendmsg(socket, parts, &mut nothing, flags)?,
        };
        Ok(written)
    }

    /// Appends what has come, at most what fits the buffer's capacity; 0 bytes are the end. Other
    /// than with [`Read::read`], the buffer needs no content first.
    ///
    /// # Errors
    /// If the connection breaks.
    pub fn read_more(&self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        loop {
            let room = spare_capacity(buffer);
            let read = match self {
                Self::Unix(socket) => recv(socket, room, RecvFlags::empty()),
                Self::Tcp(socket) => recv(socket, room, RecvFlags::empty()),
            };
            match read {
                Err(Errno::INTR) => {}
                other => return Ok(other?.0),
            }
        }
    }

    /// The process at the other end of a Unix socket, as far as the kernel knows it: the one that
    /// connected, or that listened.
    #[must_use]
    pub fn peer(&self) -> Option<u32> {
        let Self::Unix(socket) = self else { return None };
        let peer = rustix::net::sockopt::socket_peercred(socket).ok()?;
        u32::try_from(peer.pid.as_raw_nonzero().get()).ok()
    }

    /// Waits for the first bytes, enough to fill the buffer or until the other end closes, and
    /// leaves them to be read.
    ///
    /// # Errors
    /// If the connection breaks.
    pub fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let flags = RecvFlags::PEEK | RecvFlags::WAITALL;
        let (_, length) = match self {
            Self::Unix(socket) => recv(socket, buffer, flags)?,
            Self::Tcp(socket) => recv(socket, buffer, flags)?,
        };
        Ok(length)
    }

    fn tune(&self) -> io::Result<()> {
        let reference = match self {
            Self::Unix(socket) => SockRef::from(socket),
            Self::Tcp(socket) => {
                socket.set_nodelay(true)?;
                let reference = SockRef::from(socket);
                let keepalive = TcpKeepalive::new()
                    .with_time(Duration::from_secs(5))
                    .with_interval(Duration::from_secs(5));
                reference.set_tcp_keepalive(&keepalive)?;
                reference.set_tcp_user_timeout(Some(DEAD_AFTER))?;
                reference
            }
        };
        reference.set_send_buffer_size(BUFFER_BYTES)
    }
}

/// As `UnixStream::connect`, which waits without end for a listener that accepts nothing and has as
/// many waiting as it wants.
fn connect_unix(path: &Path) -> io::Result<UnixStream> {
    let socket = socket2::Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_write_timeout(Some(DEAD_AFTER))?;
    socket.connect(&SockAddr::unix(path)?).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
        _ => error,
    })?;
    socket.set_write_timeout(None)?;
    Ok(socket.into())
}

/// As `TcpStream::connect`, which waits for minutes where packets vanish.
fn connect_tcp(host: &str) -> io::Result<TcpStream> {
    let mut failure: io::Error = io::ErrorKind::AddrNotAvailable.into();
    for address in host.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, DEAD_AFTER) {
            Ok(stream) => return Ok(stream),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Unix(socket) => socket.read(buffer),
            Self::Tcp(socket) => socket.read(buffer),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Unix(socket) => socket.write(bytes),
            Self::Tcp(socket) => socket.write(bytes),
        }
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Unix(socket) => socket.write_vectored(parts),
            Self::Tcp(socket) => socket.write_vectored(parts),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A listening socket.
#[derive(Debug)]
pub struct Listener {
    inner: Inner,
    address: Address,
}

#[derive(Debug)]
enum Inner {
    Unix(UnixListener),
    Tcp(TcpListener),
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
        let inner = match address {
            Address::Unix(path) => {
                let stale = path.symlink_metadata().is_ok_and(|it| it.file_type().is_socket())
                    && UnixStream::connect(path).is_err();
                if stale {
                    std::fs::remove_file(path).map_err(failed)?;
                }
                Inner::Unix(UnixListener::bind(path).map_err(failed)?)
            }
            Address::Tcp(host) => Inner::Tcp(TcpListener::bind(host).map_err(failed)?),
        };
        let address = match &inner {
            // Port 0 has become a real one.
            Inner::Tcp(listener) => {
                Address::Tcp(listener.local_addr().map_err(failed)?.to_string())
            }
            Inner::Unix(_) => address.clone(),
        };
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

    /// Connections as they come, without an end: what keeps one from being accepted, such as that
    /// the process has no file descriptor left, is said and waited for.
    pub fn incoming(&self) -> impl Iterator<Item = Socket> {
        std::iter::repeat_with(move || self.accept()).filter_map(|accepted| {
            let failed = |error: &Error| {
                error!("{error}");
                std::thread::sleep(UNTIL_NEXT);
            };
            accepted.inspect_err(failed).ok()
        })
    }

    fn accept(&self) -> Result<Socket, Error> {
        let accepted = match &self.inner {
            Inner::Unix(listener) => listener.accept().map(|(socket, _)| Socket::Unix(socket)),
            Inner::Tcp(listener) => listener.accept().map(|(socket, _)| Socket::Tcp(socket)),
        };
        accepted
            .and_then(|socket| socket.tune().map(|()| socket))
            .map_err(|source| Error::Listen { address: self.address.clone(), source })
    }
}
