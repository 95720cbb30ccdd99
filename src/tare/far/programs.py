"""This machine's programs on the far machine: pushed when they are first asked for.

With them goes every library that they need if one is missing there; then they are started by the
loader that goes with those libraries, since the far machine's own may be older.
"""

from __future__ import annotations

import platform
import shlex
import shutil
from pathlib import Path, PurePosixPath

from tare import process
from tare.command import PATH, Command
from tare.errors import TrialError, UnavailableError
from tare.far.connection import Connection
from tare.far.folder import Folder
from tare.guests.image import LATE_LIBRARY, libraries_in

_TIMEOUT_S = 60.0


class Programs:
    """What of the build directory is on the far machine.

    Args:
        connection: to the far machine.
        folder: there, where they go.
        local: the build directory.
        scratch: a folder here, for copies without debugging information.

    Raises:
        TrialError: the far machine cannot run programs of this one.
    """

    def __init__(self, connection: Connection, folder: Folder, local: Path, scratch: Path) -> None:
        self._connection = connection
        self._folder = folder
        self._path = PurePosixPath(folder.path)
        self._local = local
        self._scratch = scratch
        self._pushed: dict[str, tuple[str, ...]] = {}
        said = connection.run(["uname", "-sm"], _TIMEOUT_S).stdout.decode(errors="replace").strip()
        ours = f"{platform.system()} {platform.machine()}"
        if said != ours:
            raise TrialError(
                f"{connection.destination} is {said or 'no Unix'}, and the programs here are for"
                f" {ours}",
                "run Tare on a machine of that kind",
            )

    def command(self, name: str) -> tuple[str, ...]:
        """Return how a program is started there; push it if it is not there yet.

        Args:
            name: a path below the build directory, such as "echo/echo-udp".

        Raises:
            TrialError: it is not built, or does not fit on the far machine.
        """
        if name not in self._pushed:
            self._pushed[name] = self._push(name)
        return self._pushed[name]

    @property
    def tools(self) -> str:
        """The folder there that holds what `bring` brought, for the PATH."""
        return str(self._path / "tools")

    def bring(self, tool: str) -> None:
        """See that a program of the system can be called there by its name; push ours if not.

        Raises:
            TrialError: it is on neither machine, or does not fit there.
        """
        name = f"tools/{tool}"
        if name in self._pushed:
            return
        look = ["sh", "-c", f'PATH="{PATH}" command -v "$1"', "sh", tool]
        if self._connection.run(look, _TIMEOUT_S).code != 0:
            here = shutil.which(tool, path=PATH)
            if here is None:
                raise TrialError(
                    f"{tool} is neither on {self._connection.destination} nor here",
                    "`tare doctor` names its package",
                )
            started = self._push(f"of-the-system/{tool}", Path(here))
            script = f'#!/bin/sh\nexec {shlex.join(started)} "$@"\n'
            self._folder.put(script.encode(), tool, PurePosixPath(self.tools) / tool)
        self._pushed[name] = ()

    def _push(self, name: str, of_system: Path | None = None) -> tuple[str, ...]:
        source = of_system or self._local / name
        if not source.is_file():
            raise TrialError(f"{source} is not there", "build it: make build")
        target = self._path / name
        self._send(self._stripped(source), target)
        found = self._connection.run(["ldd", str(target)], _TIMEOUT_S)
        if found.code == 0 and "not found" not in found.stdout.decode() + found.stderr:
            return (str(target),)
        listing = process.run(Command(("ldd", str(source))), _TIMEOUT_S).stdout
        try:
            libraries = libraries_in(listing)
        except UnavailableError as error:
            raise TrialError(error.what, error.remedy) from error
        late = next(p.parent for p in libraries if p.name.startswith("libc.so")) / LATE_LIBRARY
        if late.exists() and late not in libraries:
            libraries.append(late)
        folder = self._path / "libraries"
        for library in libraries:
            if library.name not in self._pushed:
                self._send(library, folder / library.name)
                self._pushed[library.name] = ()
        loader = next(path for path in libraries if path.name.startswith("ld-"))
        return (str(folder / loader.name), "--library-path", str(folder), str(target))

    def _send(self, source: Path, target: PurePosixPath) -> None:
        self._folder.put(source.read_bytes(), target.name, target)

    def _stripped(self, source: Path) -> Path:
        """Copy a program without debugging information, which is most of it; once a run."""
        stat = source.stat()
        copy = self._scratch / f"{source.name}-{stat.st_size}-{stat.st_mtime_ns}"
        if not copy.exists():
            self._scratch.mkdir(parents=True, exist_ok=True)
            half = copy.with_suffix(".half")
            strip = ("strip", "--strip-debug", "-o", str(half), str(source))
            process.run(Command(strip), _TIMEOUT_S)
            half.replace(copy)
        return copy
