//! Claim D12: guests migrate between a host that is upgraded and one that is not yet, in turn from
//! the one and from the other. One JSON document on standard output:
//!
//! ```text
//! PAGESHARE_MIGRATIONS=100 cargo bench -p pageshare --bench versions
//! ```
//!
//! The older side is this build, which speaks the version of the wire before its newest alone, or
//! the release that `PAGESHARE_PREVIOUS` names. `PAGESHARE_MIGRATIONS` says how many (100). Ends with
//! an error if a guest does not arrive, has another memory than before, or came by another version.

#[path = "../tests/lab/mod.rs"]
mod lab;

use lab::{Guest, Pair};
use pageshare_wire::Versions;
use serde_json::{Value, json};

fn main() {
    let migrations = std::env::var("PAGESHARE_MIGRATIONS")
        .map_or(100, |text| text.parse::<u64>().expect("a number"));
    let (mut arrived, mut older_sends) = (0, 0);
    for migration in 0..migrations {
        let sender_is_older = migration % 2 == 0;
        older_sends += u64::from(sender_is_older);
        match carry(sender_is_older) {
            Ok(()) => arrived += 1,
            Err(why) => eprintln!("migration {migration}, from the older {sender_is_older}: {why}"),
        }
        if (migration + 1) % 10 == 0 {
            eprintln!("{} of {migrations} migrations, {arrived} guests arrived", migration + 1);
        }
    }
    let result = json!({
        "version": 1, "wire_version": Versions::OURS.oldest, "newest": Versions::OURS.newest,
        "previous": std::env::var("PAGESHARE_PREVIOUS").unwrap_or_default(),
        "migrations": migrations, "older_sends": older_sends, "arrived": arrived,
    });
    println!("{result}");
    assert_eq!(arrived, migrations, "{result}");
}

/// Migrates a guest by the older version; says what was not as it should be.
fn carry(sender_is_older: bool) -> Result<(), String> {
    let (mut source, mut destination) = (Guest::running(), Guest::awaiting());
    for guest in [&mut source, &mut destination] {
        guest.capabilities(&["return-path"]);
    }
    source.unlimited();
    let checksum = source.checksum();
    let directory = tempfile::tempdir().expect("a scratch directory");
    let scope = lab::scope(directory.path(), "tenant");
    let send = ["--scope", &scope, "--ask", "always", "--compress", "always"];
    let mut pair = Pair::half_upgraded(sender_is_older, &send, &["--scope", &scope]);
    destination.listen(&pair.from);
    source.migrate(&pair.to);
    let end = source.migration_end();
    if end != "completed" {
        return Err(format!("the migration has {end}: {}", pair.logs()));
    }
    destination.resume();
    let found = destination.checksum();
    if found != checksum {
        return Err(format!("its memory was {checksum} and is {found}"));
    }
    // A release that had but one version does not say which.
    let upgraded = if sender_is_older { &mut pair.receive } else { &mut pair.send };
    let used: Value = upgraded.record()["wire_version"].take();
    let wanted = Versions::OURS.oldest;
    if used == wanted { Ok(()) } else { Err(format!("it came by version {used}, not {wanted}")) }
}
