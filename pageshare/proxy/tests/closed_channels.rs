//! A destination QEMU closes its multifd channels as soon as it has the guest's memory. What it has
//! not read then resets the connection: no QEMU needed.

use crate::lab;

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use lab::Pair;
use lab::stand_in::{LOADED, MIGRATION, path};
use pageshare_stream::PAGE_SIZE;

const SLOTS: u32 = 128;
const SYNC: u32 = 1;

/// A packet of so many pages.
fn packet(flags: u32, pages: u32) -> Vec<u8> {
    let bytes = pages * u32::try_from(PAGE_SIZE).expect("small");
    let words = [0x1122_3344, 1, flags, SLOTS, pages, bytes];
    let mut packet: Vec<u8> = words.into_iter().flat_map(u32::to_be_bytes).collect();
    packet.resize(packet.len() + 8 + 32, 0);
    packet.extend(b"ram");
    packet.resize(packet.len() + 253 + 8 * SLOTS as usize, 0);
    packet.resize(packet.len() + bytes as usize, 7);
    packet
}

/// A channel's first bytes, and a packet that brings a page and synchronises.
fn begin() -> Vec<u8> {
    let mut hello = vec![0; 64];
    hello[..8].copy_from_slice(&[0x11, 0x22, 0x33, 0x44, 0, 0, 0, 1]);
    [hello, packet(SYNC, 1)].concat()
}

/// A migration by two channels. The destination closes the second one when it has read its first
/// packet, before or after `last` has come; returns what both records give as the error.
fn closed(last: &[u8], before: bool) -> [serde_json::Value; 2] {
    let mut pair = Pair::unix(&[], &[]);
    let destination = UnixListener::bind(path(&pair.from)).expect("a fresh socket");
    let connect = || UnixStream::connect(path(&pair.to)).expect("the proxy listens");
    let accept = || destination.accept().expect("the proxy connects").0;
    let (mut source, begin) = (connect(), begin());
    source.write_all(MIGRATION).expect("the proxy takes it");
    let mut main = accept();
    let mut channel = connect();
    channel.write_all(&begin).expect("the proxy takes it");
    let mut end = accept();
    end.read_exact(&mut vec![0; begin.len()]).expect("what was sent");
    if before {
        drop(end);
        channel.write_all(last).expect("the proxy takes it");
    } else {
        channel.write_all(last).expect("the proxy takes it");
        end.read_exact(&mut [0]).expect("what was sent");
        drop(end);
    }
    // One of them has failed in its place, if it may not be missed.
    let _ = channel.shutdown(Shutdown::Write);
    let _ = channel.read_to_end(&mut Vec::new());
    let _ = main.write_all(&LOADED);
    let _ = source.shutdown(Shutdown::Write);
    let _ = main.read_to_end(&mut Vec::new());
    drop(main);
    let _ = source.read_to_end(&mut Vec::new());
    [pair.send.record(), pair.receive.record()].map(|record| record["error"].clone())
}

/// As QEMU from 9.0 on does.
#[test]
fn a_hundred_channels_that_open_before_the_main_one_speaks_get_through() {
    let mut pair = Pair::unix(&[], &[]);
    let destination = UnixListener::bind(path(&pair.from)).expect("a fresh socket");
    let connect = || UnixStream::connect(path(&pair.to)).expect("the proxy listens");
    let (mut source, begin) = (connect(), begin());
    let mut channels: Vec<UnixStream> = (0..100).map(|_| connect()).collect();
    for channel in &mut channels {
        channel.write_all(&begin).expect("the proxy takes it");
    }
    let files = format!("/proc/{}/fd", pair.send.pid());
    lab::wait_for("all to wait, or one to give way", || {
        let open = std::fs::read_dir(&files).expect("our own child").count();
        (open > channels.len() || pair.send.log().contains("turned away")).then_some(())
    });
    source.write_all(MIGRATION).expect("the proxy takes it");
    let mut ends: Vec<UnixStream> =
        (0..=channels.len()).map(|_| destination.accept().expect("the proxy connects").0).collect();
    channels.push(source);
    for channel in &channels {
        channel.shutdown(Shutdown::Write).expect("a connected socket");
    }
    let arrived = ends.iter_mut().filter_map(|end| {
        let mut stream = Vec::new();
        end.read_to_end(&mut stream).expect("a half-close");
        (stream == begin).then_some(())
    });
    assert_eq!(arrived.count(), 100, "{}", pair.logs());
    drop(ends);
    for record in [pair.send.record(), pair.receive.record()] {
        assert!(record["error"].is_null(), "{record}");
    }
}

#[test]
fn a_source_that_hangs_up_ends_the_migration_though_the_destination_takes_nothing() {
    let head = b"QEVM\0\0\0\x03\x08\0\x01\0\0then something that nobody knows";
    // With room left in the window and without.
    for mebibytes in [1, 1024] {
        let mut pair = Pair::unix(&["--compress", "never"], &[]);
        let _destination = UnixListener::bind(path(&pair.from)).expect("a fresh socket");
        let mut source = UnixStream::connect(path(&pair.to)).expect("the proxy listens");
        source.write_all(head).expect("the proxy takes it");
        source.set_write_timeout(Some(Duration::from_secs(2))).expect("a connected socket");
        let full = (0..mebibytes).any(|_| source.write_all(&[7; 1 << 20]).is_err());
        assert_eq!(full, mebibytes > 1, "{}", pair.logs());
        drop(source);
        let error = pair.send.record()["error"].to_string();
        assert!(error.contains("the source QEMU closed the connection"), "{error}");
    }
}

#[test]
fn a_channel_closed_over_what_says_nothing_fails_no_migration() {
    for before in [false, true] {
        for error in closed(&packet(0, 0), before) {
            assert!(error.is_null(), "before the last packet: {before}: {error}");
        }
    }
}

#[test]
fn a_channel_closed_before_a_page_has_come_fails_the_migration() {
    let mut zeros = packet(0, 0);
    zeros[35] = 1;
    for last in [packet(0, 1), packet(SYNC, 0), zeros, [packet(0, 0), packet(0, 1)].concat()] {
        for error in closed(&last, true) {
            assert!(error.to_string().contains("writing the stream"), "{error}");
        }
    }
}
