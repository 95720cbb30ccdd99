"""What starts programs in a tree that need not have it: tools of this machine, and libraries.

They lie below `OWN`, and are started by a loader that lies there too: an image may have another C
library, or none.

    bin/NAME        tools
    programs/NAME   ours, where the whole build directory is not shown there
    lib/NAME        the loader, and every library of these
"""

from __future__ import annotations

import shutil
from pathlib import Path

from tare import process
from tare.command import PATH, Command
from tare.guests.image import libraries_in
from tare.tree import OWN

TOOLS = (
    "chrt", "cp", "env", "kill", "setpriv", "sh", "sleep", "sync", "tar", "taskset", "uname",
)  # fmt: skip
"""What starts, places and ends what runs in a tree, fills it, and brings back what it wrote."""

_OURS = ("probe/execute", "probe/probe", "echo/echo-null")
"""Those of our programs that run in every tree."""

_TIMEOUT_S = 60.0


def pack(own: Path, programs: Path, *, ours: bool) -> None:
    """Fill a folder that is to be `OWN`.

    Args:
        own: the folder.
        programs: the build directory.
        ours: whether our programs are copied, too.

    Raises:
        UnavailableError: a library of theirs is not here.
    """
    found = [shutil.which(name, path=PATH) for name in TOOLS]
    tools = [Path(path) for path in found if path is not None]
    built = [programs / name for name in _OURS if (programs / name).exists()]
    for name in ("bin", "lib", "programs"):
        _see_folder(own / name)
    for tool in tools:
        _copy(tool, own / "bin" / tool.name)
    listing = process.run(
        Command(("ldd", *map(str, (*tools, *built)))), _TIMEOUT_S, accept=(0, 1)
    ).stdout
    for library in libraries_in(listing):
        _copy(library, own / "lib" / library.name)
    if ours and built:
        for path in built:
            _copy(path, own / "programs" / path.relative_to(programs))
        copies = [str(own / "programs" / path.relative_to(programs)) for path in built]
        process.run(Command(("strip", "--strip-debug", *copies)), _TIMEOUT_S)


def started(own: Path, path: str) -> tuple[str, ...]:
    """Words that start a program of a tree's toolbox, in that tree.

    Args:
        own: the folder, as it is seen from here.
        path: the program's, below it.
    """
    loader = next((own / "lib").glob("ld-*")).name
    return (f"{OWN}/lib/{loader}", "--library-path", f"{OWN}/lib", f"{OWN}/{path}")


def _copy(source: Path, target: Path) -> None:
    _see_folder(target.parent)
    shutil.copyfile(source, target)
    target.chmod(0o755)


def _see_folder(path: Path) -> None:
    path.mkdir(exist_ok=True)
    path.chmod(0o755)  # whatever is masked
