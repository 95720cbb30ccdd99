//! Where this host's VMs would go at the least cost, by the indexes of the hosts that they could go to:
//! nobody there is asked, and nothing moves.

use std::path::Path;
use std::time::SystemTime;

use pageshare_index::{HashKey, PageHash, Table};
use pageshare_wire::PageSet;
use serde::Serialize;
use tracing::warn;

use crate::command_line;
use crate::error::Error;
use crate::estimate::{Estimate, Memory, Seen};
use crate::send::compressor;
use crate::sources;

/// A host, as its index knows it.
pub struct There {
    name: String,
    table: Table,
    /// Seconds since the index was written.
    age: f64,
}

impl There {
    /// Reads what `pageshare index` wrote on host `name`.
    ///
    /// # Errors
    /// If the file cannot be read or is no index of this scope.
    pub fn load(name: &str, index: &Path, key: &HashKey) -> Result<Self, Error> {
        let (_, table) = sources::read_index(index, key)?;
        let written = std::fs::metadata(index).and_then(|found| found.modified());
        let age = written.ok().and_then(|at| SystemTime::now().duration_since(at).ok());
        let age = age.unwrap_or_default().as_secs_f64();
        Ok(Self { name: name.to_owned(), table, age })
    }

    fn known(&self, hashes: &[PageHash]) -> PageSet {
        let mut known = PageSet::empty(hashes.len());
        for (at, hash) in hashes.iter().enumerate() {
            if self.table.find(*hash).next().is_some() {
                known.insert(at);
            }
        }
        known
    }
}

/// What migrations of a VM would cost.
#[derive(Debug, Clone, Serialize)]
pub struct Vm {
    /// As its QEMU was told, if it was.
    pub name: Option<String>,
    /// Of its QEMU.
    pub pid: u32,
    /// To each host, the one first to which the fewest bytes would go.
    pub to: Vec<To>,
}

/// What a migration to a host would cost.
#[derive(Debug, Clone, Serialize)]
pub struct To {
    /// The host.
    pub host: String,
    /// How old its index is, in seconds: what it has learnt since is not in the estimate.
    pub index_age_seconds: f64,
    /// As `pageshare estimate` has it.
    #[serde(flatten)]
    pub estimate: Estimate,
}

/// What is asked.
pub struct How {
    /// One page in so many is looked for.
    pub sample: usize,
    /// Bytes a second that a link carries.
    pub link: f64,
    /// Of zstd.
    pub level: i32,
    /// That would compress.
    pub threads: usize,
}

/// Looks, for each of these QEMUs, for a sample of its pages in the index of each host. One that ends
/// meanwhile is left out, with a warning.
///
/// # Errors
/// If none of them can be read, or the level is none.
pub fn plan(pids: &[u32], there: &[There], key: &HashKey, how: &How) -> Result<Vec<Vm>, Error> {
    let (mut vms, mut failed) = (Vec::new(), None);
    for pid in pids {
        match costs(*pid, there, key, how) {
            Ok(to) => vms.push(Vm { name: command_line::name(*pid), pid: *pid, to }),
            Err(error) => {
                warn!("the VM of process {pid} is left out: {error}");
                failed = Some(error);
            }
        }
    }
    failed.filter(|_| vms.is_empty()).map_or(Ok(vms), Err)
}

fn costs(pid: u32, there: &[There], key: &HashKey, how: &How) -> Result<Vec<To>, Error> {
    let memory = Memory::open(pid)?;
    let mut compressor = compressor(how.level)?;
    let mut seen: Vec<Seen> = there.iter().map(|_| Seen::default()).collect();
    let pages = memory.sample(how.sample, |batch| {
        there.iter().zip(&mut seen).try_for_each(|(there, seen)| {
            seen.look(batch, key, &mut compressor, |hashes| Ok(there.known(&hashes)))
        })
    })?;
    let to = |(there, seen): (&There, &Seen)| {
        Ok(To {
            host: there.name.clone(),
            index_age_seconds: there.age,
            estimate: seen.predict(&pages, how.link, how.threads)?,
        })
    };
    let mut found = there.iter().zip(&seen).map(to).collect::<Result<Vec<To>, Error>>()?;
    found.sort_by(|a, b| a.estimate.bytes.total_cmp(&b.estimate.bytes));
    Ok(found)
}
