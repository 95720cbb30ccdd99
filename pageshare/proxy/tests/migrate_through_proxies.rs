//! Real guests, migrated by real QEMUs through the two proxies.

use crate::lab;

use lab::{Guest, Pair, count};
use serde_json::{Value, json};

/// Migrates the guest through the pair and lets it run at the destination.
fn migrate(source: &mut Guest, destination: &mut Guest, pair: &Pair) {
    pair.carry(source, destination);
    assert_eq!(destination.state(), "running");
    assert_eq!(source.state(), "postmigrate");
}

fn number(value: &Value) -> f64 {
    value.as_f64().expect("a number in the record")
}

/// What `pageshare estimate` says of the migration to come.
fn estimate(source: &mut Guest, pair: &Pair, scope: &str) -> Value {
    let output = std::process::Command::new(lab::binary())
        .args(["estimate", &source.has_run().to_string(), "--json", "--sample", "4"])
        .args(["--to", &pair.wire, "--insecure", "--scope", scope])
        .output()
        .expect("the program under test starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("an estimate is JSON")
}

#[test]
fn a_guest_arrives_with_its_memory_over_unix_sockets() {
    let (mut source, mut destination) = (Guest::running(), Guest::awaiting());
    let mut pair = Pair::unix(&["--ask", "never", "--compress", "never"], &[]);
    let before = source.checksum();
    for guest in [&mut source, &mut destination] {
        guest.capabilities(&["return-path"]);
    }
    source.unlimited();
    migrate(&mut source, &mut destination, &pair);
    assert_eq!(destination.checksum(), before);

    let (sent, received) = (pair.send.record(), pair.receive.record());
    assert_eq!(sent["error"], json!(null), "{}", pair.logs());
    assert_eq!(received["error"], json!(null), "{}", pair.logs());
    assert_eq!(sent["stream_bytes"], received["stream_bytes"]);
    assert_eq!(sent["verbatim"][0]["why"], "RAM is complete, device state follows");
    assert!(sent["zero_pages"].as_u64() > Some(1000), "{sent}");
    let (wire, stream) = (number(&sent["wire_sent"]), number(&sent["stream_bytes"]));
    assert!(wire <= stream * 1.005, "never worse: {sent}");
}

fn arrives_with_multifd(pair: &Pair) {
    let (mut source, mut destination) = (Guest::running(), Guest::awaiting());
    let before = source.checksum();
    for guest in [&mut source, &mut destination] {
        guest.capabilities(&["return-path", "multifd"]);
    }
    source.unlimited();
    migrate(&mut source, &mut destination, pair);
    assert_eq!(destination.checksum(), before);
}

#[test]
fn a_guest_arrives_over_tcp_with_multifd_channels() {
    let mut pair = Pair::tcp(&["--ask", "always"], &[]);
    arrives_with_multifd(&pair);

    let sent = pair.send.record();
    assert_eq!(sent["error"], json!(null), "{}", pair.logs());
    let verbatim = sent["verbatim"].as_array().expect("a list");
    assert_eq!(verbatim.len(), 1, "only the main channel ends verbatim: {sent}");
    assert!(number(&sent["pages"]) > 1000.0, "pages travel in multifd's packets: {sent}");
}

#[test]
fn a_qemu_that_awaits_its_guest_where_a_proxy_is_to_listen_goes_on_waiting() {
    let (mut source, mut destination) = (Guest::running(), Guest::awaiting());
    let directory = tempfile::tempdir().expect("a scratch directory");
    let at = format!("unix:{}", directory.path().join("in").display());
    destination.listen(&at);
    let output = std::process::Command::new(lab::binary())
        .args(["send", "--insecure", "--listen", &at, "--to", "tcp:127.0.0.1:1"])
        .output()
        .expect("the program under test starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("waits there"), "{said}");
    source.unlimited();
    source.migrate(&at);
    assert_eq!(source.migration_end(), "completed");
    destination.resume();
    assert_eq!(destination.state(), "running");
}

#[test]
fn what_another_guest_at_the_destination_has_is_not_sent() {
    let (mut source, mut destination) = (Guest::running(), Guest::awaiting());
    let mut neighbour = Guest::running();
    let directory = tempfile::tempdir().expect("a scratch directory");
    let scope = &lab::scope(directory.path(), "test");
    let neighbour_memory = format!("pid:{}", neighbour.has_run());
    let mut pair = Pair::unix(
        &["--scope", scope, "--ask", "always", "--compress", "always"],
        &["--scope", scope, "--source", &neighbour_memory],
    );
    source.command("random", "FILLED");
    let before = source.checksum();
    let estimate = estimate(&mut source, &pair, scope);
    for guest in [&mut source, &mut destination] {
        guest.capabilities(&["return-path"]);
    }
    source.unlimited();
    migrate(&mut source, &mut destination, &pair);
    assert_eq!(destination.checksum(), before);

    let sent = pair.send.record();
    // 12 MiB of the guest's memory are new; most of the rest the neighbour has.
    let (asked, found) = (number(&sent["pages_asked"]), number(&sent["pages_referenced"]));
    assert!(found > asked / 3.0, "{sent}");
    assert!(found < asked - 10.0 * 256.0, "the new pages cannot be known: {sent}");
    let (wire, stream) = (number(&sent["wire_sent"]), number(&sent["stream_bytes"]));
    assert!(wire < stream * 0.7, "{sent}");

    // The estimate sampled one page in four of a guest that ran on.
    let share = number(&estimate["found_share"]);
    assert!((share - found / asked).abs() < 0.1, "{estimate} and then {sent}");
    assert_eq!(estimate["worth_it"], json!(true));
}

#[test]
fn a_guest_that_keeps_writing_arrives_and_keeps_writing() {
    let (mut source, mut destination) = (Guest::running(), Guest::awaiting());
    let pair = Pair::unix(&["--ask", "always", "--compress", "always"], &[]);
    let before = source.checksum();
    source.command("dirty", "DIRTYING");
    // It may be asked between the file's being emptied and written.
    let round = |guest: &mut Guest| {
        guest.command("round", "ROUND").trim_start_matches("ROUND").trim().parse::<u64>().ok()
    };
    let written = lab::wait_for("the guest to write", || round(&mut source));
    for guest in [&mut source, &mut destination] {
        guest.capabilities(&["return-path", "xbzrle"]);
    }
    migrate(&mut source, &mut destination, &pair);
    assert_eq!(destination.checksum(), before);
    let arrived = lab::wait_for("what it had written", || round(&mut destination));
    assert!(arrived >= written, "{arrived} rounds after {written}");
    lab::wait_for("the guest to write on", || {
        round(&mut destination).filter(|round| *round > arrived)
    });
}

/// Three channels, each with TLS's handshake and ours, over round trips of a country, an ocean, and
/// half the world.
#[test]
fn a_guest_arrives_from_afar() {
    for milliseconds in [10, 40, 100] {
        let mut pair = Pair::distant(std::time::Duration::from_millis(milliseconds), &[]);
        arrives_with_multifd(&pair);
        for record in [pair.send.record(), pair.receive.record()] {
            assert_eq!(record["error"], json!(null), "{milliseconds} ms: {}", pair.logs());
        }
    }
}

#[test]
fn the_source_keeps_its_guest_when_the_receiving_proxy_dies() {
    let (mut source, mut destination) = (Guest::running(), Guest::awaiting());
    let mut pair = Pair::unix(&[], &[]);
    for guest in [&mut source, &mut destination] {
        guest.capabilities(&["return-path"]);
    }
    source.execute("migrate-set-parameters", json!({"max-bandwidth": 8_u64 << 20}));
    destination.listen(&pair.from);
    source.migrate(&pair.to);
    lab::wait_for("bytes to flow", || {
        let info = source.execute("query-migrate", json!({}));
        (info["ram"]["transferred"].as_u64() > Some(1 << 20)).then_some(())
    });
    pair.receive.kill();
    assert_eq!(source.migration_end(), "failed", "{}", pair.logs());
    lab::wait_for("the guest to run on", || (source.state() == "running").then_some(()));
    let sent = pair.send.record();
    assert_ne!(sent["error"], json!(null), "the record says what happened");
}

#[test]
fn the_source_keeps_its_guest_when_nobody_receives() {
    let mut source = Guest::running();
    let mut pair = Pair::unix(&[], &[]);
    pair.receive.kill();
    source.capabilities(&["return-path"]);
    source.migrate(&pair.to);
    assert_eq!(source.migration_end(), "failed");
    assert_eq!(source.state(), "running");
    let error = pair.send.record()["error"].to_string();
    assert!(error.contains("cannot connect to the receiving proxy"), "{error}");
}

#[test]
fn a_destination_that_would_start_by_itself_is_warned_of() {
    let (mut source, mut destination) =
        (Guest::running(), Guest::start(&lab::Model::installed(), &lab::Incoming::DeferredToRun));
    let pair = Pair::unix(&[], &[]);
    for guest in [&mut source, &mut destination] {
        guest.capabilities(&["return-path"]);
    }
    source.unlimited();
    destination.listen(&pair.from);
    source.migrate(&pair.to);
    assert_eq!(source.migration_end(), "completed", "{}", pair.logs());
    assert!(pair.receive.log().contains("without -S"), "{}", pair.logs());
}

#[test]
fn three_guests_arrive_at_once_and_keep_their_copies_in_one_directory() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let scope = lab::scope(directory.path(), "tenant");
    let kept = directory.path().join("kept").display().to_string();
    let shared = ["--scope", &scope, "--keep", &kept, "--keep-name"];
    let mut guests: Vec<_> = ["web1", "web2", "web3"]
        .iter()
        .map(|name| {
            let send = [&shared[..], &[name, "--ask", "always"]].concat();
            let receive = ["--scope", &scope, "--kept", &kept];
            (Guest::running(), Guest::awaiting(), Pair::unix(&send, &receive))
        })
        .collect();
    let before: Vec<_> = guests.iter_mut().map(|(source, _, _)| source.checksum()).collect();
    for (source, destination, pair) in &mut guests {
        for guest in [&mut *source, &mut *destination] {
            guest.capabilities(&["return-path"]);
        }
        source.unlimited();
        destination.listen(&pair.from);
    }
    for (source, _, pair) in &mut guests {
        source.migrate(&pair.to);
    }
    for ((source, destination, pair), before) in guests.iter_mut().zip(before) {
        assert_eq!(source.migration_end(), "completed", "{}", pair.logs());
        destination.resume();
        assert_eq!(destination.checksum(), before);
        let record = pair.send.record();
        assert!(count(&record, "pages_kept") > 0, "{record}");
    }
    let copies = std::fs::read_dir(&kept).expect("copies were kept").count();
    assert_eq!(copies, guests.len());
}

#[test]
fn a_second_guest_at_a_busy_sender_stays_and_the_first_arrives() {
    let (mut first, mut destination) = (Guest::running(), Guest::awaiting());
    let mut second = Guest::running();
    let mut pair = Pair::unix(&[], &[]);
    let before = [first.checksum(), second.checksum()];
    for guest in [&mut first, &mut second, &mut destination] {
        guest.capabilities(&["return-path"]);
    }
    first.execute("migrate-set-parameters", json!({"max-bandwidth": 20 << 20}));
    destination.listen(&pair.from);
    first.migrate(&pair.to);
    lab::wait_for("bytes to flow", || {
        let info = first.execute("query-migrate", json!({}));
        (info["ram"]["transferred"].as_u64() > Some(1 << 20)).then_some(())
    });
    second.migrate(&pair.to);
    assert_eq!(second.migration_end(), "failed", "{}", pair.logs());
    first.unlimited();
    assert_eq!(first.migration_end(), "completed", "{}", pair.logs());
    destination.resume();
    assert_eq!(destination.checksum(), before[0]);
    lab::wait_for("the second guest to run on", || (second.state() == "running").then_some(()));
    assert_eq!(second.checksum(), before[1]);
    assert_eq!(pair.send.record()["error"], json!(null), "{}", pair.logs());
    assert!(pair.send.log().contains("a `pageshare send` of its own"), "{}", pair.logs());
}
