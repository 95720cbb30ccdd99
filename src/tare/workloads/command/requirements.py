"""What a user's programs need of this machine, looked for before the first trial."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from tare.command import PATH
from tare.tree import User
from tare.workloads.command.document import substituted
from tare.workloads.command.rows import CommandSettings, passed


def lacking(
    settings: CommandSettings,
    called: Iterable[str],
    parameters: Mapping[str, str],
    *,
    copied: bool,
    made: str = "",
) -> str | None:
    """Say what is not here of the programs, files and folders that are named.

    An image is not looked into: what is wrong with it, its unpacking says.

    Args:
        settings: of the sessions.
        called: programs, by name or path.
        parameters: what stands for each name in braces.
        copied: whether inputs are asked for.
        made: shell lines that run before and may make what is named by a path.

    Returns:
        A sentence, and what to do; None where nothing is lacking.
    """
    env = passed(settings.env, parameters)
    if unset := [name for name in settings.env if name not in env]:
        return f"the variable {unset[0]}, which is to be passed on, is not set. Export it"
    if settings.image != "/":
        return None
    return _missing(settings, env, called, parameters, copied=copied, made=made)


def _missing(
    settings: CommandSettings,
    env: Mapping[str, str],
    called: Iterable[str],
    parameters: Mapping[str, str],
    *,
    copied: bool,
    made: str,
) -> str | None:
    """What of the files that are named is not on this machine; see `lacking`."""
    cwd = Path(settings.cwd)
    if not cwd.is_dir():
        return f"there is no folder {cwd}. Name another `cwd`"
    for name in called:
        if "/" not in name and not program(settings, name, parameters):
            where = "PATH" if "PATH" in env else PATH
            return f"there is no program {name} on {where}. Install it, or name it by its path"
        if "/" in name and not made and not os.access(cwd / name, os.X_OK):
            if (cwd / name).is_file():
                return f"{cwd / name} may not be executed. Run `chmod +x` on it, or name another"
            return f"there is no program {cwd / name}. Build it, or name another"
    files = [substituted(settings.stdin, parameters)] if settings.stdin and not made else []
    for file in [*files, *(settings.inputs if copied else ())]:
        if not (cwd / file).exists():
            return f"there is no file {cwd / file}. Name another"
    pipes = [cwd / file for file in files if (cwd / file).is_fifo()]
    return (
        f"{pipes[0]} is a pipe, and an input is read anew each time. Name a file" if pipes else None
    )


def program(settings: CommandSettings, name: str, parameters: Mapping[str, str]) -> Path | None:
    """The file of this machine that a line's first word means; None where there is none.

    Args:
        settings: of the sessions.
        name: a name on PATH, or a path.
        parameters: what stands for each name in braces.
    """
    path = passed(settings.env, parameters).get("PATH", PATH)
    found = shutil.which(Path(settings.cwd, name) if "/" in name else name, path=path)
    return Path(settings.cwd, found) if found else None


def files_named(settings: CommandSettings, words: Iterable[str]) -> Iterator[Path]:
    """Files that words of a line name, also as `--option=FILE`; but those that are brought back."""
    cwd = Path(settings.cwd)
    kept = {cwd / name for name in settings.keep}
    for word in words:
        path = cwd / word.rpartition("=")[2]
        try:
            if path.is_file() and kept.isdisjoint((path, *path.parents)):
                yield path
        except (OSError, ValueError):  # no word that could be a name
            continue


def is_here(settings: CommandSettings, path: Path) -> bool:
    """Whether a path is seen as it is on this machine: of an image, in the folder alone."""
    return settings.image == "/" or (settings.cwd != "/" and path.is_relative_to(settings.cwd))


def rights(name: str) -> User | str:
    """Whose rights a server has, or why it cannot have them, and what to do.

    Args:
        name: of a user; whoever asked, if empty.
    """
    asking = User.invoking()
    if not name or name == asking.name:
        return asking
    if asking.uid != 0:
        return f"only root may run a server as {name}. Remove `as`"
    return User.named(name) or f"there is no user {name} on this machine. Name another in `as`"
