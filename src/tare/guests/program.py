"""A program running in a guest: its events, its consumption, its end.

Its output goes to files in the guest's memory, which are read through the agent. They outlive it,
so that its last words are there however it ended; and while a trial is measured nobody reads.
"""

from __future__ import annotations

import itertools
import re
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tare import accounting
from tare.accounting import Account
from tare.errors import TrialError
from tare.events import Events
from tare.failures import last_words
from tare.guests.agent import Agent, Ended
from tare.guests.monitor import MonitorError, RefusedError
from tare.pauses import pauses

_NUMBERS = itertools.count()
_SIGTERM = 15
_ASK_TIMEOUT_S = 10.0

_SCRIPT = "/program.sh"


class Program:
    """A program that was started in a guest; `kill` must be called in the end.

    Args:
        agent: of the guest.
        argv: the program's path in the guest, and its arguments.
        env: variables beyond PATH, HOME and a C locale.
        name: what messages call it; by default that of its file.

    Raises:
        TrialError: the guest does not answer, or has no such program.
    """

    def __init__(
        self,
        agent: Agent,
        argv: Sequence[str],
        env: Mapping[str, str] | None = None,
        name: str | None = None,
    ) -> None:
        self.name = name or Path(argv[0]).name
        self._agent = agent
        self._base = f"/tmp/{next(_NUMBERS)}-{self.name}"  # noqa: S108 - the guest's, and ours alone
        self._ended: Ended | None = None
        self._gone = False
        # Opened before the program writes to it: there is never a moment without the file.
        self._output = agent.create(f"{self._base}.out")
        self.pid = agent.start([_SCRIPT, "start", self._base, *argv], env)
        self._whoami = f"{self.name} (pid {self.pid} in the guest)"
        self._events = Events(self._whoami)

    def event(self, timeout_s: float) -> dict[str, Any]:
        """Return the next JSON object of its standard output; other lines are left out.

        Raises:
            TrialError: it ended without one, said nothing in time, or wrote broken JSON.
        """
        for _ in pauses(timeout_s):
            # First whether it ended, then what it wrote: so its last line is never missed.
            ended = self._look()
            self._events.add(self._output.read())
            if (event := self._events.next()) is not None:
                return event
            if ended is not None:
                raise self._failure("without the event that was waited for")
        silence = f"said nothing within {timeout_s:g} s"
        raise TrialError(f"{self._whoami} {silence}{self._last_words()}")

    def consumption(self) -> Account:
        """Snapshot what its threads have consumed, as the guest's kernel counts.

        Raises:
            TrialError: it has ended, or the guest does not answer.
        """
        found = self._agent.run([_SCRIPT, "consumption", str(self.pid)], _ASK_TIMEOUT_S)
        return account_in(found.stdout, self.pid)

    def alive(self) -> bool:
        """Tell whether it still runs."""
        return self._look() is None

    def stderr(self) -> str:
        """Return what it wrote to standard error so far.

        Raises:
            TrialError: the guest does not answer.
        """
        try:
            return self._agent.read(f"{self._base}.err").decode(errors="replace")
        except RefusedError:
            return ""  # the shell that becomes the program has not made it yet

    def stop(self, timeout_s: float) -> dict[str, Any]:
        """Ask it to end (SIGTERM) and return its last JSON object ({} if it never wrote one).

        Raises:
            TrialError: it had to be killed, or ended with an error.
        """
        if self._look() is None:
            self._agent.start(["/bin/kill", "-TERM", str(self.pid)])
            self._ended = self._agent.wait_for(self.pid, timeout_s)
        ended = self._ended
        self._events.add(self._output.read())
        said = self._events.finish()
        if ended is None:
            words = self._last_words()
            self.kill()
            raise TrialError(
                f"{self._whoami} did not end within {timeout_s:g} s and was killed{words}"
            )
        if ended.code not in (0, -_SIGTERM):
            raise self._failure("")
        self.kill()
        return said

    def kill(self) -> None:
        """Kill it and everything in its session, see that it is gone, remove its files.

        Raises:
            TrialError: something of it is still there.
        """
        if self._gone:
            return
        self._gone = True
        sweep = [_SCRIPT, "sweep", str(self.pid)]
        for _ in pauses(_ASK_TIMEOUT_S):
            if not self._agent.run(sweep, _ASK_TIMEOUT_S).stdout.strip():
                break
        else:
            raise TrialError(f"{self._whoami} left processes that cannot be killed")
        if self._ended is None:
            self._ended = self._agent.wait_for(self.pid, _ASK_TIMEOUT_S)
        self._output.close()
        self._agent.start(["/bin/rm", "-f", f"{self._base}.out", f"{self._base}.err"])

    def _look(self) -> Ended | None:
        if self._ended is None:
            self._ended = self._agent.ended(self.pid)
        return self._ended

    def _failure(self, circumstance: str) -> TrialError:
        assert self._ended is not None
        code = self._ended.code
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return TrialError(
            " ".join(filter(None, (self._whoami, how, circumstance))) + self._last_words()
        )

    def _last_words(self) -> str:
        with suppress(MonitorError, RefusedError):
            return last_words(self.stderr())
        return ""


def account_in(listing: str, pid: int) -> Account:
    """Read a process's account from lines "PID/task/TID/schedstat:..." of the guest's /proc.

    Raises:
        TrialError: the process has ended, or the listing is no such thing.
    """
    files: dict[str, list[str]] = {}
    for line in listing.split("\n"):
        path, _, content = line.partition(":")
        if re.fullmatch(rf"{pid}/(status|task/[0-9]{{1,10}}/(stat|status|schedstat))", path):
            files.setdefault(path, []).append(content)
    # Laid out as files again: one reader of /proc serves host and guest.
    with tempfile.TemporaryDirectory(prefix="tare-guest-proc-") as scratch:
        for path, lines in files.items():
            target = Path(scratch, path)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text("\n".join(lines) + "\n")
        try:
            return accounting.snapshot(pid, "guest", proc=Path(scratch))
        except (ValueError, IndexError) as error:
            raise TrialError(f"cannot read what process {pid} consumed in the guest") from error
