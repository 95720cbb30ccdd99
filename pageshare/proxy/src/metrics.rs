//! Totals over all migrations that have ended, for Prometheus.

use std::io::{BufRead, BufReader, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::address::Address;
use crate::error::Error;
use crate::record::Record;
use crate::socket::{Listener, Socket};

/// A scraper that sends its request more slowly is let go.
const PATIENCE: Duration = Duration::from_secs(5);

/// Nobody asks for metrics at greater length.
const LONGEST_REQUEST: usize = 1 << 16;

/// Sums of the records' fields.
#[derive(Debug, Clone, Default)]
struct Totals {
    ended: u64,
    failed: u64,
    stream_bytes: u64,
    wire_sent: u64,
    wire_received: u64,
    zero_pages: u64,
    pages: u64,
    pages_asked: u64,
    pages_referenced: u64,
    seconds: f64,
}

/// The totals, served as text over HTTP.
#[derive(Clone, Default)]
pub struct Metrics(Arc<Mutex<Totals>>);

impl Metrics {
    /// Serves scrapers at `address` in a thread of its own; returns where.
    ///
    /// # Errors
    /// If the address is taken or not ours.
    pub fn serve(&self, address: &Address) -> Result<Address, Error> {
        let listener = Listener::bind(address)?;
        let at = listener.address().clone();
        let metrics = self.clone();
        std::thread::spawn(move || {
            while let Ok(scraper) = listener.accept() {
                // A scraper that is gone comes again.
                let _ = metrics.answer(scraper);
            }
        });
        Ok(at)
    }

    /// Adds a migration that has ended.
    pub fn add(&self, record: &Record) {
        let mut totals = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        totals.ended += 1;
        totals.failed += u64::from(record.error.is_some());
        totals.stream_bytes += record.stream_bytes;
        totals.wire_sent += record.wire_sent;
        totals.wire_received += record.wire_received;
        totals.zero_pages += record.zero_pages;
        totals.pages += record.pages;
        totals.pages_asked += record.pages_asked;
        totals.pages_referenced += record.pages_referenced;
        totals.seconds += record.seconds;
    }

    fn answer(&self, mut scraper: Socket) -> std::io::Result<()> {
        scraper.set_read_timeout(Some(PATIENCE))?;
        let mut request = String::new();
        let mut lines = BufReader::new(scraper.try_clone()?);
        // The headers end with an empty line; none of them matters.
        while lines.read_line(&mut request)? > 2 && request.len() < LONGEST_REQUEST {}
        let text = self.text();
        write!(
            scraper,
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n{text}",
            text.len()
        )
    }

    fn text(&self) -> String {
        let totals = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        #[allow(clippy::cast_precision_loss)] // As Prometheus itself counts.
        let rows = [
            ("migrations", "Migrations that have ended.", totals.ended as f64),
            ("migrations_failed", "Those of them that broke.", totals.failed as f64),
            ("stream_bytes", "Bytes of QEMU's streams.", totals.stream_bytes as f64),
            ("wire_sent_bytes", "Bytes of records sent.", totals.wire_sent as f64),
            ("wire_received_bytes", "Bytes of records received.", totals.wire_received as f64),
            ("zero_pages", "Zero pages that travelled as runs.", totals.zero_pages as f64),
            ("pages", "Page contents in the streams.", totals.pages as f64),
            ("pages_asked", "Pages asked for by hash.", totals.pages_asked as f64),
            ("pages_referenced", "Pages sent as references.", totals.pages_referenced as f64),
            ("migration_seconds", "Time that migrations took.", totals.seconds),
        ];
        rows.iter()
            .map(|(name, help, value)| {
                format!(
                    "# HELP pageshare_{name}_total {help}\n\
                     # TYPE pageshare_{name}_total counter\n\
                     pageshare_{name}_total {value}\n"
                )
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;
    use crate::record::Account;

    #[test]
    fn a_scraper_reads_the_totals() {
        let metrics = Metrics::default();
        let address = metrics.serve(&"tcp:127.0.0.1:0".parse().unwrap()).unwrap();
        let account = Account::default();
        crate::record::add(&account.stream_bytes, 1000);
        account.broke("the link was cut");
        metrics.add(&account.record("send", [0; 16]));
        metrics.add(&account.record("send", [0; 16]));

        let mut scraper = Socket::connect("the metrics", &address).unwrap();
        scraper.write_all(b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n").unwrap();
        let mut answer = String::new();
        scraper.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
        assert!(answer.contains("\npageshare_stream_bytes_total 2000\n"), "{answer}");
        assert!(answer.contains("\npageshare_migrations_failed_total 2\n"), "{answer}");
    }
}
