//! A VM leaves, its copy is kept, and it comes back for little.

mod lab;

use std::path::{Path, PathBuf};
use std::process::Command;

use lab::stand_in::through;
use lab::{Guest, Pair};
use pageshare::scope::Scope;
use serde_json::{Value, json};

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
        let file = self.at(&format!("{name}.json"));
        Scope::generate(name).and_then(|scope| scope.save(Path::new(&file))).expect("a new scope");
        file
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
    let mut state = seed | 1;
    for page in 0..pages {
        if page == 0 {
            out.extend((page * 4096 + 0x08).to_be_bytes());
            out.push(6);
            out.extend(b"pc.ram");
        } else {
            out.extend((page * 4096 + 0x28).to_be_bytes());
        }
        for _ in 0..512 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            out.extend(state.to_le_bytes());
        }
    }
    out
}

fn number(record: &Value, name: &str) -> u64 {
    record[name].as_u64().unwrap_or_else(|| panic!("no number `{name}` in {record}"))
}

/// One trip of a stream; returns the sender's and the receiver's records, and the pair.
fn trip(stream: &[u8], send: &[&str], receive: &[&str]) -> (Value, Value, Pair) {
    let send = [send, &["--ask", "always", "--compress", "always"]].concat();
    let mut pair = Pair::unix(&send, &[receive, &["--recent", "0"]].concat());
    let (arrived, _) = through(&pair, stream, b"");
    assert!(arrived == stream, "{}", pair.logs());
    let (sent, received) = (pair.send.record(), pair.receive.record());
    assert!(sent["error"].is_null() && received["error"].is_null(), "{}", pair.logs());
    (sent, received, pair)
}

#[test]
fn a_guest_that_comes_back_brings_little_with_it() {
    let scratch = Scratch::new();
    let (scope, kept) = (scratch.at("tenant.json"), scratch.at("kept"));
    let mut here = Guest::running();
    let before = here.checksum();
    let mut records = Vec::new();
    let keep = ["--keep", &kept, "--keep-name", "web1"];
    for (send, receive) in [(&keep[..], &[][..]), (&[], &["--kept", &kept])] {
        let mut there = Guest::awaiting();
        let scoped = ["--scope", scope.as_str()];
        let policies = ["--ask", "always", "--compress", "always"];
        let mut pair =
            Pair::unix(&[&scoped[..], &policies, send].concat(), &[&scoped[..], receive].concat());
        for guest in [&mut here, &mut there] {
            guest.capabilities(&["return-path"]);
        }
        here.execute("migrate-set-parameters", json!({"max-bandwidth": 1_u64 << 40}));
        there.listen(&pair.from);
        here.migrate(&pair.to);
        assert_eq!(here.migration_end(), "completed", "{}", pair.logs());
        there.resume();
        // The workload runs on.
        assert_eq!(there.checksum(), before);
        records.push((pair.send.record(), pair.receive.record()));
        here = there;
    }
    let [(out, _), (back, found)] = &records[..] else { panic!("two trips") };
    assert!(number(out, "pages_kept") > 2000, "{out}");
    assert_eq!(number(out, "pages_not_kept"), 0, "{out}");
    assert!(number(found, "found_kept") * 10 > number(back, "pages_asked") * 8, "{back}, {found}");
    assert!(number(back, "wire_sent") * 5 < number(back, "stream_bytes"), "{back}");
    assert!(number(back, "wire_sent") * 3 < number(out, "wire_sent"), "{out}, then {back}");
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
        (number(&found, "found_kept"), pair.receive.log())
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
    assert_eq!(number(&found, "found_kept"), 299);
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
        assert_eq!(number(&sent, "pages_kept"), 300);
        let copies = scratch.copies();
        assert_eq!(copies.len(), 1, "{copies:?}");
        assert_ne!(copies, last);
        last = copies;
    }
    let (sent, _, _) = trip(&stream(1000, 3), &send, &[]);
    let kept = number(&sent, "pages_kept");
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
    assert_eq!(number(&sent, "pages_kept"), 0, "{sent}");
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
    let source = std::os::unix::net::UnixStream::connect(lab::stand_in::path(&pair.to))
        .expect("the proxy listens");
    lab::wait_for("a copy to begin", || (!scratch.copies().is_empty()).then_some(()));
    pair.send.kill();
    drop(source);
    let left = scratch.copies();
    assert!(left[0].extension().is_some_and(|end| end == "partial"), "{left:?}");
    let stream = stream(50, 31);
    trip(&stream, &["--scope", &scope, "--keep", &kept], &["--scope", &scope, "--kept", &kept]);
    let copies = scratch.copies();
    assert!(copies.len() == 1 && copies[0] != left[0], "{left:?}, then {copies:?}");
}
