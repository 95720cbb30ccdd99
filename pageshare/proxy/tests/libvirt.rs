//! Guests that libvirt migrates, between two hosts on this machine, through the two proxies.

use crate::lab;

use std::path::Path;

use lab::Proxy;
use lab::host::{Host, Hosts, SOCKETS};
use serde_json::{Value, json};

const GUEST: &str = "web1";

/// Migrates [`GUEST`] as `docs/guides/libvirt.md` says; returns the sender's record.
fn migrate(hosts: &Hosts, from: &Host, to: &Host, how: &[&str]) -> Value {
    let scope = hosts.shared().join("scope.json").display().to_string();
    let socket = format!("{SOCKETS}/{GUEST}.migrate");
    let wire = format!("tcp:{}:4455", to.address);
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let logs = tempfile::tempdir_in(hosts.shared()).expect("a scratch directory");
    let program = hosts.shared().join("pageshare");
    let mut receive = Proxy::spawn(
        to.command(&program),
        logs.path(),
        "receive",
        &words(&[
            "--once",
            "--insecure",
            "--listen",
            &wire,
            "--qemu",
            &format!("unix:{socket}"),
            "--scope",
            &scope,
            "--source",
            "qemu:name=neighbour-*",
        ]),
    );
    let mut send = Proxy::spawn(
        from.command(&program),
        logs.path(),
        "send",
        &words(&[
            "--once",
            "--insecure",
            "--listen",
            &format!("unix:{socket}"),
            "--to",
            &wire,
            "--scope",
            &scope,
            "--ask",
            "always",
            "--compress",
            "always",
        ]),
    );
    let uri = format!("unix://{socket}");
    let mut migrate = vec!["migrate", "--live"];
    migrate.extend(how);
    let there = to.uri();
    migrate.extend([GUEST, &there, "--migrateuri", &uri]);
    let output = from.try_virsh(&migrate);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "virsh {migrate:?}: {said}\n{}\n{}\n{}\n{}",
        send.log(),
        receive.log(),
        from.log(),
        to.log()
    );
    assert!(send.end().success(), "{}", send.log());
    assert!(receive.end().success(), "{}", receive.log());
    send.record()
}

fn guests(host: &Host) -> Vec<String> {
    host.virsh(&["list", "--all", "--name"]).split_whitespace().map(str::to_owned).collect()
}

fn assert_saved(record: &Value) {
    let count = |name: &str| record[name].as_f64().expect("a number in the record");
    assert_eq!(record["error"], json!(null));
    // The guests' 8 MiB of random data alone cannot be saved; kernel and image can.
    assert!(count("pages_referenced") > 1000.0, "{record}");
    assert!(count("wire_sent") < 0.6 * count("stream_bytes"), "{record}");
}

/// Whether any process still names this directory.
fn named_by_a_process(directory: &Path) -> bool {
    let directory = directory.to_str().expect("a plain path").as_bytes();
    std::fs::read_dir("/proc").expect("/proc is mounted").flatten().any(|entry| {
        std::fs::read(entry.path().join("cmdline"))
            .is_ok_and(|line| line.windows(directory.len()).any(|part| part == directory))
    })
}

#[test]
fn a_guest_goes_there_and_back_by_libvirt_and_little_of_it_is_sent() {
    if let Some(reason) = lab::host::missing() {
        return lab::lacks(&reason, "PAGESHARE_NO_LIBVIRT");
    }
    let hosts = Hosts::start();
    let (a, b) = (&hosts.a, &hosts.b);
    lab::scope(hosts.shared(), "scope");
    let mut consoles = [(a, GUEST), (a, "neighbour-a"), (b, "neighbour-b")]
        .map(|(host, name)| host.boot(hosts.shared(), name));
    for console in &mut consoles {
        console.expect("READY");
    }
    let checksum = consoles[0].checksum();

    for (from, to, how) in [
        (a, b, &["--p2p"][..]),
        (b, a, &["--p2p", "--parallel", "--parallel-connections", "2"]),
        (a, b, &[]),
    ] {
        let sockets = from.sockets();
        assert!(sockets.contains(&format!("{GUEST}.console")), "{sockets:?}");
        assert_saved(&migrate(&hosts, from, to, how));
        assert_eq!(to.virsh(&["domstate", GUEST]), "running");
        assert_eq!(to.console(GUEST).checksum(), checksum);
        assert!(!guests(from).contains(&GUEST.to_owned()), "{GUEST} is still at {}", from.name);
        for host in [from, to] {
            let left = host.sockets();
            assert!(!left.iter().any(|name| name.ends_with(".migrate")), "{left:?}");
        }
    }
    let directory = hosts.shared().to_owned();
    drop(hosts);
    assert!(!directory.exists(), "{} is left behind", directory.display());
    assert!(!named_by_a_process(&directory), "a process is left behind");
}
