//! Drives a migration through both QEMUs' monitors, so that at every moment at most one of them
//! may run the guest, and at the end exactly one does.
//!
//! The proxies alone cannot promise that: the destination may have loaded everything, and start,
//! before the source learns it, and the source may never learn it. So the driver takes the
//! destination's leave to start by itself (`stop` before the migration does that), and gives it
//! only when the source says that it has completed. Until then the source may take its guest back.
//!
//! If the driver dies, both guests stand still or the source runs; [`decide`] says, from what both
//! monitors report, what to do, as it does at the end of a migration that the driver survived.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::error::Error;
use crate::qmp::Qmp;

/// A destination that has every byte loads its devices well within this; until then it may not
/// answer.
pub const LOADING: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(50);

/// What one monitor says of its guest and of the migration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// QEMU's run state: `running`, `paused`, `postmigrate`, `inmigrate`, ...
    pub run_state: String,
    /// Status of the migration: `active`, `completed`, `failed`, ...; empty before the first.
    pub migration: String,
}

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Neither side has decided yet: look again.
    Wait,
    /// The source has handed its guest over: let the destination run.
    Start,
    /// The guest runs at the destination.
    Arrived,
    /// The source has its guest; the destination's QEMU is to end.
    Discard,
    /// As [`Action::Discard`], and then the source is to run again.
    TakeBack,
    /// The guest runs at the source, and there is no other.
    Stayed,
    /// What an operator must decide, in words.
    Ask(&'static str),
}

/// The one place where it is decided who runs. `destination` is nothing when its QEMU has ended.
#[must_use]
pub fn decide(source: &Seen, destination: Option<&Seen>) -> Action {
    let there = destination.map(|seen| seen.run_state.as_str());
    match (source.migration.as_str(), source.run_state.as_str()) {
        ("completed", "running") => Action::Ask(
            "the source has completed its migration and runs all the same: someone let it; end \
             the destination if it has not been let run",
        ),
        ("completed", _) => match there {
            Some("running") => Action::Arrived,
            Some("inmigrate" | "finish-migrate" | "restore-vm") => Action::Wait,
            Some(_) => Action::Start,
            None => Action::Ask(
                "the source has handed its guest over and the destination's monitor does not \
                 answer. If its QEMU has certainly ended, `cont` at the source's monitor takes \
                 the guest back, unharmed; if it may still run, that would run it twice",
            ),
        },
        ("" | "none" | "failed" | "cancelled", run_state) => match (run_state, there) {
            ("running", Some("running")) | (_, Some("running")) => Action::Ask(
                "the destination runs although the source did not complete its migration: \
                 someone let it; end one of the two by hand",
            ),
            // QEMU itself is about to let its guest run again.
            ("finish-migrate" | "save-vm", _) => Action::Wait,
            ("postmigrate", _) => Action::TakeBack,
            (_, Some(_)) => Action::Discard,
            (_, None) => Action::Stayed,
        },
        _ => Action::Wait,
    }
}

/// How a migration ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The guest is at the destination.
    Arrived,
    /// The guest is at the source, as before.
    Stayed,
}

/// Both monitors.
pub struct Driver {
    source: Qmp,
    /// Nothing once its QEMU has ended.
    destination: Option<Qmp>,
    /// When the source was first seen to have ended the migration, one way or the other.
    ended: Option<Instant>,
}

/// What QEMU reports of a running migration, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// RAM that is to travel.
    pub total: u64,
    /// RAM that still is, in this round.
    pub remaining: u64,
    /// Rounds over the guest's memory so far.
    pub rounds: u64,
    /// Milliseconds for which the guest stood still, once that is known.
    pub downtime: Option<u64>,
}

impl Driver {
    /// Takes both monitors; the destination's may be gone already.
    #[must_use]
    pub fn new(source: Qmp, destination: Option<Qmp>) -> Self {
        Self { source, destination, ended: None }
    }

    /// Makes both sides ready: the destination may not start by itself and awaits the migration
    /// at `incoming` (if it does not await it already), both use the return path, the guest
    /// may stand still for `downtime_limit` (or for as long as the source was told to let it).
    /// Returns that limit.
    ///
    /// # Errors
    /// If a side is not in a state to migrate, or their capabilities differ.
    pub fn prepare(
        &mut self,
        incoming: Option<&str>,
        downtime_limit: Option<Duration>,
    ) -> Result<Duration, Error> {
        let source = look(&mut self.source)?;
        let destination = self.destination()?;
        let there = look(destination)?;
        if there.run_state != "inmigrate" {
            return Err(Error::Refused(format!(
                "the destination QEMU is `{}` and awaits no migration: start it with -incoming \
                 defer",
                there.run_state
            )));
        }
        if !matches!(source.run_state.as_str(), "running" | "paused") {
            return Err(Error::Refused(format!(
                "the source QEMU is `{}`: only a guest that runs or is paused can migrate",
                source.run_state
            )));
        }
        // While QEMU awaits a migration, `stop` only takes its leave to start by itself.
        destination.execute("stop", &json!({}))?;
        let on = json!({"capabilities": [{"capability": "return-path", "state": true}]});
        destination.execute("migrate-set-capabilities", &on)?;
        self.source.execute("migrate-set-capabilities", &on)?;
        let (here, there) = (capabilities(&mut self.source)?, capabilities(self.destination()?)?);
        for name in ["multifd", "xbzrle", "postcopy-ram", "x-ignore-shared", "compress"] {
            if has(&here, name) != has(&there, name) {
                return Err(Error::Refused(format!(
                    "capability `{name}` is on at one QEMU and off at the other; set both alike"
                )));
            }
        }
        if let Some(limit) = downtime_limit {
            // QEMU takes whole milliseconds.
            let ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
            self.source.execute("migrate-set-parameters", &json!({"downtime-limit": ms}))?;
        }
        let parameters = self.source.execute("query-migrate-parameters", &json!({}))?;
        let limit = parameters["downtime-limit"].as_u64().unwrap_or_default();
        if let Some(uri) = incoming {
            self.destination()?.execute("migrate-incoming", &json!({"uri": uri}))?;
        }
        Ok(Duration::from_millis(limit))
    }

    /// Has the source begin to migrate to `uri`.
    ///
    /// # Errors
    /// If it refuses.
    pub fn start(&mut self, uri: &str) -> Result<(), Error> {
        self.source.execute("migrate", &json!({"uri": uri})).map(drop)
    }

    /// Has the source give up, if it has not completed.
    ///
    /// # Errors
    /// If its monitor is gone.
    pub fn cancel(&mut self) -> Result<(), Error> {
        self.source.execute("migrate_cancel", &json!({})).map(drop)
    }

    /// Follows the migration to its end and sees to it that one guest runs.
    ///
    /// # Errors
    /// As [`Driver::step`].
    pub fn finish(&mut self) -> Result<Outcome, Error> {
        loop {
            if let Some(outcome) = self.step(|_| {})? {
                return Ok(outcome);
            }
        }
    }

    /// Looks at both sides once and does what is to be done; nothing while neither has decided.
    ///
    /// # Errors
    /// If the source's monitor is gone, or an operator must decide.
    pub fn step(&mut self, report: impl FnOnce(Progress)) -> Result<Option<Outcome>, Error> {
        // The destination first: what the source says after that cannot be older.
        let there = self.look_at_destination();
        let info = self.source.execute("query-migrate", &json!({}))?;
        report(progress(&info));
        let source = Seen {
            run_state: self.source.run_state()?,
            migration: info["status"].as_str().unwrap_or_default().to_owned(),
        };
        match decide(&source, there.as_ref()) {
            Action::Wait => self.wait(&source)?,
            Action::Start => drop(self.destination()?.execute("cont", &json!({}))?),
            Action::Arrived => return Ok(Some(Outcome::Arrived)),
            Action::Stayed => return Ok(Some(Outcome::Stayed)),
            Action::Discard => self.discard(),
            Action::TakeBack => {
                self.discard();
                self.source.execute("cont", &json!({}))?;
            }
            Action::Ask(words) => return Err(Error::Refused(words.to_owned())),
        }
        Ok(None)
    }

    fn wait(&mut self, source: &Seen) -> Result<(), Error> {
        // A migration may take as long as it likes; what comes behind it may not.
        if !matches!(source.migration.as_str(), "setup" | "active") {
            let since = self.ended.get_or_insert_with(Instant::now);
            if since.elapsed() > LOADING {
                return Err(Error::Refused(format!(
                    "the migration is `{}` for {} s and its guest does not run yet; look at \
                     both QEMUs' logs, then `pageshare migrate --resume` goes on",
                    source.migration,
                    LOADING.as_secs()
                )));
            }
        }
        std::thread::sleep(POLL);
        Ok(())
    }

    /// Ends the destination's QEMU, whose guest nobody may run any more.
    fn discard(&mut self) {
        if let Some(mut destination) = self.destination.take() {
            // It ends while it answers, or has ended by itself.
            let _ = destination.execute("quit", &json!({}));
        }
    }

    fn look_at_destination(&mut self) -> Option<Seen> {
        let seen = self.destination.as_mut().and_then(|qmp| look(qmp).ok());
        if seen.is_none() {
            self.destination = None;
        }
        seen
    }

    fn destination(&mut self) -> Result<&mut Qmp, Error> {
        self.destination.as_mut().ok_or(Error::Closed { what: "the destination QEMU's monitor" })
    }
}

fn look(qmp: &mut Qmp) -> Result<Seen, Error> {
    let info = qmp.execute("query-migrate", &json!({}))?;
    let migration = info["status"].as_str().unwrap_or_default().to_owned();
    Ok(Seen { run_state: qmp.run_state()?, migration })
}

fn capabilities(qmp: &mut Qmp) -> Result<Value, Error> {
    qmp.execute("query-migrate-capabilities", &json!({}))
}

fn has(capabilities: &Value, name: &str) -> bool {
    let list = capabilities.as_array().map(Vec::as_slice).unwrap_or_default();
    list.iter().any(|entry| entry["capability"] == name && entry["state"] == true)
}

fn progress(info: &Value) -> Progress {
    let ram = &info["ram"];
    let number = |name: &str| ram[name].as_u64().unwrap_or_default();
    Progress {
        total: number("total"),
        remaining: number("remaining"),
        rounds: number("dirty-sync-count"),
        downtime: info["downtime"].as_u64(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(run_state: &str, migration: &str) -> Seen {
        Seen { run_state: run_state.into(), migration: migration.into() }
    }

    const RUN_STATES: [&str; 8] = [
        "running",
        "paused",
        "postmigrate",
        "inmigrate",
        "finish-migrate",
        "prelaunch",
        "internal-error",
        "shutdown",
    ];
    const STATUSES: [&str; 8] =
        ["", "setup", "active", "device", "completed", "failed", "cancelled", "cancelling"];

    #[test]
    fn the_destination_is_let_run_only_when_the_source_has_completed_and_stands_still() {
        for here in RUN_STATES {
            for status in STATUSES {
                for there in RUN_STATES {
                    let source = seen(here, status);
                    if decide(&source, Some(&seen(there, ""))) == Action::Start {
                        assert_eq!(status, "completed");
                        assert_ne!(here, "running");
                    }
                }
            }
        }
    }

    #[test]
    fn the_source_is_let_run_only_when_it_has_failed_and_the_destination_does_not_run() {
        for here in RUN_STATES {
            for status in STATUSES {
                for there in RUN_STATES.map(Some).into_iter().chain([None]) {
                    let there = there.map(|there| seen(there, ""));
                    if decide(&seen(here, status), there.as_ref()) == Action::TakeBack {
                        assert!(matches!(status, "" | "failed" | "cancelled"), "{status}");
                        assert_ne!(there.map(|there| there.run_state), Some("running".into()));
                    }
                }
            }
        }
    }

    #[test]
    fn a_guest_that_was_handed_over_and_lost_is_left_to_the_operator() {
        let source = seen("postmigrate", "completed");
        assert!(matches!(decide(&source, None), Action::Ask(_)));
    }
}
