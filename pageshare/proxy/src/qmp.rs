//! QEMU's monitor, as far as a migration needs it.

use std::io::{BufRead, BufReader, Write};
use std::time::Duration;

use serde_json::{Value, json};

use crate::address::Address;
use crate::error::Error;
use crate::socket::Socket;

const MONITOR: &str = "QEMU's monitor";

/// QEMU answers at once, except while it loads device state with its main thread.
const PATIENCE: Duration = Duration::from_secs(30);

/// A connection to one QEMU's monitor (`-qmp unix:PATH,server=on,wait=off`).
pub struct Qmp {
    reader: BufReader<Socket>,
    writer: Socket,
    address: Address,
}

impl Qmp {
    /// Connects and leaves the monitor ready for commands.
    ///
    /// # Errors
    /// If there is no monitor, or it is taken by another client.
    pub fn connect(address: &Address) -> Result<Self, Error> {
        let lost = || Error::lost(MONITOR, "connecting");
        let writer = Socket::connect(MONITOR, address)?;
        let socket = writer.try_clone().map_err(lost())?;
        socket.set_read_timeout(Some(PATIENCE)).map_err(lost())?;
        let mut qmp = Self { reader: BufReader::new(socket), writer, address: address.clone() };
        let greeting = qmp.line().map_err(|error| {
            Error::Refused(format!("{error} (a monitor serves one client at a time)"))
        })?;
        if greeting.get("QMP").is_none() {
            return Err(Error::Refused(format!("{address} is no monitor of QEMU")));
        }
        qmp.execute("qmp_capabilities", &json!({}))?;
        Ok(qmp)
    }

    /// Runs a command and returns what it returns.
    ///
    /// # Errors
    /// If QEMU refuses it, with QEMU's words, or is gone.
    pub fn execute(&mut self, command: &str, arguments: &Value) -> Result<Value, Error> {
        let line = format!("{}\n", json!({"execute": command, "arguments": arguments}));
        let sent = self.writer.write_all(line.as_bytes());
        sent.map_err(Error::lost(MONITOR, "sending a command"))?;
        loop {
            let mut answer = self.line()?;
            if let Some(value) = answer.get_mut("return") {
                return Ok(value.take());
            }
            if let Some(error) = answer.get("error") {
                let words = error["desc"].as_str().unwrap_or("no reason given");
                let address = &self.address;
                return Err(Error::Refused(format!(
                    "QEMU at {address} refused {command}: {words}"
                )));
            }
            // Anything else is an event, which nobody here waits for.
        }
    }

    /// Whether the guest runs, is paused, awaits its migration, ...: QEMU's run state.
    ///
    /// # Errors
    /// As [`Qmp::execute`].
    pub fn run_state(&mut self) -> Result<String, Error> {
        let status = self.execute("query-status", &json!({}))?;
        Ok(status["status"].as_str().unwrap_or_default().to_owned())
    }

    fn line(&mut self) -> Result<Value, Error> {
        let mut line = String::new();
        let length = self
            .reader
            .read_line(&mut line)
            .map_err(Error::lost(MONITOR, "waiting for its answer"))?;
        if length == 0 {
            return Err(Error::Closed { what: MONITOR });
        }
        serde_json::from_str(&line)
            .map_err(|error| Error::Refused(format!("{} is no monitor: {error}", self.address)))
    }
}
