"""How an MPI job is started, with and without nvio, and what nvio says that it did.

Both arms get the same launcher and the same progress settings: Debian's MPICH polls without ever
yielding, so that with more ranks than processors a barrier takes a time slice; `libyield.so` is
preloaded in both.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tare import process
from tare.command import Command
from tare.errors import TrialError, UsageError

PLAIN = "plain"
LAUNCHERS: Mapping[str, tuple[str, ...]] = {
    "mpich": ("mpiexec.mpich",),
    "openmpi": ("mpirun.openmpi", "--allow-run-as-root", "--oversubscribe"),
}
_ASK_S = 30.0
_SETTING = re.compile(r"[a-z_]+=[^\s=]+")
_STOOD_ASIDE = "without the cache"


@dataclass(frozen=True)
class Cache:
    """A level of the factor `cache`: plain MPI-IO, or nvio with some of its settings."""

    settings: tuple[tuple[str, str], ...] | None
    """What `nvio run --set` is given; None is plain MPI-IO."""

    @staticmethod
    def parse(written: object) -> Cache:
        """Read `plain`, `nvio`, or `nvio` with settings, as `nvio prefetch=whole nodes=2`.

        Raises:
            UsageError: it is none of these.
        """
        first, *words = str(written).split() or [""]
        if first == PLAIN and not words:
            return Cache(None)
        if first == "nvio" and all(_SETTING.fullmatch(word) for word in words):
            pairs = (word.partition("=") for word in words)
            return Cache(tuple(sorted((name, value) for name, _, value in pairs)))
        raise UsageError(
            f"{written!r} is neither 'plain' nor 'nvio', which settings may follow, as in"
            " 'nvio prefetch=whole'"
        )

    def __str__(self) -> str:
        """Return the text that `parse` reads."""
        if self.settings is None:
            return PLAIN
        return " ".join(["nvio", *(f"{name}={value}" for name, value in self.settings)])

    def lacking(self, programs: Path) -> str | None:
        """Ask nvio whether it knows these settings; say what it says where it does not."""
        if self.settings is None:
            return None
        nvio = programs / "nvio/nvio"
        if not nvio.exists():
            return f"not built: {nvio}. Run `make build`"
        try:
            said = process.run(Command((str(nvio), "run", *self.sets(), "--", "true")), _ASK_S)
        except TrialError as error:
            return f"nvio does not take {self}: {error.what}. `nvio run --help` lists its settings"
        if refused := said.stderr.strip():
            return f"nvio does not take {self}: {refused}"
        return None

    def sets(self) -> tuple[str, ...]:
        """The settings as arguments of `nvio run`."""
        pairs = (f"{name}={value}" for name, value in self.settings or ())
        return tuple(word for pair in pairs for word in ("--set", pair))

    def setting(self, name: str, default: str) -> str:
        """One of nvio's settings; its default where it is not set, or there is no nvio."""
        return dict(self.settings or ()).get(name, default)


@dataclass(frozen=True)
class Job:
    """An MPI program and how it is run."""

    argv: tuple[str, ...]
    mpi: str
    ranks: int
    cache: Cache
    programs: Path
    """The build directory."""
    scratch: Path
    """Where nvio tells what it counted."""
    before: tuple[str, ...] = ()
    """Words before the launcher: what a file system needs to slow the job down."""

    @property
    def counted(self) -> Path:
        """The file that `nvio run` writes at the job's end."""
        return self.scratch / "nvio-counted.json"

    def command(self) -> Command:
        """The whole command line, launcher and wrapper included."""
        nvio = self.programs / "nvio"
        argv: Sequence[str] = (*LAUNCHERS[self.mpi], "-n", str(self.ranks), *self.argv)
        if self.cache.settings is not None:
            told = ("--stats-file", str(self.counted))
            argv = (str(nvio / "nvio"), "run", *told, *self.cache.sets(), "--", *argv)
        preload = {"LD_PRELOAD": str(nvio / "libyield.so")} if self.mpi == "mpich" else {}
        return Command((*self.before, *argv), env=preload)


@dataclass(frozen=True)
class Finished:
    """What is known of a job that ended well."""

    stdout: str
    seconds: float
    """From the start of the launcher until everything has ended, what nvio does last included."""
    counters: Mapping[str, int]
    """What nvio's processes counted, added up; empty for plain MPI-IO."""


def run(job: Job, timeout_s: float) -> Finished:
    """Run a job to its end.

    Raises:
        TrialError: it failed, took too long, or nvio was to serve it and did not.
    """
    job.counted.unlink(missing_ok=True)
    began = time.monotonic()
    said = process.run(job.command(), timeout_s)
    seconds = time.monotonic() - began
    if job.cache.settings is None:
        return Finished(said.stdout, seconds, {})
    told: dict[str, Any] = {"processes": 0}
    if job.counted.exists():
        told = json.loads(job.counted.read_text())
    if told["processes"] < job.ranks or _STOOD_ASIDE in said.stderr:
        # A comparison of plain with plain would show that nvio costs nothing.
        raise TrialError(
            f"nvio served {told['processes']} of {job.ranks} ranks: {said.stderr.strip()[-400:]}"
        )
    return Finished(said.stdout, seconds, told["counters"])
