//! How long a guest stands still that keeps writing: with pageshare and with QEMU alone, in turn.
//! One JSON document on standard output, milliseconds as the source QEMU counts them:
//!
//! ```text
//! cargo bench -p pageshare --bench downtime
//! ```
//!
//! The bound is QEMU's limit and 100 ms. `PAGESHARE_MIGRATIONS` says how many of each (10). Ends
//! with an error if one through pageshare stood still for longer.

#[path = "../tests/lab/mod.rs"]
mod lab;

use lab::{Guest, Pair};
use serde_json::{Value, json};

const LIMIT_MS: u64 = 300;
const ALLOWED_MS: u64 = LIMIT_MS + 100;
/// Bytes a second that QEMU may send: some times what the guest writes.
const BANDWIDTH: u64 = 120 << 20;

fn main() {
    let migrations = std::env::var("PAGESHARE_MIGRATIONS")
        .map_or(10, |text| text.parse::<u64>().expect("a number"));
    let (mut plain, mut shared) = (Vec::new(), Vec::new());
    for _ in 0..migrations {
        plain.push(migrate(false));
        shared.push(migrate(true));
    }
    let longest = shared.iter().copied().max().unwrap_or_default();
    let result = json!({
        "version": 1, "unit": "ms", "limit": LIMIT_MS, "allowed": ALLOWED_MS,
        "plain": plain, "pageshare": shared, "longest": longest,
    });
    println!("{result}");
    assert!(longest <= ALLOWED_MS, "{result}");
}

/// The downtime of one migration.
fn migrate(through_pageshare: bool) -> u64 {
    let (mut source, mut destination) = (Guest::running(), Guest::awaiting());
    source.command("dirty", "DIRTYING");
    for guest in [&mut source, &mut destination] {
        guest.capabilities(&["return-path"]);
    }
    let parameters = json!({"max-bandwidth": BANDWIDTH, "downtime-limit": LIMIT_MS});
    source.execute("migrate-set-parameters", parameters);
    let pair = through_pageshare.then(|| Pair::unix(&["--downtime-limit", "300"], &[]));
    let directory = tempfile::tempdir().expect("a scratch directory");
    let straight = format!("unix:{}", directory.path().join("in").display());
    let (to, from) = pair.as_ref().map_or((&straight, &straight), |it| (&it.to, &it.from));
    destination.listen(from);
    source.migrate(to);
    assert_eq!(source.migration_end(), "completed");
    let info: Value = source.execute("query-migrate", json!({}));
    info["downtime"].as_u64().expect("QEMU counts the downtime")
}
