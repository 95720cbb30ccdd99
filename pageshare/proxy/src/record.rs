//! The account of one migration at one proxy: counters while it runs, JSON when it is over.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use pageshare_stream::ReturnPath;
use serde::Serialize;

use crate::link::{LinkReader, LinkWriter};

/// Counters that all channels of a migration share. Each is a number of events or bytes since the
/// migration began.
#[derive(Debug)]
pub struct Account {
    role: &'static str,
    migration: [u8; 16],
    vm: OnceLock<String>,
    wire_version: OnceLock<u16>,
    began: Instant,
    began_unix: f64,
    /// Bytes of QEMU's streams, all channels, source to destination.
    pub stream_bytes: AtomicU64,
    /// Of those, bytes that were passed on although pages may be in them.
    pub verbatim_bytes: AtomicU64,
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
    /// Bytes of the streams that the destination QEMU has accepted, as the sender knows.
    pub stream_accepted: AtomicU64,
    /// Bytes of one channel's stream that were between the two QEMUs at once, at most.
    pub most_in_flight: AtomicU64,
    /// Page contents that KSM had merged at the source; 0 when KSM is not looked at.
    pub pages_merged: AtomicU64,
    /// Pages asked for that KSM had merged.
    pub merged_asked: AtomicU64,
    /// Of those, the ones that the receiver had: `merged_found / merged_asked` is the precision of
    /// KSM's verdict, and, when every page is asked for, `merged_found / pages_referenced` its recall.
    pub merged_found: AtomicU64,
    /// Segments that waited for an answer: round trips, many of them in flight at once.
    pub segments_asked: AtomicU64,
    /// Segments that referred to pages without waiting: round trips spared.
    pub segments_at_once: AtomicU64,
    /// Pages referred to before the answer.
    pub pages_at_once: AtomicU64,
    /// Of those, the ones that the receiver lacked and was sent after all.
    pub pages_supplied: AtomicU64,
    /// Pages sent as the difference from an earlier version.
    pub pages_delta: AtomicU64,
    /// Of those, the ones whose earlier version came out of a kept copy.
    pub pages_delta_kept: AtomicU64,
    /// Bytes that differences spared, before compression.
    pub delta_saved: AtomicU64,
    /// Pages of the copy kept for the return trip.
    pub pages_kept: AtomicU64,
    /// Pages not kept since the disk did not keep up.
    pub pages_not_kept: AtomicU64,
    /// Receiver: pages found among those that had just arrived.
    pub found_recent: AtomicU64,
    /// Receiver: pages found in the destination QEMU's own memory, among those that had arrived.
    pub found_received: AtomicU64,
    /// Receiver: pages found in a copy kept on an earlier visit.
    pub found_kept: AtomicU64,
    /// Receiver: pages found in other VMs or in images.
    pub found_indexed: AtomicU64,
    /// The destination QEMU has said that it has loaded the guest.
    loaded: AtomicBool,
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
    /// See [`Account`].
    pub stream_bytes: u64,
    /// See [`Account`].
    pub verbatim_bytes: u64,
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
    /// See [`Account`].
    pub stream_accepted: u64,
    /// See [`Account`].
    pub most_in_flight: u64,
    /// See [`Account`].
    pub pages_merged: u64,
    /// See [`Account`].
    pub merged_asked: u64,
    /// See [`Account`].
    pub merged_found: u64,
    /// See [`Account`].
    pub segments_asked: u64,
    /// See [`Account`].
    pub segments_at_once: u64,
    /// See [`Account`].
    pub pages_at_once: u64,
    /// See [`Account`].
    pub pages_supplied: u64,
    /// See [`Account`].
    pub pages_delta: u64,
    /// See [`Account`].
    pub pages_delta_kept: u64,
    /// See [`Account`].
    pub delta_saved: u64,
    /// See [`Account`].
    pub pages_kept: u64,
    /// See [`Account`].
    pub pages_not_kept: u64,
    /// See [`Account`].
    pub found_recent: u64,
    /// See [`Account`].
    pub found_received: u64,
    /// See [`Account`].
    pub found_kept: u64,
    /// See [`Account`].
    pub found_indexed: u64,
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
        let zero = || AtomicU64::new(0);
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            role,
            migration,
            vm: OnceLock::new(),
            wire_version: OnceLock::new(),
            began: Instant::now(),
            began_unix: since_epoch.as_secs_f64(),
            stream_bytes: zero(),
            verbatim_bytes: zero(),
            wire_sent: zero(),
            wire_received: zero(),
            zero_pages: zero(),
            pages: zero(),
            pages_asked: zero(),
            pages_referenced: zero(),
            compressed_from: zero(),
            compressed_to: zero(),
            stream_accepted: zero(),
            most_in_flight: zero(),
            pages_merged: zero(),
            merged_asked: zero(),
            merged_found: zero(),
            segments_asked: zero(),
            segments_at_once: zero(),
            pages_at_once: zero(),
            pages_supplied: zero(),
            pages_delta: zero(),
            pages_delta_kept: zero(),
            delta_saved: zero(),
            pages_kept: zero(),
            pages_not_kept: zero(),
            found_recent: zero(),
            found_received: zero(),
            found_kept: zero(),
            found_indexed: zero(),
            loaded: AtomicBool::new(false),
            verbatim: Mutex::default(),
            error: Mutex::default(),
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
        self.verbatim.lock().unwrap_or_else(PoisonError::into_inner).push(channel);
    }

    /// Whether a channel has been passed on since postcopy began: others may follow that carry
    /// nothing but pages.
    pub fn is_in_postcopy(&self) -> bool {
        let channels = self.verbatim.lock().unwrap_or_else(PoisonError::into_inner);
        channels.iter().any(|channel| channel.why.starts_with("postcopy"))
    }

    /// Notes what broke the migration; the first cause stands.
    pub fn broke(&self, error: &str) {
        let mut first = self.error.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert_with(|| error.to_owned());
    }

    /// Counts what a link has sent since it was counted last.
    pub fn sent(&self, link: &LinkWriter) {
        self.wire_sent.fetch_add(link.take_bytes(), Ordering::Relaxed);
    }

    /// Counts what a link has received since it was counted last.
    pub fn received(&self, link: &mut LinkReader) {
        self.wire_received.fetch_add(link.take_bytes(), Ordering::Relaxed);
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
        let error = self.error.lock().unwrap_or_else(PoisonError::into_inner);
        error.is_none() && self.loaded.load(Ordering::Relaxed)
    }

    /// Seconds since the migration began.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    /// The account so far.
    #[must_use]
    pub fn record(&self) -> Record {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Record {
            version: 1,
            role: self.role,
            migration: self.migration.iter().map(|byte| format!("{byte:02x}")).collect(),
            vm: self.vm.get().cloned(),
            wire_version: self.wire_version.get().copied(),
            began: self.began_unix,
            seconds: self.seconds(),
            stream_bytes: get(&self.stream_bytes),
            verbatim_bytes: get(&self.verbatim_bytes),
            wire_sent: get(&self.wire_sent),
            wire_received: get(&self.wire_received),
            zero_pages: get(&self.zero_pages),
            pages: get(&self.pages),
            pages_asked: get(&self.pages_asked),
            pages_referenced: get(&self.pages_referenced),
            compressed_from: get(&self.compressed_from),
            compressed_to: get(&self.compressed_to),
            stream_accepted: get(&self.stream_accepted),
            most_in_flight: get(&self.most_in_flight),
            pages_merged: get(&self.pages_merged),
            merged_asked: get(&self.merged_asked),
            merged_found: get(&self.merged_found),
            segments_asked: get(&self.segments_asked),
            segments_at_once: get(&self.segments_at_once),
            pages_at_once: get(&self.pages_at_once),
            pages_supplied: get(&self.pages_supplied),
            pages_delta: get(&self.pages_delta),
            pages_delta_kept: get(&self.pages_delta_kept),
            delta_saved: get(&self.delta_saved),
            pages_kept: get(&self.pages_kept),
            pages_not_kept: get(&self.pages_not_kept),
            found_recent: get(&self.found_recent),
            found_received: get(&self.found_received),
            found_kept: get(&self.found_kept),
            found_indexed: get(&self.found_indexed),
            loaded: self.loaded.load(Ordering::Relaxed),
            process_cpu_seconds: process_cpu_seconds(),
            verbatim: self.verbatim.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            error: self.error.lock().unwrap_or_else(PoisonError::into_inner).clone(),
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
