//! The destination's monitor, at the end of a way that may break and come back, such as `ssh -L`.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tracing::{info, warn};

use super::decide::{Loss, Seen, There};
use super::look_while;
use super::mark::Mark;
use crate::address::Address;
use crate::error::Error;
use crate::qmp::Qmp;

/// A way that has not come back within this does not come back by itself.
pub(super) const GONE: Duration = Duration::from_secs(10);

pub(super) struct Destination {
    address: Address,
    /// Nothing while the connection is lost, and before the first.
    qmp: Option<Qmp>,
    patience: Duration,
    /// What a QEMU must bear to be told anything over a new connection, once that is agreed.
    mark: Option<Mark>,
    /// What is known while it cannot be asked, and since when.
    lost: Option<(Loss, Instant)>,
}

impl Destination {
    pub(super) fn new(address: Address, patience: Duration) -> Self {
        Self { address, qmp: None, patience, mark: None, lost: None }
    }

    /// How long an answer may take from now on.
    pub(super) fn be_patient(&mut self, patience: Duration) -> Result<(), Error> {
        self.patience = patience;
        self.qmp.as_mut().map_or(Ok(()), |qmp| qmp.be_patient(patience))
    }

    /// From now on no other QEMU than the one with this mark is asked or told anything.
    pub(super) fn is_known_by(&mut self, mark: Mark) {
        self.mark = Some(mark);
    }

    /// Runs a command, as [`Qmp::execute`].
    pub(super) fn execute(&mut self, command: &str, arguments: &Value) -> Result<Value, Error> {
        self.ask(|qmp| qmp.execute(command, arguments))
    }

    /// Asks the monitor, over a new connection if there is none.
    pub(super) fn ask<T>(
        &mut self,
        question: impl FnOnce(&mut Qmp) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut qmp = match self.qmp.take() {
            Some(qmp) => qmp,
            None => self.connect()?,
        };
        let answer = question(&mut qmp);
        // A connection that gave no answer might give it to the next question.
        if matches!(answer, Ok(_) | Err(Error::Refused(_))) {
            self.qmp = Some(qmp);
        }
        answer
    }

    /// What it says now, or what is known instead; `waits` is as in [`Qmp::execute_while`].
    pub(super) fn look(&mut self, waits: &mut dyn FnMut(Duration) -> bool) -> There {
        if let Some((how @ Loss::Ended, _)) = self.lost {
            return There::Lost { how, long: true };
        }
        let error = match self.ask(|qmp| look_while(qmp, waits)) {
            Ok(seen) => return self.found(seen),
            Err(error) => error,
        };
        let since = self.lost.map_or_else(Instant::now, |(_, since)| since);
        if self.lost.is_none() {
            warn!("{error}");
        }
        let how = if nobody_listens(&error) { Loss::Refused } else { Loss::Silent };
        self.lost = Some((how, since));
        There::Lost { how, long: since.elapsed() > GONE }
    }

    /// Tells its QEMU to end, whose guest nobody may run any more. If it gives no answer, the next
    /// look shows whether it has.
    pub(super) fn discard(&mut self) {
        if self.execute("quit", &json!({})).is_ok() {
            self.lost = Some((Loss::Ended, Instant::now()));
        }
    }

    fn connect(&self) -> Result<Qmp, Error> {
        let mut qmp = Qmp::connect("the destination QEMU's monitor", &self.address, GONE)?;
        if let Some(mark) = &self.mark
            && Mark::of(&mut qmp)?.as_ref() != Some(mark)
        {
            let (address, name) = (&self.address, qmp.execute("query-name", &json!({}))?);
            let name = name["name"].as_str().map(|name| format!(" (`{name}`)")).unwrap_or_default();
            return Err(Error::Refused(format!(
                "the QEMU{name} whose monitor is at {address} is not the one that this migration goes \
                 to, and nothing is done to it"
            )));
        }
        qmp.be_patient(self.patience)?;
        Ok(qmp)
    }

    fn found(&mut self, seen: Seen) -> There {
        if self.lost.take().is_some() {
            info!("the destination QEMU's monitor at {} answers again", self.address);
        }
        There::Seen(seen)
    }
}

fn nobody_listens(error: &Error) -> bool {
    let Error::Connect { source, .. } = error else { return false };
    matches!(source.kind(), ErrorKind::ConnectionRefused | ErrorKind::NotFound)
}
