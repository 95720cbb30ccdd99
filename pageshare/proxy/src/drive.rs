//! Drives a migration through both QEMUs' monitors, so that at every moment at most one of them
//! may run the guest, and at the end exactly one does.
//!
//! The proxies alone cannot promise that: the destination may have loaded everything, and start,
//! before the source learns it, and the source may never learn it. So the driver takes the
//! destination's leave to start by itself (`stop` before the migration does that), and gives it
//! only when the source says that it has handed its guest over: it has completed, or postcopy has
//! begun. Until then the source may take its guest back, and does if the destination's monitor is
//! lost: nobody could let the destination run.
//!
//! If the driver dies, both guests stand still or the source runs; [`decide()`] says, from what both
//! monitors report, what to do, as it does at the end of a migration that the driver survived.

mod decide;
mod destination;
mod mark;
mod ready;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tracing::warn;

pub use decide::{Action, Loss, Outcome, Seen, There, decide};

use crate::address::Address;
use crate::error::Error;
use crate::qmp::Qmp;
use decide::{can_be_cancelled, has_switched, may_be_loading, takes_its_time};
use destination::{Destination, GONE};
use mark::Mark;

/// A destination that has every byte loads its devices well within this; until then it may not
/// answer.
pub const LOADING: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(50);
/// While the guest runs nowhere.
const SHORT_POLL: Duration = Duration::from_millis(2);

/// Both monitors.
pub struct Driver {
    source: Qmp,
    destination: Destination,
    /// Its operator has paused the guest.
    paused: bool,
    /// Postcopy has begun, and the guest has run at the destination.
    ran_there: bool,
    /// For which QEMU may let the guest stand still.
    downtime_limit: Duration,
    /// The source's migration status, and since when it is that.
    status: (String, Instant),
    /// Its operator wants the migration cancelled.
    stop: Arc<AtomicBool>,
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
    /// Takes the source's monitor, and where to find the destination's, which may be gone already.
    /// As soon as `stop` is true it is not waited for while the source can keep its guest.
    ///
    /// # Errors
    /// If the source does not answer.
    pub fn new(
        mut source: Qmp,
        destination: Address,
        stop: Arc<AtomicBool>,
    ) -> Result<Self, Error> {
        let parameters = source.execute("query-migrate-parameters", &json!({}))?;
        let limit = parameters["downtime-limit"].as_u64().unwrap_or_default();
        let mut driver = Self {
            source,
            destination: Destination::new(destination, LOADING),
            paused: false,
            ran_there: false,
            downtime_limit: Duration::from_millis(limit),
            status: (String::new(), Instant::now()),
            stop,
        };
        driver.be_patient()?;
        Ok(driver)
    }

    /// Has the source give up, if it still has the guest; returns whether it has been told to.
    ///
    /// # Errors
    /// If its monitor is gone.
    pub fn cancel(&mut self) -> Result<bool, Error> {
        let still = can_be_cancelled(&look(&mut self.source)?.migration);
        if still {
            self.source.execute("migrate_cancel", &json!({}))?;
        }
        Ok(still)
    }

    /// Why the source has given up a migration, if it says.
    pub fn qemu_error(&mut self) -> Option<String> {
        let info = self.source.execute("query-migrate", &json!({})).ok()?;
        info["error-desc"].as_str().map(str::to_owned)
    }

    /// Finishes what a driver left that was killed, and sees to it that one guest runs.
    ///
    /// # Errors
    /// If no driver has begun anything at the source, or another QEMU than it began with is at the
    /// destination's address; and as [`Driver::step`].
    pub fn resume(&mut self) -> Result<Outcome, Error> {
        let source = look(&mut self.source)?;
        let gone = source.migration == "completed" && source.run_state == "postmigrate";
        let mark = match Mark::of(&mut self.source)? {
            Some(mark) if mark != Mark::arrived() => mark,
            Some(_) if gone => return Ok(Outcome::Arrived { run_state: String::new() }),
            _ => {
                return Err(Error::Refused(
                    "there is nothing to resume: `pageshare migrate` has not begun to migrate the \
                     guest of the source QEMU, or has finished that. Nothing was done to either QEMU"
                        .into(),
                ));
            }
        };
        self.destination.is_known_by(mark);
        if let Err(stranger @ Error::Refused(_)) = self.destination.ask(look) {
            return Err(stranger);
        }
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
        let (source, stop) = (&mut self.source, &self.stop);
        // One that is silent while the source can keep its guest, or has kept it, is as good as gone;
        // one that has all of it may be loading its devices.
        let there = self.destination.look(&mut |waited| {
            let wants = waited <= GONE && !stop.load(Ordering::SeqCst);
            wants
                || source
                    .execute("query-migrate", &json!({}))
                    .is_ok_and(|info| may_be_loading(&status(&info)))
        });
        let info = self.source.execute("query-migrate", &json!({}))?;
        report(progress(&info));
        let source = Seen { run_state: self.source.run_state()?, migration: status(&info) };
        if can_be_cancelled(&source.migration) {
            // Its operator may pause it, and let it run again, until it is handed over.
            match source.run_state.as_str() {
                "paused" => self.paused = true,
                "running" | "suspended" => self.paused = false,
                _ => {}
            }
        }
        if let (true, There::Seen(seen)) = (has_switched(&source.migration), &there) {
            // And then the one at the destination may.
            match seen.run_state.as_str() {
                "running" | "suspended" => (self.ran_there, self.paused) = (true, false),
                "paused" if self.ran_there => self.paused = true,
                _ => {}
            }
        }
        match decide(&source, &there, self.paused) {
            Action::Wait => {}
            Action::Cancel => self.give_up("the destination's monitor does not come back")?,
            Action::Start => self.let_run()?,
            Action::Discard => self.destination.discard(),
            Action::TakeBack => drop(self.source.execute("cont", &json!({}))?),
            Action::End(outcome) => {
                self.forget(&outcome);
                return Ok(Some(outcome));
            }
            Action::Ask(words) => return Err(Error::Refused(words)),
        }
        self.wait(&source)?;
        Ok(None)
    }

    /// Nothing is left to be resumed.
    fn forget(&mut self, outcome: &Outcome) {
        // Whoever is gone needs no mark taken away.
        match outcome {
            // It may yet be reached and told to end.
            Outcome::Stayed(Loss::Silent) => return,
            Outcome::Stayed(_) => {}
            Outcome::Arrived { .. } => {
                drop(self.destination.ask(Mark::remove_from));
                return drop(Mark::arrived().leave_in(&mut self.source));
            }
        }
        drop(Mark::remove_from(&mut self.source));
    }

    /// Sleeps until it is worth looking again. A migration may take as long as it likes; what comes
    /// behind it may not.
    fn wait(&mut self, source: &Seen) -> Result<(), Error> {
        let status = source.migration.as_str();
        if self.status.0 != status {
            self.status = (status.to_owned(), Instant::now());
        }
        let limit = self.limit();
        if !takes_its_time(status) && self.status.1.elapsed() > limit {
            let why = format!("the migration is `{status}` for {} s", limit.as_secs());
            if !can_be_cancelled(status) {
                return Err(Error::Refused(format!(
                    "{why} and its guest does not run yet; look at both QEMUs' logs"
                )));
            }
            self.give_up(&why)?;
            self.status.1 = Instant::now();
        }
        let left = matches!(source.run_state.as_str(), "finish-migrate" | "postmigrate");
        std::thread::sleep(if left && !self.ran_there { SHORT_POLL } else { POLL });
        Ok(())
    }

    /// Has the source keep its guest. What becomes of that, its status shows.
    fn give_up(&mut self, why: &str) -> Result<(), Error> {
        if self.cancel()? {
            warn!("{why}: the migration is cancelled, so that the guest stays at the source");
        }
        Ok(())
    }

    /// Lets the destination run. If the word is lost on its way, the next look shows whether it does.
    fn let_run(&mut self) -> Result<(), Error> {
        match self.destination.execute("cont", &json!({})) {
            Err(refused @ Error::Refused(_)) => Err(refused),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// How long may take what is not the transfer: the last of the guest's memory, and loading.
    fn limit(&self) -> Duration {
        LOADING + self.downtime_limit
    }

    fn be_patient(&mut self) -> Result<(), Error> {
        let limit = self.limit();
        self.source.be_patient(limit)?;
        self.destination.be_patient(limit)
    }
}

fn look(qmp: &mut Qmp) -> Result<Seen, Error> {
    look_while(qmp, &mut |_| true)
}

/// What a monitor says, if it answers before `waits` says not to wait on.
fn look_while(qmp: &mut Qmp, waits: &mut dyn FnMut(Duration) -> bool) -> Result<Seen, Error> {
    let info = qmp.execute_while("query-migrate", &json!({}), waits)?;
    Ok(Seen { run_state: qmp.run_state_while(waits)?, migration: status(&info) })
}

/// The status of the migration away from a QEMU. One that a guest has come to says `completed` of
/// that until another migration begins, but neither how long it took nor what travelled.
fn status(info: &Value) -> String {
    let status = info["status"].as_str().unwrap_or_default();
    let came = status == "completed" && info["total-time"].is_null() && info["ram"].is_null();
    if came { String::new() } else { status.to_owned() }
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

    #[test]
    fn a_guest_that_has_come_is_not_taken_for_one_that_has_gone() {
        let came = json!({"status": "completed", "socket-address": []});
        assert_eq!(status(&came), "");
        let gone = json!({"status": "completed", "total-time": 900, "ram": {"total": 1}});
        assert_eq!(status(&gone), "completed");
        assert_eq!(status(&json!({"status": "failed"})), "failed");
    }
}
