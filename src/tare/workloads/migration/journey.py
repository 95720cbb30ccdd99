"""One migration, driven through both monitors and timed by their events.

The destination is started with `-S` and let run when the source says that it has completed, for
every arm alike: as `pageshare migrate` does it, so that one guest runs and never two.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from tare.errors import TrialError
from tare.workloads.migration.guest import Guest

_SLICE_S = 1.0
_RESUME_S = 30.0
_FINAL = frozenset({"completed", "failed", "cancelled"})


@dataclass(frozen=True)
class Journey:
    """When what happened, in ns of the real-time clock.

    The paper's Fig. 4 splits the time into hash module, first iteration, further iterations and
    rest. Hashing is part of the iterations here, since it runs while pages are sent; what comes
    before the first page (setting up, and the connections) is a part of its own.
    """

    asked: int
    """The source was told to migrate."""
    passes: tuple[int, ...]
    """Iteration after iteration over the guest's memory began."""
    stopped: int
    """The guest stood still at the source."""
    completed: int
    """The source was told that everything had arrived."""
    resumed: int
    """The guest ran at the destination."""
    reported_downtime_ms: int
    """As the source QEMU counts it: without the way of its word to the destination."""
    iterations: int

    @property
    def total(self) -> int:
        """From the order to the guest's running at the destination, in ns."""
        return self.resumed - self.asked

    @property
    def downtime(self) -> int:
        """For how long the guest ran nowhere, in ns."""
        return self.resumed - self.stopped

    def parts(self) -> dict[str, int]:
        """Time in ns: setup, first_pass, further_passes, rest; they sum to the total."""
        first = self.passes[0] if self.passes else self.asked
        # QEMU may skip the iterations' events where the first one was all.
        second = self.passes[1] if len(self.passes) > 1 else self.stopped
        second = min(second, self.stopped)
        return {
            "setup": first - self.asked,
            "first_pass": second - first,
            "further_passes": self.stopped - second,
            "rest": self.resumed - self.stopped,
        }


def clock_offset_ns() -> int:
    """How far the real-time clock is before the monotonic one: it moves only if that is set.

    What slows or speeds the one does so to the other.
    """
    # Whatever comes between two readings makes it less.
    return max(time.time_ns() - time.monotonic_ns() for _ in range(5))


def travel(source: Guest, destination: Guest, uri: str, timeout_s: float) -> Journey:
    """Migrate a guest and wait until it runs at the destination.

    Raises:
        TrialError: it failed, or took too long; the guest is then where QEMU left it.
    """
    deadline = time.monotonic() + timeout_s
    source.forget_events()
    destination.forget_events()
    asked = time.time_ns()
    source.ask("migrate", uri=uri)
    passes: list[int] = []
    stopped = completed = None
    while completed is None:
        late = time.monotonic() > deadline
        event = source.event(_SLICE_S)
        # One that does not converge says something all the time.
        if late and (event is None or event.name != "MIGRATION"):
            source.ask("migrate_cancel")
            raise TrialError(f"the migration did not end within {timeout_s:g} s")
        if event is None:
            continue
        if event.name == "MIGRATION_PASS":
            passes.append(event.time_ns)
        elif event.name == "STOP":
            stopped = event.time_ns
        elif event.name == "MIGRATION" and event.data.get("status") in _FINAL:
            if event.data["status"] != "completed":
                why = source.ask("query-migrate").get("error-desc", "QEMU does not say why")
                raise TrialError(f"the migration {event.data['status']}: {why}")
            completed = event.time_ns
    destination.ask("cont")
    resumed = _resumed(destination, time.monotonic() + _RESUME_S)
    found = source.ask("query-migrate")
    return Journey(
        asked=asked,
        passes=tuple(passes),
        # A guest that stood still before (a paused one) never stops.
        stopped=completed if stopped is None else stopped,
        completed=completed,
        resumed=resumed,
        reported_downtime_ms=int(found.get("downtime", 0)),
        iterations=int(found.get("ram", {}).get("dirty-sync-count", 0)),
    )


def _resumed(destination: Guest, deadline: float) -> int:
    while time.monotonic() < deadline:
        event = destination.event(_SLICE_S)
        if event is not None and event.name == "RESUME":
            return event.time_ns
    raise TrialError("the guest was handed over and did not begin to run at the destination")
