//! Pages that arrive as they were before the guest's last write to them: with QEMU alone and with
//! pageshare between, in turn, on equal paths. One JSON document on standard output:
//!
//! ```text
//! PAGESHARE_MIGRATIONS=20 cargo bench -p pageshare --bench stale
//! ```
//!
//! Between the source's end and the destination's beginning nothing runs: both memories are compared
//! page by page then. `PAGESHARE_MIGRATIONS` says how many of each kind (10). Ends with an error if the
//! destination ever read another byte than the source had written: what is stale then left the source
//! so.

#[path = "../tests/lab/mod.rs"]
mod lab;

use std::path::Path;

use lab::{Guest, Incoming, Model, Pair, Tap};
use serde_json::{Value, json};

/// Bytes a second, and milliseconds: so that most migrations make some passes.
const BANDWIDTH: u64 = 125_000_000;
const DOWNTIME_MS: u64 = 5;
const PAGE: usize = 4096;

fn main() {
    let migrations = std::env::var("PAGESHARE_MIGRATIONS")
        .map_or(10, |text| text.parse::<u64>().expect("a number"));
    let models = [("installed", Some(Model::installed())), ("newer", Model::newer())];
    let mut seen = Vec::new();
    for _ in 0..migrations {
        for (qemu, model) in &models {
            let Some(model) = model else { continue };
            for between in ["nothing", "pageshare"] {
                let (rounds, stale) = migrate(model, between == "pageshare");
                seen.push((*qemu, between, rounds, stale));
            }
        }
    }
    let kinds = models.iter().flat_map(|(qemu, _)| [(*qemu, "nothing"), (*qemu, "pageshare")]);
    let kinds: Vec<Value> = kinds
        .map(|(qemu, between)| {
            let these = seen.iter().filter(|it| (it.0, it.1) == (qemu, between));
            let (rounds, stale): (Vec<u64>, Vec<usize>) = these.map(|it| (it.2, it.3)).unzip();
            json!({
                "qemu": qemu, "between": between, "migrations": stale.len(),
                "with_stale": stale.iter().filter(|pages| **pages > 0).count(),
                "stale_pages": stale, "rounds": rounds,
            })
        })
        .collect();
    println!("{}", json!({"version": 1, "kinds": kinds}));
}

/// The passes of one migration, and its stale pages.
fn migrate(model: &Model, through_pageshare: bool) -> (u64, usize) {
    let mut source = Guest::running_on(model);
    let mut destination = Guest::start(model, &Incoming::Deferred);
    source.command("dirty", "DIRTYING");
    let directory = tempfile::tempdir().expect("a scratch directory");
    let at = |name: &str| directory.path().join(name);
    let pair =
        through_pageshare.then(|| Pair::unix(&["--ask", "always", "--compress", "always"], &[]));
    let inward = pair.as_ref().map_or_else(|| at("between"), |pair| pair.directory().join("in"));
    let outward = pair.as_ref().map_or_else(|| inward.clone(), |pair| pair.directory().join("out"));
    let taps = [Tap::start(&inward, &at("qemu")), Tap::start(&at("tap"), &outward)];
    for guest in [&mut source, &mut destination] {
        guest.capabilities(&["return-path"]);
    }
    let parameters = json!({"max-bandwidth": BANDWIDTH, "downtime-limit": DOWNTIME_MS});
    source.execute("migrate-set-parameters", parameters);
    destination.listen(&uri(&at("qemu")));
    source.migrate(&uri(&at("tap")));
    assert_eq!(source.migration_end(), "completed");
    lab::wait_for("the guest to be loaded", || (destination.state() == "paused").then_some(()));
    let [read, written] = taps.map(|tap| tap.passed(1));
    assert_eq!(read, written);
    let info = source.execute("query-migrate", json!({}));
    let rounds = info["ram"]["dirty-sync-count"].as_u64().expect("QEMU counts its passes");
    let [here, there] = [&mut source, &mut destination].map(|guest| memory(guest, &at("memory")));
    let pages = here.chunks(PAGE).zip(there.chunks(PAGE));
    (rounds, pages.filter(|(here, there)| here != there).count())
}

fn uri(path: &Path) -> String {
    format!("unix:{}", path.display())
}

/// What a guest that stands still has in its memory.
fn memory(guest: &mut Guest, file: &Path) -> Vec<u8> {
    let summary = guest.execute("query-memory-size-summary", json!({}));
    let size = &summary["base-memory"];
    guest.execute("pmemsave", json!({"val": 0, "size": size, "filename": file}));
    std::fs::read(file).expect("QEMU has written it")
}
