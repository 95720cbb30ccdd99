//! The command line, with the help that it teaches by.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use clap::builder::RangedU64ValueParser;
use clap::{Args, Parser, Subcommand, ValueEnum, value_parser};
use pageshare_wire::Versions;

use crate::address::{Address, NoAddress};
use crate::sources::SourceSpec;

/// Migrates running QEMU virtual machines without sending what the destination already has.
///
/// One proxy runs on each host, between the two QEMUs:
///
///   destination$ pageshare receive --listen tcp:0.0.0.0:4455 --qemu unix:/run/vm-in.sock
///   source$      pageshare send    --listen unix:/run/vm-out.sock --to tcp:DESTINATION:4455
///
/// They speak TLS. On both hosts /etc/pki/qemu, or the directory that `--tls-dir` names, holds
/// ca-cert.pem; at the destination server-cert.pem, which bears the name DESTINATION, and
/// server-key.pem; at the source client-cert.pem and client-key.pem. The documentation
/// (docs/pageshare/tls.md) says how to make them. To try it without, on a network that you trust,
/// add `--insecure` to both.
///
/// Then migrate as always: the destination QEMU with `-S -incoming unix:/run/vm-in.sock`, the
/// source with `migrate unix:/run/vm-out.sock`, both with the capability `return-path`; `cont` the
/// destination only when the source says `completed`. `pageshare migrate` does all of that, and
/// the sender's work too. To share memory with what the destination has, give both proxies a
/// `--scope`, and the receiver one `--source` or more.
#[derive(Debug, Parser)]
#[command(version, verbatim_doc_comment)]
pub(super) struct Cli {
    /// Form of the log on standard error; PAGESHARE_LOG=debug says more.
    #[arg(long, value_enum, default_value_t = LogFormat::Text, global = true)]
    pub(super) log_format: LogFormat,
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum LogFormat {
    Text,
    Json,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Run the proxy on the host that the VM leaves.
    Send(SendArgs),
    /// Migrate a VM through its own and the destination's QEMU monitor, and make sure that it runs
    /// exactly once, whatever fails.
    Migrate(MigrateArgs),
    /// Say what a migration would cost and save, without migrating.
    Estimate(EstimateArgs),
    /// Say for each VM of this host where it could go at the least cost, by other hosts' indexes.
    Plan(PlanArgs),
    /// Run the proxy on the host that the VM goes to.
    Receive(ReceiveArgs),
    /// Index memory and images into a file that `receive --index` reads.
    Index(IndexArgs),
    /// Make a new scope: a name and a secret key, for the proxies of hosts that trust each other.
    Scope {
        /// Its name, such as the tenant's.
        name: String,
        /// The file to write; nobody else will be able to read it.
        file: PathBuf,
    },
    /// Say what a recorded migration stream consists of.
    Inspect {
        /// The stream of one channel; `-` is standard input.
        stream: PathBuf,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
}

/// TLS between the proxies.
#[derive(Debug, Args)]
pub(super) struct TlsArgs {
    /// Directory with ca-cert.pem and, for this side, server-cert.pem and server-key.pem
    /// (receive) or client-cert.pem and client-key.pem (send), as QEMU and libvirt use them.
    #[arg(long, value_name = "DIR", default_value = "/etc/pki/qemu")]
    pub(super) tls_dir: PathBuf,
    /// Go without TLS: guest memory crosses the network readable, anyone who can connect can
    /// migrate a VM in, and only accidental damage is noticed.
    #[arg(long)]
    pub(super) insecure: bool,
}

/// The protocol between the proxies.
#[derive(Debug, Args)]
pub(super) struct WireArgs {
    /// Speak this version of the protocol alone, as an older or newer pageshare does: to try how
    /// hosts get on before one is upgraded. [default: the newest that both sides speak]
    #[arg(long, value_name = "N")]
    #[arg(value_parser = value_parser!(u16).range(SPOKEN))]
    pub(super) wire_version: Option<u16>,
}

/// Those that `--wire-version` may name.
const SPOKEN: RangeInclusive<i64> = Versions::OURS.oldest as i64..=Versions::OURS.newest as i64;

#[derive(Debug, Args)]
pub(super) struct SendArgs {
    /// Where to listen for the source QEMU: unix:PATH or tcp:HOST:PORT.
    #[arg(long, value_name = "ADDRESS")]
    pub(super) listen: Address,
    #[command(flatten)]
    pub(super) sending: SendingArgs,
    #[command(flatten)]
    pub(super) life: LifeArgs,
}

/// What a sender does, whoever starts the migration.
#[derive(Debug, Args)]
pub(super) struct SendingArgs {
    /// Where the receiving proxy listens.
    #[arg(long, value_name = "ADDRESS")]
    pub(super) to: Address,
    /// Name that the receiver's certificate must bear, if not the host in --to.
    #[arg(long, value_name = "NAME")]
    pub(super) tls_name: Option<String>,
    #[command(flatten)]
    pub(super) tls: TlsArgs,
    #[command(flatten)]
    pub(super) wire: WireArgs,
    /// File of the scope to ask in (see `pageshare scope`). Without it, only pages that this
    /// migration itself has sent already are shared.
    #[arg(long, value_name = "FILE")]
    pub(super) scope: Option<PathBuf>,
    /// Whether to ask the receiver for pages.
    #[arg(long, value_enum, default_value_t = PolicyArg::Adaptive)]
    pub(super) ask: PolicyArg,
    /// Which pages may be asked for. KSM's verdict needs root, and KSM running at the source.
    /// [default: all; ksm with --ksm-pid]
    #[arg(long, value_enum)]
    pub(super) candidates: Option<CandidatesArg>,
    /// The source QEMU, if it is not the process that connects. With `--candidates all` KSM's
    /// verdict is counted beside the answers and decides nothing.
    #[arg(long, value_name = "PID")]
    pub(super) ksm_pid: Option<u32>,
    /// Refer to KSM's candidates at once, without waiting for the receiver's answer; what it lacks
    /// follows. Spares a round trip where links are long.
    #[arg(long)]
    pub(super) at_once: bool,
    /// MiB of pages sent that are remembered, so that a page that the guest has changed since
    /// travels as the difference; 0 for never.
    #[arg(long, value_name = "MIB", default_value = "64", value_parser = mib::<usize>)]
    pub(super) delta_cache: usize,
    /// Directory with the copy that this VM left here, or that was kept when it came here (see
    /// --keep): pages that have changed since travel as the difference, if the receiver's copies
    /// have the same version.
    #[arg(long, value_name = "DIR", requires = "scope")]
    pub(super) kept: Option<PathBuf>,
    #[command(flatten)]
    pub(super) keep: KeepArgs,
    /// Whether to compress what the receiver does not have.
    #[arg(long, value_enum, default_value_t = PolicyArg::Adaptive)]
    pub(super) compress: PolicyArg,
    /// Level of zstd: up to 22, which is the slowest; below 0 it is faster still.
    #[arg(long, allow_negative_numbers = true, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = value_parser!(i32).range(-131_072..=22))]
    pub(super) level: i32,
    /// Threads that compress; 0 for one a core.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = thread_count())]
    pub(super) threads: usize,
    /// QEMU's downtime-limit, in milliseconds: bounds how much is kept in flight. `migrate` sets it.
    /// [default: 300; with `migrate`, what QEMU has]
    #[arg(long, value_name = "MS")]
    pub(super) downtime_limit: Option<u64>,
}

/// A copy of the VM that stays here, for the next time that it comes or goes.
#[derive(Debug, Args)]
pub(super) struct KeepArgs {
    /// Keep a copy of the VM in this directory, encrypted under the scope's key. One of a VM that
    /// leaves spares what is sent when it comes back (`receive --kept`); one of a VM that arrives
    /// lets what changes here go back as differences (`send --kept`).
    #[arg(long, value_name = "DIR", requires = "scope")]
    pub(super) keep: Option<PathBuf>,
    /// Hours after which a copy is refused and removed.
    #[arg(long, value_name = "HOURS", default_value_t = 24)]
    pub(super) keep_for: u64,
    /// MiB that all copies in the directory may take; the oldest of other VMs give way.
    #[arg(long, value_name = "MIB", default_value = "16384", value_parser = mib::<u64>)]
    pub(super) keep_quota: u64,
    /// The VM's name: a newer copy of the same VM replaces the older, and `send --kept` looks for
    /// it; metrics bear it. `migrate` asks QEMU; without it metrics bear the name that the QEMU at the
    /// other end of a Unix socket was started with.
    #[arg(long, value_name = "NAME", default_value = "")]
    pub(super) keep_name: String,
}

#[derive(Debug, Args)]
pub(super) struct MigrateArgs {
    /// The source QEMU's monitor: unix:PATH of its -qmp socket. One client at a time can use it.
    pub(super) vm: Address,
    /// The destination QEMU's monitor; a path on another host comes here with
    /// `ssh -L /run/there.qmp:/run/vm.qmp HOST`.
    #[arg(long, value_name = "ADDRESS")]
    pub(super) to_qmp: Address,
    /// Where the destination QEMU, started with `-incoming defer`, shall await the migration: the
    /// --qemu of the receiving proxy. Leave it out if it awaits it already.
    #[arg(long, value_name = "URI", value_parser = uri)]
    pub(super) incoming: Option<String>,
    /// Where this host's QEMU shall find this program; needed if QEMU runs as another user, who
    /// must be able to write to the socket: put it into a directory of that user's group that has
    /// the set-group-ID bit (chmod 2770), and start this under `umask 007`.
    #[arg(long, value_name = "ADDRESS")]
    pub(super) listen: Option<Address>,
    /// Finish what a driver left that was killed: let the destination run if the source has
    /// completed, else end it and leave the guest to the source.
    #[arg(long)]
    pub(super) resume: bool,
    #[command(flatten)]
    pub(super) sending: SendingArgs,
    /// Append a JSON record of the migration to this file.
    #[arg(long, value_name = "FILE")]
    pub(super) record: Option<PathBuf>,
}

/// What QEMU takes, which is more than an address of ours; a socket's path is no longer there.
fn uri(text: &str) -> Result<String, NoAddress> {
    if text.starts_with("unix:") {
        text.parse::<Address>()?;
    }
    Ok(text.to_owned())
}

#[derive(Debug, Args)]
pub(super) struct EstimateArgs {
    /// Process id of the VM's QEMU.
    pub(super) pid: u32,
    #[command(flatten)]
    pub(super) sampling: SamplingArgs,
    #[command(flatten)]
    pub(super) sending: SendingArgs,
}

/// How a prediction is made, and told.
#[derive(Debug, Args)]
pub(super) struct SamplingArgs {
    /// The link's speed, in Mbit/s.
    #[arg(long, value_name = "MBIT", default_value_t = 1000.0)]
    pub(super) link: f64,
    /// Ask for one page in this many.
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub(super) sample: usize,
    /// Print JSON.
    #[arg(long)]
    pub(super) json: bool,
}

/// Nobody is asked and nothing moves: each VM's memory is sampled, and looked for in the indexes
/// that `pageshare index` keeps on the other hosts, copied here:
///
///   pageshare plan --scope tenant-a.json --source 'qemu:name=tenant-a-*' \
///       --there rack2=/var/lib/indexes/rack2 --there rack3=/var/lib/indexes/rack3
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(super) struct PlanArgs {
    /// File of the scope in which the indexes were made.
    #[arg(long, value_name = "FILE")]
    pub(super) scope: PathBuf,
    /// Which VMs of this host: qemu:SELECTOR, qemu:all, pid:NUMBER. Repeat for more.
    #[arg(long, value_name = "SOURCE", required = true)]
    pub(super) source: Vec<SourceSpec>,
    /// A host that they could go to, and its index. Repeat for more.
    #[arg(long, value_name = "HOST=FILE", required = true)]
    pub(super) there: Vec<String>,
    #[command(flatten)]
    pub(super) sampling: SamplingArgs,
}

#[derive(Debug, Args)]
pub(super) struct ReceiveArgs {
    /// Where to listen for the sending proxy: tcp:HOST:PORT or unix:PATH.
    #[arg(long, value_name = "ADDRESS")]
    pub(super) listen: Address,
    /// Where the destination QEMU awaits its migration (its -incoming).
    #[arg(long, value_name = "ADDRESS")]
    pub(super) qemu: Address,
    #[command(flatten)]
    pub(super) tls: TlsArgs,
    #[command(flatten)]
    pub(super) wire: WireArgs,
    /// Name of which the sender's certificate must bear one; repeat for more. Without it any
    /// client of the authorities may connect.
    #[arg(long, value_name = "NAME")]
    pub(super) peer: Vec<String>,
    /// The destination QEMU's process, if it is not the one that listens at --qemu: pages that
    /// arrive twice are found again in its memory.
    #[arg(long, value_name = "PID")]
    pub(super) qemu_pid: Option<u32>,
    /// File of a scope in which pages may be asked for (see `pageshare scope`). Repeat for more;
    /// a migration asks in one of them.
    #[arg(long, value_name = "FILE")]
    pub(super) scope: Vec<PathBuf>,
    /// Where to find pages: qemu:SELECTOR (memory of the tenant's QEMUs, such as qemu:name=a-*),
    /// pid:N, image:PATH (raw or qcow2; not the images behind it). Repeat for more. With several scopes, say which one may
    /// ask for them: NAME=SOURCE.
    #[arg(long, value_name = "[SCOPE=]SOURCE", requires = "scope")]
    pub(super) source: Vec<String>,
    /// Index the sources again this many seconds after the last time; 0 for never.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub(super) refresh: u64,
    /// Read a scope's index from a file that `pageshare index` keeps, as a migration begins, instead of
    /// indexing sources.
    #[arg(long, value_name = "[SCOPE=]FILE", requires = "scope")]
    pub(super) index: Vec<String>,
    /// Directory with copies that VMs left here (see `send --keep`). Each scope uses its own.
    #[arg(long, value_name = "DIR", requires = "scope")]
    pub(super) kept: Option<PathBuf>,
    #[command(flatten)]
    pub(super) keep: KeepArgs,
    /// Threads that index; 0 for one a core.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = thread_count())]
    pub(super) threads: usize,
    /// MiB of pages just received to keep for references; older ones are found in the memory of
    /// the arriving VM, where it can be read.
    #[arg(long, value_name = "MIB", default_value = "16", value_parser = mib::<usize>)]
    pub(super) recent: usize,
    #[command(flatten)]
    pub(super) life: LifeArgs,
}

/// When to end, and what to leave behind.
#[derive(Debug, Args)]
pub(super) struct LifeArgs {
    /// End after one migration, with exit code 1 if it failed. Connections that are no migration's
    /// are turned away and do not count.
    #[arg(long)]
    pub(super) once: bool,
    /// Append a JSON record of every migration to this file.
    #[arg(long, value_name = "FILE")]
    pub(super) record: Option<PathBuf>,
    /// Serve totals for Prometheus here, over plain HTTP.
    #[arg(long, value_name = "ADDRESS")]
    pub(super) metrics: Option<Address>,
}

#[derive(Debug, Args)]
pub(super) struct IndexArgs {
    /// File of the scope in which pages may be asked for.
    #[arg(long, value_name = "FILE")]
    pub(super) scope: PathBuf,
    /// What to index: qemu:SELECTOR, pid:N, image:PATH. Repeat for more.
    #[arg(long, value_name = "SOURCE", required = true)]
    pub(super) source: Vec<SourceSpec>,
    /// The index file; replaced as a whole, so that readers always see a complete one.
    #[arg(long, value_name = "FILE")]
    pub(super) out: PathBuf,
    /// Stay, and index again this many seconds after the last time.
    #[arg(long, value_name = "SECONDS", value_parser = value_parser!(u64).range(1..))]
    pub(super) every: Option<u64>,
    /// Threads; 0 for one a core.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = thread_count())]
    pub(super) threads: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum PolicyArg {
    /// While it pays on this link with this memory.
    Adaptive,
    /// Always.
    Always,
    /// Never.
    Never,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum CandidatesArg {
    /// Every page.
    All,
    /// Those that KSM has merged at the source, as in the paper.
    Ksm,
    /// None.
    Off,
}

/// More threads than a host has cores are a slip, and could not all be started.
fn thread_count() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(..=1024)
}

/// So many MiB, as bytes.
fn mib<N: TryFrom<u64>>(text: &str) -> Result<N, String> {
    let number: u64 = text.parse().map_err(|error| format!("{error}"))?;
    let bytes = number.checked_mul(1 << 20).and_then(|bytes| N::try_from(bytes).ok());
    bytes.ok_or_else(|| "there is no memory or disk of that size".to_owned())
}
