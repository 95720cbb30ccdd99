//! A proxy that fails says why as its last record, and QEMU's connection, which it cuts off, is not
//! taken for one that QEMU has closed: no QEMU needed.

use crate::lab;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;

use lab::Proxy;
use lab::stand_in::{MIGRATION, path};
use pageshare::handshake;
use pageshare::link::{self, Body, Link};
use pageshare::socket::Socket;
use pageshare_stream::Token;
use pageshare_wire::hello::MigrationId;
use pageshare_wire::record::Kind;
use pageshare_wire::segment::Draft;
use pageshare_wire::window::LARGEST;
use pageshare_wire::{Chain, Versions};

/// A link without TLS over a connection.
fn plain(connection: TcpStream) -> Link {
    Link::plain(Arc::new(Socket(connection.into())), link::deadline())
}

/// The kinds of all records until the connection ends.
fn heard(link: &mut Link) -> Vec<Kind> {
    link.reader.lift_deadline().expect("a connection");
    let mut body = Body::default();
    std::iter::from_fn(|| link.reader.receive(&mut body).ok()?.map(|header| header.kind)).collect()
}

#[test]
fn a_sender_that_fails_while_qemu_is_silent_says_why_and_not_that_qemu_has_ended() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let (mut sender, listener, to) = Proxy::sender(directory.path(), &[]);
    let mut source = UnixStream::connect(to).expect("the proxy listens");
    source.write_all(MIGRATION).expect("the proxy takes it");
    let mut link = plain(listener.accept().expect("the sender connects").0);
    handshake::receive(&mut link, LARGEST, std::iter::empty(), Versions::OURS).expect("a sender");
    let first = link.reader.receive(&mut Body::default()).expect("a connection");
    assert_eq!(first.map(|header| header.kind), Some(Kind::Segment));
    link.writer.send(Kind::End, 0, &[]).expect("a connection");
    assert_eq!(heard(&mut link), [Kind::Abort]);
    let error = sender.record()["error"].to_string();
    assert!(error.contains("a sender's record from a receiver"), "{error}");
}

#[test]
fn a_receiver_that_fails_while_qemu_is_silent_says_why_and_not_that_qemu_has_ended() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let from = format!("unix:{}", directory.path().join("in").display());
    let destination = UnixListener::bind(path(&from)).expect("a fresh socket");
    let (receiver, wire) = Proxy::receiver(directory.path(), &from);
    let address = wire.strip_prefix("tcp:").expect("TCP");
    let mut link = plain(TcpStream::connect(address).expect("the receiver listens"));
    let (migration, versions) = (MigrationId([7; 16]), Versions::OURS);
    handshake::send(&mut link, migration, 0, LARGEST, None, versions).expect("a receiver");
    let mut draft = Draft::new(MIGRATION.to_vec());
    draft.add(Token::Bytes, MIGRATION.len(), false);
    let segment = draft.encode(Vec::new(), &[], &[], None);
    let head = segment.seal(0, &mut Chain::default());
    link.writer.send(Kind::Segment, 0, &[&head, segment.payload()]).expect("a connection");
    let (mut end, _) = destination.accept().expect("the proxy connects");
    end.read_exact(&mut [0; MIGRATION.len()]).expect("what was sent");
    link.writer.send(Kind::ReverseEnd, 0, &[]).expect("a connection");
    assert_eq!(heard(&mut link), [Kind::Abort], "{}", receiver.log());
    assert_eq!(end.read(&mut [0]).expect("a connection that is closed"), 0);
}
