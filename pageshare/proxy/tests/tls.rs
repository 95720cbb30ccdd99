//! TLS between the proxies is the default, and both sides must show a certificate.

mod lab;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use lab::Pair;
use pageshare::address::Address;
use pageshare::link::TlsFiles;
use pageshare::socket::Socket;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

/// Writes a certificate authority and one certificate for each side, as QEMU lays them out.
fn certificates(directory: &Path, server: &str, client: &str) {
    certificates_until(4096, directory, server, client);
}

/// As [`certificates`]; the server's lasts until this year.
fn certificates_until(year: i32, directory: &Path, server: &str, client: &str) {
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("randomness");
    let authority = CertifiedIssuer::self_signed(authority, key).expect("a sound certificate");
    let write = |name: &str, text: &str| {
        std::fs::write(directory.join(name), text).expect("writable");
    };
    write("ca-cert.pem", &authority.pem());
    for (side, name) in [("server", server), ("client", client)] {
        let key = KeyPair::generate().expect("randomness");
        let mut parameters = CertificateParams::new([name.to_owned()]).expect("a sound name");
        if side == "server" {
            parameters.not_after = rcgen::date_time_ymd(year, 1, 1);
        }
        let certificate = parameters.signed_by(&key, &authority).expect("a sound certificate");
        write(&format!("{side}-cert.pem"), &certificate.pem());
        write(&format!("{side}-key.pem"), &key.serialize_pem());
    }
}

fn path(address: &str) -> PathBuf {
    PathBuf::from(address.strip_prefix("unix:").expect("a Unix socket"))
}

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
    for (name, peer) in
        [("elsewhere.example", "source.example"), ("destination.example", "another.example")]
    {
        let mut pair = Pair::secure(
            &[&tls[..], &["--tls-name", name]].concat(),
            &[&tls[..], &["--peer", peer]].concat(),
        );
        assert_eq!(through(&pair, b"memory"), None, "{}", pair.logs());
        assert!(!pair.send.record()["error"].is_null());
    }
}

#[test]
fn an_expired_certificate_is_refused_and_both_logs_say_which_to_renew() {
    let pki = tempfile::tempdir().expect("a scratch directory");
    certificates_until(2001, pki.path(), "destination.example", "source.example");
    let tls = ["--tls-dir", pki.path().to_str().expect("a plain path")];
    let mut pair = Pair::secure(&[&tls[..], &["--tls-name", "destination.example"]].concat(), &tls);
    assert_eq!(through(&pair, b"memory"), None, "{}", pair.logs());
    let error = pair.send.record()["error"].to_string();
    assert!(error.contains("renew the certificate in the other host's"), "{error}");
    lab::wait_for("the receiver to say so too", || {
        pair.receive.log().contains("renew the certificate in this host's").then_some(())
    });
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
    assert_eq!(through(&pair, b"memory"), None, "{}", pair.logs());
    assert!(!pair.send.record()["error"].is_null());
}

#[test]
fn a_sender_without_tls_is_refused_by_a_receiver_with_it() {
    let pki = tempfile::tempdir().expect("a scratch directory");
    certificates(pki.path(), "destination.example", "source.example");
    let tls = ["--tls-dir", pki.path().to_str().expect("a plain path")];
    let mut pair = Pair::secure(&["--insecure"], &tls);
    assert_eq!(through(&pair, b"memory"), None, "{}", pair.logs());
    assert!(!pair.send.record()["error"].is_null());
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
    first.set_read_timeout(Some(Duration::from_secs(60))).expect("a connected socket");
    assert_eq!(first.read(&mut [0]).expect("the receiver's patience ends"), 0);
    lab::wait_for("the receiver to say why", || {
        pair.receive.log().contains("does not answer").then_some(())
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
    let refused = client.link(socket, "destination.example").err().expect("nobody answers");
    assert!(refused.to_string().contains("does not answer"), "{refused}");
}
