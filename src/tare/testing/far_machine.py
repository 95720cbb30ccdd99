"""An sshd in a namespace: as far a machine as one machine can hold, for claims and tests.

Keys are made for it, and go with its folder.
"""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tare import netns, process
from tare.command import Command
from tare.destination import Destination
from tare.errors import TrialError, UnavailableError
from tare.hosts import Hosts

INSTALLED = Path("/usr/sbin/sshd")
PORT = 2222
_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class FarMachine:
    """A far machine, and what can be seen of it from here."""

    destination: Destination
    home: Path
    """The near side's, with its key and its known hosts."""
    temporary: Path
    """The far side's folder for what does not last."""
    sshd: process.Running

    def sessions(self) -> list[int]:
        """Return the processes of sshd that serve connections; newer ones have several for each.

        A connection is lost once none of them is left.
        """
        found: list[int] = []
        parents = [self.sshd.pid]
        while parents:
            parent = parents.pop()
            with suppress(OSError):  # it has ended
                for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
                    if Path(f"/proc/{pid}/comm").read_text().startswith("sshd"):
                        found.append(int(pid))
                        parents.append(int(pid))
        return found

    def left(self) -> list[str]:
        """List what is there of ours: folders, and processes of any session."""
        found = [str(path) for path in self.temporary.iterdir()]
        ours = f"TMPDIR={self.temporary}".encode()
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if ours in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(f"process {folder.name}")
            except OSError:  # it has ended
                continue
        return found


def require_sshd(programs: Path) -> Path:
    """Return the sshd that was unpacked in the build directory, or else the installed one.

    Raises:
        UnavailableError: there is none.
    """
    unpacked = programs / "sshd" / "root" / "usr" / "sbin" / "sshd"
    for path in (unpacked, INSTALLED):
        if path.exists():
            return path
    raise UnavailableError(
        f"{unpacked} is missing, which stands for a far machine here",
        "unpack it: make setup",
    )


@dataclass(frozen=True)
class Keys:
    """Of a far machine, or of several: who they are, and who is let in."""

    host: Path
    home: Path
    """Of the user who is let in: with his key, and with those of the machines that he knows."""

    @staticmethod
    def make(folder: Path, address: str) -> Keys:
        """Make them in a folder, for whatever listens at an address."""
        home = folder / "home"
        (home / ".ssh").mkdir(parents=True, mode=0o700)
        keys = Keys(folder / "host_key", home)
        for key in (keys.host, keys.user):
            make = ("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key))
            process.run(Command(make), _TIMEOUT_S)
        public = keys.host.with_suffix(".pub").read_text()
        (home / ".ssh" / "known_hosts").write_text(f"[{address}]:{PORT} {public}")
        return keys

    @property
    def user(self) -> Path:
        """The user's own."""
        return self.home / ".ssh" / "id_ed25519"


@contextmanager
def far_machine(
    folder: Path,
    programs: Path,
    near_ns: str,
    far_ns: str,
    address: str,
    keys: Keys | None = None,
) -> Iterator[FarMachine]:
    """Run an sshd in `far_ns`, and let the user in whose keys these are; its own where None.

    Raises:
        UnavailableError: this machine has no sshd.
    """
    program = require_sshd(programs)
    keys = keys or Keys.make(folder, address)
    (folder / "authorized").write_text(keys.user.with_suffix(".pub").read_text())
    temporary = folder / "temporary"
    temporary.mkdir()
    settings = {
        "Port": PORT, "ListenAddress": address, "HostKey": keys.host, "PidFile": "none",
        "AuthorizedKeysFile": folder / "authorized", "StrictModes": "no", "UsePAM": "no",
        "PermitRootLogin": "yes", "SetEnv": f"TMPDIR={temporary}",
    }  # fmt: skip
    for name, part in (("SshdSessionPath", "sshd-session"), ("SshdAuthPath", "sshd-auth")):
        # Parts of OpenSSH 10, which otherwise looks where they would be installed.
        if (path := program.parents[1] / "lib" / "openssh" / part).exists():
            settings[name] = path
    argv = (str(program), "-D", "-e", "-f", "/dev/null")
    options = [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]
    command = Command((*argv, *options), netns=far_ns, env=_with_its_user(folder, program))
    with _separated(), process.start(command) as sshd:
        _await_listening(near_ns, address)
        yield FarMachine(Destination(address, "root", PORT, near_ns), keys.home, temporary, sshd)
        if sshd.alive():
            os.kill(sshd.pid, signal.SIGTERM)
            sshd.ended_within(10)


@contextmanager
def _separated() -> Iterator[None]:
    """Have the folder that every sshd here insists on; the last of us removes what we made."""
    folder = Path("/run/sshd")
    mark = folder / "made-for-a-test"  # an installed sshd's has none, and stays
    while True:
        made = not folder.exists()
        folder.mkdir(exist_ok=True)
        held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        if made:
            mark.touch()
        fcntl.flock(held, fcntl.LOCK_SH)
        if folder.exists() and os.path.samestat(os.fstat(held), folder.stat()):
            break
        os.close(held)  # whoever was the last removed it just now
    try:
        yield
    finally:
        with suppress(BlockingIOError):
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if mark.exists():
                mark.unlink()
                folder.rmdir()
        os.close(held)


def _with_its_user(folder: Path, program: Path) -> dict[str, str]:
    """Return the variables by which sshd alone sees a user `sshd`: its sessions get none of them.

    As that user it talks to those who are not let in yet. An installed package has made one.
    """
    if program == INSTALLED:
        return {}
    (wrapper,) = program.parents[1].glob("lib/*/libnss_wrapper.so")
    users = folder / "passwd"
    users.write_text(f"{Path('/etc/passwd').read_text()}sshd:x:65534:65534::/run/sshd:/bin/false\n")
    return {
        "LD_PRELOAD": str(wrapper),
        "NSS_WRAPPER_PASSWD": str(users),
        "NSS_WRAPPER_GROUP": "/etc/group",
    }


@contextmanager
def at_home(folder: Path, programs: Path, hosts: Hosts) -> Iterator[FarMachine]:
    """Make the server's host a far machine, whose user this process is meanwhile, by $HOME."""
    with all_at_home(folder, programs, (hosts,)) as (far,):
        yield far


@contextmanager
def all_at_home(
    folder: Path, programs: Path, hosts: Sequence[Hosts]
) -> Iterator[tuple[FarMachine, ...]]:
    """The same of several, with one key, each behind a wire of its own."""
    usual = {key: os.environ.get(key) for key in ("HOME", "SSH_AUTH_SOCK")}
    require_sshd(programs)
    with ExitStack() as stack:
        keys = Keys.make(folder, Hosts.server_address)
        found = []
        for number, one in enumerate(hosts):
            (of_it := folder / f"{number}").mkdir()
            far_side = (one.client_ns, one.server_ns, one.server_address, keys)
            found.append(stack.enter_context(far_machine(of_it, programs, *far_side)))
        os.environ["HOME"] = str(keys.home)
        os.environ.pop("SSH_AUTH_SOCK", None)
        try:
            yield tuple(found)
        finally:
            for key, value in usual.items():
                if value is not None:
                    os.environ[key] = value
                else:
                    os.environ.pop(key, None)


def _await_listening(near_ns: str, address: str) -> None:
    """Wait until somebody listens; a connection that is refused says so at once."""
    found: list[bool] = []

    def look() -> None:
        netns.enter(near_ns)
        for _ in range(2000):
            try:
                socket.create_connection((address, PORT), 5).close()
            except ConnectionRefusedError:
                threading.Event().wait(0.005)
            else:
                found.append(True)
                return

    looking = threading.Thread(target=look)
    looking.start()
    looking.join(30)
    if not found:
        raise TrialError(f"sshd does not listen on {address}:{PORT}")
