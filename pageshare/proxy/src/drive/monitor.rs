//! A QEMU's monitor that is connected to again whenever it is lost.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde_json::{Value, json};

use super::GONE;
use super::mark::Mark;
use crate::address::Address;
use crate::error::Error;
use crate::qmp::Qmp;

pub(super) struct Monitor {
    what: &'static str,
    /// What a migration does that this is a monitor of.
    does: &'static str,
    address: Address,
    /// Nothing while the connection is lost, and before the first.
    qmp: Option<Qmp>,
    patience: Duration,
    /// What a QEMU must bear to be told anything over a new connection, once that is agreed.
    mark: Option<Mark>,
    /// Once it is true, silence is not waited for.
    stop: Arc<AtomicBool>,
}

impl Monitor {
    /// `what` is at this address, and maybe connected to already; its migration `does` something.
    pub(super) fn new(
        (what, does): (&'static str, &'static str),
        address: Address,
        qmp: Option<Qmp>,
        patience: Duration,
    ) -> Self {
        Self { what, does, address, qmp, patience, mark: None, stop: Arc::default() }
    }

    pub(super) fn address(&self) -> &Address {
        &self.address
    }

    /// How long an answer may take from now on.
    pub(super) fn be_patient(&mut self, patience: Duration) -> Result<(), Error> {
        self.patience = patience;
        self.qmp.as_mut().map_or(Ok(()), |qmp| qmp.be_patient(patience))
    }

    /// From now on silence is waited for only while this is false.
    pub(super) fn heed(&mut self, stop: &Arc<AtomicBool>) {
        self.stop = Arc::clone(stop);
        if let Some(qmp) = &mut self.qmp {
            qmp.heed(Arc::clone(stop));
        }
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

    fn connect(&self) -> Result<Qmp, Error> {
        let mut qmp = Qmp::connect_until(Arc::clone(&self.stop), self.what, &self.address, GONE)?;
        if let Some(mark) = &self.mark
            && Mark::of(&mut qmp)?.as_ref() != Some(mark)
        {
            let Self { address, does, .. } = self;
            let name = qmp.execute("query-name", &json!({}))?;
            let name = name["name"].as_str().map(|name| format!(" (`{name}`)")).unwrap_or_default();
            return Err(Error::Refused(format!(
                "the QEMU{name} whose monitor is at {address} is not the one that this \
                 migration {does}, and nothing is done to it"
            )));
        }
        qmp.be_patient(self.patience)?;
        Ok(qmp)
    }
}
