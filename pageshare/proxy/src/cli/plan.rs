//! `pageshare plan`.

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use super::args::PlanArgs;
use super::estimate::{bytes_a_second, mib, percent};
use super::proxies::threads;
use super::{say, to_json};
use crate::error::Error;
use crate::plan::{How, There, Vm, plan};
use crate::scope::Scope;
use crate::sources::{SourceSpec, processes};

/// An index that was written longer ago is spoken of.
const OLD_SECONDS: f64 = 600.0;

pub(super) fn run(arguments: &PlanArgs) -> Result<ExitCode, Error> {
    let link = bytes_a_second(&arguments.sampling)?;
    if let Some(image) = arguments.source.iter().find(|it| matches!(it, SourceSpec::Image(_))) {
        return Err(Error::Refused(format!("{image} is no VM: name QEMUs, as qemu:name=web*")));
    }
    let key = Scope::load(&arguments.scope)?.key.hash_key();
    let load = |there: &String| match there.split_once('=') {
        Some((host, index)) if !host.is_empty() => There::load(host, Path::new(index), &key),
        _ => Err(Error::Refused(format!("--there {there}: write HOST=FILE"))),
    };
    let there = arguments.there.iter().map(load).collect::<Result<Vec<_>, _>>()?;
    let pids = processes(&arguments.source)?;
    if pids.is_empty() {
        let sources: Vec<_> = arguments.source.iter().map(ToString::to_string).collect();
        return Err(Error::Refused(format!("no QEMU of this host is {}", sources.join(" or "))));
    }
    let sample = arguments.sampling.sample;
    let vms = plan(&pids, &there, &key, &How { sample, link, level: 1, threads: threads(0) })?;
    say(&if arguments.sampling.json {
        to_json(&vms)? + "\n"
    } else {
        table(&vms, arguments.sampling.link)
    })?;
    Ok(ExitCode::SUCCESS)
}

/// A row for each VM and host, the best first; what the best together would take; old indexes.
fn table(vms: &[Vm], mbit: f64) -> String {
    let mut text = row(["VM", "pid", "to", "found there", "bytes", "of QEMU's", "time", "QEMU's"]);
    for vm in vms {
        for (at, to) in vm.to.iter().enumerate() {
            let first = |text: String| if at == 0 { text } else { String::new() };
            let it = &to.estimate;
            text += &row([
                &first(vm.name.clone().unwrap_or_default()),
                &first(vm.pid.to_string()),
                &to.host,
                &percent(it.found_share),
                &mib(it.bytes),
                &mib(it.plain_bytes),
                &format!("{:.2} s", it.seconds),
                &format!("{:.2} s", it.plain_seconds),
            ]);
        }
    }
    let best: Vec<_> = vms.iter().filter_map(|vm| vm.to.first()).collect();
    let sum =
        |of: fn(&crate::estimate::Estimate) -> f64| best.iter().map(|to| of(&to.estimate)).sum();
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "all, one after another, each where it is first: {} instead of {}, {:.1} s instead of {:.1} s \
         for one pass at {mbit} Mbit/s",
        mib(sum(|it| it.bytes)),
        mib(sum(|it| it.plain_bytes)),
        sum(|it| it.seconds),
        sum(|it| it.plain_seconds),
    );
    if let Some(vm) = vms.first() {
        for to in vm.to.iter().filter(|to| to.index_age_seconds > OLD_SECONDS) {
            let minutes = to.index_age_seconds / 60.0;
            let _ = writeln!(text, "the index of {} is {minutes:.0} minutes old", to.host);
        }
    }
    text
}

fn row(cells: [&str; 8]) -> String {
    let [vm, pid, to, found, bytes, plain, seconds, plain_seconds] = cells;
    let line = format!(
        "{vm:<20} {pid:>7}  {to:<16} {found:>11} {bytes:>12} {plain:>12} {seconds:>9} {plain_seconds:>9}"
    );
    format!("{}\n", line.trim_end())
}
