//! What all migrations of this process have done so far, those under way included, for Prometheus.

use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};
use std::io::{self, Read, Write};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tracing::{debug, warn};

use crate::address::Address;
use crate::counters::TABLE;
use crate::error::Error;
use crate::gate::{Arrival, Gate, Rules, Said};
use crate::record::{Account, Record};
use crate::socket::{Listener, Until};
use crate::threads::{self, locked};

/// Where they are.
const PATH: &str = "/metrics";

/// A scraper that takes longer for its request is let go.
const PATIENCE: Duration = Duration::from_secs(5);

/// Nobody asks for metrics at greater length.
const LONGEST_REQUEST: usize = 1 << 16;

/// Scrapers that may wait at once.
const SCRAPERS: usize = 16;

/// Connections that were turned away are spoken of no more often: who can connect could fill the log.
const BETWEEN_LINES: Duration = Duration::from_secs(60);

/// Sums over one VM's migrations.
#[derive(Debug, Clone, Default)]
struct Tally {
    running: u64,
    ended: u64,
    failed: u64,
    sums: [u64; TABLE.len()],
    seconds: f64,
}

impl Tally {
    fn add(&mut self, record: &Record) {
        for (sum, counter) in self.sums.iter_mut().zip(TABLE) {
            *sum += (counter.of)(&record.counts);
        }
        self.seconds += record.seconds;
    }
}

/// What has ended, by the VM's name, and the accounts of what is under way.
#[derive(Debug, Default)]
struct State {
    ended: BTreeMap<String, Tally>,
    live: Vec<Arc<Account>>,
    turned_away: u64,
    /// When that was last said, and of how many.
    said: Option<(Instant, u64)>,
}

/// The counters, served as text over HTTP.
#[derive(Clone, Default)]
pub struct Metrics {
    vm: String,
    state: Arc<Mutex<State>>,
}

impl Metrics {
    /// Of this VM's migrations; of whatever QEMU says that it is if the name is empty.
    #[must_use]
    pub fn of(vm: &str) -> Self {
        Self { vm: vm.to_owned(), state: Arc::default() }
    }

    /// Serves scrapers at `address` in a thread of its own; returns where it listens.
    ///
    /// # Errors
    /// If the address is taken or not ours.
    pub fn serve(&self, address: &Address) -> Result<Arc<Listener>, Error> {
        let listener = Arc::new(Listener::bind(address)?);
        let rules = Rules {
            most: Rules::room(SCRAPERS),
            patience: PATIENCE,
            ticks: false,
            looks_at: LONGEST_REQUEST,
            keeps_first: false,
        };
        // The headers end with an empty line; none of them matters.
        let asked = |_: &Arrival, said: &Said<'_>| {
            let ends = |end: &[u8]| said.bytes.windows(end.len()).any(|bytes| bytes == end);
            said.bytes.len() == LONGEST_REQUEST || ends(b"\n\n") || ends(b"\r\n\r\n")
        };
        let mut gate = Gate::open(Arc::clone(&listener), rules, self.clone(), asked)?;
        let metrics = self.clone();
        threads::start(move || {
            loop {
                let Arrival { socket, came, .. } = gate.next();
                // A scraper that is gone comes again.
                let _ = metrics.answer(Until { socket, end: Some(came + PATIENCE) });
            }
        })?;
        Ok(listener)
    }

    /// A connection was turned away. It is counted, and said to the operator now and then.
    pub(crate) fn turned_away(&self, why: &str) {
        debug!("a connection was turned away: {why}");
        let mut state = self.state();
        state.turned_away += 1;
        let (said, before) = state.said.map_or((None, 0), |(at, count)| (Some(at), count));
        if said.is_none_or(|at| at.elapsed() >= BETWEEN_LINES) {
            let new = state.turned_away - before;
            state.said = Some((Instant::now(), state.turned_away));
            drop(state);
            warn!("refused {new} connection(s), the last since {why}; said once a minute at most");
        }
    }

    /// Opens the account of a migration that begins now; `role` is `send` or `receive`.
    #[must_use]
    pub fn begin(&self, role: &'static str, migration: [u8; 16]) -> Arc<Account> {
        let account = Arc::new(Account::begin(role, migration));
        if !self.vm.is_empty() {
            account.is_of(&self.vm);
        }
        self.state().live.push(Arc::clone(&account));
        account
    }

    /// The account of the migration under way that began first.
    pub(crate) fn under_way(&self) -> Option<Arc<Account>> {
        self.state().live.first().cloned()
    }

    /// Whether a migration is under way.
    pub(crate) fn is_busy(&self) -> bool {
        self.state().live.iter().any(|account| account.is_migration())
    }

    /// Closes an account. Nothing, if it was no migration's: no byte came, and nothing failed that
    /// would have brought one.
    #[must_use]
    pub fn end(&self, account: &Arc<Account>) -> Option<Record> {
        let record = account.record();
        let mut state = self.state();
        state.live.retain(|live| !Arc::ptr_eq(live, account));
        let empty = record.counts.stream_bytes == 0 && record.error.is_none();
        if empty || !account.is_migration() {
            return None;
        }
        let tally = state.ended.entry(record.vm.clone().unwrap_or_default()).or_default();
        tally.ended += 1;
        tally.failed += u64::from(record.error.is_some());
        tally.add(&record);
        Some(record)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
    }

    /// All of the request has come.
    fn answer(&self, mut scraper: Until) -> io::Result<()> {
        // What is left unread would make the kernel take the answer back.
        let mut request = vec![0; LONGEST_REQUEST];
        let length = scraper.read(&mut request)?;
        let line = request[..length].split(|byte| *byte == b'\n').next().unwrap_or_default();
        let line = String::from_utf8_lossy(line);
        let path = line.strip_prefix("GET ").and_then(|line| line.split([' ', '?']).next());
        let (status, text) = match path {
            Some(PATH) => ("200 OK", self.text()),
            _ => ("404 Not Found", format!("GET {PATH} has the metrics\n")),
        };
        write!(
            scraper,
            "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n{text}",
            text.len()
        )
    }

    fn text(&self) -> String {
        let (mut vms, live, turned_away) = {
            let state = self.state();
            // What turns out to be no migration would be taken back, and no counter goes down.
            let migrations = state.live.iter().filter(|account| account.is_migration());
            let live: Vec<Record> = migrations.map(|account| account.record()).collect();
            (state.ended.clone(), live, state.turned_away)
        };
        for record in &live {
            let tally = vms.entry(record.vm.clone().unwrap_or_default()).or_default();
            tally.running += 1;
            tally.add(record);
        }
        if vms.is_empty() {
            vms.entry(self.vm.clone()).or_default();
        }
        let help = "Migrations under way.";
        let mut text = metric("migrations_running", help, &vms, |it| it.running);
        let (ended, broken) = ("Migrations that have ended.", "Those of them that broke.");
        text += &metric("migrations_total", ended, &vms, |it| it.ended);
        text += &metric("migrations_failed_total", broken, &vms, |it| it.failed);
        for (at, counter) in TABLE.iter().enumerate() {
            if let Some(name) = counter.metric() {
                text += &metric(&format!("{name}_total"), counter.says, &vms, |it| it.sums[at]);
            }
        }
        let help = "Time that migrations took.";
        text += &metric("migration_seconds_total", help, &vms, |it| it.seconds);
        let help = "Connections that were no migration's.";
        let name = "pageshare_connections_turned_away_total";
        text + &format!("# HELP {name} {help}\n# TYPE {name} counter\n{name} {turned_away}\n")
    }
}

/// A line for each VM, under one heading.
fn metric<V: Display>(
    name: &str,
    help: &str,
    vms: &BTreeMap<String, Tally>,
    value: impl Fn(&Tally) -> V,
) -> String {
    let kind = if name.ends_with("_total") { "counter" } else { "gauge" };
    let mut text = format!("# HELP pageshare_{name} {help}\n# TYPE pageshare_{name} {kind}\n");
    for (vm, tally) in vms {
        let vm = vm.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        // Writing to a string cannot fail.
        let _ = writeln!(text, "pageshare_{name}{{vm=\"{vm}\"}} {}", value(tally));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::add;
    use crate::socket::Socket;

    fn ask(address: &Address, request: &[u8]) -> String {
        let scraper = Socket::connect("the metrics", address).unwrap();
        let mut scraper = &scraper;
        scraper.write_all(request).unwrap();
        let mut answer = String::new();
        scraper.read_to_string(&mut answer).unwrap();
        answer
    }

    fn scrape(address: &Address) -> String {
        ask(address, b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n")
    }

    #[test]
    fn a_scraper_reads_what_has_ended_and_what_is_under_way_by_the_vms_names() {
        let metrics = Metrics::default();
        let listener = metrics.serve(&"tcp:127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.address();
        let ended = metrics.begin("send", [0; 16]);
        ended.is_of("web1");
        add(&ended.counts.stream_bytes, 1000);
        ended.broke("the link was cut");
        let _ = metrics.end(&ended);
        let running = metrics.begin("send", [1; 16]);
        running.is_of("web1");
        add(&running.counts.stream_bytes, 500);
        let other = metrics.begin("send", [2; 16]);
        other.is_of("a \"b\"");
        add(&other.counts.stream_bytes, 7);

        let answer = scrape(address);
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
        let says = |answer: &str, line: &str| {
            assert!(answer.contains(&format!("\npageshare_{line}\n")), "{line} in {answer}");
        };
        says(&answer, "stream_bytes_total{vm=\"web1\"} 1500");
        says(&answer, "stream_bytes_total{vm=\"a \\\"b\\\"\"} 7");
        says(&answer, "migrations_failed_total{vm=\"web1\"} 1");
        says(&answer, "migrations_running{vm=\"web1\"} 1");
        let _ = metrics.end(&running);
        let answer = scrape(address);
        says(&answer, "stream_bytes_total{vm=\"web1\"} 1500");
        says(&answer, "migrations_running{vm=\"web1\"} 0");
    }

    #[test]
    fn who_is_greeted_and_sends_no_stream_migrates_nothing_whatever_fails() {
        let metrics = Metrics::default();
        let [nobody, migration] = [0, 1].map(|id| metrics.begin("receive", [id; 16]));
        nobody.broke("the link was cut");
        assert!(!metrics.is_busy());
        add(&migration.counts.stream_bytes, 1);
        assert!(metrics.is_busy(), "a program for one migration stays");
        assert!(metrics.text().contains("_running{vm=\"\"} 1\n"), "{}", metrics.text());
        assert!(metrics.end(&nobody).is_none());
        assert!(metrics.end(&migration).is_some() && !metrics.is_busy());
        // QEMU comes to a sender to migrate.
        let unreachable = metrics.begin("send", [2; 16]);
        unreachable.broke("nobody listens there");
        assert!(metrics.is_busy() && metrics.end(&unreachable).is_some());
    }

    #[test]
    fn a_vm_whose_name_was_given_is_there_before_it_migrates() {
        let metrics = Metrics::of("web1");
        let listener = metrics.serve(&"tcp:127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.address();
        assert!(scrape(address).contains("\npageshare_migrations_total{vm=\"web1\"} 0\n"));
    }

    #[test]
    fn the_board_of_grafana_asks_for_nothing_that_is_not_served() {
        let board = include_str!("../../grafana/pageshare.json");
        let served = Metrics::of("web1").text();
        let is_name = |it: char| it.is_ascii_lowercase() || it == '_';
        let names = board.match_indices("pageshare_").map(|(at, _)| {
            let rest = &board[at..];
            &rest[..rest.find(|it| !is_name(it)).unwrap_or(rest.len())]
        });
        let mut count = 0;
        for name in names {
            assert!(served.contains(&format!("# TYPE {name} ")), "{name}");
            count += 1;
        }
        assert!(count > 10, "{count}");
    }

    #[test]
    fn nothing_else_than_the_metrics_is_answered() {
        let listener = Metrics::default().serve(&"tcp:127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.address();
        for request in ["GET / HTTP/1.1", "GET /metrics2 HTTP/1.1", "POST /metrics HTTP/1.1", ""] {
            let answer = ask(address, format!("{request}\r\n\r\n").as_bytes());
            assert!(answer.starts_with("HTTP/1.1 404 Not Found"), "{request}: {answer}");
        }
        let answer = ask(address, b"GET /metrics?name=x HTTP/1.1\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    }

    #[test]
    fn a_request_without_an_end_is_read_no_further_than_any_may_be_long() {
        let listener = Metrics::default().serve(&"tcp:127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.address();
        let answer = ask(address, &vec![b'a'; LONGEST_REQUEST]);
        assert!(answer.starts_with("HTTP/1.1 404 Not Found"), "{answer}");
    }
}
