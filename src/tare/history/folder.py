"""Finds the results below a folder, and tells without opening them whether they have changed."""

from __future__ import annotations

import os
from collections.abc import Iterator

_READ = ("plan.json", "environment.json", "trials.ndjson", "samples")
"""What a summary is made of; of the samples it is enough that the list of files changes."""
_HALF_MADE = "experiment.yaml"
"""With samples, a run that was killed before its plan was written, or a result that lost it."""


def results(folder: str) -> Iterator[tuple[str, str]]:
    """Every result below a folder, and what only looks like one.

    Folders whose name begins with a dot are left out, and links are followed to results alone.

    Yields:
        Its path below the folder, and a mark, which is another one once the result has changed.
    """
    waiting = [""]
    while waiting:
        below = waiting.pop()
        try:
            with os.scandir(os.path.join(folder, below)) as found:  # noqa: PTH118 - 10 000 of them
                entries = sorted((e for e in found if e.name[0] != "."), key=lambda e: e.name)
        except OSError:
            yield _escaped(below), "unreadable"
            continue
        for entry in entries:
            path = f"{below}/{entry.name}" if below else entry.name
            try:
                if not entry.is_dir():
                    continue
            except OSError:  # a link in a circle, or into another user's closed folder
                yield _escaped(path), "unreadable"
                continue
            states = [_state(f"{entry.path}/{name}") for name in _READ]
            if states[0] or states[2] or (states[3] and _state(f"{entry.path}/{_HALF_MADE}")):
                yield (path, " ".join(states)) if _is_text(path) else (_escaped(path), "no text")
            elif not entry.is_symlink():
                waiting.append(path)


def _is_text(name: str) -> bool:
    """Whether a name can be kept and shown: Linux takes any bytes for one."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _escaped(path: str) -> str:
    return os.fsencode(path).decode(errors="backslashreplace")


def _state(path: str) -> str:
    try:
        found = os.stat(path)  # noqa: PTH116
    except OSError:
        return ""
    return f"{found.st_size}:{found.st_mtime_ns}"
