//! `pageshare send` and `pageshare receive`.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use pageshare_wire::adaptive::Policy;
use pageshare_wire::window::LARGEST;
use tracing::{info, warn};

use super::args::{LifeArgs, PolicyArg, ReceiveArgs, SendArgs, SendingArgs};
use super::to_json;
use crate::error::Error;
use crate::ksm::Ksm;
use crate::link::TlsFiles;
use crate::metrics::Metrics;
use crate::receive::{self, Receiver, Shelf};
use crate::record::Record;
use crate::scope::Scope;
use crate::send::{self, Sender};
use crate::socket::Listener;

pub(super) fn send(arguments: &SendArgs) -> Result<ExitCode, Error> {
    let sender = sender(&arguments.sending)?;
    let listener = Arc::new(Listener::bind(&arguments.listen)?);
    info!("waiting for QEMU at {}, sending to {}", listener.address(), sender.peer);
    let records = send::serve(sender, Arc::clone(&listener))?;
    stay(&arguments.life, &listener, &records)
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
    Ok(Sender {
        peer,
        tls,
        scope: arguments.scope.as_deref().map(Scope::load).transpose()?,
        ask: arguments.ask.into(),
        ksm: arguments.ksm_pid.map(Ksm::open).transpose()?,
        compress: arguments.compress.into(),
        level: arguments.level,
        threads: threads(arguments.threads),
        downtime_limit: Duration::from_millis(arguments.downtime_limit),
        window: LARGEST,
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
    let scope = arguments.scope.as_deref().map(Scope::load).transpose()?;
    let shelf = scope.map(|scope| shelf(&arguments, &scope).map(|shelf| (scope, shelf)));
    let receiver = Receiver {
        qemu: arguments.qemu,
        tls,
        shelf: shelf.transpose()?,
        recent_bytes: arguments.recent << 20,
        window: LARGEST,
    };
    let listener = Arc::new(Listener::bind(&arguments.listen)?);
    info!("waiting for senders at {}, QEMU is at {}", listener.address(), receiver.qemu);
    let records = receive::serve(receiver, Arc::clone(&listener));
    stay(&arguments.life, &listener, &records)
}

fn shelf(arguments: &ReceiveArgs, scope: &Scope) -> Result<Arc<Shelf>, Error> {
    let key = scope.key.hash_key();
    match &arguments.index {
        Some(path) => Shelf::file(path.clone(), key),
        None => {
            let refresh = (arguments.refresh > 0 && !arguments.source.is_empty())
                .then(|| Duration::from_secs(arguments.refresh));
            Shelf::scan(arguments.source.clone(), key, threads(arguments.threads), refresh)
        }
    }
}

fn warn_insecure() {
    warn!(
        "--insecure: guest memory crosses the network readable, and anyone who can connect can \
         take part"
    );
}

/// Writes the records down until it is time to end.
fn stay(
    life: &LifeArgs,
    listener: &Arc<Listener>,
    records: &mpsc::Receiver<Record>,
) -> Result<ExitCode, Error> {
    let metrics = Metrics::default();
    if let Some(address) = &life.metrics {
        info!("metrics at {}", metrics.serve(address)?);
    }
    let at_signal = Arc::clone(listener);
    // 130 is what a shell reports of a program that Ctrl-C has ended.
    ctrlc::set_handler(move || {
        at_signal.remove();
        std::process::exit(130);
    })
    .map_err(|error| Error::Refused(format!("cannot catch signals: {error}")))?;
    for record in records {
        match &record.error {
            None => info!(
                "migration {} ended: {} stream bytes, {} bytes on the wire, {:.2} s",
                record.migration,
                record.stream_bytes,
                record.wire_sent.max(record.wire_received),
                record.seconds
            ),
            Some(error) => warn!("migration {} failed: {error}", record.migration),
        }
        metrics.add(&record);
        if let Some(path) = &life.record {
            append(path, &to_json(&record)?)?;
        }
        if life.once {
            listener.remove();
            let failed = record.error.is_some();
            return Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS });
        }
    }
    Err(Error::Refused("the listening socket failed".into()))
}

/// Adds a line to a file of records.
pub(super) fn append(path: &Path, record: &str) -> Result<(), Error> {
    let line = format!("{record}\n");
    let write = || {
        let mut file = std::fs::OpenOptions::new().append(true).create(true).open(path)?;
        file.write_all(line.as_bytes())
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

impl From<PolicyArg> for Policy {
    fn from(policy: PolicyArg) -> Self {
        match policy {
            PolicyArg::Adaptive => Self::Adaptive,
            PolicyArg::Always => Self::Always,
            PolicyArg::Never => Self::Never,
        }
    }
}
