//! Receivers that would have the sender take, and keep, more than there is room for.

use crate::lab;

use std::io::Write;
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::sync::Arc;

use lab::{Proxy, Xorshift};
use pageshare::handshake;
use pageshare::link::{self, Body, Link};
use pageshare::socket::Socket;
use pageshare_wire::Versions;
use pageshare_wire::ask::Ask;
use pageshare_wire::record::Kind;
use pageshare_wire::window::LARGEST;

/// Bytes of a page in the stream, with its word.
const PAGE: u64 = 8 + 4096;

/// Answers no question and says of all pages asked for that QEMU has taken them, though not one was
/// sent.
fn credit_what_is_asked_for(listener: &TcpListener) {
    let (socket, _) = listener.accept().expect("the sender connects");
    let mut link = Link::plain(Arc::new(Socket(socket.into())), link::deadline());
    handshake::receive(&mut link, LARGEST, std::iter::empty(), Versions::OURS).expect("a sender");
    let (mut body, mut taken) = (Body::default(), 0_u64);
    while let Ok(Some(header)) = link.reader.receive(&mut body) {
        if header.kind == Kind::Ask {
            taken += Ask::decode(&body).expect("a sound Ask").hashes.len() as u64 * PAGE;
            if link.writer.send(Kind::Credit, 0, &[&taken.to_le_bytes()]).is_err() {
                return;
            }
        }
    }
}

#[test]
fn a_receiver_that_accepts_what_was_not_sent_is_left_before_it_fills_the_memory() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let (mut sender, listener, to) = Proxy::sender(directory.path(), &["--ask", "always"]);
    let receiver = std::thread::spawn(move || credit_what_is_asked_for(&listener));

    let mut source = UnixStream::connect(to).expect("the proxy listens");
    source.write_all(b"QEVM\0\0\0\x03\x01\0\0\0\x02\x03ram\0\0\0\0\0\0\0\x04").expect("it reads");
    let mut random = Xorshift(7);
    let taken = (0..1_u64 << 16).take_while(|page| {
        let mut bytes = (page * 4096 + 0x28).to_be_bytes().to_vec();
        bytes.extend((0..512).flat_map(|_| random.draw().to_le_bytes()));
        source.write_all(&bytes).is_ok()
    });
    // A window, and what the kernel holds on the way.
    let most = 3 * u64::from(LARGEST) / PAGE;
    assert!(taken.count() as u64 <= most, "{}", sender.log());
    let error = sender.record()["error"].to_string();
    assert!(error.contains("more accepted than sent"), "{error}");
    receiver.join().expect("no panic");
}

/// As one that was frozen behind the handshake.
#[test]
fn a_receiver_that_greets_and_says_no_more_is_not_waited_for_without_end() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("the loopback interface");
    let wire = format!("tcp:{}", listener.local_addr().expect("a bound socket"));
    let sender = Command::new(lab::binary())
        .args(["estimate", &std::process::id().to_string(), "--sample", "4294967295"])
        .args(["--insecure", "--to", &wire])
        .stderr(Stdio::piped())
        .spawn()
        .expect("pageshare starts");
    let (socket, _) = listener.accept().expect("the sender connects");
    let mut link = Link::plain(Arc::new(Socket(socket.into())), link::deadline());
    handshake::receive(&mut link, LARGEST, std::iter::empty(), Versions::OURS).expect("a sender");
    let output = sender.wait_with_output().expect("our own child");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("does not answer"), "{said}");
}
