//! Whatever goes in comes out, in both directions, with both half-closes: no QEMU needed.

use crate::lab;

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};

use lab::Pair;
use lab::stand_in::{path, through};

/// A stream with named pages, runs of zero pages, and content that repeats.
fn stream(pages: u64) -> Vec<u8> {
    let mut out = b"QEVM\0\0\0\x03\x01\0\0\0\x02\x03ram\0\0\0\0\0\0\0\x04".to_vec();
    for page in 0..pages {
        if page % 3 == 0 {
            out.extend((page * 4096 + 0x22).to_be_bytes());
            out.push(0);
        } else {
            out.extend((page * 4096 + 0x28).to_be_bytes());
            out.extend((0..512).flat_map(|word| (page % 40 * 1000 + word).to_le_bytes()));
        }
    }
    out.extend(b"then something that nobody knows");
    out
}

#[test]
fn a_stream_with_repeating_pages_arrives_as_it_was_sent() {
    for policy in ["always", "adaptive", "never"] {
        let mut pair = Pair::unix(&["--ask", policy, "--compress", policy], &[]);
        let stream = stream(6000);
        let (arrived, returned) = through(&pair, &stream, b"the return path");
        assert!(arrived == stream, "{policy}: {} of {} bytes", arrived.len(), stream.len());
        assert_eq!(returned, b"the return path");
        let record = pair.send.record();
        assert!(record["error"].is_null(), "{record}");
        let wire = record["wire_sent"].as_u64().expect("a number");
        if policy == "always" {
            assert!(wire < stream.len() as u64 / 10, "pages that repeat are sent once: {record}");
        }
    }
}

#[test]
fn bytes_that_are_no_stream_arrive_as_they_were_sent() {
    let mut pair = Pair::unix(&["--compress", "always"], &[]);
    let noise: Vec<u8> =
        (0..3_000_001_u32).map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()[3]).collect();
    let (arrived, returned) = through(&pair, &noise, &[]);
    assert!(arrived == noise);
    assert!(returned.is_empty());
    let record = pair.send.record();
    assert_eq!(record["verbatim"][0]["at"], 0, "{record}");
}

#[test]
fn a_byte_damaged_between_the_proxies_ends_the_migration_and_is_named() {
    let mut pair = Pair::damaged(300_000);
    let destination = UnixListener::bind(path(&pair.from)).expect("a fresh socket");
    let mut source = UnixStream::connect(path(&pair.to)).expect("the proxy listens");
    let stream = stream(2000);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let (mut end, _) = destination.accept().expect("the proxy connects");
            let mut arrived = Vec::new();
            // The connection may be reset: what matters is what came before.
            let _ = end.read_to_end(&mut arrived);
            assert!(stream.starts_with(&arrived) && arrived.len() < stream.len());
        });
        // QEMU, too, would find its connection closed while it writes.
        let _ = source.write_all(&stream);
        let _ = source.read_to_end(&mut Vec::new());
    });
    let error = pair.receive.record()["error"].to_string();
    assert!(error.contains("damaged"), "{error}");
    let error = pair.send.record()["error"].to_string();
    assert!(error.contains("damaged"), "{error}");
}

/// QEMU before 8.0 takes its first connection for the main channel, whatever comes on it.
#[test]
fn the_first_channel_reaches_qemu_first_even_if_another_speaks_before_it() {
    let pair = Pair::unix(&["--ask", "never", "--compress", "never"], &[]);
    let destination = UnixListener::bind(path(&pair.from)).expect("a fresh socket");
    let mut first = UnixStream::connect(path(&pair.to)).expect("the proxy listens");
    let mut second = UnixStream::connect(path(&pair.to)).expect("the proxy listens");
    second.write_all(b"2").expect("the proxy takes it");
    second.shutdown(Shutdown::Write).expect("a connected socket");
    // The second has every chance to be early: nobody may connect for as long as the first is mute.
    destination.set_nonblocking(true).expect("a socket");
    let mute = std::time::Instant::now();
    while mute.elapsed() < std::time::Duration::from_millis(500) {
        assert!(destination.accept().is_err(), "the second channel came first");
        std::thread::yield_now();
    }
    destination.set_nonblocking(false).expect("a socket");
    first.write_all(b"1").expect("the proxy takes it");
    first.shutdown(Shutdown::Write).expect("a connected socket");
    for expected in [b"1", b"2"] {
        let (mut end, _) = destination.accept().expect("the proxy connects");
        let mut arrived = Vec::new();
        end.read_to_end(&mut arrived).expect("a half-close");
        assert_eq!(arrived, expected);
    }
}
