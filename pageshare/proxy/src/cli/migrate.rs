//! `pageshare migrate`.

use std::io::ErrorKind;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
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
use crate::record::Record;
use crate::send;
use crate::signals;
use crate::socket::Listener;

pub(super) fn run(arguments: &MigrateArgs) -> Result<ExitCode, Error> {
    let mut source = Qmp::connect("the source QEMU's monitor", &arguments.vm, LOADING)?;
    let name = source.execute("query-name", &json!({}))?;
    let stop = Arc::new(AtomicBool::new(false));
    let mut driver = Driver::new(source, arguments.to_qmp.clone(), Arc::clone(&stop))?;
    if arguments.resume {
        let outcome = Ok(driver.resume()?);
        Line::of(&outcome).append_to(arguments.record.as_deref());
        return outcome.map(|outcome| say(&outcome));
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
    let (to, begin) = (listener.address().to_string(), Instant::now());
    let Followed { outcome, last, cancelled } = match driver.start(&to) {
        Ok(()) => follow(&mut driver, &stop),
        Err(refused @ Error::Refused(_)) => return Err(refused),
        Err(unknown) => {
            Followed { outcome: Err(unknown), last: Progress::default(), cancelled: false }
        }
    };
    let (outcome, seconds) = (outcome.map_err(unfinished), begin.elapsed().as_secs_f64());
    let mut line = Line {
        cancelled: Some(cancelled),
        seconds: Some(seconds),
        downtime_ms: last.downtime,
        rounds: Some(last.rounds),
        ..Line::of(&outcome)
    };
    let code = outcome.map(|outcome| {
        if let Outcome::Stayed(_) = outcome {
            line.qemu_error = driver.qemu_error();
        }
        drop(place);
        let code = say(&outcome);
        line.proxy = parting::record(&records, &metrics, keeps, &stop);
        let (record, error) = (line.proxy.as_ref(), line.qemu_error.clone());
        let ended = Ended { outcome: &outcome, last, seconds, record, error };
        // Who has closed our output does not want it.
        let _ = super::say(&ended.table());
        code
    });
    if code.is_err() {
        // Who is to decide does not wait for the rest of it.
        let so_far = || Some(metrics.under_way()?.record());
        line.proxy = records.try_recv().ok().or_else(so_far);
    }
    line.append_to(arguments.record.as_deref());
    code
}

/// What is written down of a migration. Null is what does not apply, or what a killed program took along.
#[derive(Default, Serialize)]
struct Line {
    version: u32,
    outcome: &'static str,
    /// Why an operator must decide.
    error: Option<String>,
    cancelled: Option<bool>,
    seconds: Option<f64>,
    downtime_ms: Option<u64>,
    rounds: Option<u64>,
    qemu_error: Option<String>,
    proxy: Option<Record>,
}

impl Line {
    fn of(outcome: &Result<Outcome, Error>) -> Self {
        let (outcome, error) = match outcome {
            Ok(Outcome::Arrived { .. }) => ("arrived", None),
            Ok(Outcome::Stayed(_)) => ("stayed", None),
            Err(error) => ("undecided", Some(error.to_string())),
        };
        Self { version: 1, outcome, error, ..Self::default() }
    }

    fn append_to(&self, file: Option<&Path>) {
        let Some(file) = file else { return };
        if let Err(error) = to_json(self).and_then(|line| append(file, &line)) {
            // The exit code says where the guest is.
            warn!("{error}");
        }
    }
}

/// A migration that was followed to its end, or to where an operator must decide.
struct Followed {
    outcome: Result<Outcome, Error>,
    last: Progress,
    /// By the operator.
    cancelled: bool,
}

fn follow(driver: &mut Driver, stop: &AtomicBool) -> Followed {
    let bar = bar();
    let mut last = Progress::default();
    let mut cancelled = false;
    let outcome = loop {
        let step = driver.step(|progress| {
            last = progress;
            bar.set_length(progress.total);
            bar.set_position(progress.total.saturating_sub(progress.remaining));
            bar.set_message(format!("round {}", progress.rounds.max(1)));
        });
        if let Some(outcome) = step.transpose() {
            break outcome;
        }
        if stop.swap(false, Ordering::SeqCst) && !cancelled {
            cancelled = match driver.cancel() {
                Ok(told) => told,
                Err(error) => break Err(error),
            };
            if !cancelled {
                warn!("nothing can be cancelled any more: the transfer is over, or is postcopy's");
            }
        }
    };
    bar.finish_and_clear();
    Followed { outcome, last, cancelled }
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
