//! `pageshare migrate`.

use std::io::ErrorKind;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use tracing::{info, warn};

use super::args::MigrateArgs;
use super::proxies::{append, sender};
use super::summary::{Ended, fate};
use super::{parting, to_json};
use crate::address::{Address, NoAddress};
use crate::drive::{Driver, LOADING, Loss, Outcome, Progress};
use crate::error::Error;
use crate::handshake::random;
use crate::qmp::Qmp;
use crate::send;
use crate::signals;
use crate::socket::Listener;

pub(super) fn run(arguments: &MigrateArgs) -> Result<ExitCode, Error> {
    let mut source = Qmp::connect("the source QEMU's monitor", &arguments.vm, LOADING)?;
    let name = source.execute("query-name", &json!({}))?;
    let stop = Arc::new(AtomicBool::new(false));
    let mut driver = Driver::new(source, arguments.to_qmp.clone(), Arc::clone(&stop))?;
    if arguments.resume {
        return driver.resume().map(|outcome| say(&outcome));
    }
    let mut sender = sender(&arguments.sending)?;
    let labels = [
        sender.keep.as_mut().map(|keep| &mut keep.label),
        sender.kept.as_mut().map(|kept| &mut kept.label),
    ];
    for label in labels.into_iter().flatten().filter(|label| label.is_empty()) {
        name["name"].as_str().unwrap_or_default().clone_into(label);
    }
    sender.greet()?;
    // Before there is anything to be cleared away.
    let at_signal = Arc::clone(&stop);
    signals::on_end(move || at_signal.store(true, Ordering::SeqCst))?;
    let mut place = Place::new(arguments.listen.clone())?;
    let listener = place.listen()?;
    let limit = arguments.sending.downtime_limit.map(Duration::from_millis);
    sender.downtime_limit = driver.prepare(arguments.incoming.as_deref(), limit)?;
    let (metrics, keeps) = (sender.metrics.clone(), sender.keep.is_some());
    let records = send::serve(sender, Arc::clone(&listener))?;
    driver.start(&listener.address().to_string()).map_err(|error| match error {
        Error::Refused(_) => error,
        unknown => unfinished(unknown),
    })?;
    let begin = Instant::now();
    let Followed { outcome, last, cancelled } = follow(&mut driver, &stop).map_err(unfinished)?;
    let seconds = begin.elapsed().as_secs_f64();
    let stayed = matches!(outcome, Outcome::Stayed(_));
    let qemu_error = if stayed { driver.qemu_error() } else { None };
    drop(place);
    let code = say(&outcome);
    let record = parting::record(&records, &metrics, keeps, &stop);
    let ended =
        Ended { outcome: &outcome, last, seconds, record: record.as_ref(), error: qemu_error };
    // Who has closed our output does not want it.
    let _ = super::say(&ended.table());
    if let Some(path) = &arguments.record {
        let whole = json!({
            "version": 1,
            "outcome": if stayed { "stayed" } else { "arrived" },
            "cancelled": cancelled,
            "seconds": seconds,
            "downtime_ms": last.downtime,
            "rounds": last.rounds,
            "qemu_error": ended.error,
            "proxy": record,
        });
        if let Err(error) = to_json(&whole).and_then(|line| append(path, &line)) {
            // The exit code says where the guest is.
            warn!("{error}");
        }
    }
    Ok(code)
}

/// A migration that was followed to its end.
struct Followed {
    outcome: Outcome,
    last: Progress,
    /// By the operator.
    cancelled: bool,
}

fn follow(driver: &mut Driver, stop: &AtomicBool) -> Result<Followed, Error> {
    let bar = bar();
    let mut last = Progress::default();
    let mut cancelled = false;
    let outcome = loop {
        let step = driver.step(|progress| {
            last = progress;
            bar.set_length(progress.total);
            bar.set_position(progress.total.saturating_sub(progress.remaining));
            bar.set_message(format!("round {}", progress.rounds.max(1)));
        })?;
        if let Some(outcome) = step {
            break outcome;
        }
        if stop.swap(false, Ordering::SeqCst) && !cancelled {
            cancelled = driver.cancel()?;
            if !cancelled {
                warn!("nothing can be cancelled any more: the transfer is over, or is postcopy's");
            }
        }
    };
    bar.finish_and_clear();
    Ok(Followed { outcome, last, cancelled })
}

/// What stopped us after QEMU was told to migrate, and what to do about that.
fn unfinished(error: Error) -> Error {
    Error::Refused(format!(
        "{error}; when that is mended, the same command with --resume finishes what has begun"
    ))
}

fn say(outcome: &Outcome) -> ExitCode {
    info!("the guest {}", fate(outcome));
    let Outcome::Stayed(destination) = outcome else { return ExitCode::SUCCESS };
    match destination {
        Loss::Ended => info!("the destination's QEMU has been ended"),
        Loss::Refused => info!(
            "nobody listens at the destination's monitor: its QEMU has ended, unless only the \
             tunnel that led there has"
        ),
        Loss::Silent => {
            warn!(
                "the destination's QEMU does not answer: end it, and do not let it run; or, when it \
                 answers again, the same command with --resume ends it"
            );
        }
    }
    ExitCode::FAILURE
}

/// Where the source QEMU finds the proxy: as told, or a socket in a fresh private directory. Both
/// are removed when the migration is over, or does not begin.
struct Place {
    address: Address,
    directory: Option<std::path::PathBuf>,
    listener: Option<Arc<Listener>>,
}

impl Place {
    fn new(told: Option<Address>) -> Result<Self, Error> {
        use std::os::unix::fs::DirBuilderExt;
        if let Some(told) = told {
            let address = match told {
                Address::Unix(path) => socket_at(&path)?,
                tcp @ Address::Tcp(_) => tcp,
            };
            return Ok(Self { address, directory: None, listener: None });
        }
        // Whoever was killed left his, and anybody may have made one.
        loop {
            let name = format!("pageshare-{:016x}", u64::from_be_bytes(random()?));
            let directory = std::env::temp_dir().join(name);
            let address = socket_at(&directory.join("migrate"))?;
            match std::fs::DirBuilder::new().mode(0o700).create(&directory) {
                Ok(()) => {
                    return Ok(Self { address, directory: Some(directory), listener: None });
                }
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => {
                    return Err(Error::File {
                        what: "directory",
                        path: directory.display().to_string(),
                        reason: error.to_string(),
                    });
                }
            }
        }
    }

    fn listen(&mut self) -> Result<Arc<Listener>, Error> {
        let listener = Arc::new(Listener::bind(&self.address)?);
        self.listener = Some(Arc::clone(&listener));
        Ok(listener)
    }
}

/// The address of a socket, the same for a QEMU that was started in another directory.
fn socket_at(path: &Path) -> Result<Address, Error> {
    let refused = |error: &dyn std::fmt::Display| {
        Error::Refused(format!("{error}; say another with --listen, or with TMPDIR"))
    };
    let path = std::path::absolute(path).map_err(|error| refused(&error))?;
    format!("unix:{}", path.display()).parse().map_err(|error: NoAddress| refused(&error))
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(listener) = &self.listener {
            listener.remove();
        }
        if let Some(directory) = &self.directory {
            // Someone may have removed it before us.
            let _ = std::fs::remove_dir_all(directory);
        }
    }
}

fn bar() -> ProgressBar {
    let bar = ProgressBar::new(0);
    let style = "{bar:30} {bytes}/{total_bytes} of guest memory, {msg}, {elapsed}";
    if let Ok(style) = ProgressStyle::with_template(style) {
        bar.set_style(style);
    }
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_command_left_does_not_block_the_next() {
        // Both are of one process, as two commands are whose numbers repeat.
        let [one, next] = [Place::new(None), Place::new(None)].map(Result::unwrap);
        assert_ne!(one.address, next.address);
    }

    #[test]
    fn a_place_is_the_same_from_every_directory() {
        let place = Place::new(Some(Address::Unix("out".into()))).unwrap();
        let out = std::env::current_dir().unwrap().join("out");
        assert_eq!(place.address, Address::Unix(out));
        let tcp: Address = "tcp:127.0.0.1:1".parse().unwrap();
        assert_eq!(Place::new(Some(tcp.clone())).unwrap().address, tcp);
    }
}
