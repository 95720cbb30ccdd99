//! What is counted of a migration. Each counter stands once, in the table below, which draws the
//! account's numbers, the record's fields, the metrics and the table in `docs/pageshare/records.md`.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

/// What a counter's number is, for its metric.
pub(crate) enum Kind {
    /// Bytes, which the metric's name says, as Prometheus wants it.
    Bytes,
    /// A number of pages or segments.
    Number,
    /// A maximum, which is no metric: those of several migrations have no sum.
    Most,
}

/// A row of the table.
pub(crate) struct Counter {
    name: &'static str,
    /// What it counts, in a sentence.
    pub(crate) says: &'static str,
    kind: Kind,
    /// Its number among those of a migration.
    pub(crate) of: fn(&Counters<u64>) -> u64,
}

impl Counter {
    /// The metric that sums it over migrations, without prefix and suffix.
    pub(crate) fn metric(&self) -> Option<String> {
        match self.kind {
            Kind::Bytes => Some(format!("{}_bytes", self.name.trim_end_matches("_bytes"))),
            Kind::Number => Some(self.name.to_owned()),
            Kind::Most => None,
        }
    }
}

macro_rules! counters {
    ($($(#[doc = $says:literal])+ $name:ident: $kind:ident,)+) => {
        /// Numbers of events or bytes since a migration began, over all of its channels.
        #[derive(Debug, Clone, Default, Serialize)]
        pub struct Counters<N> {
            $($(#[doc = $says])+ pub $name: N,)+
        }

        impl Counters<AtomicU64> {
            /// The numbers so far.
            pub(crate) fn read(&self) -> Counters<u64> {
                Counters { $($name: self.$name.load(Ordering::Relaxed),)+ }
            }
        }

        /// In the order of the record's fields.
        pub(crate) const TABLE: &[Counter] = &[$(Counter {
            name: stringify!($name),
            says: concat!($($says),+).trim_ascii_start(),
            kind: Kind::$kind,
            of: |counts| counts.$name,
        },)+];
    };
}

counters! {
    /// Bytes of QEMU's streams, all channels, source to destination.
    stream_bytes: Bytes,
    /// Bytes of the streams that were passed on although pages may be in them: nothing of them is
    /// saved.
    verbatim_bytes: Bytes,
    /// Bytes of records sent to the other proxy; TLS, TCP and IP add theirs.
    wire_sent: Bytes,
    /// Bytes of records received from the other proxy; TLS, TCP and IP add theirs.
    wire_received: Bytes,
    /// Zero pages, which travelled as runs (sender).
    zero_pages: Number,
    /// Page contents in the streams (sender).
    pages: Number,
    /// Pages asked for by hash.
    pages_asked: Number,
    /// Pages sent as references.
    pages_referenced: Number,
    /// Bytes that went through the compressor, before (sender).
    compressed_from: Bytes,
    /// Bytes that went through the compressor, after (sender).
    compressed_to: Bytes,
    /// Bytes of the streams that the destination QEMU has taken, as far as is known (sender).
    stream_accepted: Bytes,
    /// Bytes of one channel's stream that were between the two QEMUs at once, at most (sender).
    most_in_flight: Most,
    /// Page contents that KSM had merged at the source; 0 where KSM is not looked at (sender).
    pages_merged: Number,
    /// Pages asked for that KSM had merged (sender).
    merged_asked: Number,
    /// Pages asked for that KSM had merged, and that the receiver had (sender). `merged_found /
    /// merged_asked` is the precision of KSM's verdict; with `--candidates all`, `merged_found /
    /// pages_referenced` is its recall.
    merged_found: Number,
    /// Segments that waited for an answer: round trips, many of them in flight at once (sender).
    segments_asked: Number,
    /// Segments that referred to pages without waiting: round trips spared (sender).
    segments_at_once: Number,
    /// Pages referred to before the answer (sender).
    pages_at_once: Number,
    /// Pages referred to before the answer that the receiver lacked, and was sent after all (sender).
    pages_supplied: Number,
    /// Pages sent as the difference from an earlier version (sender).
    pages_delta: Number,
    /// Pages sent as the difference from a version in a kept copy (sender).
    pages_delta_kept: Number,
    /// Bytes that differences spared, before compression (sender).
    delta_saved: Bytes,
    /// Pages of the copy kept at this end, for the return trip.
    pages_kept: Number,
    /// Pages left out of the kept copy since the disk did not keep up.
    pages_not_kept: Number,
    /// Pages found among those that had just arrived (receiver).
    found_recent: Number,
    /// Pages found in the destination QEMU's own memory, among those that had arrived (receiver).
    found_received: Number,
    /// Pages found in a copy kept on an earlier visit (receiver).
    found_kept: Number,
    /// Pages found in other VMs or in images (receiver).
    found_indexed: Number,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_of_bytes_says_so_once_and_a_maximum_is_none() {
        let metric = |name| TABLE.iter().find(|counter| counter.name == name).unwrap().metric();
        assert_eq!(metric("stream_bytes").as_deref(), Some("stream_bytes"));
        assert_eq!(metric("wire_sent").as_deref(), Some("wire_sent_bytes"));
        assert_eq!(metric("pages").as_deref(), Some("pages"));
        assert_eq!(metric("most_in_flight"), None);
    }

    #[test]
    fn the_documentation_has_the_table() {
        let mut drawn = String::from("| counter | counts |\n|---|---|\n");
        for counter in TABLE {
            drawn += &format!("| `{}` | {} |\n", counter.name, counter.says);
        }
        let page = include_str!("../../../docs/pageshare/records.md");
        assert!(
            page.contains(&format!("\n\n{drawn}\n")),
            "records.md has not this table:\n{drawn}"
        );
    }
}
