//! Where the receiver finds pages: in the guest that is arriving, in shared memory, in images, and
//! only within the scope that may ask for them.

use crate::lab;

use lab::stand_in::through;
use lab::{Guest, Model, Pair, Xorshift, count, scope};
use pageshare::sources::guest_mappings;
use serde_json::{Value, json};

/// Migrates through the pair and lets the guest run; returns both records.
fn migrate(source: &mut Guest, destination: &mut Guest, pair: &mut Pair) -> (Value, Value) {
    let before = source.checksum();
    for guest in [&mut *source, &mut *destination] {
        guest.capabilities(&["return-path"]);
    }
    pair.carry(source, destination);
    assert_eq!(destination.checksum(), before);
    (pair.send.record(), pair.receive.record())
}

const ALWAYS: [&str; 4] = ["--ask", "always", "--compress", "always"];

#[test]
fn a_page_that_the_guest_holds_twice_is_sent_once() {
    let (mut source, mut destination) = (Guest::running(), Guest::awaiting());
    source.command("copy", "COPIED");
    source.unlimited();
    let mut pair = Pair::unix(&ALWAYS, &["--recent", "0"]);
    let (sent, received) = migrate(&mut source, &mut destination, &mut pair);
    // 8 MiB of random bytes, twice; what is still on its way cannot be found.
    assert!(count(&received, "found_received") > 1000, "{received}");
    assert_eq!(count(&received, "found_received"), count(&sent, "pages_referenced"), "{sent}");
}

#[test]
fn a_page_that_the_guest_has_changed_travels_as_the_difference() {
    let (mut source, mut destination) = (Guest::running(), Guest::awaiting());
    source.command("tick", "TICKING");
    source.execute("migrate-set-parameters", json!({"max-bandwidth": 24_u64 << 20}));
    let mut pair = Pair::unix(&ALWAYS, &[]);
    let (sent, _) = migrate(&mut source, &mut destination, &mut pair);
    let pages = count(&sent, "pages_delta");
    assert!(pages > 10, "{sent}");
    assert!(count(&sent, "delta_saved") > pages * 2000, "{sent}");

    let (mut source, mut destination) = (Guest::running(), Guest::awaiting());
    source.unlimited();
    let mut pair = Pair::unix(&[&ALWAYS[..], &["--delta-cache", "0"]].concat(), &[]);
    let (sent, _) = migrate(&mut source, &mut destination, &mut pair);
    assert_eq!(count(&sent, "pages_delta"), 0, "{sent}");
}

#[test]
fn memory_that_is_a_shared_file_is_a_source_and_can_arrive() {
    let mut source = Guest::running_in_memfd();
    let (mut destination, mut neighbour) = (Guest::awaiting_in_memfd(), Guest::running_in_memfd());
    source.command("copy", "COPIED");
    source.unlimited();
    let directory = tempfile::tempdir().expect("a scratch directory");
    let scope = scope(directory.path(), "tenant");
    let neighbour = format!("pid:{}", neighbour.has_run());
    let mut pair = Pair::unix(
        &[&ALWAYS[..], &["--scope", &scope]].concat(),
        &["--scope", &scope, "--source", &neighbour, "--recent", "0"],
    );
    let (sent, received) = migrate(&mut source, &mut destination, &mut pair);
    assert!(count(&received, "found_indexed") > 2000, "{received}");
    assert!(count(&received, "found_received") > 0, "{received}");
    assert!(count(&sent, "pages_referenced") * 2 > count(&sent, "pages_asked"), "{sent}");
}

/// A stream of these pages.
fn stream(pages: &[[u8; 4096]]) -> Vec<u8> {
    let mut out = b"QEVM\0\0\0\x03\x01\0\0\0\x02\x03ram\0\0\0\0\0\0\0\x04".to_vec();
    for (page, content) in (0_u64..).zip(pages) {
        out.extend((page * 4096 + 0x28).to_be_bytes());
        out.extend(content);
    }
    out
}

fn pages(count: u32, seed: u32) -> Vec<[u8; 4096]> {
    let mut random = Xorshift(u64::from(seed) << 32 | 1);
    let mut page = || std::array::from_fn(|_| random.draw().to_le_bytes()[3]);
    (0..count).map(|_| page()).collect()
}

#[test]
fn a_migration_finds_what_its_own_scope_may_share_and_nothing_else() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let (one, other) = (scope(directory.path(), "one"), scope(directory.path(), "other"));
    let image = directory.path().join("image");
    let pages = pages(64, 7);
    std::fs::write(&image, pages.concat()).expect("the scratch directory is writable");
    let source = format!("one=image:{}", image.display());
    let stream = stream(&pages);
    for (scope, found) in [(&one, 64), (&other, 0)] {
        let receive = ["--scope", &one, "--scope", &other, "--source", &source, "--recent", "0"];
        let mut pair = Pair::unix(&[&ALWAYS[..], &["--scope", scope]].concat(), &receive);
        let (arrived, _) = through(&pair, &stream, b"");
        assert!(arrived == stream, "{}", pair.logs());
        let received = pair.receive.record();
        assert_eq!(count(&received, "found_indexed"), found, "{received}");
        assert!(!pair.send.log().contains("does not serve"), "{}", pair.send.log());
    }
}

#[test]
fn a_source_for_no_one_of_several_scopes_is_refused() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let (one, other) = (scope(directory.path(), "one"), scope(directory.path(), "other"));
    let output = std::process::Command::new(lab::binary())
        .args(["receive", "--insecure", "--listen", "tcp:127.0.0.1:0", "--qemu", "unix:/nowhere"])
        .args(["--scope", &one, "--scope", &other, "--source", "image:/image"])
        .output()
        .expect("the program under test starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success());
    assert!(
        said.contains("say which scope may ask for it") && said.contains("one, other"),
        "{said}"
    );
}

#[test]
fn a_guest_is_found_in_a_file_of_whatever_folder() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let file = directory.path().join("ram of web1");
    let guest = Guest::running_on(&Model::installed().with_memory(file));
    let mappings = guest_mappings(guest.pid()).expect("our own child");
    assert!(mappings.iter().any(|(from, to)| to - from == 128 << 20), "{mappings:?}");
}
