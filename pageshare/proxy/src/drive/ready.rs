//! What both QEMUs are told before a migration, and that it begins.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use super::mark::{Machine, Mark};
use super::{Driver, look};
use crate::error::Error;

/// Capabilities without which at one side the other would not understand, or wait for ever.
const COMPARED: [&str; 7] = [
    "multifd",
    "xbzrle",
    "postcopy-ram",
    "postcopy-preempt",
    "switchover-ack",
    "x-ignore-shared",
    "compress",
];

impl Driver {
    /// Makes both sides ready: the destination may not start by itself and awaits the migration
    /// at `incoming` (if it does not await it already), both use the return path, the guest
    /// may stand still for `downtime_limit` (or for as long as the source was told to let it).
    /// Returns that limit.
    ///
    /// # Errors
    /// If a side is not in a state to migrate, they are set differently, or it is told to stop.
    pub fn prepare(
        &mut self,
        incoming: Option<&str>,
        downtime_limit: Option<Duration>,
    ) -> Result<Duration, Error> {
        // Later an answer may tell where the guest is.
        self.heed(&Arc::clone(&self.stop));
        let ready = self.make_ready(incoming, downtime_limit);
        self.heed(&Arc::default());
        ready.map(|()| self.downtime_limit)
    }

    fn heed(&mut self, stop: &Arc<AtomicBool>) {
        self.source.heed(stop);
        self.destination.monitor().heed(stop);
    }

    fn make_ready(
        &mut self,
        incoming: Option<&str>,
        downtime_limit: Option<Duration>,
    ) -> Result<(), Error> {
        let source = self.source.ask(look)?;
        let there = self.destination.monitor().ask(look)?;
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
        let machine = self.source.ask(Machine::of)?;
        machine.may_go_to(&self.destination.monitor().ask(Machine::of)?)?;
        self.paused = source.run_state == "paused";
        self.set_capabilities()?;
        if let Some(limit) = downtime_limit {
            // QEMU takes whole milliseconds.
            let ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
            self.source.execute("migrate-set-parameters", &json!({"downtime-limit": ms}))?;
            self.downtime_limit = limit;
            self.be_patient()?;
        }
        let begun = self.begin(incoming);
        if begun.is_err() {
            self.withdraw();
        }
        begun
    }

    /// From here on there is something to resume.
    fn begin(&mut self, incoming: Option<&str>) -> Result<(), Error> {
        let mark = Mark::draw()?;
        self.destination.monitor().ask(|qmp| mark.leave_in(qmp))?;
        self.source.ask(|qmp| mark.note_ran_here(qmp))?;
        self.source.ask(|qmp| mark.leave_in(qmp))?;
        self.source.is_known_by(mark.clone());
        self.destination.monitor().is_known_by(mark);
        // While QEMU awaits a migration, `stop` only takes its leave to start by itself.
        self.destination.monitor().execute("stop", &json!({}))?;
        // QEMU takes `migrate-incoming` once: the destination could not be used again.
        if self.stop.load(Ordering::SeqCst) {
            return Err(Error::Refused(
                "told to end before the migration began: the guest stays at the source".into(),
            ));
        }
        if let Some(uri) = incoming {
            self.destination.monitor().execute("migrate-incoming", &json!({"uri": uri}))?;
        }
        Ok(())
    }

    fn set_capabilities(&mut self) -> Result<(), Error> {
        let on = json!({"capabilities": [{"capability": "return-path", "state": true}]});
        self.destination.monitor().execute("migrate-set-capabilities", &on)?;
        self.source.execute("migrate-set-capabilities", &on)?;
        let here = self.source.execute("query-migrate-capabilities", &json!({}))?;
        let there = self.destination.monitor().execute("query-migrate-capabilities", &json!({}))?;
        for name in COMPARED {
            // The destination may offer an acknowledgement that the source does not wait for; one
            // that does not know it (QEMU before 8.1) fails over it.
            let unasked = name == "switchover-ack" && is(&here, name, false);
            if has(&here, name) != has(&there, name) && !unasked {
                return Err(Error::Refused(format!(
                    "capability `{name}` is on at one QEMU and off at the other; set both alike"
                )));
            }
        }
        if has(&here, "multifd") {
            let here = self.source.execute("query-migrate-parameters", &json!({}))?;
            let there =
                self.destination.monitor().execute("query-migrate-parameters", &json!({}))?;
            let [here, there] = [here, there].map(|it| it["multifd-channels"].clone());
            if here != there {
                return Err(Error::Refused(format!(
                    "`multifd-channels` is {here} at the source QEMU and {there} at the \
                     destination's, which would wait for others; set both alike"
                )));
            }
        }
        if has(&here, "pause-before-switchover") {
            return Err(Error::Refused(
                "capability `pause-before-switchover` is on at the source QEMU, and nobody would \
                 tell it to go on: turn it off"
                    .into(),
            ));
        }
        Ok(())
    }

    /// Has the source begin to migrate to `uri`.
    ///
    /// # Errors
    /// If it refuses.
    pub fn start(&mut self, uri: &str) -> Result<(), Error> {
        let started = self.source.execute("migrate", &json!({"uri": uri})).map(drop);
        if let Err(Error::Refused(_)) = started {
            self.withdraw();
        }
        started
    }

    /// Nothing has moved: neither side is to be resumed.
    fn withdraw(&mut self) {
        // Whoever is gone needs no mark taken away.
        drop(self.destination.monitor().ask(Mark::remove_from));
        drop(self.source.ask(Mark::remove_from));
    }
}

fn has(capabilities: &Value, name: &str) -> bool {
    is(capabilities, name, true)
}

fn is(capabilities: &Value, name: &str, state: bool) -> bool {
    let list = capabilities.as_array().map(Vec::as_slice).unwrap_or_default();
    list.iter().any(|entry| entry["capability"] == name && entry["state"] == state)
}
