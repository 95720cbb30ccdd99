"""What holds a wire's frames back and loses some: a program between two taps.

The kernels that we measure on have no netem. `probe relay` reads whole frames of up to 64 KiB from
the tap at one end and writes them into the one at the other after a fixed time. It runs as
SCHED_FIFO, since a wire does not wait for a busy processor, and dies with this process; the taps go
with it.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tare import netns, process
from tare.command import Command
from tare.stepwise import Stepwise

_PRIORITY = 10
_TIMEOUT_S = 20.0
_FASTEST_BITS_S = 10**10
"""What the queues of a wire without a limit are made for."""
_SLACK = 1.25
_LEAST_ROOM = 4 << 20
"""For frames that come at once, whatever the distance."""


@dataclass(frozen=True)
class Distance:
    """How far apart the ends of a wire are.

    Attributes:
        round_trip_ns: there and back; a frame is held for half of it each way.
        loss: share of the segments that are lost, each way; 0 loses none.
        seed: of the losses.
    """

    round_trip_ns: int = 0
    loss: float = 0.0
    seed: int = 0


def program(programs: Path) -> Path:
    """The program, below the build directory."""
    return programs / "probe/probe"


def room(rate_bits_s: int | None, distance: Distance) -> int:
    """Bytes of the queue each way: what is under way at full rate, and a quarter more."""
    under_way = (rate_bits_s or _FASTEST_BITS_S) / 8 * distance.round_trip_ns / 2e9
    return _LEAST_ROOM + round(_SLACK * under_way)


class Relay(Stepwise):
    """Two taps, one in each namespace, and the program between them; leaving removes all three.

    Args:
        programs: the build directory.
        ends: the namespaces.
        interface: what both taps are called.
        distance: that lies between them.
        room_bytes: of the queue each way; see `room`.
    """

    def __init__(
        self,
        programs: Path,
        ends: tuple[str, str],
        interface: str,
        distance: Distance,
        room_bytes: int,
    ) -> None:
        self._program = program(programs)
        self._ends = ends
        self._interface = interface
        self._distance = distance
        self._room = room_bytes

    def _build(self, stack: ExitStack) -> None:
        """Make the taps, down and without addresses, and start the program.

        Raises:
            UnavailableError: this user or this kernel cannot make them.
            ProcessError: the program is not built, or did not start.
        """
        with ExitStack() as ours:
            taps = []
            for namespace in self._ends:
                taps.append(netns.open_tap(namespace, self._interface, vnet_header=True))
                ours.callback(os.close, taps[-1])
            argv = (
                str(self._program), "relay", "--near", str(taps[0]), "--far", str(taps[1]),
                "--hold", str(self._distance.round_trip_ns // 2),
                "--loss", f"{self._distance.loss:.12f}", "--seed", str(self._distance.seed),
                "--room", str(self._room),
            )  # fmt: skip
            # A tap lives as long as somebody has it open: from here on, as the program does.
            self._running = stack.enter_context(
                process.start(Command(argv, fifo=_PRIORITY), name="relay", pass_fds=taps)
            )
        self._running.event(_TIMEOUT_S)

    def alive(self) -> bool:
        """Tell whether the program runs. Once it has ended there are no taps."""
        return self._running.alive()

    def report(self) -> dict[str, Any]:
        """What it did since it was last asked: `docs/migration.md` names the members.

        Raises:
            ProcessError: it has ended.
        """
        self._running.tell("report")
        said = self._running.event(_TIMEOUT_S)
        return {name: told for name, told in said.items() if name != "event"}
