//! A VM leaves, its copy is kept, and it comes back for little.

use crate::lab;

use std::io::Write;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;

use lab::stand_in::{LOADED, path, through};
use lab::{Guest, Pair, Xorshift, count};
use serde_json::Value;

/// A directory with a scope's file in it.
struct Scratch {
    directory: tempfile::TempDir,
}

impl Scratch {
    fn new() -> Self {
        let scratch = Self { directory: tempfile::tempdir().expect("a scratch directory") };
        scratch.scope("tenant");
        scratch
    }

    fn at(&self, name: &str) -> String {
        self.directory.path().join(name).to_str().expect("a plain path").to_owned()
    }

    /// A new scope; returns its file.
    fn scope(&self, name: &str) -> String {
        lab::scope(self.directory.path(), name)
    }

    fn copies(&self) -> Vec<PathBuf> {
        std::fs::read_dir(self.at("kept"))
            .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
            .unwrap_or_default()
    }
}

/// Pages that differ from each other and do not compress.
fn stream(pages: u64, seed: u64) -> Vec<u8> {
    let mut out = b"QEVM\0\0\0\x03\x01\0\0\0\x02\x03ram\0\0\0\0\0\0\0\x04".to_vec();
    out.extend((pages * 4096 + 4).to_be_bytes());
    out.push(6);
    out.extend(b"pc.ram");
    out.extend((pages * 4096).to_be_bytes());
    let mut random = Xorshift(seed | 1);
    for page in 0..pages {
        if page == 0 {
            out.extend((page * 4096 + 0x08).to_be_bytes());
            out.push(6);
            out.extend(b"pc.ram");
        } else {
            out.extend((page * 4096 + 0x28).to_be_bytes());
        }
        for _ in 0..512 {
            out.extend(random.draw().to_le_bytes());
        }
    }
    out
}

/// One trip of a stream; returns the sender's and the receiver's records, and the pair.
fn trip(stream: &[u8], send: &[&str], receive: &[&str]) -> (Value, Value, Pair) {
    let send = [send, &["--ask", "always", "--compress", "always"]].concat();
    let mut pair = Pair::unix(&send, &[receive, &["--recent", "0"]].concat());
    let (arrived, _) = through(&pair, stream, &LOADED);
    assert!(arrived == stream, "{}", pair.logs());
    let (sent, received) = (pair.send.record(), pair.receive.record());
    assert!(sent["error"].is_null() && received["error"].is_null(), "{}", pair.logs());
    (sent, received, pair)
}

/// Migrates a guest to a fresh QEMU, in the scope, everything asked for and compressed; returns it
/// there, and the sender's and the receiver's records.
fn journey(scope: &str, mut here: Guest, send: &[&str], receive: &[&str]) -> (Guest, Value, Value) {
    let mut there = Guest::awaiting();
    let scoped = ["--scope", scope];
    let policies = ["--ask", "always", "--compress", "always"];
    let mut pair =
        Pair::unix(&[&scoped[..], &policies, send].concat(), &[&scoped[..], receive].concat());
    for guest in [&mut here, &mut there] {
        guest.capabilities(&["return-path"]);
    }
    here.unlimited();
    pair.carry(&mut here, &mut there);
    (there, pair.send.record(), pair.receive.record())
}

#[test]
fn a_guest_that_comes_back_brings_little_with_it() {
    let scratch = Scratch::new();
    let (scope, kept) = (scratch.at("tenant.json"), scratch.at("kept"));
    let mut guest = Guest::running();
    let before = guest.checksum();
    let keep = ["--keep", &kept, "--keep-name", "web1"];
    let (mut guest, out, _) = journey(&scope, guest, &keep, &[]);
    // The workload runs on.
    assert_eq!(guest.checksum(), before);
    let (mut guest, back, found) = journey(&scope, guest, &[], &["--kept", &kept]);
    assert_eq!(guest.checksum(), before);
    assert!(count(&out, "pages_kept") > 2000, "{out}");
    assert_eq!(count(&out, "pages_not_kept"), 0, "{out}");
    assert!(count(&found, "found_kept") * 10 > count(&back, "pages_asked") * 8, "{back}, {found}");
    assert_eq!(count(&back, "pages_delta_kept"), 0, "{back}");
    assert!(count(&back, "wire_sent") * 5 < count(&back, "stream_bytes"), "{back}");
    assert!(count(&back, "wire_sent") * 3 < count(&out, "wire_sent"), "{out}, then {back}");
}

#[test]
fn what_a_guest_has_changed_while_it_was_away_comes_back_as_differences() {
    const EDITED: u64 = 96;
    let scratch = Scratch::new();
    let (scope, home, away) = (scratch.at("tenant.json"), scratch.at("kept"), scratch.at("away"));
    let named = ["--keep-name", "web1"];
    let keep_home = [&["--keep", &home][..], &named].concat();
    let keep_away = [&["--keep", &away][..], &named].concat();
    let mut guest = Guest::running();
    // A few words change in pages that do not compress.
    guest.command("random", "FILLED");
    let (mut guest, _, arrived) = journey(&scope, guest, &keep_home, &keep_away);
    assert!(count(&arrived, "pages_kept") > 2000, "{arrived}");
    assert_eq!(count(&arrived, "pages_not_kept"), 0, "{arrived}");
    guest.command("edit", "EDITED");
    let (before, more) = (guest.checksum(), guest.command("more", "SUM "));

    let differ = [&["--kept", &away][..], &named].concat();
    let (mut guest, back, found) = journey(&scope, guest, &differ, &["--kept", &home]);
    assert_eq!((guest.checksum(), guest.command("more", "SUM ")), (before, more));
    assert!(count(&found, "found_kept") * 10 > count(&back, "pages_asked") * 8, "{back}, {found}");
    assert!(count(&back, "pages_delta_kept") >= EDITED, "{back}");
    // Pages that do not compress would have travelled whole.
    assert!(count(&back, "delta_saved") > EDITED * 3900, "{back}");
}

/// The same stream with one byte changed in every page.
fn edited(stream: &[u8]) -> Vec<u8> {
    let mut out = stream.to_vec();
    // From the end, a page is a word of eight bytes and its content; what is left is shorter.
    for page in out.rchunks_exact_mut(8 + 4096) {
        page[2000] ^= 1;
    }
    out
}

/// Leaves copies of a stream at both ends of a first trip: `kept` where it began, `away` where it
/// ended.
fn first_trip(scratch: &Scratch, stream: &[u8]) {
    let scope = scratch.at("tenant.json");
    let (home, away) = (scratch.at("kept"), scratch.at("away"));
    let send = ["--scope", &scope, "--keep", &home, "--keep-name", "web1"];
    let receive = ["--scope", &scope, "--keep", &away, "--keep-name", "web1"];
    let (_, received, _) = trip(stream, &send, &receive);
    assert_eq!(count(&received, "pages_kept"), 300, "{received}");
}

/// The trip back of a stream; `kept` is where the sender looks for its copy.
fn back(scratch: &Scratch, stream: &[u8], kept: &str, name: &str) -> (Value, String) {
    let (scope, home) = (scratch.at("tenant.json"), scratch.at("kept"));
    let send = ["--scope", &scope, "--kept", kept, "--keep-name", name];
    let (sent, _, pair) = trip(stream, &send, &["--scope", &scope, "--kept", &home]);
    (sent, pair.send.log())
}

#[test]
fn a_byte_that_has_changed_in_each_page_costs_little() {
    let scratch = Scratch::new();
    let stream = stream(300, 41);
    first_trip(&scratch, &stream);
    let (edited, away) = (edited(&stream), scratch.at("away"));
    assert!(edited != stream && edited.len() == stream.len());
    let (differing, _) = back(&scratch, &edited, &away, "web1");
    assert_eq!(count(&differing, "pages_delta_kept"), 300, "{differing}");
    let (whole, _) = back(&scratch, &edited, &scratch.at("nothing"), "web1");
    assert_eq!(count(&whole, "pages_delta"), 0, "{whole}");
    // The hash of the page, that of its earlier version, the byte; and what the stream begins with.
    assert!(count(&differing, "wire_sent") < 300 * 64, "{differing}");
    assert!(count(&whole, "wire_sent") > 300 * 4096, "{whole}");
}

#[test]
fn a_copy_of_another_vm_or_a_damaged_one_costs_the_differences_and_nothing_else() {
    let scratch = Scratch::new();
    let stream = stream(300, 43);
    first_trip(&scratch, &stream);
    let (edited, away) = (edited(&stream), scratch.at("away"));
    let (other, _) = back(&scratch, &edited, &away, "web2");
    assert_eq!(count(&other, "pages_delta"), 0, "{other}");

    let path = std::fs::read_dir(&away).expect("a directory").next().expect("a copy");
    let path = path.expect("readable").path();
    let sound = std::fs::read(&path).expect("readable by its owner");
    let damage = |at: usize| {
        let mut bytes = sound.clone();
        bytes[at] ^= 1;
        std::fs::write(&path, bytes).expect("our own file");
    };
    damage(128 + 10 * 4120 + 100);
    let (one, said) = back(&scratch, &edited, &away, "web1");
    assert_eq!(count(&one, "pages_delta_kept"), 299, "{one}");
    assert!(said.contains("is not used: it is damaged"), "{said}");
    damage(sound.len() - 1);
    let (none, said) = back(&scratch, &edited, &away, "web1");
    assert_eq!(count(&none, "pages_delta"), 0, "{none}");
    assert!(said.contains("is passed over: it is damaged"), "{said}");
}

#[test]
fn versions_that_the_receiver_lacks_are_sent_whole() {
    let scratch = Scratch::new();
    let stream = stream(300, 47);
    first_trip(&scratch, &stream);
    std::fs::remove_dir_all(scratch.at("kept")).expect("our own files");
    let (sent, _) = back(&scratch, &edited(&stream), &scratch.at("away"), "web1");
    assert_eq!(count(&sent, "pages_delta"), 0, "{sent}");
}

#[test]
fn nothing_that_arrives_is_kept_without_a_scope_that_both_serve() {
    let scratch = Scratch::new();
    let (scope, away) = (scratch.at("tenant.json"), scratch.at("away"));
    let keep = ["--scope", &scope, "--keep", &away];
    let (_, received, _) = trip(&stream(50, 53), &[], &keep);
    assert_eq!(count(&received, "pages_kept"), 0, "{received}");
    assert!(!Path::new(&away).exists());
}

#[test]
fn a_migration_that_ends_in_order_without_its_guest_loaded_leaves_no_copy() {
    let scratch = Scratch::new();
    let (scope, kept, away) = (scratch.at("tenant.json"), scratch.at("kept"), scratch.at("away"));
    let send = ["--scope", &scope, "--keep", &kept];
    let receive = ["--scope", &scope, "--keep", &away];
    let refused = [0, 1, 0, 4, 0, 0, 0, 1];
    for said in [&b""[..], &refused] {
        let mut pair = Pair::unix(&send, &receive);
        through(&pair, &stream(300, 59), said);
        for record in [pair.send.record(), pair.receive.record()] {
            assert!(record["error"].is_null() && record["loaded"] == false, "{record}");
            assert_eq!(count(&record, "pages_kept"), 0, "{record}");
        }
        assert!(scratch.copies().is_empty(), "{:?}", scratch.copies());
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
