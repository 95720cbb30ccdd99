//! QEMU's monitor, as far as a migration needs it.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::address::Address;
use crate::error::Error;
use crate::socket::{Socket, Until};

/// A connection to one QEMU's monitor (`-qmp unix:PATH,server=on,wait=off`).
pub struct Qmp {
    reader: BufReader<Until>,
    writer: Arc<Socket>,
    what: &'static str,
    address: Address,
    patience: Duration,
    /// Once it is true, silence is not waited for.
    stop: Arc<AtomicBool>,
    /// What has come of the next line.
    line: String,
}

/// How often a monitor's silence is told to whoever waits for it.
const SLICE: Duration = Duration::from_secs(1);

impl Qmp {
    /// Connects to `what` and leaves the monitor ready for commands; no answer may take longer than
    /// `patience`. QEMU answers at once, unless its main thread is busy: while the source writes the
    /// last of its guest, and while the destination loads the devices.
    ///
    /// # Errors
    /// If there is no monitor, or it is taken by another client.
    pub fn connect(
        what: &'static str,
        address: &Address,
        patience: Duration,
    ) -> Result<Self, Error> {
        Self::connect_until(Arc::default(), what, address, patience)
    }

    /// The same, as long as `stop` is false; see [`Qmp::heed`].
    ///
    /// # Errors
    /// As [`Qmp::connect`].
    pub fn connect_until(
        stop: Arc<AtomicBool>,
        what: &'static str,
        address: &Address,
        patience: Duration,
    ) -> Result<Self, Error> {
        let writer = Arc::new(Socket::connect(what, address)?);
        let reader = BufReader::new(Until { socket: Arc::clone(&writer), end: None });
        let (address, line) = (address.clone(), String::new());
        let mut qmp = Self { reader, writer, what, address, patience, stop, line };
        qmp.be_patient(patience)?;
        let greeting = qmp.read(Instant::now(), &mut |_| true).map_err(|reason| {
            qmp.lost(format!("{reason} (a monitor serves one client at a time)"))
        })?;
        if greeting.get("QMP").is_none() {
            return Err(qmp.lost("it is no monitor of QEMU".into()));
        }
        let offered = greeting["QMP"]["capabilities"].as_array();
        let enabled = if offered.is_some_and(|names| names.contains(&json!("oob"))) {
            json!({"enable": ["oob"]})
        } else {
            json!({})
        };
        qmp.execute("qmp_capabilities", &enabled)?;
        Ok(qmp)
    }

    /// Where it is.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// From now on silence is waited for only while this is false.
    pub fn heed(&mut self, stop: Arc<AtomicBool>) {
        self.stop = stop;
    }

    /// How long an answer may take from now on.
    ///
    /// # Errors
    /// If the connection is closed.
    pub fn be_patient(&mut self, patience: Duration) -> Result<(), Error> {
        self.patience = patience;
        let set = self.writer.set_read_timeout(Some(patience.min(SLICE)));
        set.map_err(|error| self.lost(error.to_string()))
    }

    /// Runs a command and returns what it returns.
    ///
    /// # Errors
    /// [`Error::Refused`] with QEMU's words, or [`Error::Monitor`] if it gives no answer: whether it
    /// has obeyed is unknown then, and the connection is of no more use.
    pub fn execute(&mut self, command: &str, arguments: &Value) -> Result<Value, Error> {
        self.ask("execute", command, arguments, &mut |_| true)
    }

    /// The same; while there is no answer, `waits` is told about once a second for how long, and says
    /// whether to wait on.
    ///
    /// # Errors
    /// As [`Qmp::execute`].
    pub fn execute_while(
        &mut self,
        command: &str,
        arguments: &Value,
        waits: &mut dyn FnMut(Duration) -> bool,
    ) -> Result<Value, Error> {
        self.ask("execute", command, arguments, waits)
    }

    /// The same past QEMU's main thread, which a guest's processor holds up while it waits for a
    /// page that is still elsewhere. Few commands may be run so; `migrate-recover` may.
    ///
    /// # Errors
    /// As [`Qmp::execute`].
    pub fn execute_out_of_band(
        &mut self,
        command: &str,
        arguments: &Value,
    ) -> Result<Value, Error> {
        self.ask("exec-oob", command, arguments, &mut |_| true)
    }

    fn ask(
        &mut self,
        how: &str,
        command: &str,
        arguments: &Value,
        waits: &mut dyn FnMut(Duration) -> bool,
    ) -> Result<Value, Error> {
        let line = format!("{}\n", json!({how: command, "arguments": arguments}));
        let sent = (&mut &*self.writer).write_all(line.as_bytes());
        sent.map_err(|error| self.lost(error.to_string()))?;
        let begin = Instant::now();
        loop {
            let mut answer = self.read(begin, waits).map_err(|reason| self.lost(reason))?;
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
            // Anything else is an event, which nobody here waits for, however many come.
            if begin.elapsed() >= SLICE {
                self.waits_on(begin, waits).map_err(|reason| self.lost(reason))?;
            }
        }
    }

    /// Whether the guest runs, is paused, awaits its migration, ...: QEMU's run state.
    ///
    /// # Errors
    /// As [`Qmp::execute`].
    pub fn run_state(&mut self) -> Result<String, Error> {
        self.run_state_while(&mut |_| true)
    }

    /// The same, as [`Qmp::execute_while`].
    ///
    /// # Errors
    /// As [`Qmp::execute`].
    pub fn run_state_while(
        &mut self,
        waits: &mut dyn FnMut(Duration) -> bool,
    ) -> Result<String, Error> {
        let status = self.execute_while("query-status", &json!({}), waits)?;
        Ok(status["status"].as_str().unwrap_or_default().to_owned())
    }

    /// The next line, or why there is none, of what has been waited for since `begin`.
    fn read(
        &mut self,
        begin: Instant,
        waits: &mut dyn FnMut(Duration) -> bool,
    ) -> Result<Value, String> {
        loop {
            match self.reader.read_line(&mut self.line) {
                Ok(0) => return Err("it closed the connection".into()),
                Ok(_) => break,
                // So says a socket whose time is up.
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.waits_on(begin, waits)?;
                }
                Err(error) => return Err(error.to_string()),
            }
        }
        let line = std::mem::take(&mut self.line);
        serde_json::from_str(&line).map_err(|error| format!("it is no monitor of QEMU: {error}"))
    }

    /// Whether there is patience left, or why there is none.
    fn waits_on(
        &self,
        begin: Instant,
        waits: &mut dyn FnMut(Duration) -> bool,
    ) -> Result<(), String> {
        let waited = begin.elapsed();
        if waited >= self.patience {
            return Err(format!("no answer for {} s", self.patience.as_secs_f64()));
        }
        if waits(waited) && !self.stop.load(Ordering::SeqCst) {
            Ok(())
        } else {
            Err(format!("no answer for {} s", waited.as_secs()))
        }
    }

    fn lost(&self, reason: String) -> Error {
        Error::Monitor { what: self.what, address: self.address.clone(), reason }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);
    const SHORT: Duration = Duration::from_millis(10);

    /// What is said of a monitor that says these lines, and then nothing.
    fn said_of(lines: &'static str, patience: Duration) -> String {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("monitor");
        let listener = UnixListener::bind(&path).unwrap();
        let monitor = std::thread::spawn(move || {
            let (mut client, _) = listener.accept().unwrap();
            client.write_all(lines.as_bytes()).unwrap();
            client
        });
        let address = Address::Unix(path);
        let connected = Qmp::connect("the monitor", &address, patience);
        let asked = connected.and_then(|mut qmp| {
            qmp.be_patient(SHORT)?;
            qmp.run_state()
        });
        let said = asked.unwrap_err().to_string();
        drop(monitor.join());
        said.replace(&address.to_string(), "PLACE")
    }

    #[test]
    fn a_monitor_that_does_not_answer_is_named_with_how_long_it_was_waited_for() {
        let said = said_of("{\"QMP\": {}}\n{\"return\": {}}\n", LONG);
        assert_eq!(said, "the monitor at PLACE: no answer for 0.01 s");
        let said = said_of("", SHORT);
        let taken = "no answer for 0.01 s (a monitor serves one client at a time)";
        assert_eq!(said, format!("the monitor at PLACE: {taken}"));
    }

    #[test]
    fn a_monitor_that_says_whatever_else_is_waited_for_no_longer() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("monitor");
        let listener = UnixListener::bind(&path).unwrap();
        let monitor = std::thread::spawn(move || {
            let (mut client, _) = listener.accept().unwrap();
            client.write_all(b"{\"QMP\": {}}\n").unwrap();
            while client.write_all(b"{\"event\": \"RESUME\"}\n").is_ok() {
                std::thread::yield_now();
            }
        });
        let connected = Qmp::connect("the monitor", &Address::Unix(path), Duration::from_secs(1));
        assert!(connected.err().unwrap().to_string().ends_with("no answer for 1 s"));
        monitor.join().unwrap();
    }

    #[test]
    fn what_does_not_greet_as_a_monitor_is_none() {
        assert_eq!(said_of("{}\n", LONG), "the monitor at PLACE: it is no monitor of QEMU");
        assert!(said_of("SSH-2.0\n", LONG).contains("it is no monitor of QEMU"));
    }
}
