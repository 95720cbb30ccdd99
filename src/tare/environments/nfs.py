"""A file served over NFS by the host, for guests to mount: nfs-ganesha in the server's namespace.

NFS 4 alone, by which neither a portmapper nor a lock daemon is needed, and no kernel of the host's.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tare import mounts, process
from tare.command import PATH, Command
from tare.environments import Site
from tare.errors import TrialError
from tare.pauses import pauses

PROGRAM = "ganesha.nfsd"
PORT = 2049
EXPORT = "/export"
"""The name by which clients mount it."""

_REFUSED = "Could not create export"
_START_TIMEOUT_S = 30.0
_LOOK_TIMEOUT_S = 10.0
_LISTENS = f":{PORT:04X} "
_CONFIGURATION = """
NFS_CORE_PARAM {{ Protocols = 4; NFS_Port = {port}; Enable_NLM = false; Enable_RQUOTA = false;
  allow_set_io_flusher_fail = true; # from 6 on it ends where it may not be one; before, a warning
}}
NFSV4 {{ Graceless = true; RecoveryBackend = fs; RecoveryRoot = "{state}"; Minor_Versions = 1, 2; }}
NFS_KRB5 {{ Active_krb5 = false; }}
EXPORT {{
  Export_Id = 1; Path = "{folder}"; Pseudo = "{export}"; Access_Type = RW;
  Squash = No_Root_Squash; SecType = sys; Protocols = 4; Transports = TCP;
  FSAL {{ Name = VFS; }}
}}
"""


@contextmanager
def serving(site: Site, folder: Path) -> Iterator[None]:
    """Serve a folder from the host's address as long as the context lasts.

    Args:
        site: whose host serves.
        folder: an absolute path, on a file system of the host.

    Raises:
        TrialError: it is not installed, or does not come up.
    """
    base = site.scratch / f"nfs-{folder.name}"
    with site.leftovers.owing("directory", str(base)):
        state = base / "state"
        state.mkdir(parents=True)
        configuration = base / "ganesha.conf"
        configuration.write_text(
            _CONFIGURATION.format(port=PORT, state=state, folder=folder, export=EXPORT)
        )
        argv = (
            PROGRAM, "-F", "-f", str(configuration), "-L", str(base / "log"), "-N", "WARN",
            "-p", str(base / "pid"),
        )  # fmt: skip
        command = Command(argv, netns=site.hosts.server_ns, env={"PATH": PATH})
        with process.start(command, log_dir=site.scratch / "logs", name="nfs") as server:
            _await_listening(site, server, base / "log")
            if _REFUSED in _said(base / "log"):
                raise TrialError(
                    f"{PROGRAM} does not serve {folder}, which is on {mounts.kind_at(folder)}",
                    "have TMPDIR name a folder on a disk: some versions serve none in memory",
                )
            yield


def _await_listening(site: Site, server: process.Running, log: Path) -> None:
    look = Command(("cat", "/proc/net/tcp", "/proc/net/tcp6"), netns=site.hosts.server_ns)
    for _ in pauses(_START_TIMEOUT_S):
        if _LISTENS in process.run(look, _LOOK_TIMEOUT_S, accept=(0, 1)).stdout:
            return
        if not server.alive():
            break
    said = _said(log).splitlines()[-3:]
    raise TrialError(f"{PROGRAM} did not begin to serve: {' | '.join(said)}")


def _said(log: Path) -> str:
    return log.read_text(errors="replace") if log.exists() else ""
