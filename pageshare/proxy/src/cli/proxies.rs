//! `pageshare send` and `pageshare receive`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use pageshare_wire::Versions;
use pageshare_wire::adaptive::Policy;
use pageshare_wire::window::LARGEST;
use tracing::{info, warn};

use super::args::{
    CandidatesArg, KeepArgs, LifeArgs, PolicyArg, ReceiveArgs, SendArgs, SendingArgs, WireArgs,
};
use super::to_json;
use crate::error::Error;
use crate::kept::{KeepIn, KeptIn};
use crate::ksm::Ksm;
use crate::link::TlsFiles;
use crate::metrics::Metrics;
use crate::receive::{self, Receiver, Shelf};
use crate::record::Record;
use crate::scope::Scope;
use crate::send::{self, Candidates, Sender};
use crate::signals;
use crate::socket::Listener;
use crate::sources::SourceSpec;

/// QEMU's own, in milliseconds, unless it is told otherwise.
const DOWNTIME_LIMIT: u64 = 300;

/// Whether whoever is not root may catch page faults, as postcopy's destination does.
const USERFAULTFD: &str = "/proc/sys/vm/unprivileged_userfaultfd";

pub(super) fn send(arguments: &SendArgs) -> Result<ExitCode, Error> {
    let sender = sender(&arguments.sending)?;
    let listener = Arc::new(Listener::bind(&arguments.listen)?);
    let waits = format!("waiting for QEMU at {}, sending to {}", listener.address(), sender.peer);
    let metrics = sender.metrics.clone();
    let records = send::serve(sender, Arc::clone(&listener))?;
    stay(&arguments.life, &metrics, &listener, &waits, records)
}

/// A sender as the command line describes it.
pub(super) fn sender(arguments: &SendingArgs) -> Result<Sender, Error> {
    let peer = arguments.to.clone();
    let tls = if arguments.tls.insecure {
        warn_insecure();
        None
    } else {
        let host = || peer.host().map(str::to_owned);
        let name = arguments.tls_name.clone().or_else(host).ok_or_else(|| {
            Error::Refused("give --tls-name: a Unix socket has no host to check".into())
        })?;
        let files = TlsFiles::in_directory(&arguments.tls.tls_dir, "client");
        Some((files.client()?, name))
    };
    let candidates = match (arguments.candidates, arguments.ksm_pid) {
        (Some(CandidatesArg::All), _) | (None, None) => Candidates::All,
        (Some(CandidatesArg::Ksm), _) | (None, Some(_)) => Candidates::Ksm,
        (Some(CandidatesArg::Off), _) => Candidates::Off,
    };
    if let Some(pid) = arguments.ksm_pid {
        // An error is better now than in the middle of a migration.
        Ksm::open(pid)?;
    }
    let kept = arguments.kept.clone();
    let kept = kept.map(|directory| KeptIn { directory, label: arguments.keep.keep_name.clone() });
    Ok(Sender {
        peer,
        tls,
        scope: arguments.scope.as_deref().map(Scope::load).transpose()?,
        ask: arguments.ask.into(),
        candidates,
        ksm_pid: arguments.ksm_pid,
        at_once: arguments.at_once,
        delta_bytes: arguments.delta_cache,
        keep: keep(&arguments.keep),
        kept,
        compress: arguments.compress.into(),
        level: arguments.level,
        threads: threads(arguments.threads),
        downtime_limit: Duration::from_millis(arguments.downtime_limit.unwrap_or(DOWNTIME_LIMIT)),
        window: LARGEST,
        versions: arguments.wire.versions(),
        metrics: Metrics::of(&arguments.keep.keep_name),
    })
}

fn keep(arguments: &KeepArgs) -> Option<KeepIn> {
    arguments.keep.clone().map(|directory| KeepIn {
        directory,
        lifetime: Duration::from_secs(arguments.keep_for.saturating_mul(3600)),
        quota: arguments.keep_quota,
        label: arguments.keep_name.clone(),
    })
}

pub(super) fn receive(arguments: ReceiveArgs) -> Result<ExitCode, Error> {
    let tls = if arguments.tls.insecure {
        warn_insecure();
        None
    } else {
        let files = TlsFiles::in_directory(&arguments.tls.tls_dir, "server");
        Some(files.server(arguments.peer.clone())?)
    };
    let shelves = shelves(&arguments)?;
    let metrics = Metrics::of(&arguments.keep.keep_name);
    let receiver = Receiver {
        qemu: arguments.qemu,
        tls,
        qemu_pid: arguments.qemu_pid,
        shelves,
        keep: keep(&arguments.keep),
        recent_bytes: arguments.recent,
        window: LARGEST,
        versions: arguments.wire.versions(),
        metrics: metrics.clone(),
    };
    let listener = Arc::new(Listener::bind(&arguments.listen)?);
    if std::fs::read_to_string(USERFAULTFD).is_ok_and(|allowed| allowed.trim() == "0") {
        info!(
            "{USERFAULTFD} is 0: a QEMU that is not root's may refuse postcopy here, until it is 1"
        );
    }
    let at = listener.address();
    let waits = format!("waiting for senders at {at}, QEMU is at {}", receiver.qemu);
    let records = receive::serve(receiver, Arc::clone(&listener))?;
    stay(&arguments.life, &metrics, &listener, &waits, records)
}

/// The scopes that are served, each with what may be shared in it.
fn shelves(arguments: &ReceiveArgs) -> Result<Vec<(Scope, Arc<Shelf>)>, Error> {
    let scopes: Vec<Scope> =
        arguments.scope.iter().map(|path| Scope::load(path)).collect::<Result<_, _>>()?;
    let mut sources: Vec<Vec<SourceSpec>> = vec![Vec::new(); scopes.len()];
    let mut indexes: Vec<Option<PathBuf>> = vec![None; scopes.len()];
    for text in &arguments.source {
        let (at, source) = scoped(text, &scopes)?;
        sources[at].push(source.parse().map_err(Error::Refused)?);
    }
    for text in &arguments.index {
        let (at, path) = scoped(text, &scopes)?;
        if indexes[at].replace(path.into()).is_some() || !sources[at].is_empty() {
            let name = &scopes[at].name;
            return Err(Error::Refused(format!(
                "scope `{name}` takes one --index, or --source, not both"
            )));
        }
    }
    let mut shelves = Vec::new();
    for ((scope, sources), index) in scopes.into_iter().zip(sources).zip(indexes) {
        if shelves.iter().any(|(other, _): &(Scope, _)| other.name == scope.name) {
            return Err(Error::Refused(format!("two scopes have the name `{}`", scope.name)));
        }
        let kept = arguments.kept.clone();
        let shelf = if let Some(path) = index {
            Shelf::file(path, kept, &scope.key)?
        } else {
            let refresh = (arguments.refresh > 0 && !sources.is_empty())
                .then(|| Duration::from_secs(arguments.refresh));
            Shelf::scan(sources, kept, &scope.key, threads(arguments.threads), refresh)?
        };
        shelves.push((scope, shelf));
    }
    Ok(shelves)
}

/// Takes `NAME=` off the front of a source or index; returns the number of the scope. With one
/// scope nothing need be said.
fn scoped<'a>(text: &'a str, scopes: &[Scope]) -> Result<(usize, &'a str), Error> {
    let named = |scope: &Scope| {
        text.strip_prefix(scope.name.as_str()).and_then(|rest| rest.strip_prefix('='))
    };
    let said = scopes.iter().enumerate().find_map(|(at, scope)| Some((at, named(scope)?)));
    match said {
        Some(said) => Ok(said),
        None if scopes.len() == 1 => Ok((0, text)),
        None => {
            let names: Vec<&str> = scopes.iter().map(|scope| scope.name.as_str()).collect();
            Err(Error::Refused(format!(
                "`{text}`: say which scope may ask for it, NAME={text}, with one of {}",
                names.join(", ")
            )))
        }
    }
}

fn warn_insecure() {
    warn!(
        "--insecure: guest memory crosses the network readable, and anyone who can connect can \
         take part"
    );
}

/// Writes the records down until it is time to end; says that it `waits` once nothing is lacking for
/// that any more.
fn stay(
    life: &LifeArgs,
    metrics: &Metrics,
    listener: &Arc<Listener>,
    waits: &str,
    ended: impl IntoIterator<Item = Record>,
) -> Result<ExitCode, Error> {
    let served = life.metrics.as_ref().map(|address| metrics.serve(address)).transpose()?;
    if let Some(served) = &served {
        info!("metrics at {}", served.address());
    }
    let listeners: Vec<_> = [Arc::clone(listener)].into_iter().chain(served).collect();
    let at_end = move || listeners.iter().for_each(|listener| listener.remove());
    let at_signal = at_end.clone();
    // 130 is what a shell reports of a program that Ctrl-C has ended.
    signals::on_end(move || {
        at_signal();
        std::process::exit(130);
    })?;
    info!("{waits}");
    for record in ended {
        match &record.error {
            None => info!(
                "migration {} ended: {} stream bytes, {} bytes on the wire, {:.2} s",
                record.migration,
                record.counts.stream_bytes,
                record.counts.wire_sent.max(record.counts.wire_received),
                record.seconds
            ),
            Some(error) => warn!("migration {} failed: {error}", record.migration),
        }
        if let Some(path) = &life.record
            && let Err(error) = to_json(&record).and_then(|line| append(path, &line))
        {
            // Other migrations may be under way, and this one is as it is.
            warn!("{error}");
        }
        // To end would cut another one.
        if life.once && !metrics.is_busy() {
            at_end();
            let failed = record.error.is_some();
            return Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS });
        }
    }
    Err(Error::Refused("the thread that takes connections has failed".into()))
}

/// Adds a line to a file of records.
pub(super) fn append(path: &Path, record: &str) -> Result<(), Error> {
    let line = format!("{record}\n");
    let write = || {
        let mut file = std::fs::OpenOptions::new().append(true).create(true).open(path)?;
        let before = file.metadata()?.len();
        file.write_all(line.as_bytes()).inspect_err(|_| {
            // The next line would be one with what a full disk has taken of this.
            let _ = file.set_len(before);
        })
    };
    write().map_err(|error: std::io::Error| Error::File {
        what: "record",
        path: path.display().to_string(),
        reason: error.to_string(),
    })
}

/// As many as asked for, or one a core.
pub(super) fn threads(asked: usize) -> usize {
    match asked {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        threads => threads,
    }
}

impl WireArgs {
    fn versions(&self) -> Versions {
        self.wire_version.map_or(Versions::OURS, Versions::only)
    }
}

impl From<PolicyArg> for Policy {
    fn from(policy: PolicyArg) -> Self {
        match policy {
            PolicyArg::Adaptive => Self::Adaptive,
            PolicyArg::Always => Self::Always,
            PolicyArg::Never => Self::Never,
        }
    }
}
