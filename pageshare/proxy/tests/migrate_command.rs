//! `pageshare migrate`: what it asks of both QEMUs, what it says, and that the guest runs exactly once.

use crate::lab;

use std::io::Write;
use std::net::TcpStream;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;

use lab::{Fate, Guest, Incoming, Model, Stage, end};
use pageshare::address::Address;
use pageshare::drive::LOADING;
use serde_json::{Value, json};

fn read(path: &Path) -> Value {
    let text = std::fs::read_to_string(path).expect("a record was written");
    serde_json::from_str(&text).expect("a record is JSON")
}

#[test]
fn the_guest_arrives_and_the_summary_says_what_it_took() {
    let mut stage = Stage::set();
    stage.slow(1 << 20);
    let record = stage.directory.path().join("record.json");
    let path = record.to_str().expect("a plain path");
    let (output, said) = end(stage.migrate(&["--record", path]));
    assert!(output.status.success(), "{said}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("downtime"));
    assert_eq!(stage.source.state(), "postmigrate");
    assert_eq!(stage.destination.state(), "running");
    assert_eq!(stage.destination.checksum(), stage.checksum);
    let record = read(&record);
    assert_eq!(record["outcome"], "arrived");
    assert!(record["proxy"]["error"].is_null(), "{record}");
    assert_eq!(places(&stage), 0);
}

/// How many private directories the command has made and not removed.
fn places(stage: &Stage) -> usize {
    std::fs::read_dir(stage.directory.path())
        .expect("readable")
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.starts_with("pageshare-"))
        .count()
}

#[test]
fn the_guest_stays_when_the_receiver_is_killed() {
    let mut stage = Stage::set();
    stage.slow(40);
    let driver = stage.migrate(&[]);
    stage.wait_for_bytes();
    stage.receiver.kill();
    let output = driver.wait_with_output().expect("our own child");
    assert!(!output.status.success());
    assert_eq!(stage.source.state(), "running");
    assert_eq!(stage.source.checksum(), stage.checksum);
    lab::wait_for("the destination to end", || stage.destination.has_ended().then_some(()));
}

#[test]
fn a_destination_that_awaits_nothing_is_refused_and_the_guest_is_not_touched() {
    let mut stage = Stage::set();
    stage.destination = Guest::running();
    let (_, said) = end(stage.migrate(&[]));
    assert!(said.contains("awaits no migration"), "{said}");
    assert_eq!(stage.source.state(), "running");
}

#[test]
fn the_guest_stays_when_the_way_to_the_destinations_monitor_breaks() {
    let mut stage = Stage::set();
    let tunnel = stage.tunnel();
    // So that it has not arrived before the driver gives up.
    stage.slow(1);
    let driver = stage.migrate(&[]);
    stage.wait_for_bytes();
    tunnel.cut();
    let (output, said) = end(driver);
    assert!(!output.status.success());
    assert!(said.contains("the migration is cancelled"), "{said}");
    assert!(!said.contains("has been ended"), "{said}");
    assert_eq!(stage.source.state(), "running");
    assert_eq!(stage.source.checksum(), stage.checksum);
}

#[test]
fn the_guest_arrives_when_the_way_to_the_destinations_monitor_breaks_and_comes_back() {
    let mut stage = Stage::holding();
    let tunnel = stage.tunnel();
    stage.slow(1 << 20);
    let driver = stage.migrate(&[]);
    stage.wait_for_the_last_word();
    tunnel.cut();
    stage.release();
    // Now nobody but the driver lets it run.
    assert_eq!(stage.source.migration_end(), "completed");
    tunnel.mend();
    let (output, said) = end(driver);
    assert!(output.status.success(), "{said}");
    assert_eq!(stage.destination.state(), "running");
    assert_eq!(stage.destination.checksum(), stage.checksum);
}

#[test]
fn ctrl_c_does_not_wait_for_a_destination_that_gives_no_answer() {
    let mut stage = Stage::set();
    stage.slow(1);
    let driver = stage.migrate(&[]);
    stage.wait_for_bytes();
    lab::signal("STOP", stage.destination.pid());
    lab::signal("INT", driver.id());
    let (output, said) = end(driver);
    lab::signal("CONT", stage.destination.pid());
    assert!(!output.status.success());
    assert!(said.contains("is at the source, as before"), "{said}");
    assert!(said.contains("--resume ends it"), "{said}");
    let (_, waited) = said.split_once("no answer for ").expect("the destination is silent");
    let seconds: f64 = waited.split(' ').next().and_then(|it| it.parse().ok()).expect("a time");
    // So long is waited for one that loads its devices.
    assert!(seconds < LOADING.as_secs_f64(), "{said}");
    let (fate, said) = stage.resume();
    assert_eq!(fate, Fate::Stayed, "{said}");
    assert!(!is_marked(&mut stage.source), "{said}");
}

#[test]
fn ctrl_c_before_the_migration_begins_leaves_nothing() {
    let mut stage = Stage::set();
    let silent = stage.directory.path().join("silent");
    let _accepts_nothing = UnixListener::bind(&silent).expect("a fresh path");
    stage.to_qmp = Some(Address::Unix(silent));
    let driver = stage.migrate(&[]);
    lab::wait_for("it to wait for the monitor", || (places(&stage) > 0).then_some(()));
    lab::signal("INT", driver.id());
    let (output, said) = end(driver);
    assert_eq!(output.status.code(), Some(1), "{said}");
    // As long as is waited for one that may come back.
    assert!(said.contains("no answer") && !said.contains("no answer for 10 s"), "{said}");
    assert_eq!(places(&stage), 0);
    assert!(!is_marked(&mut stage.source), "{said}");
}

/// Whether a driver has left word in a QEMU that there is something to resume.
fn is_marked(guest: &mut Guest) -> bool {
    let objects = guest.execute("qom-list", json!({"path": "/objects"}));
    let objects = objects.as_array().expect("a list");
    let is_mark = |name: &str| matches!(name, "pageshare-migration" | "pageshare-ran");
    objects.iter().any(|object| object["name"].as_str().is_some_and(is_mark))
}

#[test]
fn a_migration_that_either_qemu_refuses_to_begin_leaves_no_mark() {
    let cannot_listen = |stage: &mut Stage| stage.incoming = "unix:/nowhere/in".to_owned();
    // This format's driver forbids migrations.
    let may_not_leave = |stage: &mut Stage| {
        let (driver, dir) = ("vvfat", stage.directory.path());
        let disk = json!({"driver": driver, "node-name": "disk", "dir": dir, "rw": true});
        stage.source.execute("blockdev-add", disk);
    };
    for set in [&cannot_listen as &dyn Fn(&mut Stage), &may_not_leave] {
        let mut stage = Stage::set();
        set(&mut stage);
        let (output, said) = end(stage.migrate(&[]));
        assert!(!output.status.success() && !said.contains("--resume"), "{said}");
        assert!(!is_marked(&mut stage.source), "{said}");
        assert!(!is_marked(&mut stage.destination), "{said}");
        assert_eq!(stage.source.state(), "running");
    }
}

#[test]
fn why_qemu_gave_up_is_said_where_it_never_came_to_the_proxy() {
    let mut stage = Stage::set();
    // It has a file descriptor left for its monitor's client, and none for a migration.
    let (pid, numbers) = (stage.source.pid(), 0_u32..);
    let is_free = |number: &u32| !Path::new(&format!("/proc/{pid}/fd/{number}")).exists();
    let limit = numbers.filter(is_free).nth(1).expect("few are open");
    let mut limited = Command::new("prlimit");
    limited.args(["--pid", &pid.to_string(), &format!("--nofile={limit}:")]);
    assert!(limited.status().expect("prlimit starts").success());
    let path = stage.directory.path().join("record.json");
    let (output, said) = end(stage.migrate(&["--record", path.to_str().expect("a plain path")]));
    assert!(!output.status.success(), "{said}");
    let table = String::from_utf8_lossy(&output.stdout);
    let record = read(&path);
    for words in [&*table, &record["qemu_error"].to_string()] {
        assert!(words.contains("Too many open files"), "{words}: {said}");
    }
    assert!(record["proxy"].is_null(), "{record}");
    assert_eq!(stage.source.state(), "running");
}

#[test]
fn a_guest_that_its_operator_has_paused_arrives_paused() {
    let mut stage = Stage::set();
    stage.slow(1 << 20);
    stage.source.execute("stop", json!({}));
    let (output, said) = end(stage.migrate(&[]));
    assert!(output.status.success(), "{said}");
    assert!(said.contains("paused as its operator left it"), "{said}");
    assert_eq!(stage.destination.state(), "paused");
    stage.destination.execute("cont", json!({}));
    assert_eq!(stage.destination.checksum(), stage.checksum);
}

#[test]
fn a_guest_that_its_operator_has_paused_stays_paused_when_its_migration_fails() {
    let mut stage = Stage::holding();
    stage.slow(1 << 20);
    stage.source.execute("stop", json!({}));
    let driver = stage.migrate(&[]);
    stage.wait_for_the_last_word();
    stage.receiver.kill();
    stage.release();
    let (output, said) = end(driver);
    assert!(!output.status.success());
    assert!(said.contains("as before"), "{said}");
    assert_ne!(stage.source.state(), "running");
    stage.source.execute("cont", json!({}));
    assert_eq!(stage.source.checksum(), stage.checksum);
}

#[test]
fn a_migration_whose_receiver_cannot_be_reached_touches_neither_machine() {
    let mut stage = Stage::set();
    stage.receiver.kill();
    let (output, said) = end(stage.migrate(&[]));
    assert!(!output.status.success());
    assert!(said.contains("cannot connect to the receiving proxy"), "{said}");
    assert!(output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stdout));
    assert_eq!(stage.source.state(), "running");
    assert!(stage.source.execute("query-migrate", json!({}))["ram"].is_null());
    assert_eq!(stage.destination.state(), "inmigrate");
}

/// Has both QEMUs do something to the stream that hides its pages; what is said of that must name it.
fn arrives_and_says_what_hid_its_pages(set: impl Fn(&mut Guest, &str), named: &str) {
    let mut stage = Stage::set();
    set(&mut stage.source, "client");
    set(&mut stage.destination, "server");
    stage.slow(1 << 20);
    let path = stage.directory.path().join("record.json");
    let (output, said) = end(stage.migrate(&["--record", path.to_str().expect("a plain path")]));
    assert!(output.status.success(), "{said}");
    assert_eq!(stage.destination.checksum(), stage.checksum);
    let table = String::from_utf8_lossy(&output.stdout);
    let row =
        table.lines().find(|row| row.starts_with("passed unread")).expect("a row in the table");
    for words in [row, &said, &stage.receiver.log()] {
        assert!(words.contains(named), "{words}");
    }
    let bytes = read(&path)["proxy"]["verbatim_bytes"].as_u64();
    assert!(bytes > Some(8 << 20), "{bytes:?}");
}

#[test]
fn a_stream_that_qemu_encrypts_itself_arrives_and_is_said_to_save_nothing() {
    let encrypt = |guest: &mut Guest, side: &str| {
        let credentials = json!({"qom-type": "tls-creds-anon", "id": "tls", "endpoint": side});
        guest.execute("object-add", credentials);
        guest.execute("migrate-set-parameters", json!({"tls-creds": "tls"}));
    };
    arrives_and_says_what_hid_its_pages(encrypt, "tls-creds");
}

#[test]
fn pages_that_qemu_compresses_itself_arrive_and_are_said_to_save_nothing() {
    let compress = |guest: &mut Guest, _: &str| {
        guest.capabilities(&["multifd"]);
        guest.execute("migrate-set-parameters", json!({"multifd-compression": "zstd"}));
    };
    arrives_and_says_what_hid_its_pages(compress, "multifd-compression");
}

#[test]
fn a_migration_that_would_wait_for_an_operator_is_refused() {
    let mut stage = Stage::set();
    stage.source.capabilities(&["pause-before-switchover"]);
    let (output, said) = end(stage.migrate(&[]));
    assert!(!output.status.success());
    assert!(said.contains("`pause-before-switchover`"), "{said}");
    assert_eq!(stage.source.state(), "running");
}

#[test]
fn a_migration_whose_sides_would_wait_for_different_channels_is_refused() {
    let multifd = |stage: &mut Stage| {
        for guest in [&mut stage.source, &mut stage.destination] {
            guest.capabilities(&["multifd"]);
        }
        stage.destination.execute("migrate-set-parameters", json!({"multifd-channels": 3}));
        "`multifd-channels` is 2 at the source QEMU and 3"
    };
    let preempt = |stage: &mut Stage| {
        stage.source.capabilities(&["postcopy-ram", "postcopy-preempt"]);
        stage.destination.capabilities(&["postcopy-ram"]);
        "`postcopy-preempt` is on at one QEMU"
    };
    let newer = Model::newer();
    let acknowledges = |stage: &mut Stage| {
        if let Some(newer) = &newer {
            stage.source = Guest::running_on(newer);
            stage.destination = Guest::start(newer, &Incoming::Deferred);
        }
        stage.source.capabilities(&["return-path", "switchover-ack"]);
        "`switchover-ack` is on at one QEMU"
    };
    let mut sets = vec![&multifd as &dyn Fn(&mut Stage) -> &'static str, &preempt];
    // QEMU 7.2 does not know it.
    sets.extend(newer.is_some().then_some(&acknowledges as &dyn Fn(&mut Stage) -> _));
    for set in sets {
        let mut stage = Stage::set();
        let named = set(&mut stage);
        let (output, said) = end(stage.migrate(&[]));
        assert!(!output.status.success() && said.contains(named), "{said}");
        assert_eq!(stage.source.state(), "running");
    }
}

#[test]
fn a_migration_that_does_not_begin_leaves_no_socket() {
    let mut stage = Stage::set();
    stage.destination = Guest::running();
    let socket = stage.directory.path().join("out");
    let (_, said) = end(stage.migrate(&["--listen", &format!("unix:{}", socket.display())]));
    assert!(said.contains("awaits no migration"), "{said}");
    assert!(!socket.exists(), "it is left behind");
}

#[test]
fn a_folder_whose_path_is_too_long_for_a_socket_is_told_before_a_qemu_is_touched() {
    let mut stage = Stage::set();
    let long = stage.directory.path().join("p".repeat(107));
    std::fs::create_dir(&long).expect("the scratch directory is writable");
    let output = stage.command(&[]).env("TMPDIR", &long).output().expect("the program starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("at most 107 bytes; say another with --listen"), "{said}");
    assert!(!is_marked(&mut stage.source) && !is_marked(&mut stage.destination));
}

#[test]
fn a_place_named_from_where_the_operator_is_is_found_by_qemu() {
    for (listen, temporary) in [(&["--listen", "unix:out"][..], "/nowhere"), (&[], ".")] {
        let mut stage = Stage::set();
        stage.slow(1 << 20);
        let words = [&["--incoming", &stage.incoming], listen].concat();
        let mut command = stage.command(&words);
        command.current_dir(stage.directory.path()).env("TMPDIR", temporary);
        let (output, said) = end(command.spawn().expect("the program under test starts"));
        assert!(output.status.success(), "{said}");
        assert_eq!(stage.destination.state(), "running");
    }
}

#[test]
fn a_migration_that_is_left_undecided_is_recorded_and_so_is_its_end() {
    let mut stage = Stage::set();
    let tunnel = stage.tunnel_to_source();
    stage.slow(1);
    let path = stage.directory.path().join("record.json");
    let words = ["--record", path.to_str().expect("a plain path")];
    let driver = stage.migrate(&words);
    stage.wait_for_bytes();
    tunnel.cut();
    lab::signal("INT", driver.id());
    let (output, said) = end(driver);
    assert!(!output.status.success() && said.contains("--resume"), "{said}");
    let record = read(&path);
    assert_eq!(record["outcome"], "undecided", "{record}");
    assert!(record["error"].as_str().is_some_and(|it| said.contains(it)), "{record}");
    assert!(record["proxy"]["stream_bytes"].as_u64() > Some(0), "{record}");
    // Its proxy has gone with it.
    assert_eq!(stage.source.migration_end(), "failed");
    tunnel.mend();
    std::fs::remove_file(&path).expect("it was read");
    let output = stage.command(&[&["--resume"], &words[..]].concat()).output();
    assert_eq!(output.expect("the program under test starts").status.code(), Some(1));
    assert_eq!(read(&path)["outcome"], "stayed");
}

#[test]
fn the_downtime_limit_that_an_operator_has_set_stays_as_it_is() {
    let mut stage = Stage::set();
    stage.slow(1 << 20);
    stage.source.execute("migrate-set-parameters", json!({"downtime-limit": 1234}));
    let (output, said) = end(stage.migrate(&[]));
    assert!(output.status.success(), "{said}");
    let parameters = stage.source.execute("query-migrate-parameters", json!({}));
    assert_eq!(parameters["downtime-limit"], 1234);
}

#[test]
fn the_exit_code_says_where_the_guest_is_when_nothing_can_be_written() {
    let mut stage = Stage::set();
    stage.slow(1 << 20);
    let mut driver = stage.migrate(&["--record", "/dev/full"]);
    // Nobody reads what it says.
    drop((driver.stdout.take(), driver.stderr.take()));
    assert_eq!(driver.wait().expect("our own child").code(), Some(0));
    assert_eq!(stage.destination.state(), "running");
}

#[test]
fn a_receiver_that_cannot_write_its_record_serves_on() {
    let mut stage = Stage::set();
    let record = stage.directory.path().join("receive.json");
    std::fs::create_dir(record).expect("the scratch directory is writable");
    stage.slow(1 << 20);
    let (output, said) = end(stage.migrate(&[]));
    assert!(output.status.success(), "{said}");
    lab::wait_for("the receiver to say so", || {
        stage.receiver.log().contains("receive.json").then_some(())
    });
    let address = stage.wire.strip_prefix("tcp:").expect("TCP");
    let mut stranger = TcpStream::connect(address).expect("the receiver listens");
    stranger.write_all(b"GET / HTTP/1.1\r\nHost: nobody\r\n\r\n").expect("connected");
    drop(stranger);
    lab::wait_for("the receiver to turn a stranger away", || {
        stage.receiver.log().contains("turned away").then_some(())
    });
}
