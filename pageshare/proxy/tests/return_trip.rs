//! A VM leaves, its copy is kept, and it comes back for little.

use crate::lab;

use std::path::{Path, PathBuf};

use lab::stand_in::{LOADED, through};
use lab::{Guest, Pair, Xorshift, count};
use serde_json::Value;

/// A directory with a scope's file in it.
pub(super) struct Scratch {
    directory: tempfile::TempDir,
}

impl Scratch {
    pub(super) fn new() -> Self {
        let scratch = Self { directory: tempfile::tempdir().expect("a scratch directory") };
        scratch.scope("tenant");
        scratch
    }

    pub(super) fn at(&self, name: &str) -> String {
        self.directory.path().join(name).to_str().expect("a plain path").to_owned()
    }

    /// A new scope; returns its file.
    pub(super) fn scope(&self, name: &str) -> String {
        lab::scope(self.directory.path(), name)
    }

    pub(super) fn copies(&self) -> Vec<PathBuf> {
        std::fs::read_dir(self.at("kept"))
            .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
            .unwrap_or_default()
    }
}

/// Pages that differ from each other and do not compress.
pub(super) fn stream(pages: u64, seed: u64) -> Vec<u8> {
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
pub(super) fn trip(stream: &[u8], send: &[&str], receive: &[&str]) -> (Value, Value, Pair) {
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

/// Four in five of what was asked for on the way back were kept on the way out, but for what the disk
/// did not take in time: how much that is, the machine's other load decides.
fn most_is_found(out: &Value, back: &Value, found: &Value) {
    let asked = count(back, "pages_asked").saturating_sub(count(out, "pages_not_kept"));
    assert!(count(found, "found_kept") * 10 > asked * 8, "{out}, {back}, {found}");
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
    most_is_found(&out, &back, &found);
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
    let (mut guest, out, arrived) = journey(&scope, guest, &keep_home, &keep_away);
    assert!(count(&arrived, "pages_kept") > 2000, "{arrived}");
    guest.command("edit", "EDITED");
    let (before, more) = (guest.checksum(), guest.command("more", "SUM "));

    let differ = [&["--kept", &away][..], &named].concat();
    let (mut guest, back, found) = journey(&scope, guest, &differ, &["--kept", &home]);
    assert_eq!((guest.checksum(), guest.command("more", "SUM ")), (before, more));
    most_is_found(&out, &back, &found);
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
