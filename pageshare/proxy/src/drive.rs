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
mod monitor;
mod ready;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tracing::{info, warn};

pub use decide::{Action, Loss, Outcome, Seen, There, decide};

use crate::address::Address;
use crate::error::Error;
use crate::qmp::Qmp;
use decide::{can_be_cancelled, has_switched, may_be_loading, takes_its_time};
use destination::Destination;
use mark::{Mark, has_noted_arrival, may_have_run_there, note_arrival, note_ran_there};
use monitor::Monitor;

/// A destination that has every byte loads its devices well within this; until then it may not
/// answer.
pub const LOADING: Duration = Duration::from_secs(60);
/// A way to a monitor that has not come back within this does not come back by itself.
const GONE: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(50);
/// While the guest runs nowhere.
const SHORT_POLL: Duration = Duration::from_millis(2);

/// Both monitors.
pub struct Driver {
    source: Monitor,
    /// Since when the source cannot be asked.
    lost: Option<Instant>,
    destination: Destination,
    /// Its operator has paused the guest.
    paused: bool,
    /// Postcopy has begun, and the guest has run at the destination.
    ran_there: bool,
    /// This driver has seen it run there: if it stands still now, its operator has paused it.
    seen_there: bool,
    /// Another driver has begun, and has not noted whether the guest may have run at the destination.
    guesses: bool,
    /// For which QEMU may let the guest stand still.
    downtime_limit: Duration,
    /// The source's migration status, and since when it is that.
    status: (String, Instant),
    /// Why the destination does not let the guest run yet.
    refusal: Option<String>,
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
        let (here, address) = (("the source QEMU's monitor", "leaves"), source.address().clone());
        let mut driver = Self {
            source: Monitor::new(here, address, Some(source), LOADING),
            lost: None,
            destination: Destination::new(destination, LOADING),
            paused: false,
            ran_there: false,
            seen_there: false,
            guesses: false,
            downtime_limit: Duration::from_millis(limit),
            status: (String::new(), Instant::now()),
            refusal: None,
            stop,
        };
        driver.be_patient()?;
        Ok(driver)
    }

    /// Has the source give up, if it still has the guest; returns whether it has been told to.
    ///
    /// # Errors
    /// If its monitor is gone, and postcopy has not begun.
    pub fn cancel(&mut self) -> Result<bool, Error> {
        if has_switched(&self.status.0) {
            return Ok(false);
        }
        if !can_be_cancelled(&self.source.ask(look)?.migration) {
            return Ok(false);
        }
        match self.source.execute("migrate_cancel", &json!({})) {
            // Postcopy has begun meanwhile.
            Err(Error::Refused(_)) => Ok(false),
            told => told.map(|_| true),
        }
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
        let source = self.source.ask(look)?;
        let gone = source.migration == "completed" && source.run_state == "postmigrate";
        let mark = self.source.ask(Mark::of)?;
        if let Some(mark) = &mark {
            self.source.is_known_by(mark.clone());
            self.destination.monitor().is_known_by(mark.clone());
        }
        if gone && self.source.ask(has_noted_arrival)? {
            let arrived = Outcome::Arrived { run_state: String::new() };
            if mark.is_some() {
                self.forget(&arrived);
            }
            return Ok(arrived);
        }
        if mark.is_none() {
            return Err(Error::Refused(
                "there is nothing to resume: `pageshare migrate` has not begun to migrate the guest \
                 of the source QEMU, or has finished that. Nothing was done to either QEMU"
                    .into(),
            ));
        }
        if let Err(stranger @ Error::Refused(_)) = self.destination.monitor().ask(look) {
            return Err(stranger);
        }
        let ran_there = self.source.ask(may_have_run_there)?;
        (self.ran_there, self.guesses) = (ran_there == Some(true), ran_there.is_none());
        loop {
            if let Some(outcome) = self.step(|_| {})? {
                return Ok(outcome);
            }
        }
    }

    /// Looks at both sides once and does what is to be done; nothing while neither has decided.
    ///
    /// # Errors
    /// If the source's monitor is gone and does not come back, but for in postcopy, or an operator must
    /// decide.
    pub fn step(&mut self, report: impl FnOnce(Progress)) -> Result<Option<Outcome>, Error> {
        // The destination first: what the source says after that cannot be older.
        let (source, stop) = (&mut self.source, &self.stop);
        // One that is silent while the source can keep its guest, or has kept it, is as good as gone;
        // one that has all of it may be loading its devices.
        let there = self.destination.look(&mut |waited| {
            let wants = waited <= GONE && !stop.load(Ordering::SeqCst);
            wants || source.ask(look).is_ok_and(|source| may_be_loading(&source))
        });
        let source = match self.look_at_source(report) {
            Ok(source) => source,
            Err(error) => return self.wait_for_source(error).map(|()| None),
        };
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
                "running" | "suspended" => {
                    (self.ran_there, self.seen_there, self.paused) = (true, true, false);
                }
                "paused" if self.seen_there => self.paused = true,
                _ => {}
            }
        }
        if let There::Seen(seen) = &there {
            let switched = has_switched(&seen.migration) || seen.migration == "postcopy-paused";
            self.ran_there |= self.guesses && switched;
        }
        match decide(&source, &there, self.paused, self.ran_there) {
            Action::Wait => {}
            Action::Cancel => self.give_up("the destination's monitor does not come back")?,
            Action::Start => self.let_run(&source),
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

    fn look_at_source(&mut self, report: impl FnOnce(Progress)) -> Result<Seen, Error> {
        let info = self.source.execute("query-migrate", &json!({}))?;
        report(progress(&info));
        let source = Seen { run_state: self.source.ask(Qmp::run_state)?, migration: status(&info) };
        if self.lost.take().is_some() {
            info!("the source QEMU's monitor at {} answers again", self.source.address());
        }
        Ok(source)
    }

    /// In postcopy the guest's pages go through this very process, for as long as it waits; its operator
    /// alone may end that. Before, a guest whose source nobody can ask would leave, and nobody could let
    /// it run.
    fn wait_for_source(&mut self, error: Error) -> Result<(), Error> {
        let switched = has_switched(&self.status.0);
        if self.lost.is_none() {
            let meanwhile = if switched { "; its pages travel on unless you end this" } else { "" };
            warn!("{error}{meanwhile}");
        }
        let since = *self.lost.get_or_insert_with(Instant::now);
        let over = since.elapsed() > GONE && !switched;
        if over || self.stop.load(Ordering::SeqCst) {
            return Err(error);
        }
        std::thread::sleep(POLL);
        Ok(())
    }

    /// Nothing is left to be resumed.
    fn forget(&mut self, outcome: &Outcome) {
        // Whoever is gone needs no mark taken away.
        match outcome {
            // It may yet be reached and told to end.
            Outcome::Stayed(Loss::Silent) => return,
            Outcome::Stayed(_) => {}
            Outcome::Arrived { .. } => {
                // First: who is killed before the rest of this has arrived all the same.
                drop(self.source.ask(note_arrival));
                drop(self.destination.monitor().ask(Mark::remove_from));
            }
        }
        drop(self.source.ask(Mark::remove_from));
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
                let refusal = self.refusal.take().map_or_else(String::new, |it| format!(" ({it})"));
                return Err(Error::Refused(format!(
                    "{why} and its guest does not run yet{refusal}; look at both QEMUs' logs"
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

    /// Lets the destination run. If the word is lost on its way, or obeyed only later, as where the
    /// source still holds the lock of an image, the next look shows it.
    fn let_run(&mut self, source: &Seen) {
        // First: who is killed before the rest of this must not have the guest ended there.
        if has_switched(&source.migration) && self.source.ask(note_ran_there).is_err() {
            return;
        }
        let told = self.destination.monitor().execute("cont", &json!({}));
        if let Err(Error::Refused(words)) = told {
            if self.refusal.as_ref() != Some(&words) {
                warn!("{words}; it is told again");
            }
            self.refusal = Some(words);
            std::thread::sleep(POLL);
        }
    }

    /// How long may take what is not the transfer: the last of the guest's memory, and loading.
    fn limit(&self) -> Duration {
        LOADING + self.downtime_limit
    }

    fn be_patient(&mut self) -> Result<(), Error> {
        let limit = self.limit();
        self.source.be_patient(limit)?;
        self.destination.monitor().be_patient(limit)
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
mod tests;
