//! `pageshare estimate`.

use std::process::ExitCode;

use super::args::{EstimateArgs, SamplingArgs};
use super::proxies::sender;
use super::{say, to_json};
use crate::error::Error;
use crate::estimate::{Estimate, estimate};

pub(super) fn run(arguments: &EstimateArgs) -> Result<ExitCode, Error> {
    let how = &arguments.sampling;
    let link = bytes_a_second(how)?;
    let found = estimate(&sender(&arguments.sending)?, arguments.pid, how.sample, link)?;
    say(&if how.json { to_json(&found)? + "\n" } else { table(&found, how.link) })?;
    Ok(ExitCode::SUCCESS)
}

/// The link's speed.
pub(super) fn bytes_a_second(how: &SamplingArgs) -> Result<f64, Error> {
    if how.link > 0.0 {
        return Ok(how.link * 1e6 / 8.0);
    }
    Err(Error::Refused("--link must be more than 0 Mbit/s".into()))
}

pub(super) fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

pub(super) fn mib(bytes: f64) -> String {
    format!("{:.1} MiB", bytes / f64::from(1 << 20))
}

fn table(found: &Estimate, mbit: f64) -> String {
    let verdict = if found.worth_it {
        "worth it"
    } else {
        "not worth it: QEMU alone sends about as little, or is as fast"
    };
    let rows = [
        ("touched memory", format!("{} MiB", found.memory_bytes >> 20)),
        ("zero pages", percent(found.zero_share)),
        (
            "found there",
            format!("{} of {} sampled", percent(found.found_share), found.sampled_pages),
        ),
        ("rest shrinks to", percent(found.compressed_share)),
        ("bytes", format!("{} instead of {}", mib(found.bytes), mib(found.plain_bytes))),
        (
            "time",
            format!(
                "{:.2} s instead of {:.2} s, for one pass at {mbit} Mbit/s",
                found.seconds, found.plain_seconds
            ),
        ),
        ("processor", format!("{:.2} s at the source", found.cpu_seconds)),
        ("verdict", verdict.to_owned()),
    ];
    rows.iter().map(|(name, value)| format!("{name:<16}{value}\n")).collect()
}
