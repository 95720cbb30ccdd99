"""GlusterFS between the two hosts: a server with one brick, and a client's mount through FUSE.

    server namespace                          client namespace
      glusterd, glusterfsd (brick) ===wire=== glusterfs (FUSE) -- mounted for all to see

The server lives in a process namespace of its own, since glusterd lets its bricks go as daemons:
when its leader is killed, so are they. Options of the volume are those that glusterd chooses.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tare import process, rootless
from tare.command import Command, missing_packages
from tare.environments import Availability, Site
from tare.errors import TrialError
from tare.filesystems import Mounted, forget, wait_until

_PACKAGES = {"glusterd": "glusterfs-server", "gluster": "glusterfs-client"}
_VOLUME = "tare"
_TIMEOUT_S = 60.0
_LOGS = Path("/var/log/glusterfs/bricks")
"""Where bricks log, whatever glusterd was told."""
_MANAGEMENT = """\
volume management
    type mgmt/glusterd
    option working-directory {home}/work
    option run-directory {home}/run
    option logdir {home}/log
    option glusterd-sockfile {home}/socket
    option transport-type socket
    option transport.socket.read-fail-log off
    option ping-timeout 0
end-volume
"""


class GlusterFs:
    """The file system of facts and claims: real, distributed, and slow for small pieces."""

    def availability(self) -> Availability:
        """Tell whether GlusterFS and FUSE are here."""
        if not rootless.is_root():
            return Availability(False, "GlusterFS needs root", "run as root")
        if names := missing_packages(_PACKAGES):
            return Availability(False, f"not installed: {names}", f"apt-get install {names}")
        if not Path("/dev/fuse").exists():
            return Availability(False, "this kernel has no FUSE", "load its module: modprobe fuse")
        return Availability(True, _version())

    @contextmanager
    def mounted(self, site: Site) -> Iterator[Mounted]:
        """Start the server and make a volume.

        Raises:
            TrialError: the server refused, or did not come up.
        """
        home = site.scratch / "glusterfs"
        with ExitStack() as stack:
            stack.enter_context(site.leftovers.owing("directory", str(home)))
            for name in ("work", "run", "log", "brick", "mount"):
                (home / name).mkdir(parents=True)
            brick = home / "brick"
            log = _LOGS / f"{str(brick).strip('/').replace('/', '-')}.log"
            stack.enter_context(site.leftovers.owing("file", str(log)))
            stack.enter_context(_server(site, home))
            address = site.hosts.server_address
            _manage(site, home, "create", _VOLUME, f"{address}:{brick}", "force")
            _manage(site, home, "start", _VOLUME)
            pid, socket = _brick_process(brick)
            stack.enter_context(site.leftovers.owing("file", socket))
            pidfd = os.pidfd_open(pid)
            stack.callback(os.close, pidfd)
            try:
                yield _Volume(site, home)
            finally:
                # Its folder can be removed once nobody writes into it any more.
                stack.callback(process.wait_pidfd, pidfd, _TIMEOUT_S)
                _manage(site, home, "stop", _VOLUME, "force")


@dataclass
class _Volume:
    site: Site
    home: Path
    chain: tuple[str, ...] = ()

    @property
    def facts(self) -> Mapping[str, Any]:
        return {"version": _version(), "bricks": 1, "brick on": str(self.home)}

    @contextmanager
    def fresh(self) -> Iterator[Path]:
        """Start a new client. Leaving unmounts it, which writes out what it holds."""
        point = self.home / "mount"
        forget(self.home / "brick")
        client = Command(
            (
                "glusterfs", "--no-daemon", f"--volfile-server={self.site.hosts.server_address}",
                f"--volfile-id={_VOLUME}", f"--log-file={self.home}/log/client.log", str(point),
            ),
            netns=self.site.hosts.client_ns,
        )  # fmt: skip
        with self.site.leftovers.owing("mount", str(point)), process.start(client) as running:
            wait_until(
                lambda: os.path.ismount(point) or not running.alive(), _TIMEOUT_S, "the mount"
            )
            if not running.alive():
                running.finish(0)
                raise TrialError("the GlusterFS client ended at once")
            try:
                yield point
            finally:
                process.run(Command(("umount", str(point))), _TIMEOUT_S, accept=(0, 32))
                running.ended_within(_TIMEOUT_S)


@contextmanager
def _server(site: Site, home: Path) -> Iterator[None]:
    management = home / "glusterd.vol"
    management.write_text(_MANAGEMENT.format(home=home))
    glusterd = Command(
        (
            "unshare", "--pid", "--fork", "--kill-child", "--",
            "glusterd", "--no-daemon", f"--volfile={management}",
            f"--pid-file={home}/run/glusterd.pid", f"--log-file={home}/log/glusterd.log",
        ),
        netns=site.hosts.server_ns,
    )  # fmt: skip
    with process.start(glusterd, log_dir=home / "log") as running:
        wait_until(
            lambda: (home / "socket").exists() or not running.alive(), _TIMEOUT_S, "glusterd"
        )
        if not running.alive():
            running.finish(0)
            raise TrialError("glusterd ended at once", f"its log is in {home}/log")
        yield


def _manage(site: Site, home: Path, *words: str) -> None:
    gluster = ("gluster", "--mode=script", f"--glusterd-sock={home}/socket", "volume", *words)
    process.run(Command(gluster, netns=site.hosts.server_ns), _TIMEOUT_S)


def _brick_process(brick: Path) -> tuple[int, str]:
    """Pid of the brick's server, and its socket, which lies outside of our folder."""
    for cmdline in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = cmdline.read_bytes().decode(errors="replace").split("\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if "--brick-name" in words and words[words.index("--brick-name") + 1] == str(brick):
            return int(cmdline.parent.name), words[words.index("-S") + 1]
    raise TrialError(f"glusterd started no server for its brick {brick}")


def _version() -> str:
    said = process.run(Command(("glusterd", "--version")), _TIMEOUT_S).stdout
    return said.splitlines()[0] if said else "GlusterFS"
