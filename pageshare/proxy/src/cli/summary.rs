//! What `pageshare migrate` says when a migration has ended.

use std::collections::BTreeSet;

use crate::drive::{Outcome, Progress};
use crate::record::Record;

/// Where the guest is, and how.
pub(super) fn fate(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Arrived { run_state } if run_state == "running" => {
            "runs at the destination".into()
        }
        Outcome::Arrived { run_state } if run_state.is_empty() => {
            "has gone to the destination already".into()
        }
        Outcome::Arrived { run_state } => {
            format!("is at the destination, {run_state} as its operator left it")
        }
        Outcome::Stayed(_) => "is at the source, as before".into(),
    }
}

/// What a migration has come to.
pub(super) struct Ended<'a> {
    pub(super) outcome: &'a Outcome,
    pub(super) last: Progress,
    pub(super) seconds: f64,
    /// The proxy's, if QEMU came to it.
    pub(super) record: Option<&'a Record>,
    /// Why QEMU has given up.
    pub(super) error: Option<String>,
}

impl Ended<'_> {
    /// A table for people. What did not happen is not in it.
    pub(super) fn table(&self) -> String {
        let Self { outcome, last, seconds, record, error } = self;
        let downtime = last.downtime.map_or_else(|| "unknown".into(), |ms| format!("{ms} ms"));
        let mut rows = vec![("the guest", fate(outcome))];
        rows.extend(record.and_then(|it| it.error.clone()).map(|error| ("what broke", error)));
        rows.extend(error.clone().map(|error| ("QEMU says", error)));
        rows.push(("time", format!("{seconds:.2} s, {} rounds", last.rounds)));
        if let Outcome::Arrived { .. } = outcome {
            rows.push(("downtime", format!("{downtime} (as the source QEMU counts it)")));
        }
        if let Some(record) = record.filter(|record| record.counts.stream_bytes > 0) {
            rows.extend(carried(record));
        }
        rows.iter().map(|(name, value)| format!("{name:<16}{value}\n")).collect()
    }
}

/// What the proxy has carried.
fn carried(record: &Record) -> Vec<(&'static str, String)> {
    #[allow(clippy::cast_precision_loss)] // For people.
    let mib = |bytes: u64| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
    let counts = &record.counts;
    let sent = (counts.wire_sent * 100).checked_div(counts.stream_bytes).unwrap_or(100);
    // What cannot be shared or compressed costs a little more than it is.
    let saved = 100 - i64::try_from(sent).unwrap_or(i64::MAX);
    let mut rows = vec![
        ("QEMU's stream", mib(counts.stream_bytes)),
        ("sent", format!("{} ({saved} % saved)", mib(counts.wire_sent))),
    ];
    if counts.verbatim_bytes > 0 {
        let why: Vec<&str> = record
            .verbatim
            .iter()
            .filter(|channel| channel.hides_pages)
            .map(|channel| channel.why.as_str())
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect();
        let bytes = mib(counts.verbatim_bytes);
        rows.push(("passed unread", format!("{bytes}, not saved: {}", why.join("; "))));
    }
    rows.extend([
        ("received", mib(counts.wire_received)),
        ("pages", format!("{}, and {} zero", counts.pages, counts.zero_pages)),
        ("found there", format!("{} of {} asked", counts.pages_referenced, counts.pages_asked)),
        (
            "differences",
            format!(
                "{} pages ({} to the kept copy), {} spared",
                counts.pages_delta,
                counts.pages_delta_kept,
                mib(counts.delta_saved)
            ),
        ),
    ]);
    if counts.pages_kept > 0 {
        rows.push(("kept here", format!("{} pages, for the return", counts.pages_kept)));
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive::Loss;
    use crate::record::Account;

    /// The table of a migration that failed with this record.
    fn of_one_that_failed(record: &Record) -> String {
        let (outcome, last) = (&Outcome::Stayed(Loss::Ended), Progress::default());
        Ended { outcome, last, seconds: 1.0, record: Some(record), error: None }.table()
    }

    #[test]
    fn what_cost_more_than_it_spared_is_said_with_its_sign() {
        let mut record = Account::begin("send", [0; 16]).record();
        (record.counts.stream_bytes, record.counts.wire_sent) = (100, 103);
        let text = of_one_that_failed(&record);
        assert!(text.contains("(-3 % saved)") && !text.contains("kept here"), "{text}");
    }

    #[test]
    fn a_migration_that_moved_nothing_shows_its_reason_and_no_zeros() {
        let account = Account::begin("send", [0; 16]);
        account.broke("cannot connect");
        let text = of_one_that_failed(&account.record());
        assert!(text.contains("cannot connect"), "{text}");
        for absent in ["sent", "pages", "downtime", "MiB"] {
            assert!(!text.contains(absent), "{text}");
        }
    }

    #[test]
    fn a_guest_that_arrived_paused_is_not_said_to_run() {
        let fate = fate(&Outcome::Arrived { run_state: "paused".into() });
        assert_eq!(fate, "is at the destination, paused as its operator left it");
    }
}
