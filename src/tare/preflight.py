"""What of a plan cannot run here, looked for before the first trial: each with its reason.

The run goes on without it (`cuts.without`), and says so; where nothing is left to compare, it does
not begin.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path

from tare import bounds, cuts, operations
from tare.cuts import Absent
from tare.environments import Environment, is_far, place, scratch_disk
from tare.environments.ssh import Ssh
from tare.errors import UnavailableError
from tare.plan import Plan, Visit
from tare.workloads import AnyWorkload

_NAMED = 3
"""Cells of one reason that are named one by one."""


def possible(plan: Plan, programs: Path, *, connect: bool) -> Plan:
    """Leave out of a plan what cannot run here, and say so.

    Args:
        plan: the whole.
        programs: the build directory.
        connect: see whether other machines let us in; else that is left to the run.

    Raises:
        UnavailableError: nothing is left that could be compared.
    """
    plan = cuts.without(plan, absent(plan, programs, connect=connect))
    if not plan.causes:
        return plan
    try:
        operations.require_perf()
    except UnavailableError as error:
        return cuts.without_causes(plan, _sentence(error))
    return plan


def absent(plan: Plan, programs: Path, *, connect: bool = False) -> list[Absent]:
    """Name what of a plan cannot run here, with the reason; see `possible`.

    Raises:
        UnavailableError: nothing of it can.
    """
    found = [*_places(plan, connect=connect)]
    gone = frozenset().union(*(one.cells for one in found))
    found += _cells(plan, programs, gone)
    if sum(len(one.cells) for one in found) == len(plan.cells):
        raise UnavailableError(
            "nothing of this experiment can run here: "
            + "; ".join(f"{one.what}: {one.why}" for one in found),
            "`tare doctor` shows what each needs",
        )
    return found


def refuse_disturbing(plan: Plan) -> None:
    """See that a run within bounds asks for nothing that they could not hold.

    Raises:
        UnavailableError: it does, or there can be no bounds here; all that asks for it is named.
    """
    if plan.experiment.bounds is None:
        return
    versions = {one.version for one in bounds.places().values()}
    asked: dict[str, list[str]] = {}
    if plan.causes:
        why = "`causes` counts with tracers of the whole kernel. Set it to 0"
        asked[why] = [f"{plan.causes} sessions of each cell"]
    for cell in plan.cells:
        if cell.replica == 1 and (reason := _disturbs(plan.workload, cell.levels, versions)):
            asked.setdefault(reason, []).append(cell.id)
    if asked:
        told = "; ".join(f"{_some(cells)}: {why}" for why, cells in asked.items())
        raise UnavailableError(
            f"a polite run changes nothing here beyond a control group of its own: {told}",
            "or run it without --polite, where nobody is disturbed",
        )


def _disturbs(workload: AnyWorkload, levels: Mapping[str, str], versions: Set[int]) -> str | None:
    """Say what of a cell no bounds on this machine could hold."""
    environment = levels.get("environment", "")
    if is_far(environment):
        return "what runs on another machine is not in a group of this one. Run Tare there"
    if environment == "container" and 2 in versions:
        return (
            "runc would hand controllers on in groups that are not ours (control groups of version"
            " 2). Leave `container` out"
        )
    if levels.get("scheduling") == "fifo":
        return (
            "no share of a processor bounds a real-time priority. Leave `scheduling` out, or take"
            " `other`"
        )
    return workload.disturbs(levels)


def refuse_without_room(plan: Plan, folder: Path) -> None:
    """See that what a run keeps, and what it needs meanwhile, has room.

    Raises:
        UnavailableError: there is less than the fewest blocks need.
    """
    rooms = {cell.id: plan.workload.room(cell.levels, plan.session) for cell in plan.cells}
    each = (plan.sessions.get(cell, 1) * room.kept_bytes for cell, room in rooms.items())
    kept = plan.min_blocks * sum(each)
    meanwhile = max((room.scratch_bytes for room in rooms.values()), default=0)
    disk = max((room.disk_bytes for room in rooms.values()), default=0)
    temporary = Path(tempfile.gettempdir())
    for where, needed, what in (
        (folder, kept, f"the samples of {plan.min_blocks} blocks"),
        (temporary, meanwhile, "the files of a trial"),
        (scratch_disk.folder_for(temporary), disk, "the disks of a trial"),
    ):
        there = next(path for path in (where, *where.absolute().parents) if path.is_dir())
        free = shutil.disk_usage(there).free
        if needed > free:
            raise UnavailableError(
                f"{what} take up to {needed / 1e9:.3g} GB; {there} has {free / 1e9:.3g} GB left",
                "make room, or ask for less; --out and TMPDIR name other places",
            )


def _places(plan: Plan, *, connect: bool) -> Iterator[Absent]:
    """What is wrong with an environment as a whole, or with some of its plots."""
    reasons: dict[str, dict[str, list[Visit]]] = {}
    places: Counter[str] = Counter()
    reached: dict[str, str | None] = {}
    for visit in plan.blocks[0]:
        environment = plan.workload.environment(visit.plot)
        where = place(environment, visit.plot)
        places[where] += 1
        why = _lacking(environment, plan.workload, visit)
        if why is None and connect and isinstance(environment, Ssh):
            if where not in reached:
                reached[where] = environment.unreachable()
            why = reached[where]
        if why:
            reasons.setdefault(where, {}).setdefault(why, []).append(visit)
    for where, by_reason in reasons.items():
        for why, visits in by_reason.items():
            # Where only some of a place's plots cannot be had, its options are what is missing.
            whole = len(visits) == places[where]
            # Both arms of an A/A pair may have a setting up of their own in one plot.
            some = dict.fromkeys(_of_plot(visit, plan) for visit in visits)
            what = where if whole else " or ".join(some)
            yield Absent(what, why, frozenset(cell for visit in visits for cell in visit.cells))


def _lacking(environment: Environment, workload: AnyWorkload, visit: Visit) -> str | None:
    """Say what a plot needs that this machine has not; None where it has all."""
    found = environment.availability()
    if not found.available:
        return f"{found.detail}. {found.remedy}" if found.remedy else found.detail
    try:
        workload.placement(visit.plot)
    except UnavailableError as error:
        return _sentence(error)
    return None


def _cells(plan: Plan, programs: Path, gone: frozenset[str]) -> Iterator[Absent]:
    """What is wrong with single cells in an environment that is there."""
    reasons: dict[str, list[str]] = {}
    known: dict[tuple[tuple[str, str], ...], str | None] = {}
    for cell in plan.cells:
        if cell.id in gone:
            continue
        key = tuple(cell.levels.items())
        if key not in known:
            known[key] = plan.workload.lacking(cell.levels, plan.session, programs)
        if why := known[key]:
            reasons.setdefault(why, []).append(cell.id)
    for why, cells in reasons.items():
        named = [cell for cell in cells if plan.cell(cell).replica == 1]
        yield Absent(_some(named), why, frozenset(cells))


def _some(cells: Sequence[str]) -> str:
    more = f" and {len(cells) - _NAMED} more" if len(cells) > _NAMED else ""
    return ", ".join(cells[:_NAMED]) + more


def _of_plot(visit: Visit, plan: Plan) -> str:
    """Name a plot by what tells it from others of the plan."""
    others = [other.plot for other in plan.blocks[0]]
    return " ".join(v for n, v in visit.plot.items() if any(other.get(n) != v for other in others))


def _sentence(error: UnavailableError) -> str:
    return f"{error.what}; {error.remedy}" if error.remedy else error.what
