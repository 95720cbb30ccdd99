//! Of the QEMUs on a host only those are read that a source selects.

use crate::lab;

use std::path::Path;
use std::process::{Command, Stdio};

use lab::Xorshift;
use pageshare::scope::Scope;
use pageshare::sources::{Scanned, scan};
use pageshare_index::{HashKey, PAGE_SIZE};

/// A QEMU with a name whose guest never runs, and what lies in its memory alone.
pub(crate) struct Named {
    pub(crate) qemu: lab::Kept,
    pages: Vec<[u8; PAGE_SIZE]>,
}

impl Named {
    pub(crate) fn start(directory: &Path, name: &str, seed: u64) -> Self {
        let mut random = Xorshift(seed);
        let mut page = || std::array::from_fn(|_| random.draw().to_le_bytes()[3]);
        let pages: Vec<[u8; PAGE_SIZE]> = (0..64).map(|_| page()).collect();
        let content = directory.join(name);
        std::fs::write(&content, pages.concat()).expect("the scratch directory is writable");
        let program = lab::required("/usr/bin/qemu-system-x86_64", "qemu-system-x86");
        let qemu = Command::new(program)
            .args(["-name", &format!("guest={name},debug-threads=on"), "-S", "-m", "32M"])
            .args(["-accel", "tcg", "-nodefaults", "-display", "none", "-vga", "none"])
            .args([
                "-device",
                &format!("loader,file={},addr=0x800000,force-raw=on", content.display()),
            ])
            .stdin(Stdio::null())
            .spawn()
            .expect("QEMU starts");
        Self { qemu: lab::Kept(qemu), pages }
    }

    /// Waits until its pages lie in its memory.
    pub(crate) fn loaded(&self, key: &HashKey) {
        let source = format!("pid:{}", self.qemu.id()).parse().expect("a source");
        lab::wait_for("QEMU to load its memory", || {
            let sources = std::slice::from_ref(&source);
            let alone = scan(sources, key, 1).expect("our own processes may be read");
            (self.found(&alone, key) == self.pages.len()).then_some(())
        });
    }

    /// How many of its pages an index has.
    fn found(&self, scanned: &Scanned, key: &HashKey) -> usize {
        let copy = &mut [0; PAGE_SIZE];
        self.pages.iter().filter(|page| scanned.library.copy(key.hash(&page[..]), copy)).count()
    }
}

#[test]
fn a_qemu_outside_of_the_selector_is_not_read() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let key = Scope::generate("tenant-a").expect("a new scope").key.hash_key();
    let index = |source: String| {
        let source = source.parse().expect("a source");
        scan(&[source], &key, 1).expect("our own processes may be read")
    };
    // No other test's QEMU has such a name.
    let names = ["a", "b"].map(|tenant| format!("tenant-{tenant}-of-{}", std::process::id()));
    let ours = Named::start(directory.path(), &names[0], 3);
    let theirs = Named::start(directory.path(), &names[1], 5);
    ours.loaded(&key);
    theirs.loaded(&key);
    let alone = index(format!("pid:{}", ours.qemu.id()));
    for selector in [names[0].clone(), format!("tenant-a-*{}", std::process::id())] {
        let selected = index(format!("qemu:name={selector}"));
        assert_eq!(ours.found(&selected, &key), ours.pages.len(), "{selector}");
        assert_eq!(theirs.found(&selected, &key), 0, "{selector}");
        assert_eq!(selected.bytes, alone.bytes, "nothing else is read for {selector}");
    }
    let both = index(format!("qemu:name=tenant-?-of-{}", std::process::id()));
    assert_eq!(theirs.found(&both, &key), theirs.pages.len());
    let nobodys = index(format!("qemu:name={},user={}", names[0], u32::MAX));
    assert_eq!((ours.found(&nobodys, &key), nobodys.bytes), (0, 0), "all conditions count");
}

#[test]
fn every_qemu_of_the_host_is_a_source_only_for_who_says_so() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let scope = lab::scope(directory.path(), "tenant");
    let said = Command::new(lab::binary())
        .args(["receive", "--insecure", "--listen", "tcp:127.0.0.1:0", "--qemu", "unix:/nowhere"])
        .args(["--scope", &scope, "--source", "qemu"])
        .output()
        .expect("the program under test starts");
    let words = String::from_utf8_lossy(&said.stderr);
    assert!(!said.status.success() && words.contains("qemu:name="), "{words}");
}
