"""How the scripts of this folder start programs of an MPI, with nvio or without, and end them."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

LAUNCHERS = {
    "mpich": ["mpiexec.mpich"],
    "openmpi": ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe"],
}
DIES_WITH_US = ["setpriv", "--pdeathsig", "TERM", "--"]
"""Before a command line: when its parent is killed, it is told to end."""
MEMORY = Path("/dev/shm")  # noqa: S108 - nvio's default
TO_CLEAN_UP_S = 10.0
Lines = list[list[str]]
"""What each rank wrote down."""


@dataclass(frozen=True)
class Launch:
    """How programs of one MPI are started here."""

    mpi: str
    build: Path
    ranks: int
    extra: tuple[str, ...] = ()
    slow: bool = field(default=False, kw_only=True)
    """Each pread and pwrite takes 0.1 ms longer (slow.cc)."""

    def command(self, program: list[str]) -> list[str]:
        """The command line that starts `program` on all ranks."""
        return [*LAUNCHERS[self.mpi], "-n", str(self.ranks), *self.extra, *program]

    def environment(self, nvio: dict[str, str] | None) -> dict[str, str]:
        """The environment of a run; `nvio` are its settings, or None for a plain one."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith("NVIO_")}
        preload = [str(self.build / "libyield.so")] if self.mpi == "mpich" else []
        if self.slow:
            preload.append(str(self.build / "libslow.so"))
        if nvio is not None:
            preload.insert(0, str(self.build / "libnvio.so"))
            kept.update(nvio)
        if preload:
            kept["LD_PRELOAD"] = ":".join(preload)
        return kept


class RunError(Exception):
    """A run ended otherwise than it should; the message says how."""


class HangError(RunError):
    """A run did not end."""


def end_session(leader: subprocess.Popen[str]) -> None:
    """End a launcher, which cleans up if it can, and all that it started.

    Open MPI's ranks are in process groups of their own, but in their launcher's session.
    """
    leader.terminate()
    with suppress(subprocess.TimeoutExpired):
        leader.wait(TO_CLEAN_UP_S)
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with suppress(ProcessLookupError):  # it ends just now
            if os.getsid(int(entry.name)) == leader.pid:
                os.kill(int(entry.name), signal.SIGKILL)


def run(command: list[str], environment: dict[str, str], timeout: float) -> str:
    """Run to the end and return what it printed; at the timeout nothing of it is left."""
    process = subprocess.Popen(
        [*DIES_WITH_US, *command],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        text=True,
    )
    try:
        output, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        end_session(process)
        output, _ = process.communicate()
        raise HangError(f"no end within {timeout:.0f} s: {' '.join(command)}\n{output}") from None
    except BaseException:  # Ctrl-C, of which a session of its own hears nothing, or SIGTERM
        end_session(process)
        raise
    if process.returncode != 0:
        raise RunError(f"exit status {process.returncode}: {' '.join(command)}\n{output}")
    return output


def leave_on_sigterm() -> None:
    """Have SIGTERM end this program as Ctrl-C does, with everything tidied up on the way."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


def say(text: str) -> None:
    """One line for whoever runs this."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def stores(session: str, memories: Sequence[Path] = (MEMORY,)) -> list[Path]:
    """The stores of sessions whose names begin so, in these folders."""
    return [found for memory in memories for found in memory.glob(f"nvio-*-{session}*")]


def remove_stores(session: str, memories: Sequence[Path] = (MEMORY,)) -> None:
    """Take those away that programs left which did not end."""
    for store in stores(session, memories):
        shutil.rmtree(store, ignore_errors=True)


def left_stores(session: str, memories: Sequence[Path] = (MEMORY,)) -> list[Path]:
    """What is still there of a session's stores; managers take a moment to see that all is over."""
    deadline = time.monotonic() + 20
    while True:
        left = stores(session, memories)
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.01)


@contextmanager
def of_its_own(name: str) -> Iterator[tuple[str, Path]]:
    """A session's name and a folder, which go with all stores of sessions whose names begin so."""
    session = f"{name}-{os.getpid()}"
    with tempfile.TemporaryDirectory(prefix=f"nvio-{name}-") as folder:
        try:
            yield session, Path(folder)
        finally:
            remove_stores(session)


def command_line(doc: str) -> argparse.ArgumentParser:
    """What every script here is told, which begins its text with what it does."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("--build", type=Path, required=True, help="nvio's build folder")
    parser.add_argument("--mpi", choices=sorted(LAUNCHERS), required=True)
    return parser


def command_line_of_jobs(doc: str) -> argparse.ArgumentParser:
    """The same of a script whose jobs can be set and launched otherwise."""
    parser = command_line(doc)
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting of nvio, NVIO_...; may be repeated",
    )
    parser.add_argument(
        "--launch",
        type=shlex.split,
        default=[],
        metavar="WORDS",
        help="more for the MPI's launcher",
    )
    return parser
