//! What is in flight over a distance: streams that no QEMU need write. Bytes and questions are counted,
//! for how long they take depends on the machine.

use crate::lab;

use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use lab::stand_in::through;
use lab::{Pair, Proxy, Xorshift, count};
use pageshare::handshake;
use pageshare::link::{self, Body, Link};
use pageshare::socket::Socket;
use pageshare_wire::ask::{Answer, Ask};
use pageshare_wire::record::Kind;
use pageshare_wire::segment::SegmentView;
use pageshare_wire::window::LARGEST;
use pageshare_wire::{PageSet, Versions};
use std::io::{Read, Write};
use std::net::Shutdown;

/// A stream of so many pages, all of which differ.
fn stream(pages: u64) -> Vec<u8> {
    let mut out = b"QEVM\0\0\0\x03\x01\0\0\0\x02\x03ram\0\0\0\0\0\0\0\x04".to_vec();
    let mut random = Xorshift(0x9e37_79b9_7f4a_7c15);
    for page in 0..pages {
        out.extend((page * 4096 + 0x28).to_be_bytes());
        out.extend((0..512).flat_map(|_| random.draw().to_le_bytes()));
    }
    out
}

#[test]
fn what_is_in_flight_follows_the_round_trip() {
    let send = ["--ask", "never", "--compress", "never"];
    let mut pair = Pair::distant(Duration::from_millis(400), &send);
    let stream = stream(24_000);
    let (arrived, _) = through(&pair, &stream, &[]);
    assert!(arrived == stream, "{} of {} bytes", arrived.len(), stream.len());
    let record = pair.send.record();
    // Enough for 30 MB/s; 8 MiB are what may wait at the most over a short path.
    assert!(count(&record, "most_in_flight") > 12 << 20, "{record}");
    assert!(count(&record, "most_in_flight") <= u64::from(LARGEST), "{record}");
}

/// Lacks every page; returns how many questions were asked.
fn lack_all(listener: &TcpListener) -> u64 {
    let (socket, _) = listener.accept().expect("the sender connects");
    let mut link = Link::plain(Arc::new(Socket(socket.into())), link::deadline());
    handshake::receive(&mut link, LARGEST, std::iter::empty(), Versions::OURS).expect("a sender");
    let (mut body, mut accepted, mut questions) = (Body::default(), 0_u64, 0);
    while let Some(header) = link.reader.receive(&mut body).expect("sound records") {
        let (kind, answer) = match header.kind {
            Kind::Ask => {
                questions += 1;
                let ask = Ask::decode(&body).expect("a sound Ask");
                let lacking = |pages: usize| PageSet::empty(pages);
                let (known, bases) = (lacking(ask.hashes.len()), lacking(ask.bases.len()));
                (Kind::Answer, Answer { known, bases }.encode())
            }
            Kind::Segment => {
                let view = SegmentView::parse(&body).expect("a sound segment");
                accepted += view.stream_bytes() as u64;
                (Kind::Credit, accepted.to_le_bytes().to_vec())
            }
            Kind::End => (Kind::ReverseEnd, Vec::new()),
            other => panic!("{other:?} of a sender"),
        };
        link.writer.send(kind, header.sequence, &[&answer]).expect("the sender listens");
        if kind == Kind::ReverseEnd {
            break;
        }
    }
    link.writer.finish();
    questions
}

#[test]
fn segments_do_not_wait_for_answers_that_only_show_whether_asking_would_pay() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let (mut sender, listener, to) = Proxy::sender(directory.path(), &["--compress", "never"]);
    let receiver = std::thread::spawn(move || lack_all(&listener));

    let mut source = UnixStream::connect(to).expect("the proxy listens");
    source.write_all(&stream(32_000)).expect("it reads");
    source.shutdown(Shutdown::Write).expect("a connected socket");
    source.read_to_end(&mut Vec::new()).expect("a half-close");
    let questions = receiver.join().expect("no panic");
    let record = sender.record();
    let waited = count(&record, "segments_asked");
    // It hopes at first, and learns in some 60 segments that nothing is there.
    assert!(waited < 200, "{waited} of {questions}: {record}");
    assert!(questions > waited + 4, "{waited} of {questions}: {record}");
}
