//! What all migrations of this process have done so far, those under way included, for Prometheus.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::address::Address;
use crate::error::Error;
use crate::record::{Account, Record};
use crate::socket::{Listener, Socket};

/// A scraper that takes longer for its request is let go.
const PATIENCE: Duration = Duration::from_secs(5);

/// Nobody asks for metrics at greater length.
const LONGEST_REQUEST: u64 = 1 << 16;

/// A counter: its name without prefix and suffix, what it counts, where a record has it.
type Row = (&'static str, &'static str, fn(&Record) -> f64);

#[allow(clippy::cast_precision_loss)] // As Prometheus itself counts.
const ROWS: [Row; 18] = [
    ("stream_bytes", "Bytes of QEMU's streams.", |it| it.stream_bytes as f64),
    (
        "stream_accepted_bytes",
        "Bytes of them that the destination QEMU took, at the sender.",
        |it| it.stream_accepted as f64,
    ),
    ("wire_sent_bytes", "Bytes of records sent.", |it| it.wire_sent as f64),
    ("wire_received_bytes", "Bytes of records received.", |it| it.wire_received as f64),
    ("zero_pages", "Zero pages that travelled as runs.", |it| it.zero_pages as f64),
    ("pages", "Page contents in the streams.", |it| it.pages as f64),
    ("pages_asked", "Pages asked for by hash.", |it| it.pages_asked as f64),
    ("pages_referenced", "Pages sent as references.", |it| it.pages_referenced as f64),
    ("pages_at_once", "Pages referred to before the answer.", |it| it.pages_at_once as f64),
    ("pages_supplied", "Of those, pages that had to follow.", |it| it.pages_supplied as f64),
    ("pages_delta", "Pages sent as differences.", |it| it.pages_delta as f64),
    ("pages_delta_kept", "Of those, to pages of kept copies.", |it| it.pages_delta_kept as f64),
    ("delta_saved_bytes", "Bytes that differences spared.", |it| it.delta_saved as f64),
    ("pages_kept", "Pages of copies kept.", |it| it.pages_kept as f64),
    ("found_kept", "Pages found in kept copies.", |it| it.found_kept as f64),
    ("found_received", "Pages found in the arriving guest itself.", |it| it.found_received as f64),
    ("found_indexed", "Pages found in other VMs or images.", |it| it.found_indexed as f64),
    ("migration_seconds", "Time that migrations took.", |it| it.seconds),
];

/// Sums over the migrations that have ended, and the accounts of those under way.
#[derive(Debug, Default)]
struct State {
    ended: u64,
    failed: u64,
    sums: [f64; ROWS.len()],
    live: Vec<Arc<Account>>,
}

/// The counters, served as text over HTTP.
#[derive(Clone, Default)]
pub struct Metrics(Arc<Mutex<State>>);

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
            for scraper in listener.incoming() {
                // A scraper that is gone comes again.
                let _ = metrics.answer(scraper);
            }
        });
        Ok(at)
    }

    /// Opens the account of a migration that begins now; `role` is `send` or `receive`.
    #[must_use]
    pub fn begin(&self, role: &'static str, migration: [u8; 16]) -> Arc<Account> {
        let account = Arc::new(Account::begin(role, migration));
        self.state().live.push(Arc::clone(&account));
        account
    }

    /// Closes an account. Nothing, if it was no migration's: no byte came, and nothing failed.
    #[must_use]
    pub fn end(&self, account: &Arc<Account>) -> Option<Record> {
        let record = account.record();
        let mut state = self.state();
        state.live.retain(|live| !Arc::ptr_eq(live, account));
        if record.stream_bytes == 0 && record.error.is_none() {
            return None;
        }
        state.ended += 1;
        state.failed += u64::from(record.error.is_some());
        for (sum, (_, _, value)) in state.sums.iter_mut().zip(ROWS) {
            *sum += value(&record);
        }
        Some(record)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(&self, mut scraper: Socket) -> io::Result<()> {
        let request = Until { socket: scraper.try_clone()?, end: Instant::now() + PATIENCE };
        let mut request = BufReader::new(request.take(LONGEST_REQUEST));
        // The headers end with an empty line; none of them matters.
        while request.read_line(&mut String::new())? > 2 {}
        let text = self.text();
        write!(
            scraper,
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n{text}",
            text.len()
        )
    }

    fn text(&self) -> String {
        let (ended, failed, mut sums, live) = {
            let state = self.state();
            let live: Vec<Record> = state.live.iter().map(|account| account.record()).collect();
            (state.ended, state.failed, state.sums, live)
        };
        for record in &live {
            for (sum, (_, _, value)) in sums.iter_mut().zip(ROWS) {
                *sum += value(record);
            }
        }
        let mut text = metric("migrations_running", "gauge", "Migrations under way.", live.len());
        text += &metric("migrations_total", "counter", "Migrations that have ended.", ended);
        text += &metric("migrations_failed_total", "counter", "Those of them that broke.", failed);
        for (sum, (name, help, _)) in sums.into_iter().zip(ROWS) {
            text += &metric(&format!("{name}_total"), "counter", help, sum);
        }
        text
    }
}

/// Reads that have one time limit between them.
struct Until {
    socket: Socket,
    end: Instant,
}

impl Read for Until {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.end.saturating_duration_since(Instant::now());
        // That fails too where nothing is left.
        self.socket.set_read_timeout(Some(left))?;
        self.socket.read(buffer)
    }
}

fn metric(name: &str, kind: &str, help: &str, value: impl std::fmt::Display) -> String {
    format!(
        "# HELP pageshare_{name} {help}\n# TYPE pageshare_{name} {kind}\npageshare_{name} {value}\n"
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::record::add;

    fn scrape(address: &Address) -> String {
        let mut scraper = Socket::connect("the metrics", address).unwrap();
        scraper.write_all(b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n").unwrap();
        let mut answer = String::new();
        scraper.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn a_scraper_reads_what_has_ended_and_what_is_under_way() {
        let metrics = Metrics::default();
        let address = metrics.serve(&"tcp:127.0.0.1:0".parse().unwrap()).unwrap();
        let ended = metrics.begin("send", [0; 16]);
        add(&ended.stream_bytes, 1000);
        ended.broke("the link was cut");
        let _ = metrics.end(&ended);
        let running = metrics.begin("send", [1; 16]);
        add(&running.stream_bytes, 500);

        let answer = scrape(&address);
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
        assert!(answer.contains("\npageshare_stream_bytes_total 1500\n"), "{answer}");
        assert!(answer.contains("\npageshare_migrations_failed_total 1\n"), "{answer}");
        assert!(answer.contains("\npageshare_migrations_running 1\n"), "{answer}");
        let _ = metrics.end(&running);
        let answer = scrape(&address);
        assert!(answer.contains("\npageshare_stream_bytes_total 1500\n"), "{answer}");
        assert!(answer.contains("\npageshare_migrations_running 0\n"), "{answer}");
    }

    #[test]
    fn a_request_without_an_end_is_read_no_further_than_any_may_be_long() {
        let metrics = Metrics::default();
        let address = metrics.serve(&"tcp:127.0.0.1:0".parse().unwrap()).unwrap();
        let mut scraper = Socket::connect("the metrics", &address).unwrap();
        scraper.write_all(&vec![b'a'; LONGEST_REQUEST.try_into().unwrap()]).unwrap();
        let mut answer = String::new();
        scraper.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    }

    #[test]
    fn no_byte_is_waited_for_when_the_time_is_over() {
        let (scraper, mut other) = UnixStream::pair().unwrap();
        other.write_all(b"ab").unwrap();
        let mut request = Until { socket: Socket::Unix(scraper), end: Instant::now() + PATIENCE };
        assert_eq!(request.read(&mut [0]).unwrap(), 1);
        request.end = Instant::now();
        assert!(request.read(&mut [0]).is_err());
    }
}
