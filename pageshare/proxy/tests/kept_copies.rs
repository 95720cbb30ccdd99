//! What becomes of kept copies: who can read them, what replaces and removes them, and what bounds them.

use crate::lab;

use std::io::Write;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Command;

use super::return_trip::{Scratch, stream, trip};
use lab::stand_in::{LOADED, path, through};
use lab::{Pair, count};

/// What a destination QEMU says last that could not load the guest.
const REFUSED: [u8; 8] = [0, 1, 0, 4, 0, 0, 0, 1];

#[test]
fn a_migration_that_ends_in_order_without_its_guest_loaded_leaves_no_copy() {
    let scratch = Scratch::new();
    let (scope, kept, away) = (scratch.at("tenant.json"), scratch.at("kept"), scratch.at("away"));
    let send = ["--scope", &scope, "--keep", &kept];
    let receive = ["--scope", &scope, "--keep", &away];
    for said in [&b""[..], &REFUSED] {
        let mut pair = Pair::unix(&send, &receive);
        through(&pair, &stream(300, 59), said);
        for record in [pair.send.record(), pair.receive.record()] {
            assert!(record["error"].is_null() && record["loaded"] == false, "{record}");
            assert_eq!(count(&record, "pages_kept"), 0, "{record}");
        }
        assert!(scratch.copies().is_empty(), "{:?}", scratch.copies());
    }
}

/// One that was cancelled, for instance.
#[test]
fn a_migration_has_failed_of_which_the_destination_was_to_say_that_it_arrived_and_did_not() {
    let mut stream = stream(10, 67);
    // The command that opens the return path, behind the header.
    stream.splice(8..8, [8, 0, 1, 0, 0]);
    for (said, arrived) in [(&b""[..], false), (&REFUSED, false), (&LOADED, true)] {
        let mut pair = Pair::unix(&[], &[]);
        through(&pair, &stream, said);
        for proxy in [&mut pair.send, &mut pair.receive] {
            assert_eq!(proxy.end().success(), arrived, "{}", proxy.log());
            let error = proxy.record()["error"].clone();
            assert_eq!(error.is_null(), arrived, "{error}");
            assert_eq!(error.to_string().contains("has not said"), !arrived, "{error}");
        }
    }
}

#[test]
fn a_migration_that_nothing_could_be_read_of_leaves_the_older_copy() {
    let scratch = Scratch::new();
    let (scope, kept) = (scratch.at("tenant.json"), scratch.at("kept"));
    let send = ["--scope", &scope, "--keep", &kept, "--keep-name", "web1"];
    trip(&stream(300, 61), &send, &[]);
    let copies = scratch.copies();
    // As QEMU begins where it encrypts by itself.
    let unread = [b"\x16\x03\x01\x02\0".to_vec(), vec![7; 4096]].concat();
    let (sent, _, pair) = trip(&unread, &send, &[]);
    assert_eq!(count(&sent, "pages_kept"), 0, "{sent}");
    assert!(pair.send.log().contains("the older one stays"), "{}", pair.send.log());
    assert_eq!(scratch.copies(), copies);
}

#[test]
fn a_copy_is_encrypted_readable_by_its_owner_alone_and_replaced_by_the_next() {
    use std::os::unix::fs::MetadataExt;
    let scratch = Scratch::new();
    let (scope, kept) = (scratch.at("tenant.json"), scratch.at("kept"));
    let send = ["--scope", &scope, "--keep", &kept, "--keep-name", "web1"];
    let stream = stream(300, 5);
    let mut last = Vec::new();
    for _ in 0..2 {
        trip(&stream, &send, &[]);
        let copies = scratch.copies();
        assert_eq!(copies.len(), 1, "{copies:?}");
        assert_ne!(copies, last);
        let copy = std::fs::read(&copies[0]).expect("readable by its owner");
        assert_eq!(std::fs::metadata(&copies[0]).expect("it is there").mode() & 0o777, 0o600);
        let page = &stream[stream.len() - 4096..];
        assert!(!copy.windows(64).any(|bytes| bytes == &page[..64]), "the page lies open");
        last = copies;
    }
}

#[test]
fn copies_that_are_expired_damaged_or_foreign_are_refused_with_a_sentence() {
    let scratch = Scratch::new();
    let (scope, kept) = (scratch.at("tenant.json"), scratch.at("kept"));
    let other = scratch.scope("other");
    let stream = stream(300, 9);
    let keep = |scope: &str, hours: &str| {
        trip(&stream, &["--scope", scope, "--keep", &kept, "--keep-for", hours], &[]);
    };
    let back = || {
        let (_, found, pair) =
            trip(&stream, &["--scope", &scope], &["--scope", &scope, "--kept", &kept]);
        (count(&found, "found_kept"), pair.receive.log())
    };
    keep(&other, "24");
    let (found, said) = back();
    assert_eq!(found, 0);
    assert!(said.contains("is passed over: it was kept in another scope"), "{said}");

    keep(&scope, "24");
    let (found, said) = back();
    assert_eq!(found, 300, "{said}");
    let copies = scratch.copies();
    for path in &copies {
        let mut bytes = std::fs::read(path).expect("readable by its owner");
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        std::fs::write(path, bytes).expect("our own file");
    }
    let (found, said) = back();
    assert_eq!(found, 0);
    assert!(said.contains("is passed over: it is damaged"), "{said}");
    for path in copies {
        std::fs::remove_file(path).expect("our own file");
    }

    keep(&scope, "0");
    let (found, said) = back();
    assert_eq!(found, 0);
    assert!(said.contains("is removed: it expired"), "{said}");
    assert!(scratch.copies().is_empty(), "{:?}", scratch.copies());
}

#[test]
fn damage_to_one_page_of_a_copy_costs_that_page() {
    let scratch = Scratch::new();
    let (scope, kept) = (scratch.at("tenant.json"), scratch.at("kept"));
    let stream = stream(300, 11);
    trip(&stream, &["--scope", &scope, "--keep", &kept], &[]);
    let path = scratch.copies().pop().expect("a copy");
    let mut bytes = std::fs::read(&path).expect("readable by its owner");
    bytes[128 + 10 * 4120 + 100] ^= 1;
    std::fs::write(&path, bytes).expect("our own file");
    let (_, found, _) = trip(&stream, &["--scope", &scope], &["--scope", &scope, "--kept", &kept]);
    assert_eq!(count(&found, "found_kept"), 299);
}

#[test]
fn the_oldest_copies_give_way_when_the_quota_is_reached_and_a_copy_ends_at_it() {
    let scratch = Scratch::new();
    let (scope, kept) = (scratch.at("tenant.json"), scratch.at("kept"));
    // Room for one copy of 300 pages and not for two.
    let send = ["--scope", &scope, "--keep", &kept, "--keep-quota", "2"];
    let mut last = Vec::new();
    for seed in [1, 2] {
        let (sent, _, _) = trip(&stream(300, seed), &send, &[]);
        assert_eq!(count(&sent, "pages_kept"), 300);
        let copies = scratch.copies();
        assert_eq!(copies.len(), 1, "{copies:?}");
        assert_ne!(copies, last);
        last = copies;
    }
    let (sent, _, _) = trip(&stream(1000, 3), &send, &[]);
    let kept = count(&sent, "pages_kept");
    assert!((400..512).contains(&kept), "{kept} pages in 2 MiB");
    let size = std::fs::metadata(&scratch.copies()[0]).expect("a copy").len();
    assert!(size <= 2 << 20, "{size}");
}

/// A file system of 2 MiB; unmounted when dropped.
struct SmallDisk(String);

impl SmallDisk {
    fn at(path: String) -> Self {
        std::fs::create_dir(&path).expect("a fresh directory");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=2m", "pageshare-test", &path])
            .status()
            .expect("mount is there");
        assert!(mounted.success(), "this test mounts a small file system, which takes root");
        Self(path)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Nothing more can be done about it here.
        let _ = Command::new("umount").args(["-l", &self.0]).status();
    }
}

#[test]
fn a_full_disk_under_the_copies_costs_the_copy_and_nothing_else() {
    let scratch = Scratch::new();
    let scope = scratch.at("tenant.json");
    let disk = SmallDisk::at(scratch.at("kept"));
    let (sent, _, pair) = trip(&stream(2000, 21), &["--scope", &scope, "--keep", &disk.0], &[]);
    assert_eq!(count(&sent, "pages_kept"), 0, "{sent}");
    let said = pair.send.log();
    assert!(said.contains("is given up: No space left on device"), "{said}");
    assert!(said.contains("the migration goes on"), "{said}");
    assert!(scratch.copies().is_empty(), "its space is free again: {:?}", scratch.copies());
}

#[test]
fn what_a_killed_sender_left_unfinished_is_removed_and_never_used() {
    let scratch = Scratch::new();
    let (scope, kept) = (scratch.at("tenant.json"), scratch.at("kept"));
    let mut pair = Pair::unix(&["--scope", &scope, "--keep", &kept], &[]);
    let stream = stream(50, 31);
    let _destination = UnixListener::bind(path(&pair.from)).expect("a fresh socket");
    let mut source = UnixStream::connect(path(&pair.to)).expect("the proxy listens");
    source.write_all(&stream[..8]).expect("the proxy reads how a migration begins");
    lab::wait_for("a copy to begin", || (!scratch.copies().is_empty()).then_some(()));
    pair.send.kill();
    drop(source);
    let left = scratch.copies();
    assert!(left[0].extension().is_some_and(|end| end == "partial"), "{left:?}");
    trip(&stream, &["--scope", &scope, "--keep", &kept], &["--scope", &scope, "--kept", &kept]);
    let copies = scratch.copies();
    assert!(copies.len() == 1 && copies[0] != left[0], "{left:?}, then {copies:?}");
}

#[test]
fn a_scope_of_kept_copies_alone_is_not_indexed_again_and_again() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let [with, without] = ["with", "without"].map(|name| lab::scope(directory.path(), name));
    let at = |name: &str| directory.path().join(name).display().to_string();
    std::fs::write(at("image"), [7; 4096]).expect("the scratch directory is writable");
    let source = format!("with=image:{}", at("image"));
    let scopes = ["--scope", &with, "--scope", &without, "--source", &source];
    let pair = Pair::unix(&[], &[&scopes[..], &["--kept", &at("kept"), "--refresh", "1"]].concat());
    lab::wait_for("the other scope's source to be indexed again", || {
        (pair.receive.log().matches("indexed 1 pages").count() > 3).then_some(())
    });
    assert_eq!(pair.receive.log().matches("indexed 0 pages").count(), 1);
}
