//! Unix and TCP sockets behind one type.

mod listener;

use std::io::{self, IoSlice, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pageshare_wire::adaptive::UNSENT;
use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, sendmsg};
use socket2::{Domain, SockAddr, TcpKeepalive, Type};

use crate::address::Address;
use crate::error::Error;

pub use listener::Listener;

/// A peer that accepts no connection for this long, or acknowledges nothing while it is only listened
/// to, is dead.
const DEAD_AFTER: Duration = Duration::from_secs(20);
/// In so many steps that is found out.
const LOOKS: u32 = 4;

/// The buffer of a Unix socket holds stream bytes too, so it is kept small; the kernel doubles this.
const UNIX_BUFFER: usize = UNSENT as usize / 2;

/// The other end of a connection, for what is to be shared fairly among all who connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Party {
    /// A process of this host.
    Process(Option<u32>),
    /// A host, or a network of IPv6.
    Host(Option<u128>),
}

/// A connected stream socket: a Unix socket or a TCP connection.
#[derive(Debug)]
pub struct Socket(pub socket2::Socket);

impl Socket {
    /// Connects to `what` at `address`.
    ///
    /// # Errors
    /// If nobody accepts there, or nobody says so in time.
    pub fn connect(what: &'static str, address: &Address) -> Result<Self, Error> {
        let connected = match address {
            Address::Unix(path) => connect_unix(path),
            Address::Tcp(host) => connect_tcp(host),
        };
        connected.and_then(Self::tuned).map_err(|source| Error::Connect {
            what,
            address: address.clone(),
            source,
        })
    }

    /// Closes one direction or both. A connection that is gone already is no error.
    pub fn shutdown(&self, how: Shutdown) {
        // It fails only when there is nothing left to shut.
        let _ = self.0.shutdown(how);
    }

    /// Lets a read fail that waits longer than this.
    ///
    /// # Errors
    /// If the socket is closed.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.0.set_read_timeout(timeout.map(at_least))
    }

    /// Lets a write fail that waits longer than this.
    ///
    /// # Errors
    /// If the socket is closed.
    pub fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.0.set_write_timeout(timeout.map(at_least))
    }

    /// Lets a read or a write fail that waits longer than this.
    ///
    /// # Errors
    /// If the socket is closed.
    pub fn limit_wait(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.set_read_timeout(timeout)?;
        self.set_write_timeout(timeout)
    }

    /// Writes all of these parts, one behind the other; returns whether it had to wait, since as much
    /// as may was waiting in the kernel.
    ///
    /// # Errors
    /// If the connection breaks.
    pub fn write_parts(&self, parts: &[&[u8]]) -> io::Result<bool> {
        let mut slices: Vec<IoSlice<'_>> =
            parts.iter().filter(|part| !part.is_empty()).map(|part| IoSlice::new(part)).collect();
        let mut rest = slices.as_mut_slice();
        let mut waited = false;
        while !rest.is_empty() {
            let attempt =
                if waited { (&mut &*self).write_vectored(rest) } else { self.write_now(rest) };
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
        Ok(sendmsg(self, parts, &mut nothing, flags)?)
    }

    /// Appends what has come, at most what fits the buffer's capacity; 0 bytes are the end. Other
    /// than with [`Read::read`], the buffer needs no content first.
    ///
    /// # Errors
    /// If the connection breaks.
    pub fn read_more(&self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        loop {
            match recv(self, spare_capacity(buffer), RecvFlags::empty()) {
                Err(Errno::INTR) => {}
                other => return Ok(other?.0),
            }
        }
    }

    /// The process at the other end of a Unix socket, as far as the kernel knows it: the one that
    /// connected, or that listened.
    #[must_use]
    pub fn peer(&self) -> Option<u32> {
        if !self.is_unix() {
            return None;
        }
        let peer = rustix::net::sockopt::socket_peercred(self).ok()?;
        u32::try_from(peer.pid.as_raw_nonzero().get()).ok()
    }

    /// The first bytes that have come, which are left to be read; 0 where the other end has closed.
    ///
    /// # Errors
    /// If none has come yet, or the connection is broken.
    pub fn look(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        Ok(recv(self, buffer, flags)?.1)
    }

    /// Whether the other end has closed both directions; of TCP, whether it has said so by a reset.
    #[must_use]
    pub fn is_hung_up(&self) -> bool {
        let mut polled = [PollFd::new(self, PollFlags::empty())];
        // What it returns is asked for whether or not it says so.
        let _ = poll(&mut polled, Some(&Timespec::default()));
        polled[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
    }

    /// Who is at the other end, as far as that tells one from another.
    #[must_use]
    pub fn party(&self) -> Party {
        if self.is_unix() {
            return Party::Process(self.peer());
        }
        let address = self.0.peer_addr().ok().and_then(|at| at.as_socket());
        Party::Host(address.map(|at| match at.ip().to_canonical() {
            IpAddr::V4(ip) => ip.to_bits().into(),
            // Whoever has one address of a network has all of them.
            IpAddr::V6(ip) => ip.to_bits() >> 64 << 64,
        }))
    }

    fn is_unix(&self) -> bool {
        self.0.domain().is_ok_and(|domain| domain == Domain::UNIX)
    }

    /// TCP's buffer is left to the kernel: it has to hold what the path holds, until that is
    /// acknowledged. What would wait in it without having left is kept small.
    ///
    /// Nor has what is on its way another limit than the kernel's, which QEMU has, too: one of ours
    /// (`TCP_USER_TIMEOUT`) would end the connection of a host that acknowledges all, and whose QEMU is
    /// frozen or swapping, and takes nothing.
    fn tuned(socket: socket2::Socket) -> io::Result<Self> {
        let socket = Self(socket);
        if socket.is_unix() {
            socket.0.set_send_buffer_size(UNIX_BUFFER)?;
        } else {
            let often = DEAD_AFTER / LOOKS;
            let keepalive =
                TcpKeepalive::new().with_time(often).with_interval(often).with_retries(LOOKS - 1);
            socket.0.set_tcp_nodelay(true)?;
            socket.0.set_tcp_keepalive(&keepalive)?;
            socket.0.set_tcp_notsent_lowat(UNSENT)?;
        }
        Ok(socket)
    }
}

/// The kernel counts microseconds, and takes none of them for no limit.
fn at_least(timeout: Duration) -> Duration {
    timeout.max(Duration::from_micros(1))
}

/// As `UnixStream::connect`, which waits without end for a listener that accepts nothing and has as
/// many waiting as it wants.
fn connect_unix(path: &Path) -> io::Result<socket2::Socket> {
    let socket = socket2::Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_write_timeout(Some(DEAD_AFTER))?;
    socket.connect(&SockAddr::unix(path)?).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
        _ => error,
    })?;
    socket.set_write_timeout(None)?;
    Ok(socket)
}

/// What `HOST:PORT` may mean. Brackets are for us: with them, the system is not asked for the zone of
/// `[fe80::1%eth0]`, of which the library knows numbers alone.
fn resolve(host: &str) -> io::Result<Vec<SocketAddr>> {
    let (host, port) = host.rsplit_once(':').ok_or(io::ErrorKind::InvalidInput)?;
    let port = port.parse().map_err(io::Error::other)?;
    Ok((host.trim_matches(['[', ']']), port).to_socket_addrs()?.collect())
}

/// As `TcpStream::connect`, which waits for minutes where packets vanish.
fn connect_tcp(host: &str) -> io::Result<socket2::Socket> {
    let mut failure: io::Error = io::ErrorKind::AddrNotAvailable.into();
    for address in resolve(host)? {
        match TcpStream::connect_timeout(&address, DEAD_AFTER) {
            Ok(stream) => return Ok(stream.into()),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

impl Read for &Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        (&self.0).read(buffer)
    }
}

impl Write for &Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        (&self.0).write_vectored(parts)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Reads and writes that have one time limit between them, as long as there is one.
pub(crate) struct Until {
    pub(crate) socket: Arc<Socket>,
    pub(crate) end: Option<Instant>,
}

impl Until {
    fn limit(&self) -> io::Result<()> {
        let Some(end) = self.end else { return Ok(()) };
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.socket.limit_wait(Some(left))
    }

    /// Lets each read and write take as long as it takes.
    pub(crate) fn lift(&mut self) -> io::Result<()> {
        self.end = None;
        self.socket.limit_wait(None)
    }
}

impl Read for Until {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.limit()?;
        (&mut &*self.socket).read(buffer)
    }
}

impl Write for Until {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        self.limit()?;
        (&mut &*self.socket).write_vectored(parts)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_limit_below_a_microsecond_is_a_limit() {
        let socket = Socket(UnixStream::pair().unwrap().0.into());
        socket.limit_wait(Some(Duration::from_nanos(1))).unwrap();
        assert!(socket.0.read_timeout().unwrap().is_some());
        assert!(socket.0.write_timeout().unwrap().is_some());
        socket.limit_wait(None).unwrap();
        assert_eq!(socket.0.read_timeout().unwrap(), None);
    }

    #[test]
    fn a_unix_socket_has_a_process_behind_it_and_a_tcp_connection_a_host() {
        let (socket, _other) = UnixStream::pair().unwrap();
        assert_eq!(Socket(socket.into()).party(), Party::Process(Some(std::process::id())));
        let listener = Listener::bind(&"tcp:127.0.0.1:0".parse().unwrap()).unwrap();
        let socket = Socket::connect("itself", listener.address()).unwrap();
        assert_eq!(socket.party(), Party::Host(Some(0x7f00_0001)));
        assert_eq!(socket.peer(), None);
    }

    #[test]
    fn a_zone_of_ipv6_is_named_as_its_interface_is() {
        let found = resolve("[fe80::1%lo]:4455").unwrap();
        assert_eq!(found, ["[fe80::1%1]:4455".parse().unwrap()]);
    }

    #[test]
    fn hosts_of_ipv4_are_told_apart_where_ipv6_is_listened_to() {
        let listener = Listener::bind(&"tcp:[::]:0".parse().unwrap()).unwrap();
        let address = listener.address().to_string();
        let port = address.rsplit_once(':').unwrap().1.parse().unwrap();
        for (host, bits) in [("127.0.0.1", 0x7f00_0001), ("127.0.0.2", 0x7f00_0002)] {
            let from = socket2::Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            from.bind(&SocketAddr::from((host.parse::<IpAddr>().unwrap(), 0)).into()).unwrap();
            from.connect(&SocketAddr::from(([127, 0, 0, 1], port)).into()).unwrap();
            let accepted = loop {
                if let Some(socket) = listener.accept().unwrap() {
                    break socket;
                }
            };
            assert_eq!(accepted.party(), Party::Host(Some(bits)));
        }
    }

    #[test]
    fn a_sockets_file_is_replaced_only_where_nobody_listens() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let address = Address::Unix(path.clone());
        let taken = || {
            let error = Listener::bind(&address).unwrap_err().to_string();
            assert!(error.contains("started before waits there"), "{error}");
        };
        // A live one that no stream can connect to, as one is that belongs to somebody else.
        let live = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
        taken();
        let other = std::os::unix::net::UnixDatagram::unbound().unwrap();
        other.send_to(b"still there", &path).unwrap();
        drop(live);
        let live = Listener::bind(&address).unwrap();
        taken();
        // It has seen no connection: a QEMU that awaits a migration would take that for one.
        assert!(live.accept().unwrap().is_none());
    }

    #[test]
    fn no_byte_is_waited_for_when_the_time_is_over() {
        let (socket, mut other) = UnixStream::pair().unwrap();
        other.write_all(b"ab").unwrap();
        let end = Instant::now() + Duration::from_secs(60);
        let mut until = Until { socket: Arc::new(Socket(socket.into())), end: Some(end) };
        assert_eq!(until.read(&mut [0]).unwrap(), 1);
        until.end = Some(Instant::now());
        assert_eq!(until.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::TimedOut);
        until.lift().unwrap();
        assert_eq!(until.read(&mut [0]).unwrap(), 1);
    }
}
