"""What `probe/execute` prints of each execution, and the values of a session that come of it."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tare.errors import TrialError
from tare.failures import last_words
from tare.workloads import Statistic

PROGRAM = "probe/execute"
MOST_TOLD = 65_536
"""Bytes of an output; of more the two ends are told, with `_CUT` between."""
_CUT = "\n[...]\n"

STATISTICS: Mapping[str, Statistic] = {
    "wall": Statistic("from before it is started until its end is seen, median of executions"),
    "user": Statistic("processor time in programs, of it and the children that it waited for"),
    "system": Statistic("processor time in the kernel, likewise"),
    "peak": Statistic("most resident memory of it, or of a child; some 1 MB is the least", "B"),
    "faults": Statistic("page faults, minor and major", "1"),
    "switches": Statistic("context switches, voluntary and not", "1"),
    "read": Statistic("bytes that it asked for by read calls, from files, pipes and sockets", "B"),
    "written": Statistic("bytes that it passed to write calls", "B"),
    "start": Statistic("what an empty program takes in the same session, median"),
}
"""Of every command, in a session: all but medians are means over its executions."""

_COUNTED: Mapping[str, tuple[str, ...]] = {
    "user": ("user_ns",),
    "system": ("system_ns",),
    "peak": ("peak_bytes",),
    "faults": ("minor_faults", "major_faults"),
    "switches": ("voluntary_switches", "involuntary_switches"),
    "read": ("read_bytes",),
    "written": ("written_bytes",),
}
"""Statistic -> the members of a line that add up to it."""
_ALSO = ("major_faults", "storage_read_bytes", "storage_written_bytes")
"""Counted over the session, since they are zero often."""


class Printed(str):
    """What an execution wrote to one output: all of it, or the two ends of much.

    Attributes:
        length: bytes of all of it, where that was much.
        rear: where the second end begins; -1 of what is whole.
    """

    length = 0
    rear = -1

    @staticmethod
    def of(text: str, length: int) -> Printed:
        """Read what PROGRAM tells of an output of so many bytes."""
        found = Printed(text)
        if length > MOST_TOLD:
            found.length, found.rear = length, text.rindex(_CUT) + len(_CUT)
        return found


@dataclass(frozen=True)
class Execution:
    """One execution that was measured."""

    wall_ns: int
    counts: Mapping[str, float]
    """Of `_COUNTED`, those that its kernel tells."""
    also: Mapping[str, int]
    stdout: Printed
    stderr: Printed
    check: str
    """What the check behind it printed."""
    round_ns: int
    """Of all that belongs to it: preparation, check and clean-up, too."""


@dataclass(frozen=True)
class Session:
    """The executions of one session, in order, and what starting costs there."""

    executions: Sequence[Execution]
    start_ns: float

    def values(self) -> dict[str, float]:
        """Statistic -> the session's value; absent where it was not told."""
        found = {"wall": statistics.median(one.wall_ns for one in self.executions)}
        for name in _COUNTED:
            each = [one.counts[name] for one in self.executions if name in one.counts]
            if len(each) == len(self.executions):
                found[name] = statistics.fmean(each)
        if self.start_ns:
            found["start"] = self.start_ns
        return {name: float(value) for name, value in found.items()}

    def counters(self) -> dict[str, int]:
        """What may be zero, over all executions."""
        sums = {name: sum(one.also.get(name, 0) for one in self.executions) for name in _ALSO}
        return {"executions": len(self.executions), **sums}


class Side(Protocol):
    """A started program that speaks in events."""

    def event(self, timeout_s: float) -> dict[str, Any]:
        """Return the next of them."""
        ...


def read(side: Side, command: str, expected: int, timeout_s: float, limit: str) -> Session:
    """Read all that it prints.

    Args:
        side: `probe/execute`, started.
        command: as messages name it.
        expected: the exit code of an execution that went well.
        timeout_s: for the next line.
        limit: of one execution, as messages name it.

    Raises:
        TrialError: an execution ended otherwise, or could not be made; the message has its words.
    """
    executions: list[Execution] = []
    start_ns = 0.0
    while True:
        line = side.event(timeout_s)
        try:
            match line["event"]:
                case "done":
                    break
                case "failed":
                    raise TrialError(f"`{command}` could not be executed: {line['why']}")
                case "empty":
                    start_ns = float(statistics.median(line["wall_ns"]))
                case "execution":
                    _refuse(line, command, expected, limit)
                    if not line["warmup"]:
                        executions.append(_execution(line))
        except (KeyError, TypeError, ValueError) as error:
            raise TrialError(f"{PROGRAM} printed something else: {str(line)[:300]}") from error
    if not executions:
        raise TrialError(f"`{command}` was not executed")
    return Session(executions, start_ns)


def _execution(line: Mapping[str, Any]) -> Execution:
    counts = {
        name: sum(float(line[member]) for member in members)
        for name, members in _COUNTED.items()
        if all(member in line for member in members)
    }
    if not counts.get("faults"):
        # No program starts without one: this kernel, as gVisor's, counts neither, and tells zeros.
        counts = {name: n for name, n in counts.items() if name not in ("faults", "switches")}
    also = {name: int(line[name]) for name in _ALSO if name in line}
    stdout, stderr = (
        Printed.of(str(line[name]), int(line[f"{name}_bytes"])) for name in ("stdout", "stderr")
    )
    wall_ns, round_ns = int(line["wall_ns"]), int(line["round_ns"])
    return Execution(wall_ns, counts, also, stdout, stderr, str(line["check"]), round_ns)


def _refuse(line: Mapping[str, Any], command: str, expected: int, limit: str) -> None:
    """Raise what went wrong with an execution, with what it wrote."""
    code = int(line["code"])
    if not line["timed_out"] and code == expected:
        return
    words = last_words(str(line["stdout"]) + str(line["stderr"]))
    when = " while it warmed up" if line["warmup"] else ""
    if line["timed_out"]:
        killed = ", and was killed" if code < 0 else ""
        raise TrialError(
            f"`{command}` did not end within {limit}{when}{killed}{words}",
            "give it more time: --timeout, or `timeout` in the session",
        )
    how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
    asked = f" instead of {expected}" if expected else ""
    raise TrialError(
        f"`{command}` {how}{asked}{when}{words}",
        f"if it is to end so: --expect 'exit {code}', or `expect_exit: {code}` in the session",
    )
