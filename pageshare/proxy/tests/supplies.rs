//! What references made before their answer lack, from a sender of the test's own.

use crate::lab;

use std::io::Read;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::Duration;

use lab::Proxy;
use pageshare::address::Address;
use pageshare::handshake;
use pageshare::link::{self, Body, Link};
use pageshare::socket::Socket;
use pageshare_index::HashKey;
use pageshare_stream::{PAGE_SIZE, RamWord, Token};
use pageshare_wire::ask::{Ask, encode_supply};
use pageshare_wire::hello::MigrationId;
use pageshare_wire::record::Kind;
use pageshare_wire::segment::{Draft, SEGMENT_HEADER_BYTES, Treatment};
use pageshare_wire::{Chain, Versions};

/// A receiver, what it takes for its QEMU, and a channel to it.
struct Channel {
    receiver: Proxy,
    destination: UnixListener,
    link: Link,
    key: HashKey,
    _directory: tempfile::TempDir,
}

impl Channel {
    fn open() -> Self {
        let directory = tempfile::tempdir().expect("a scratch directory");
        let qemu = directory.path().join("qemu");
        let destination = UnixListener::bind(&qemu).expect("a fresh socket");
        let qemu = format!("unix:{}", qemu.display());
        let (receiver, wire) = Proxy::receiver(directory.path(), &qemu);
        let address: Address = wire.parse().expect("the receiver's own address");
        let socket = Socket::connect("the receiver", &address).expect("it listens");
        let mut link = Link::plain(Arc::new(socket), link::deadline());
        let id = MigrationId([7; 16]);
        let agreed = handshake::send(&mut link, id, 0, 1 << 20, None, Versions::OURS)
            .expect("the same version");
        Self { receiver, destination, link, key: agreed.hash_key, _directory: directory }
    }

    fn send(&self, kind: Kind, number: u32, body: &[&[u8]]) -> bool {
        self.link.writer.send(kind, number, body).is_ok()
    }
}

/// A page's bytes in the stream, and the bodies of its Ask and of the segment that refers to it at
/// once.
fn page(key: &HashKey) -> (Vec<u8>, Vec<u8>, Vec<u8>) {
    let mut page = RamWord(0x1028).to_bytes().to_vec();
    page.extend([0x5a; PAGE_SIZE]);
    let mut draft = Draft::new(page.clone());
    draft.add(Token::Page(RamWord(0x1028)), page.len(), true);
    let hashes = draft.hash(key);
    let ask = Ask { hashes: hashes.clone(), bases: Vec::new() };
    let encoded = draft.encode(hashes, &[Treatment::AtOnce], &[], None);
    let mut segment = encoded.seal(0, &mut Chain::default());
    segment.extend(encoded.payload());
    (page, ask.encode(), segment)
}

/// The threads that answer and that encode are two: either record may be the first on the link.
#[test]
fn a_supply_may_come_behind_its_segment_or_before_it() {
    for supply_first in [false, true] {
        let mut channel = Channel::open();
        let (page, ask, segment) = page(&channel.key);
        let supply = encode_supply(vec![0x5a; PAGE_SIZE], None);
        assert!(channel.send(Kind::Ask, 0, &[&ask]));
        let mut order = [(Kind::Segment, &segment), (Kind::Supply, &supply)];
        if supply_first {
            order.reverse();
        }
        for (kind, body) in order {
            assert!(channel.send(kind, 0, &[body]));
        }

        // It connects once there is something to pass on.
        channel.destination.set_nonblocking(true).expect("our own socket");
        let what = format!("the page, its Supply first: {supply_first}");
        let (mut end, _) = lab::wait_for(&what, || channel.destination.accept().ok());
        let mut arrived = vec![0; page.len()];
        end.set_read_timeout(Some(Duration::from_secs(20))).expect("a connected socket");
        end.read_exact(&mut arrived).expect("a page");
        assert!(arrived == page);
        assert!(channel.send(Kind::End, 0, &[]));
        drop(end);
        let mut body = Body::default();
        while channel.link.reader.receive(&mut body).expect("records of this version").is_some() {}
    }
}

/// A list of RAM blocks that goes on and on, each of one byte.
#[test]
fn a_sender_that_lists_blocks_without_end_is_read_no_further() {
    let channel = Channel::open();
    let mut stream = b"QEVM\0\0\0\x03\x01\0\0\0\x02\x03ram\0\0\0\0\0\0\0\x04".to_vec();
    stream.extend(RamWord(!0xfff | RamWord::MEM_SIZE).to_bytes());
    stream.extend(b"\x01a\0\0\0\0\0\0\0\x01".repeat(2000));
    let length = stream.len();
    let mut draft = Draft::new(stream);
    draft.add(Token::Bytes, length, false);
    let encoded = draft.encode(Vec::new(), &[], &[], None);
    let mut segment = encoded.seal(0, &mut Chain::default());
    segment.extend(encoded.payload());
    assert!(channel.send(Kind::Segment, 0, &[&segment]));
    lab::wait_for("the receiver to say why", || {
        channel.receiver.log().contains("more than 1024 RAM blocks").then_some(())
    });
}

/// A segment's body that says that it stands for one byte, and is a MiB of empty operations.
fn hollow() -> Vec<u8> {
    let ops = [1_u8, 0, 0, 0, 0].repeat((1 << 20) / 5);
    let mut body = 1_u32.to_le_bytes().to_vec();
    body.extend(u32::try_from(ops.len()).expect("a MiB").to_le_bytes());
    body.extend([0, 0, 0, 0, 1]);
    body.resize(SEGMENT_HEADER_BYTES, 0);
    body.extend(ops);
    body
}

#[test]
fn a_sender_that_lies_about_what_waits_is_turned_away_before_it_fills_the_memory() {
    let channel = Channel::open();
    let (_, ask, segment) = page(&channel.key);
    assert!(channel.send(Kind::Ask, 0, &[&ask]));
    // Its Supply never comes: all that follows has to wait.
    assert!(channel.send(Kind::Segment, 0, &[&segment]));
    let taken = (1..).take_while(|number| channel.send(Kind::Segment, *number, &[&hollow()]));
    // What is on its way when the receiver closes the connection is in the kernel's buffers.
    assert!(taken.take(64).count() < 64);
    lab::wait_for("the receiver to say why", || {
        channel.receiver.log().contains("more sent than fits the window").then_some(())
    });
}
