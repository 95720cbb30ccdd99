//! Claim D13: guests migrate to a receiver that may open 256 files, while others connect to it a
//! thousand times a second, from the sender's own address, and say nothing. One JSON document on
//! standard output:
//!
//! ```text
//! PAGESHARE_SECONDS=60 cargo bench -p pageshare --bench crowd
//! ```
//!
//! One guest after the other migrates until `PAGESHARE_SECONDS` (60) are over. Ends with an error if
//! one does not arrive with its memory.

#[path = "../tests/lab/mod.rs"]
mod lab;

use std::time::{Duration, Instant};

use lab::{Crowd, Crowded, Guest};
use serde_json::json;

const FILES: u32 = 256;
const A_SECOND: u32 = 1000;
/// The crowd's own, at once: more than the receiver may have.
const OPEN: usize = 600;

fn main() {
    let seconds = std::env::var("PAGESHARE_SECONDS");
    // Cargo calls a benchmark with arguments of its own.
    let seconds: u64 = seconds.map_or(60, |text| text.parse().expect("a number"));
    // So that the first one need not be booted while the time runs.
    drop(Guest::running());
    let crowded = Crowded::start(FILES);
    let before = crowded.room();
    let crowd = Crowd::press(&crowded.wire, A_SECOND, OPEN, &[], [127, 0, 0, 1]);
    let begin = Instant::now();
    let (mut migrations, mut arrived, mut changed) = (0_u32, 0_u32, 0_u32);
    let mut most = before;
    while begin.elapsed() < Duration::from_secs(seconds) {
        let directory = tempfile::tempdir().expect("a scratch directory");
        let (sender, to) = crowded.sender(directory.path());
        let (mut source, mut destination) = (Guest::running(), Guest::awaiting());
        let sum = source.checksum();
        for guest in [&mut source, &mut destination] {
            guest.capabilities(&["return-path"]);
        }
        destination.listen(&crowded.from);
        source.unlimited();
        migrations += 1;
        source.migrate(&to);
        let end = lab::wait_for("the migration to end", || {
            let room = crowded.room();
            most = (most.0.max(room.0), most.1.max(room.1), most.2.max(room.2));
            let status = source.migration_status();
            ["completed", "failed"].contains(&status.as_str()).then_some(status)
        });
        if end == "completed" {
            destination.resume();
            let sound = destination.checksum() == sum;
            arrived += u32::from(sound);
            changed += u32::from(!sound);
        } else {
            eprintln!("migration {migrations} failed: {}", sender.log());
        }
    }
    let (took, came) = (begin.elapsed().as_secs_f64(), crowd.came());
    drop(crowd);
    let result = json!({
        "version": 1, "seconds": took, "files": FILES, "connections": came,
        "migrations": migrations, "arrived": arrived, "changed": changed,
        "files_before": before.0, "threads_before": before.1, "kibibytes_before": before.2,
        "files_most": most.0, "threads_most": most.1, "kibibytes_most": most.2,
    });
    println!("{result}");
    assert_eq!(arrived, migrations, "{result}");
}
