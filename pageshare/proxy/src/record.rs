//! The account of one migration at one proxy: counters while it runs, JSON when it is over.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use pageshare_stream::{Parser, ReturnPath};
use serde::Serialize;

use crate::counters::Counters;
use crate::link::{LinkReader, LinkWriter};
use crate::threads::locked;

/// What all channels of a migration tell of it while it runs.
#[derive(Debug)]
pub struct Account {
    role: &'static str,
    migration: [u8; 16],
    vm: OnceLock<String>,
    wire_version: OnceLock<u16>,
    began: Instant,
    began_unix: f64,
    /// How long it took, once its last channel has closed.
    took: OnceLock<Duration>,
    /// What is counted.
    pub counts: Counters<AtomicU64>,
    /// The destination QEMU is to say whether it has loaded the guest.
    says_loaded: AtomicBool,
    /// It has said that it has.
    loaded: AtomicBool,
    verbatim: Mutex<Vec<VerbatimChannel>>,
    error: Mutex<Option<String>>,
    /// Bytes that have reached the kept copy, written again or not.
    copied: AtomicU64,
    /// Nobody waits for the kept copy any more.
    forgoes_copy: AtomicBool,
}

/// Where a channel was no longer parsed.
#[derive(Debug, Clone, Serialize)]
pub struct VerbatimChannel {
    /// Which channel.
    pub channel: u32,
    /// Offset in its stream.
    pub at: u64,
    /// Whether pages may be in what follows, so that savings are lost.
    pub hides_pages: bool,
    /// Why.
    pub why: String,
}

/// The account as it is written down.
#[derive(Debug, Clone, Serialize)]
pub struct Record {
    /// Version of this record's fields.
    pub version: u32,
    /// `send` or `receive`.
    pub role: &'static str,
    /// Random id, the same at both proxies.
    pub migration: String,
    /// The VM's name, if it is known.
    pub vm: Option<String>,
    /// Version of the protocol between the proxies, if they have agreed on one.
    pub wire_version: Option<u16>,
    /// Seconds since 1970 when the first channel opened.
    pub began: f64,
    /// Seconds from then until the last channel closed.
    pub seconds: f64,
    /// What was counted.
    #[serde(flatten)]
    pub counts: Counters<u64>,
    /// The destination QEMU has said that it has loaded the guest.
    pub loaded: bool,
    /// Processor seconds that this whole process has used so far, all threads, user and system.
    pub process_cpu_seconds: Option<f64>,
    /// Channels that were passed on verbatim from some byte on.
    pub verbatim: Vec<VerbatimChannel>,
    /// What broke the migration; nothing if every channel ended in order.
    pub error: Option<String>,
}

impl Account {
    /// The account of a migration that begins now; `role` is `send` or `receive`.
    #[must_use]
    pub fn begin(role: &'static str, migration: [u8; 16]) -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            role,
            migration,
            vm: OnceLock::new(),
            wire_version: OnceLock::new(),
            began: Instant::now(),
            began_unix: since_epoch.as_secs_f64(),
            took: OnceLock::new(),
            counts: Counters::default(),
            says_loaded: AtomicBool::new(false),
            loaded: AtomicBool::new(false),
            verbatim: Mutex::default(),
            error: Mutex::default(),
            copied: AtomicU64::new(0),
            forgoes_copy: AtomicBool::new(false),
        }
    }

    /// The migration is of the VM with this name, if it is not known to be of another.
    pub fn is_of(&self, vm: &str) {
        self.vm.get_or_init(|| vm.to_owned());
    }

    /// The proxies speak this version; that of the first channel stands.
    pub fn speaks(&self, version: u16) {
        self.wire_version.get_or_init(|| version);
    }

    /// Notes where a channel stopped being parsed.
    pub fn verbatim(&self, channel: VerbatimChannel) {
        locked(&self.verbatim).push(channel);
    }

    /// Whether a channel has been passed on since postcopy began: others may follow that carry
    /// nothing but pages.
    pub fn is_in_postcopy(&self) -> bool {
        let channels = locked(&self.verbatim);
        channels.iter().any(|channel| channel.why.starts_with("postcopy"))
    }

    /// Whether pages may have travelled that nobody read.
    pub fn hides_pages(&self) -> bool {
        let channels = locked(&self.verbatim);
        channels.iter().any(|channel| channel.hides_pages)
    }

    /// Notes what broke the migration; the first cause stands.
    pub fn broke(&self, error: &str) {
        let mut first = locked(&self.error);
        first.get_or_insert_with(|| error.to_owned());
    }

    /// Whether QEMU's stream is, or will be, in it. A receiver is greeted also by who migrates nothing;
    /// QEMU comes to a sender for a migration alone.
    #[must_use]
    pub fn is_migration(&self) -> bool {
        self.role == "send" || self.counts.stream_bytes.load(Ordering::Relaxed) > 0
    }

    /// So many bytes have reached the kept copy.
    pub fn copied(&self, bytes: usize) {
        add(&self.copied, bytes);
    }

    /// Bytes that have reached the kept copy so far.
    #[must_use]
    pub fn bytes_copied(&self) -> u64 {
        self.copied.load(Ordering::Relaxed)
    }

    /// The copy is not waited for: it is given up.
    pub fn forgo_copy(&self) {
        self.forgoes_copy.store(true, Ordering::Relaxed);
    }

    /// Whether the copy is to be given up.
    #[must_use]
    pub fn forgoes_copy(&self) -> bool {
        self.forgoes_copy.load(Ordering::Relaxed)
    }

    /// Counts what a link has sent since it was counted last.
    pub fn sent(&self, link: &LinkWriter) {
        self.counts.wire_sent.fetch_add(link.take_bytes(), Ordering::Relaxed);
    }

    /// Counts what a link has received since it was counted last.
    pub fn received(&self, link: &mut LinkReader) {
        self.counts.wire_received.fetch_add(link.take_bytes(), Ordering::Relaxed);
    }

    /// Follows a channel's stream, which may open a return path.
    pub fn follows(&self, stream: &Parser) {
        self.says_loaded.fetch_or(stream.opens_return_path(), Ordering::Relaxed);
    }

    /// Follows a channel's return path, on which the destination QEMU says that it has loaded.
    pub fn heard(&self, path: &mut ReturnPath, bytes: &[u8]) {
        path.feed(bytes);
        self.loaded.fetch_or(path.loaded(), Ordering::Relaxed);
    }

    /// Whether the guest is where it was to go: its QEMU has said so, and nothing failed. One that
    /// was cancelled ends in order without.
    #[must_use]
    pub fn has_arrived(&self) -> bool {
        !self.is_broken() && self.loaded.load(Ordering::Relaxed)
    }

    /// Whether something has broken it.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        locked(&self.error).is_some()
    }

    /// Whether the destination QEMU is still to say that it has loaded the guest.
    #[must_use]
    pub fn awaits_word(&self) -> bool {
        self.says_loaded.load(Ordering::Relaxed) && !self.loaded.load(Ordering::Relaxed)
    }

    /// The last channel has closed: it is known how long that took. A guest that was to be said to have
    /// arrived, and was not, has not.
    pub fn ends(&self) {
        self.took.get_or_init(|| self.began.elapsed());
        if self.awaits_word() {
            self.broke(
                "the destination QEMU has not said that it has loaded the guest: the migration was \
                 cancelled, or one of the QEMUs gave it up (their logs say why)",
            );
        }
    }

    /// Seconds from the migration's beginning until its last channel closed, or so far.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.took.get().copied().unwrap_or_else(|| self.began.elapsed()).as_secs_f64()
    }

    /// The account so far.
    #[must_use]
    pub fn record(&self) -> Record {
        Record {
            version: 1,
            role: self.role,
            migration: self.migration.iter().map(|byte| format!("{byte:02x}")).collect(),
            vm: self.vm.get().cloned(),
            wire_version: self.wire_version.get().copied(),
            began: self.began_unix,
            seconds: self.seconds(),
            counts: self.counts.read(),
            loaded: self.loaded.load(Ordering::Relaxed),
            process_cpu_seconds: process_cpu_seconds(),
            verbatim: locked(&self.verbatim).clone(),
            error: locked(&self.error).clone(),
        }
    }
}

/// Adds to a counter.
pub fn add(counter: &AtomicU64, amount: usize) {
    counter.fetch_add(amount as u64, Ordering::Relaxed);
}

/// From `/proc/self/stat`: user and system ticks of all
/// threads, those that have ended included.
fn process_cpu_seconds() -> Option<f64> {
    /// `USER_HZ`, which Linux fixes at 100 on every architecture that QEMU migrates on.
    const TICKS_A_SECOND: f64 = 100.0;
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The command's name may hold spaces and brackets; the fields behind it do not.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at)?.parse::<f64>().ok();
    Some((ticks(11)? + ticks(12)?) / TICKS_A_SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_behind_the_last_channel_takes_none_of_a_migrations_time() {
        let account = Account::begin("send", [0; 16]);
        account.ends();
        let took = account.record().seconds;
        account.ends();
        assert!((took - account.record().seconds).abs() < f64::EPSILON);
    }

    #[test]
    fn a_record_has_each_field_that_one_had_before_in_its_place() {
        let before = include_str!("../../../testdata/results/migration/said.txt");
        let before = before.lines().filter_map(|line| line.strip_prefix("proxies.send."));
        let now = serde_json::to_string(&Account::begin("send", [0; 16]).record()).unwrap();
        let mut rest = now.as_str();
        for name in before {
            let (_, behind) = rest.split_once(&format!("\"{name}\":")).expect(name);
            rest = behind;
        }
        assert!(rest.contains("\"error\":"), "{now}");
    }
}
