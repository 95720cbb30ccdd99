"""Events: the JSON objects, one a line, by which a program says on standard output what happened.

The one reader of them, wherever the program runs. Lines that do not begin with a brace are for
people, and are only logged.
"""

from __future__ import annotations

import json
import logging
from collections import deque
from typing import Any

from tare.failures import ProcessError

_LOG = logging.getLogger(__name__)
_LINE_LIMIT = 1 << 20
_SHOWN = 200


class Events:
    """Reads a program's events out of its output, in whatever pieces that comes.

    Args:
        who: the program, as messages name it.
    """

    def __init__(self, who: str) -> None:
        self._who = who
        self._lines: deque[bytes] = deque()
        self._torn = b""
        self.last: dict[str, Any] = {}
        """The last event that was read; empty if there was none."""

    def add(self, output: bytes) -> None:
        """Take the next piece of its output.

        Raises:
            ProcessError: a line is endless.
        """
        *lines, self._torn = (self._torn + output).split(b"\n")
        self._lines.extend(lines)
        if len(self._torn) > _LINE_LIMIT:
            raise ProcessError("protocol", f"{self._who} wrote a line of over 1 MiB")

    def next(self) -> dict[str, Any] | None:
        """Return the next event; None until another whole line of the kind has come.

        Raises:
            ProcessError: a line begins as JSON and is none.
        """
        while self._lines:
            line = self._lines.popleft()
            if not line.startswith(b"{"):
                _LOG.debug("%s: %s", self._who, line.decode(errors="replace"))
                continue
            try:
                self.last = json.loads(line)
            except (ValueError, RecursionError) as error:
                shown = line[:_SHOWN].decode(errors="replace")
                raise ProcessError(
                    "protocol", f"{self._who} wrote a line that is no JSON: {shown!r}"
                ) from error
            return self.last
        return None

    def finish(self) -> dict[str, Any]:
        """Read all events that are left, and return the last there was.

        Raises:
            ProcessError: as `next`.
        """
        while self.next() is not None:
            pass
        return self.last

    def unread(self) -> str:
        """Return all that came and was not read as events: whole lines, and a torn one."""
        return b"\n".join((*self._lines, self._torn)).decode(errors="replace")


def events_in(output: str, who: str) -> list[dict[str, Any]]:
    """Return the events in all that a program wrote.

    Raises:
        ProcessError: a line begins as JSON and is none.
    """
    events = Events(who)
    events.add(f"{output}\n".encode())
    return list(iter(events.next, None))
