"""What an experiment file asks of a service: two lines, and when the server is ready."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tare.document import Problem
from tare.workloads.command.document import Asked, joined
from tare.workloads.service.rows import AT_THE_TOP


class AskedOfService(Asked):
    """See `Asked`. What may stand at the top of a file is brought into the session."""

    named: Mapping[str, str] = {"server": "server", "client": "client"}
    settings = (*Asked.settings, *AT_THE_TOP)
    put_in = ("address", "port")

    def __init__(
        self, document: Mapping[str, Any], factors: Sequence[str], statistics: Sequence[str]
    ) -> None:
        found = dict(document)
        session = found.get("session") or {}
        twice = []
        if isinstance(session, Mapping):
            moved = {name: found.pop(name) for name in AT_THE_TOP if name in found}
            twice = [name for name in moved if name in session]
            every = {**session, **moved}
            words = {name: _text(every[name]) for name in AT_THE_TOP if name in every}
            found["session"] = {**every, **words}
        super().__init__(found, factors, statistics)
        for name in twice:
            self.problems.append(Problem((name,), "stands in `session`, too: remove one of them"))


def _text(written: Any) -> Any:
    """A line of a list of its words; `{output: REGEX}` as a text; all else as it is."""
    if isinstance(written, Mapping) and len(written) == 1:
        ((kind, what),) = written.items()
        return f"{kind} {joined(what) or what}"
    return joined(written) or written
