//! Sockets in the place of both QEMUs, for streams that no guest need write.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;

use super::Pair;

/// The file of a Unix socket's address.
pub fn path(address: &str) -> PathBuf {
    PathBuf::from(address.strip_prefix("unix:").expect("a Unix socket"))
}

/// What begins as a main channel does.
pub const MIGRATION: &[u8] = b"QEVM, and nothing that is known";

/// What a destination QEMU says last: it has loaded the guest.
pub const LOADED: [u8; 8] = [0, 1, 0, 4, 0, 0, 0, 0];

/// Closes a connection on which nothing was said; returns once the proxy has closed it too.
pub fn leave(mut nobody: UnixStream) {
    nobody.shutdown(Shutdown::Write).expect("a connected socket");
    nobody.set_read_timeout(Some(super::HANGS)).expect("a connected socket");
    nobody.read_to_end(&mut Vec::new()).expect("a connection that is closed");
}

/// Sends `stream` through a pair and `answer` back; returns what arrived at either end.
pub fn through(pair: &Pair, stream: &[u8], answer: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let destination = UnixListener::bind(path(&pair.from)).expect("a fresh socket");
    carry(&pair.to, &destination, stream, answer)
}

/// Sends `stream` to a sender and `answer` back from where its receiver passes it on.
pub fn carry(
    to: &str,
    destination: &UnixListener,
    stream: &[u8],
    answer: &[u8],
) -> (Vec<u8>, Vec<u8>) {
    let mut source = UnixStream::connect(path(to)).expect("the proxy listens");
    let (mut arrived, mut returned) = (Vec::new(), Vec::new());
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let (mut end, _) = destination.accept().expect("the proxy connects");
            end.read_to_end(&mut arrived).expect("a half-close");
            // The answer comes after the sender's half-close: the reverse direction is still open.
            end.write_all(answer).expect("the proxy listens");
        });
        source.write_all(stream).expect("the proxy takes it");
        source.shutdown(Shutdown::Write).expect("a connected socket");
        source.read_to_end(&mut returned).expect("a half-close");
    });
    (arrived, returned)
}
