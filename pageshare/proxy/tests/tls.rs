//! TLS between the proxies is the default, and both sides must show a certificate.

use crate::lab;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;

use lab::Pair;
use lab::pki::{certificates, certificates_between};
use lab::stand_in::path;
use pageshare::address::Address;
use pageshare::link::{TlsFiles, deadline};
use pageshare::socket::Socket;

/// What a sender says whose receiver closes the connection during the handshake.
const UNAGREED: &str = "closed the connection before it agreed";

/// Sends `stream` through the pair; returns what arrived, or nothing if it was cut.
fn through(pair: &Pair, stream: &[u8]) -> Option<Vec<u8>> {
    let destination = UnixListener::bind(path(&pair.from)).expect("a fresh socket");
    destination.set_nonblocking(true).expect("a socket");
    let mut source = UnixStream::connect(path(&pair.to)).expect("the proxy listens");
    let mut writing = source.try_clone().expect("a socket");
    std::thread::scope(|threads| {
        threads.spawn(move || {
            // A pair that refuses closes while this writes.
            let _ = writing.write_all(stream);
            let _ = writing.shutdown(Shutdown::Write);
        });
        let arrived = threads.spawn(|| {
            let mut end =
                lab::wait_for("QEMU's connection or the refusal", || match destination.accept() {
                    Ok((end, _)) => Some(Some(end)),
                    Err(_) if pair.send.log().contains("failed:") => Some(None),
                    Err(_) => None,
                })?;
            end.set_nonblocking(false).expect("a socket");
            let mut arrived = Vec::new();
            end.read_to_end(&mut arrived).ok()?;
            Some(arrived)
        });
        let arrived = arrived.join().expect("no panic");
        let _ = source.read_to_end(&mut Vec::new());
        arrived
    })
}

/// Nothing passes, and both sides say why: the sender in its record, one way or another, the receiver
/// in its log.
fn assert_refused(pair: &mut Pair, why_here: &[&str], why_there: &str) {
    assert_eq!(through(pair, b"memory"), None, "{}", pair.logs());
    let error = pair.send.record()["error"].to_string();
    assert!(why_here.iter().any(|why| error.contains(why)), "{error}");
    let what = format!("the receiver to say `{why_there}`");
    lab::wait_for(&what, || pair.receive.log().contains(why_there).then_some(()));
}

fn noise() -> Vec<u8> {
    (0..4_000_000_u32).map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()[3]).collect()
}

#[test]
fn a_stream_arrives_between_hosts_that_know_each_other() {
    let pki = tempfile::tempdir().expect("a scratch directory");
    certificates(pki.path(), "destination.example", "source.example");
    let tls = ["--tls-dir", pki.path().to_str().expect("a plain path")];
    let mut pair = Pair::secure(
        &[&tls[..], &["--tls-name", "destination.example"]].concat(),
        &[&tls[..], &["--peer", "source.example"]].concat(),
    );
    assert!(through(&pair, &noise()) == Some(noise()), "{}", pair.logs());
    assert!(pair.send.record()["error"].is_null(), "{}", pair.logs());
    assert!(pair.receive.record()["error"].is_null(), "{}", pair.logs());
}

#[test]
fn a_host_with_another_name_is_refused_by_either_side() {
    let pki = tempfile::tempdir().expect("a scratch directory");
    certificates(pki.path(), "destination.example", "source.example");
    let tls = ["--tls-dir", pki.path().to_str().expect("a plain path")];
    for (name, peer, why_here, why_there) in [
        ("elsewhere.example", "source.example", "name it with --tls-name", "its log says why"),
        ("destination.example", "another.example", UNAGREED, "(another.example)"),
    ] {
        let mut pair = Pair::secure(
            &[&tls[..], &["--tls-name", name]].concat(),
            &[&tls[..], &["--peer", peer]].concat(),
        );
        assert_refused(&mut pair, &[why_here], why_there);
    }
}

#[test]
fn an_expired_certificate_is_refused_and_both_logs_say_which_to_renew() {
    let pki = tempfile::tempdir().expect("a scratch directory");
    let (server, client) = ("destination.example", "source.example");
    certificates_between("server", 1999..2001, pki.path(), server, client);
    let tls = ["--tls-dir", pki.path().to_str().expect("a plain path")];
    let mut pair = Pair::secure(&[&tls[..], &["--tls-name", server]].concat(), &tls);
    let renew = "renew the certificate in";
    assert_refused(
        &mut pair,
        &[&format!("{renew} the other host's")],
        &format!("{renew} this host's"),
    );
}

#[test]
fn a_certificate_that_is_out_of_date_is_told_at_the_start_by_the_host_that_has_it() {
    for (side, years, told) in [
        ("server", 1999..2001, "server-cert.pem has expired"),
        ("server", 4000..4001, "server-cert.pem is not valid yet"),
        ("client", 1999..2001, "client-cert.pem has expired"),
        ("client", 4000..4001, "client-cert.pem is not valid yet"),
    ] {
        let pki = tempfile::tempdir().expect("a scratch directory");
        certificates_between(side, years, pki.path(), "destination.example", "source.example");
        let tls = ["--tls-dir", pki.path().to_str().expect("a plain path")];
        let pair = Pair::secure(&tls, &tls);
        let logs = [pair.receive.log(), pair.send.log()];
        let [has, has_not] = if side == "server" { [0, 1] } else { [1, 0] };
        assert!(logs[has].contains(told), "{}", pair.logs());
        assert!(!logs[has_not].contains("-cert.pem"), "{}", pair.logs());
    }
}

#[test]
fn a_client_of_another_authority_is_refused() {
    let (ours, theirs) = (tempfile::tempdir(), tempfile::tempdir());
    let (ours, theirs) = (ours.expect("a directory"), theirs.expect("a directory"));
    certificates(ours.path(), "destination.example", "source.example");
    certificates(theirs.path(), "destination.example", "source.example");
    // The client trusts the server's authority, not the other way round.
    std::fs::copy(ours.path().join("ca-cert.pem"), theirs.path().join("ca-cert.pem"))
        .expect("writable");
    let mut pair = Pair::secure(
        &[
            "--tls-dir",
            theirs.path().to_str().expect("a plain path"),
            "--tls-name",
            "destination.example",
        ],
        &["--tls-dir", ours.path().to_str().expect("a plain path")],
    );
    // Its word on why may be lost: it closes the connection at once.
    assert_refused(&mut pair, &[UNAGREED, "fatal alert"], "must be of the authority");
}

#[test]
fn a_sender_without_tls_is_refused_by_a_receiver_with_it() {
    let pki = tempfile::tempdir().expect("a scratch directory");
    certificates(pki.path(), "destination.example", "source.example");
    let tls = ["--tls-dir", pki.path().to_str().expect("a plain path")];
    let mut pair = Pair::secure(&["--insecure"], &tls);
    assert_refused(&mut pair, &[UNAGREED], "the handshake with the other proxy failed");
}

#[test]
fn a_client_that_says_nothing_is_let_go_and_holds_up_nobody() {
    let pki = tempfile::tempdir().expect("a scratch directory");
    certificates(pki.path(), "destination.example", "source.example");
    let tls = ["--tls-dir", pki.path().to_str().expect("a plain path")];
    let mut pair = Pair::secure(&[&tls[..], &["--tls-name", "destination.example"]].concat(), &tls);
    let mute = || {
        let address = pair.wire.strip_prefix("tcp:").expect("TCP");
        TcpStream::connect(address).expect("the receiver listens")
    };
    let mut first = mute();
    first.set_read_timeout(Some(lab::HANGS)).expect("a connected socket");
    assert_eq!(first.read(&mut [0]).expect("the receiver's patience ends"), 0);
    lab::wait_for("the receiver to say why", || {
        pair.receive.log().contains("has not said what it is").then_some(())
    });
    let second = mute();
    assert!(through(&pair, &noise()) == Some(noise()), "{}", pair.logs());
    drop(second);
    assert!(pair.send.record()["error"].is_null(), "{}", pair.logs());
    assert!(pair.receive.record()["error"].is_null(), "{}", pair.logs());
}

#[test]
fn a_receiver_that_says_nothing_is_given_up_with_a_sentence() {
    let pki = tempfile::tempdir().expect("a scratch directory");
    certificates(pki.path(), "destination.example", "source.example");
    let mute = TcpListener::bind("127.0.0.1:0").expect("the loopback interface");
    let address = Address::Tcp(mute.local_addr().expect("a bound socket").to_string());
    let socket = Socket::connect("the receiving proxy", &address).expect("it listens");
    let client = TlsFiles::in_directory(pki.path(), "client").client().expect("sound certificates");
    let refused = client
        .link(Arc::new(socket), "destination.example", deadline())
        .err()
        .expect("nobody answers");
    assert!(refused.to_string().contains("does not answer"), "{refused}");
}
