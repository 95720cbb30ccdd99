//! The account of one migration at one proxy: counters while it runs, JSON when it is over.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use serde::Serialize;

/// Counters that all channels of a migration share. Each is a number of events or bytes since the
/// migration began.
#[derive(Debug)]
pub struct Account {
    began: Instant,
    began_unix: f64,
    /// Bytes of QEMU's streams, all channels, source to destination.
    pub stream_bytes: AtomicU64,
    /// Bytes of records sent between the proxies, without TLS's, TCP's and IP's own.
    pub wire_sent: AtomicU64,
    /// Bytes of records received from the other proxy.
    pub wire_received: AtomicU64,
    /// Zero pages that travelled as runs.
    pub zero_pages: AtomicU64,
    /// Page contents in the stream.
    pub pages: AtomicU64,
    /// Pages whose hash was sent to ask for them.
    pub pages_asked: AtomicU64,
    /// Pages sent as references.
    pub pages_referenced: AtomicU64,
    /// Literal bytes that went through the compressor, before.
    pub compressed_from: AtomicU64,
    /// The same bytes, after.
    pub compressed_to: AtomicU64,
    verbatim: Mutex<Vec<VerbatimChannel>>,
    error: Mutex<Option<String>>,
}

/// Where a channel was no longer parsed.
#[derive(Debug, Clone, Serialize)]
pub struct VerbatimChannel {
    /// Which channel.
    pub channel: u32,
    /// Offset in its stream.
    pub at: u64,
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
    /// Seconds since 1970 when the first channel opened.
    pub began: f64,
    /// Seconds from then until the last channel closed.
    pub seconds: f64,
    /// See [`Account`].
    pub stream_bytes: u64,
    /// See [`Account`].
    pub wire_sent: u64,
    /// See [`Account`].
    pub wire_received: u64,
    /// See [`Account`].
    pub zero_pages: u64,
    /// See [`Account`].
    pub pages: u64,
    /// See [`Account`].
    pub pages_asked: u64,
    /// See [`Account`].
    pub pages_referenced: u64,
    /// See [`Account`].
    pub compressed_from: u64,
    /// See [`Account`].
    pub compressed_to: u64,
    /// Processor seconds that this whole process has used so far, all threads, user and system.
    pub process_cpu_seconds: Option<f64>,
    /// Channels that were passed on verbatim from some byte on.
    pub verbatim: Vec<VerbatimChannel>,
    /// What broke the migration; nothing if every channel ended in order.
    pub error: Option<String>,
}

impl Default for Account {
    fn default() -> Self {
        let zero = || AtomicU64::new(0);
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            began: Instant::now(),
            began_unix: since_epoch.as_secs_f64(),
            stream_bytes: zero(),
            wire_sent: zero(),
            wire_received: zero(),
            zero_pages: zero(),
            pages: zero(),
            pages_asked: zero(),
            pages_referenced: zero(),
            compressed_from: zero(),
            compressed_to: zero(),
            verbatim: Mutex::default(),
            error: Mutex::default(),
        }
    }
}

/// Adds to a counter.
pub fn add(counter: &AtomicU64, amount: usize) {
    counter.fetch_add(amount as u64, Ordering::Relaxed);
}

impl Account {
    /// Notes where a channel stopped being parsed.
    pub fn verbatim(&self, channel: VerbatimChannel) {
        self.verbatim.lock().unwrap_or_else(PoisonError::into_inner).push(channel);
    }

    /// Notes what broke the migration; the first cause stands.
    pub fn broke(&self, error: &str) {
        let mut first = self.error.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert_with(|| error.to_owned());
    }

    /// Seconds since the migration began.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    /// The account so far.
    #[must_use]
    pub fn record(&self, role: &'static str, migration: [u8; 16]) -> Record {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Record {
            version: 1,
            role,
            migration: migration.iter().map(|byte| format!("{byte:02x}")).collect(),
            began: self.began_unix,
            seconds: self.seconds(),
            stream_bytes: get(&self.stream_bytes),
            wire_sent: get(&self.wire_sent),
            wire_received: get(&self.wire_received),
            zero_pages: get(&self.zero_pages),
            pages: get(&self.pages),
            pages_asked: get(&self.pages_asked),
            pages_referenced: get(&self.pages_referenced),
            compressed_from: get(&self.compressed_from),
            compressed_to: get(&self.compressed_to),
            process_cpu_seconds: process_cpu_seconds(),
            verbatim: self.verbatim.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            error: self.error.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }
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
