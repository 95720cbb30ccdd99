//! The paper's candidates, with the real KSM: it is switched on for this test, and back.

use crate::lab;

use std::process::Command;

use lab::stand_in::{MIGRATION, through};
use lab::{Guest, Pair, count};

const KSM: &str = "/sys/kernel/mm/ksm";

/// KSM running; its settings come back when this is dropped.
struct Running([(&'static str, String); 2]);

impl Running {
    fn start() -> Self {
        let before = ["run", "pages_to_scan"].map(|name| {
            let value = std::fs::read_to_string(format!("{KSM}/{name}"))
                .expect("the kernel has KSM (CONFIG_KSM)");
            (name, value)
        });
        for (name, value) in [("pages_to_scan", "5000"), ("run", "1")] {
            std::fs::write(format!("{KSM}/{name}"), value).expect("only root may switch KSM");
        }
        Self(before)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        for (name, value) in &self.0 {
            // Nothing more can be done about it here.
            let _ = std::fs::write(format!("{KSM}/{name}"), value.trim());
        }
    }
}

fn merged(guest: &Guest) -> u64 {
    let merged = std::fs::read_to_string(format!("/proc/{}/ksm_merging_pages", guest.pid()));
    merged.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

/// All three ways in one test: KSM is the machine's, and takes its time.
#[test]
fn ksm_chooses_what_is_asked_for_or_referred_to_at_once_or_is_only_counted() {
    let ways: [&[&str]; 3] =
        [&["--candidates", "ksm"], &["--candidates", "ksm", "--at-once"], &["--candidates", "all"]];
    let mut neighbour = Guest::running();
    let mut sources: Vec<Guest> = ways.iter().map(|_| Guest::running()).collect();
    let mut sums = Vec::new();
    for source in &mut sources {
        // Guests that begin from one saved state draw the same random numbers.
        source.command(&format!("own guest-of-process-{}", source.pid()), "FILLED");
        sums.push(source.checksum());
    }
    let ksm = Running::start();
    lab::wait_for("KSM to merge what the guests share", || {
        // Other guests on this machine are merged too: only our own count.
        sources.iter().all(|source| merged(source) > 4000).then_some(())
    });
    let directory = tempfile::tempdir().expect("a scratch directory");
    let scope = &lab::scope(directory.path(), "test");
    let mut records = Vec::new();
    for ((source, way), sum) in sources.iter_mut().zip(ways).zip(&sums) {
        let mut destination = Guest::awaiting();
        let pid = source.pid().to_string();
        let send = ["--scope", scope, "--ask", "always", "--ksm-pid", &pid];
        let neighbour = format!("pid:{}", neighbour.has_run());
        let mut pair =
            Pair::unix(&[&send[..], way].concat(), &["--scope", scope, "--source", &neighbour]);
        for guest in [&mut *source, &mut destination] {
            guest.capabilities(&["return-path"]);
        }
        source.unlimited();
        pair.carry(source, &mut destination);
        assert_eq!(&destination.checksum(), sum);
        records.push(pair.send.record());
        if records.len() == ways.len() {
            lab::wait_for("KSM to merge the guest that has arrived", || {
                (merged(&destination) > 4000).then_some(())
            });
        }
    }
    drop(ksm);

    let [asked, at_once, all] = &records[..] else { panic!("three ways") };
    for record in [asked, at_once] {
        assert!(count(record, "pages_asked") > 1000, "{record}");
        // The pages of this guest alone are 17 MiB; KSM cannot have merged them.
        assert!(count(record, "pages_asked") + 3000 < count(record, "pages"), "{record}");
        assert_eq!(count(record, "merged_asked"), count(record, "pages_asked"));
        assert_eq!(count(record, "merged_found"), count(record, "pages_referenced"));
        let precise = count(record, "merged_found") * 10 > count(record, "merged_asked") * 8;
        assert!(precise, "precision: {record}");
    }
    assert_eq!(count(asked, "segments_at_once"), 0, "{asked}");
    // It asks after all where references made too early have lately been wrong.
    let (spared, waited) = (count(at_once, "segments_at_once"), count(at_once, "segments_asked"));
    assert!(spared > waited * 5, "{at_once}");
    assert!(count(at_once, "pages_supplied") > 0, "KSM's verdict is not exact: {at_once}");
    let lacking = count(at_once, "pages_asked") - count(at_once, "pages_referenced");
    assert!(count(at_once, "pages_supplied") <= lacking, "{at_once}");
    assert!(count(all, "pages_asked") > count(asked, "pages_asked") + 3000, "{all}");
    assert!(count(all, "merged_found") <= count(all, "pages_referenced"), "{all}");
    assert!(count(all, "merged_found") * 2 > count(all, "pages_referenced"), "recall: {all}");
}

#[test]
fn a_migration_whose_hint_is_gone_goes_on_without_it() {
    let mut process = Command::new("sleep").arg("1000").spawn().expect("sleep starts");
    let mut pair = Pair::unix(&["--ksm-pid", &process.id().to_string()], &[]);
    process.kill().expect("our own child");
    process.wait().expect("our own child");
    let (arrived, _) = through(&pair, MIGRATION, b"");
    assert!(arrived == MIGRATION, "{}", pair.logs());
    assert!(pair.send.record()["error"].is_null(), "{}", pair.logs());
    assert!(pair.send.log().contains("goes on without"), "{}", pair.logs());
}
