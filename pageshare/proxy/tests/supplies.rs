//! What references made before their answer lack, from a sender of the test's own.

mod lab;

use std::io::Read;
use std::os::unix::net::UnixListener;
use std::time::Duration;

use lab::Proxy;
use pageshare::address::Address;
use pageshare::handshake;
use pageshare::link::{Body, Link};
use pageshare::socket::Socket;
use pageshare_stream::{PAGE_SIZE, RamWord, Token};
use pageshare_wire::Chain;
use pageshare_wire::ask::{Ask, encode_supply};
use pageshare_wire::hello::MigrationId;
use pageshare_wire::record::Kind;
use pageshare_wire::segment::{Draft, Treatment};

/// The threads that answer and that encode are two: either record may be the first on the link.
#[test]
fn a_supply_may_come_behind_its_segment_or_before_it() {
    for supply_first in [false, true] {
        let directory = tempfile::tempdir().expect("a scratch directory");
        let qemu = directory.path().join("qemu");
        let destination = UnixListener::bind(&qemu).expect("a fresh socket");
        let qemu = format!("unix:{}", qemu.display());
        let (receiver, wire) = Proxy::receiver(directory.path(), &qemu);
        lab::wait_for("the receiver to listen", || {
            receiver.log().contains("waiting for senders").then_some(())
        });
        let address: Address = wire.parse().expect("the receiver's own address");
        let socket = Socket::connect("the receiver", &address).expect("it listens");
        let mut link = Link::plain(socket).expect("a fresh connection");
        let id = MigrationId([7; 16]);
        let agreed = handshake::send(&mut link, id, 0, 1 << 20, None).expect("the same version");

        let mut page = RamWord(0x1028).to_bytes().to_vec();
        page.extend([0x5a; PAGE_SIZE]);
        let mut draft = Draft::new(page.clone());
        draft.add(Token::Page(RamWord(0x1028)), page.len(), true);
        let hashes = draft.hash(&agreed.hash_key);
        let ask = Ask { hashes: hashes.clone(), bases: Vec::new() };
        let encoded = draft.encode(hashes, &[Treatment::AtOnce], &[], None);
        let head = encoded.seal(0, &mut Chain::default());
        let supply = encode_supply(vec![0x5a; PAGE_SIZE], None);

        let send = |kind, body: &[&[u8]]| link.writer.send(kind, 0, body).map(drop);
        send(Kind::Ask, &[&ask.encode()]).expect("the receiver listens");
        let segment = (Kind::Segment, vec![&head[..], encoded.payload()]);
        let supply = (Kind::Supply, vec![&supply[..]]);
        let order = if supply_first { [supply, segment] } else { [segment, supply] };
        for (kind, body) in order {
            send(kind, &body).expect("the receiver listens");
        }

        // It connects once there is something to pass on.
        destination.set_nonblocking(true).expect("our own socket");
        let what = format!("the page, its Supply first: {supply_first}");
        let (mut end, _) = lab::wait_for(&what, || destination.accept().ok());
        let mut arrived = vec![0; page.len()];
        end.set_read_timeout(Some(Duration::from_secs(20))).expect("a connected socket");
        end.read_exact(&mut arrived).expect("a page");
        assert!(arrived == page);
        send(Kind::End, &[]).expect("the receiver listens");
        drop(end);
        let mut body = Body::default();
        while link.reader.receive(&mut body).expect("records of this version").is_some() {}
    }
}
