//! Who connects and is no proxy, or no QEMU, neither counts as a migration nor disturbs one: no QEMU
//! needed.

use crate::lab;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use lab::stand_in::{MIGRATION, carry, leave, path, through};
use lab::{Crowd, Crowded, Pair, Proxy};
use pageshare::address::Address;
use pageshare::handshake;
use pageshare::link::{self, Link};
use pageshare::scope::Scope;
use pageshare::socket::Socket;
use pageshare_wire::Versions;
use pageshare_wire::hello::{HELLO_BYTES, MigrationId};

const STREAM: &[u8] = &[7; 100_000];

fn connect(pair: &Pair) -> UnixStream {
    UnixStream::connect(path(&pair.to)).expect("the proxy listens")
}

/// Connects to a sender and closes the connection before the sender has had a look at it.
fn look_in(pair: &Pair) {
    lab::signal("STOP", pair.send.pid());
    let nobody = connect(pair);
    nobody.shutdown(Shutdown::Write).expect("a connected socket");
    lab::signal("CONT", pair.send.pid());
    leave(nobody);
}

/// Connects to a receiver as no sender does; returns once it has been turned away, the `nth` one.
fn knock(pair: &Pair, nth: usize) {
    let address = pair.wire.strip_prefix("tcp:").expect("TCP");
    let mut stranger = TcpStream::connect(address).expect("the receiver listens");
    stranger.write_all(b"GET / HTTP/1.1\r\nHost: nobody\r\n\r\n").expect("connected");
    drop(stranger);
    lab::wait_for("the stranger to be turned away", || {
        (pair.receive.log().matches("turned away").count() >= nth).then_some(())
    });
}

/// Sends [`STREAM`] through the pair, and does something when it has begun to arrive; returns what
/// arrived.
fn interrupted(pair: &Pair, meanwhile: impl FnOnce()) -> Vec<u8> {
    let destination = UnixListener::bind(path(&pair.from)).expect("a fresh socket");
    let mut source = connect(pair);
    let (begin, rest) = STREAM.split_at(100);
    source.write_all(begin).expect("the proxy takes it");
    let (mut end, _) = destination.accept().expect("the proxy connects");
    let mut arrived = vec![0; begin.len()];
    end.read_exact(&mut arrived).expect("what was sent");
    meanwhile();
    source.write_all(rest).expect("the proxy takes it");
    source.shutdown(Shutdown::Write).expect("a connected socket");
    end.read_to_end(&mut arrived).expect("a half-close");
    drop(end);
    source.read_to_end(&mut Vec::new()).expect("a half-close");
    arrived
}

fn assert_sound(mut pair: Pair) {
    for record in [pair.send.record(), pair.receive.record()] {
        assert!(record["error"].is_null(), "{record}\n{}", pair.logs());
    }
}

#[test]
fn a_connection_that_closes_without_a_word_is_no_migration() {
    let pair = Pair::unix(&[], &[]);
    look_in(&pair);
    // One that stays, and is not waited for.
    let nobody = connect(&pair);
    let (arrived, _) = through(&pair, MIGRATION, &[]);
    assert!(arrived == MIGRATION);
    leave(nobody);
    assert!(!pair.receive.log().contains("channel 1 open"), "{}", pair.logs());
    assert_sound(pair);
}

#[test]
fn a_connection_that_closes_without_a_word_is_no_channel_of_a_running_migration() {
    let pair = Pair::unix(&[], &[]);
    let arrived = interrupted(&pair, || look_in(&pair));
    assert!(arrived == STREAM);
    assert!(!pair.receive.log().contains("channel 1 open"), "{}", pair.logs());
    assert_sound(pair);
}

#[test]
fn a_stranger_neither_ends_a_receiver_for_one_migration_nor_cuts_the_one_that_runs() {
    let pair = Pair::unix(&[], &[]);
    knock(&pair, 1);
    let arrived = interrupted(&pair, || knock(&pair, 2));
    assert!(arrived == STREAM);
    assert_sound(pair);
}

/// Greets a receiver as one that knows its scope; then the link breaks.
fn break_off(pair: &Pair, scope: &Scope, nth: usize) {
    let address: Address = pair.wire.parse().expect("the receiver's own address");
    let socket = Arc::new(Socket::connect("the receiver", &address).expect("it listens"));
    let mut link = Link::plain(socket, link::deadline());
    let id = MigrationId([7; 16]);
    handshake::send(&mut link, id, 0, 1 << 20, Some(scope), Versions::OURS).expect("a welcome");
    drop(link);
    lab::wait_for("it to be noticed", || {
        (pair.receive.log().matches("closed the connection").count() >= nth).then_some(())
    });
}

#[test]
fn who_is_known_and_migrates_nothing_neither_ends_a_receiver_nor_cuts_a_migration() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let path = lab::scope(directory.path(), "tenant");
    let scope = Scope::load(path.as_ref()).expect("just made");
    let pair = Pair::unix(&["--scope", &path], &["--scope", &path]);
    break_off(&pair, &scope, 1);
    let arrived = interrupted(&pair, || break_off(&pair, &scope, 2));
    assert!(arrived == STREAM, "{}", pair.logs());
    assert_sound(pair);
}

/// As where it was pointed at the wrong receiver.
#[test]
fn a_second_vm_is_turned_away_from_a_qemu_that_another_migrates_to() {
    let pair = Pair::unix(&[], &[]);
    let directory = tempfile::tempdir().expect("a scratch directory");
    let arrived = interrupted(&pair, || {
        // QEMU listens no more, once its migration has come.
        std::fs::remove_file(path(&pair.from)).expect("the stand-in listens there");
        let to = format!("unix:{}", directory.path().join("out").display());
        let words = ["--once", "--insecure", "--listen", &to, "--to", &pair.wire];
        let words = words.map(str::to_owned);
        let mut second =
            Proxy::spawn(Command::new(lab::binary()), directory.path(), "send", &words);
        let mut source = UnixStream::connect(path(&to)).expect("the proxy listens");
        source.write_all(MIGRATION).expect("the proxy takes it");
        let error = second.record()["error"].to_string();
        assert!(error.contains("another VM is migrating"), "{error}\n{}", pair.logs());
    });
    assert!(arrived == STREAM, "{}", pair.logs());
    assert_sound(pair);
}

/// Lets a process open files up to this number.
fn limit_files(pid: u32, files: u32) {
    let limited = Command::new("prlimit")
        .args([format!("--pid={pid}"), format!("--nofile={files}:")])
        .status()
        .expect("prlimit is there (package util-linux)");
    assert!(limited.success());
}

#[test]
fn a_receiver_without_a_file_descriptor_listens_on_and_accepts_when_it_has_one() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let (receiver, wire) = Proxy::receiver(directory.path(), "unix:/nowhere");
    let open = std::fs::read_dir(format!("/proc/{}/fd", receiver.pid())).expect("our own child");
    let open: BTreeSet<u32> = open
        .map(|entry| entry.expect("readable").file_name())
        .map(|name| name.to_str().and_then(|name| name.parse().ok()).expect("a number"))
        .collect();
    limit_files(receiver.pid(), (0..).find(|file| !open.contains(file)).expect("few are open"));
    let address: Address = wire.parse().expect("the receiver's own address");
    let connect = || Arc::new(Socket::connect("the receiver", &address).expect("it listens"));
    // It may have one left for this, and none for what follows.
    let first = connect();
    lab::wait_for("it to say what it lacks", || {
        receiver.log().contains("Too many open files").then_some(())
    });
    limit_files(receiver.pid(), 256);
    drop(first);
    let mut link = Link::plain(connect(), link::deadline());
    let greeted =
        handshake::send(&mut link, MigrationId([7; 16]), 0, 1 << 20, None, Versions::OURS);
    assert!(greeted.is_ok(), "{}", receiver.log());
}

#[test]
fn a_receiver_says_that_it_waits_once_it_has_all_that_it_takes() {
    let words = ["receive", "--insecure", "--listen", "tcp:127.0.0.1:0", "--qemu", "unix:/nowhere"];
    // With a descriptor more each time it comes further, and says so only where nothing is lacking.
    for files in 4.. {
        let mut receiver = Command::new("prlimit")
            .args([&format!("--nofile={files}"), lab::binary()])
            .args(words)
            .stderr(Stdio::piped())
            .spawn()
            .expect("prlimit is there (package util-linux)");
        let mut said = BufReader::new(receiver.stderr.take().expect("piped")).lines();
        let waits = said.any(|line| line.is_ok_and(|line| line.contains("waiting for")));
        if waits {
            lab::signal("TERM", receiver.id());
        }
        let ended = receiver.wait().expect("our own child");
        if waits {
            assert_eq!(ended.code(), Some(130), "with {files} files it could not hear of an end");
            return;
        }
    }
}

/// Claim D13 in short; `cargo bench --bench crowd` is the whole of it.
#[test]
fn a_crowd_without_certificates_keeps_no_migration_out_and_takes_little_room() {
    let crowded = Crowded::start(256);
    let destination = UnixListener::bind(path(&crowded.from)).expect("a fresh socket");
    let crowd = Crowd::press(&crowded.wire, 1000, 512, &[], [127, 0, 0, 1]);
    // More than the receiver could ever hold.
    lab::wait_for("a crowd", || (crowd.came() > 1000).then_some(()));
    four_get_through(&crowded, &destination);
    assert!(crowd.came() > 1000);
}

fn four_get_through(crowded: &Crowded, destination: &UnixListener) {
    for _ in 0..4 {
        let directory = tempfile::tempdir().expect("a scratch directory");
        let (mut sender, to) = crowded.sender(directory.path());
        let (arrived, _) = carry(&to, destination, MIGRATION, &[]);
        assert!(arrived == MIGRATION, "{}", sender.log());
        assert!(sender.record()["error"].is_null(), "{}", sender.log());
        let (files, threads, kibibytes) = crowded.room();
        assert!(files <= 128 && threads <= 32 && kibibytes < 64 << 10, "{:?}", crowded.room());
    }
}

/// From another address than the sender: nobody waits for others' handshakes.
#[test]
fn a_crowd_that_begins_a_handshake_and_stops_keeps_no_migration_out() {
    let crowded = Crowded::start(256);
    let destination = UnixListener::bind(path(&crowded.from)).expect("a fresh socket");
    // A record of TLS with the first byte of a ClientHello.
    let crowd = Crowd::press(&crowded.wire, 1000, 512, &[22, 3, 1, 0, 1, 1], [127, 0, 0, 2]);
    lab::wait_for("a crowd", || (crowd.came() > 1000).then_some(()));
    four_get_through(&crowded, &destination);
}

/// Who greets with `--insecure` and no scope has shown nothing: he is a stranger until something comes,
/// on whichever channel.
#[test]
fn a_crowd_that_greets_and_says_nothing_keeps_no_migration_out_and_is_let_go() {
    let crowded = Crowded::insecure(256);
    let destination = UnixListener::bind(path(&crowded.from)).expect("a fresh socket");
    let address: Address = crowded.wire.parse().expect("the receiver's own address");
    let greet = |number: u8| {
        let socket = Arc::new(Socket::connect("the receiver", &address).expect("it listens"));
        let mut link = Link::plain(Arc::clone(&socket), link::deadline());
        handshake::send(&mut link, MigrationId([number; 16]), 0, 1 << 20, None, Versions::OURS)
            .expect("a welcome");
        socket
    };
    let mut greeted: Vec<Arc<Socket>> = (0..200).map(greet).collect();
    let (files, threads, kibibytes) = crowded.room();
    assert!(files <= 192 && threads <= 192 && kibibytes < 64 << 10, "{:?}", crowded.room());
    let another = tempfile::tempdir().expect("a scratch directory");
    let (mut first, to) = crowded.sender(another.path());
    let (arrived, _) = carry(&to, &destination, MIGRATION, &[]);
    assert!(arrived == MIGRATION, "{}", first.log());
    assert!(first.record()["error"].is_null(), "{}", first.log());

    let directory = tempfile::tempdir().expect("a scratch directory");
    let (mut sender, to) = crowded.sender(directory.path());
    let mut main = UnixStream::connect(path(&to)).expect("the proxy listens");
    main.write_all(MIGRATION).expect("the proxy takes it");
    let (mut end, _) = destination.accept().expect("the proxy connects");
    let silent = UnixStream::connect(path(&to)).expect("the proxy listens");
    let (mut silent_end, _) = destination.accept().expect("the proxy connects");
    greeted.push(greet(200));
    for socket in greeted {
        socket.limit_wait(Some(lab::HANGS)).expect("a connected socket");
        let closed = (&*socket).read_to_end(&mut Vec::new());
        let kept = closed.is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
        assert!(!kept, "it has a thread for good: {:?}", crowded.room());
    }
    // The channel that has been silent for longer than the last of them was not let go.
    for channel in [main, silent] {
        channel.shutdown(Shutdown::Write).expect("a connected socket");
    }
    for (end, all) in [(&mut end, MIGRATION), (&mut silent_end, &[][..])] {
        let mut arrived = Vec::new();
        end.read_to_end(&mut arrived).expect("a half-close");
        assert!(arrived == all);
    }
    drop((end, silent_end));
    assert!(sender.record()["error"].is_null(), "{}", sender.log());
    assert!(!crowded.receiver.log().contains("failed:"), "{}", crowded.receiver.log());
}

/// Channels that QEMU opens in the middle, as for `postcopy-preempt`, have to get through.
#[test]
fn a_channel_of_a_migration_that_runs_gets_through_the_crowd() {
    let crowded = Crowded::start(256);
    let destination = UnixListener::bind(path(&crowded.from)).expect("a fresh socket");
    let directory = tempfile::tempdir().expect("a scratch directory");
    let (mut sender, to) = crowded.sender(directory.path());
    let connect = || UnixStream::connect(path(&to)).expect("the proxy listens");
    let (mut main, mut ends) = (connect(), Vec::new());
    main.write_all(MIGRATION).expect("the proxy takes it");
    ends.push(destination.accept().expect("the proxy connects").0);
    let crowd = Crowd::press(&crowded.wire, 1000, 512, &[], [127, 0, 0, 1]);
    lab::wait_for("a crowd", || (crowd.came() > 1000).then_some(()));
    // One that speaks, and one that does not.
    let mut second = connect();
    second.write_all(STREAM).expect("the proxy takes it");
    ends.push(destination.accept().expect("the proxy connects").0);
    let silent = connect();
    ends.push(destination.accept().expect("the proxy connects").0);
    for channel in [main, second, silent] {
        channel.shutdown(Shutdown::Write).expect("a connected socket");
    }
    for (end, all) in ends.iter_mut().zip([MIGRATION, STREAM, &[]]) {
        let mut arrived = Vec::new();
        end.read_to_end(&mut arrived).expect("a half-close");
        assert!(arrived == all);
    }
    drop(ends);
    assert!(sender.record()["error"].is_null(), "{}", sender.log());
}

#[test]
fn a_sender_that_speaks_slowly_has_one_deadline_for_all_that_it_says() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let (receiver, wire) = Proxy::receiver(directory.path(), "unix:/nowhere");
    let mut slow = TcpStream::connect(wire.strip_prefix("tcp:").expect("TCP")).expect("it listens");
    slow.set_read_timeout(Some(Duration::from_millis(500))).expect("a connected socket");
    // A Hello, byte by byte: each comes long before patience with one silence is over.
    let hello = b"PGSH".iter().copied().chain(std::iter::repeat(0));
    let said = hello.take(HELLO_BYTES - 1).take_while(|byte| {
        let sent = slow.write_all(&[*byte]).is_ok();
        let closed = matches!(slow.read(&mut [0]), Ok(0))
            || slow.take_error().is_ok_and(|error| error.is_some());
        sent && !closed
    });
    assert!(said.count() < HELLO_BYTES - 1, "{}", receiver.log());
}

/// One of multifd's that has been held up for longer than `SILENCE` is not the one for `postcopy-preempt`.
#[test]
fn a_channel_that_speaks_late_leaves_room_for_the_one_that_stays_silent() {
    let mut pair = Pair::unix(&[], &[]);
    let destination = UnixListener::bind(path(&pair.from)).expect("a fresh socket");
    let mut main = connect(&pair);
    main.write_all(MIGRATION).expect("the proxy takes it");
    let mut ends = vec![destination.accept().expect("the proxy connects").0];
    destination.set_nonblocking(true).expect("our own socket");
    let mut comes = |what| {
        let (end, _) = lab::wait_for(what, || destination.accept().ok());
        end.set_nonblocking(false).expect("our own socket");
        ends.push(end);
    };
    let mut late = connect(&pair);
    comes("the late one");
    late.write_all(&[0x11, 0x22, 0x33, 0x44]).expect("the proxy takes it");
    let silent = connect(&pair);
    comes("the silent one");
    for channel in [main, late, silent] {
        channel.shutdown(Shutdown::Write).expect("a connected socket");
    }
    for (end, all) in ends.iter_mut().zip([MIGRATION, &[0x11, 0x22, 0x33, 0x44], &[]]) {
        let mut arrived = Vec::new();
        end.read_to_end(&mut arrived).expect("a half-close");
        assert!(arrived == all);
    }
    drop(ends);
    assert!(pair.send.record()["error"].is_null(), "{}", pair.logs());
}
