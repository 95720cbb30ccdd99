//! What an operator can say, and the way from there to the parts.

mod args;
mod estimate;
mod index;
mod migrate;
mod parting;
mod plan;
mod proxies;
mod summary;

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use rustix::process::{DumpableBehavior, Resource, getrlimit, set_dumpable_behavior, setrlimit};
use signal_hook::consts::SIGXFSZ;
use tracing::{debug, error, warn};
use tracing_subscriber::EnvFilter;

use args::{Cli, Command, LogFormat};

use crate::error::Error;

/// Parses the command line, does what it says, and reports what went wrong.
#[must_use]
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    start_log(cli.log_format);
    keep_out_of_core_dumps();
    raise_file_limit();
    fail_beyond_a_file_size();
    let daemon = matches!(cli.command, Command::Send(_) | Command::Receive(_));
    match run(cli.command) {
        Ok(code) => code,
        Err(failure) => {
            match cli.log_format {
                LogFormat::Text if !daemon => {
                    // Nobody is left to be told that standard error takes nothing.
                    let said = plain(&format!("pageshare: {failure}"));
                    let _ = writeln!(std::io::stderr(), "{said}");
                }
                LogFormat::Text | LogFormat::Json => error!("{failure}"),
            }
            ExitCode::FAILURE
        }
    }
}

/// A core would hold keys of scopes and of TLS, and pages of guests. A limit on its size would not do: the
/// kernel does not ask for it where a program takes cores, as systemd-coredump does.
fn keep_out_of_core_dumps() {
    if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        warn!("a core dump of this process would hold its keys: {error}");
    }
}

/// Channels, and those who would like to be one, take file descriptors; the limit that processes start
/// with is meant for such as use `select`.
fn raise_file_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        debug!("the limit on open files stays as it is: {error}");
    }
}

/// What is written beyond a limit on file sizes fails then, as on a full disk: a record or a copy ends no
/// migration.
fn fail_beyond_a_file_size() {
    if let Err(error) = signal_hook::flag::register(SIGXFSZ, Arc::default()) {
        debug!("a limit on file sizes ends this process: {error}");
    }
}

fn run(command: Command) -> Result<ExitCode, Error> {
    match command {
        Command::Send(arguments) => proxies::send(&arguments),
        Command::Migrate(arguments) => migrate::run(&arguments),
        Command::Receive(arguments) => proxies::receive(arguments),
        Command::Index(arguments) => index::run(arguments),
        Command::Scope { name, file } => {
            crate::scope::Scope::generate(&name)?.save(&file)?;
            say(&format!("Scope `{name}` is in {}. Copy it to the other host.\n", file.display()))?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Estimate(arguments) => estimate::run(&arguments),
        Command::Plan(arguments) => plan::run(&arguments),
        Command::Inspect { stream, json } => {
            let inspection = crate::inspect::inspect(&stream)?;
            say(&if json { to_json(&inspection)? + "\n" } else { inspection.text() })?;
            if !inspection.is_stream() {
                return Err(Error::Refused(format!(
                    "{}: nothing of a migration is in it: one channel is wanted, from its first \
                     byte on, as QEMU writes it",
                    stream.display()
                )));
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Says what was asked for: a full disk or a reader that has gone is an error as others are.
fn say(text: &str) -> Result<(), Error> {
    let mut out = std::io::stdout();
    let said = out.write_all(plain(text).as_bytes()).and_then(|()| out.flush());
    said.map_err(|error| Error::Refused(format!("cannot write to standard output: {error}")))
}

/// Words of others, as a VM's name is, control no terminal. So written, a string of JSON means the same.
/// The log's library does so by itself.
fn plain(text: &str) -> String {
    let plain = |char: char| {
        if char.is_control() && char != '\n' {
            format!("\\u{:04x}", u32::from(char))
        } else {
            char.to_string()
        }
    };
    text.chars().map(plain).collect()
}

fn to_json(value: &impl serde::Serialize) -> Result<String, Error> {
    serde_json::to_string(value).map_err(|error| Error::Refused(error.to_string()))
}

fn start_log(format: LogFormat) {
    let filter =
        EnvFilter::try_from_env("PAGESHARE_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        // It would say on standard error that standard error is closed, and panic.
        .log_internal_errors(false);
    match format {
        LogFormat::Text => log.with_target(false).init(),
        LogFormat::Json => log.json().init(),
    }
}

#[cfg(test)]
mod tests {
    use clap::error::ErrorKind;

    use super::*;

    /// The commands of a document's fenced blocks, each as the words that a shell makes of it.
    fn commands(page: &str) -> Vec<Vec<String>> {
        let blocks = page.split("```").skip(1).step_by(2);
        let lines: Vec<String> = blocks
            .flat_map(|block| {
                block.replace("\\\n", " ").lines().map(str::to_owned).collect::<Vec<_>>()
            })
            .collect();
        let words = lines.iter().filter_map(|line| shlex::split(line));
        words
            .filter_map(|words| {
                let at = words.iter().position(|word| word == "pageshare")?;
                // A prompt may stand before it.
                let first = at == 0 || words[at - 1].ends_with(['#', '$']);
                first.then(|| words[at..].to_vec())
            })
            .collect()
    }

    #[test]
    fn the_program_takes_what_its_documents_say() {
        let mut seen = 0;
        for page in [
            include_str!("../../../README.md"),
            include_str!("../../../docs/pageshare.md"),
            include_str!("../../../docs/pageshare/migrate.md"),
            include_str!("../../../docs/pageshare/records.md"),
            include_str!("../../../docs/pageshare/sharing.md"),
            include_str!("../../../docs/pageshare/there-and-back.md"),
            include_str!("../../../docs/pageshare/worth.md"),
            include_str!("../../../docs/guides/libvirt.md"),
        ] {
            for mut words in commands(page) {
                // What a document leaves out is not asked for, and a number stands for one.
                let whole = !words.iter().any(|word| word == "...");
                words.retain(|word| word != "...");
                words
                    .iter_mut()
                    .filter(|word| *word == "PID")
                    .for_each(|word| "1".clone_into(word));
                if !whole {
                    words.push("--help".to_owned());
                }
                let found = Cli::try_parse_from(&words).map_err(|error| error.kind());
                let expected = if whole { None } else { Some(ErrorKind::DisplayHelp) };
                assert_eq!(found.err(), expected, "{words:?}");
                seen += 1;
            }
        }
        assert!(seen > 15, "{seen}");
    }
}
