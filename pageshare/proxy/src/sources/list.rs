//! Where the pages of sources are: which processes and images are meant, and may be read.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::path::Path;

use pageshare_index::{Catalogue, Origin, PAGE_SIZE};
use tracing::{debug, warn};

use super::arrival::{Arrival, arrival};
use super::library::Library;
use super::process;
use super::qcow2::{self, Compressed};
use super::reader::{Stamp, open_image};
use super::spec::SourceSpec;
use crate::error::Error;

/// Where the pages of all sources are, with the stamps of the origins. Images come first: what
/// comes behind a process is read again each time.
pub(super) fn list(
    sources: &[SourceSpec],
    before: Option<&Library>,
) -> Result<(Catalogue, Vec<Option<Stamp>>), Error> {
    let (mut catalogue, mut stamps) = (Catalogue::default(), Vec::new());
    let mut sources: Vec<&SourceSpec> = sources.iter().collect();
    sources.sort_by_key(|source| !matches!(source, SourceSpec::Image(_)));
    for source in sources {
        match source {
            SourceSpec::Image(path) => {
                let stamp = add_image(&mut catalogue, path)
                    .map_err(|error| unusable(&path.display().to_string(), &error))?;
                stamps.resize(catalogue.origins().len(), stamp);
            }
            SourceSpec::AllQemus => add_qemus(&mut catalogue, before, |_| true)?,
            SourceSpec::Qemus(selector) => {
                add_qemus(&mut catalogue, before, |pid| selector.takes(pid))?;
            }
            SourceSpec::Pid(pid) => {
                let meant = |it: &Origin| before.is_none_or(|before| before.has(it));
                match (add_process(&mut catalogue, *pid, meant), before) {
                    (Ok(Added::All), _) => {}
                    (Ok(Added::Nothing(why)), None) => {
                        warn!("memory of process {pid} is left out: {why}");
                    }
                    (Ok(Added::Nothing(why)), _) => {
                        debug!("memory of process {pid} is left out: {why}");
                    }
                    (Err(error), None) => {
                        return Err(unusable(&format!("memory of process {pid}"), &error));
                    }
                    (Err(error), _) => warn!("memory of process {pid} is left out: {error}"),
                    (Ok(Added::NotMeant), _) => {
                        warn!(
                            "memory of process {pid} is left out: the one that was meant has ended"
                        );
                    }
                }
            }
        }
    }
    stamps.resize(catalogue.origins().len(), None);
    Ok((catalogue, stamps))
}

/// The processes that these sources name, each once, in order of their numbers; images have none.
///
/// # Errors
/// If the processes of this host cannot be listed.
pub fn processes(sources: &[SourceSpec]) -> Result<Vec<u32>, Error> {
    let qemus = process::qemus().map_err(|error| unusable("/proc", &error))?;
    let mut found: Vec<u32> = sources
        .iter()
        .flat_map(|source| match source {
            SourceSpec::AllQemus => qemus.clone(),
            SourceSpec::Qemus(selector) => {
                qemus.iter().copied().filter(|pid| selector.takes(*pid)).collect()
            }
            SourceSpec::Pid(pid) => vec![*pid],
            SourceSpec::Image(_) => Vec::new(),
        })
        .collect();
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

fn unusable(path: &str, error: &io::Error) -> Error {
    let hint = match error.kind() {
        io::ErrorKind::PermissionDenied => " (run as root or as the user that owns it)",
        _ => "",
    };
    Error::File { what: "source", path: path.to_owned(), reason: format!("{error}{hint}") }
}

fn add_qemus(
    catalogue: &mut Catalogue,
    before: Option<&Library>,
    meant: impl Fn(u32) -> bool,
) -> Result<(), Error> {
    for pid in process::qemus().map_err(|error| unusable("/proc", &error))? {
        match add_process(catalogue, pid, |_| meant(pid)) {
            Ok(Added::All | Added::NotMeant) => {}
            // Once: it stays so, and the sources are looked at again and again.
            Ok(Added::Nothing(Arrival::Unnamed)) if before.is_none() => {
                warn!("memory of QEMU process {pid} is left out: {}", Arrival::Unnamed);
            }
            // A host to which guests come has such QEMUs all the time.
            Ok(Added::Nothing(why)) => debug!("memory of QEMU process {pid} is left out: {why}"),
            Err(error) => {
                let hint = match error.kind() {
                    io::ErrorKind::PermissionDenied => {
                        "; run as its user, or as root with CAP_SYS_PTRACE and CAP_DAC_OVERRIDE"
                    }
                    _ => "",
                };
                warn!("memory of QEMU process {pid} is left out: {error}{hint}");
            }
        }
    }
    Ok(())
}

/// What has been added of a process.
enum Added {
    /// All that it has touched.
    All,
    /// That it was looked for: its guest may be arriving.
    Nothing(Arrival),
    /// Nothing at all.
    NotMeant,
}

/// Adds a process if it is meant. Its number may become another's meanwhile: it is looked at once it is
/// known when it started, by which its memory is known later.
fn add_process(
    catalogue: &mut Catalogue,
    pid: u32,
    meant: impl Fn(&Origin) -> bool,
) -> io::Result<Added> {
    let origin = Origin::Process { pid, started: process::started(pid)? };
    if !meant(&origin) {
        return Ok(Added::NotMeant);
    }
    process::memory(pid)?;
    if let Some(why) = arrival(pid)? {
        catalogue.add_origin(origin);
        return Ok(Added::Nothing(why));
    }
    let touched = process::touched(pid)?;
    let origin = catalogue.add_origin(origin);
    for run in touched {
        catalogue.add_span(origin, run.address, run.pages).ok_or_else(full)?;
    }
    Ok(Added::All)
}

/// Returns the image's stamp, if it has one, as it was before anything of it was read. What an image
/// holds may be a guest's to say: it keeps no other source out.
fn add_image(catalogue: &mut Catalogue, path: &Path) -> io::Result<Option<Stamp>> {
    let path = path.canonicalize()?;
    let mut file = open_image(&path)?;
    let stamp = Stamp::of(&file)?;
    // A block device has a length only for who seeks its end.
    let pages = file.seek(SeekFrom::End(0))? / PAGE_SIZE as u64;
    let origin = catalogue.add_origin(Origin::File { path: path.clone() });
    let pages = u32::try_from(pages).ok();
    if pages.and_then(|pages| catalogue.add_span(origin, 0, pages)).is_none() {
        warn!("{} is left out: {}", path.display(), full());
    } else if qcow2::is_one(&file)
        && let Err(error) = add_compressed(catalogue, &path, file)
    {
        warn!("compressed clusters of {} are left out: {error}", path.display());
    }
    Ok(stamp)
}

fn add_compressed(catalogue: &mut Catalogue, path: &Path, image: File) -> io::Result<()> {
    let runs = Compressed::open(image)?.runs()?;
    if !runs.is_empty() {
        let origin = catalogue.add_origin(Origin::Compressed { path: path.to_owned() });
        for run in runs {
            catalogue.add_span(origin, run.address, run.pages).ok_or_else(full)?;
        }
    }
    Ok(())
}

fn full() -> io::Error {
    io::Error::other("the index holds at most 16 TiB")
}
