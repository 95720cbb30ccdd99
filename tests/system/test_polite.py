"""A polite run: all of it in a control group of its own, and nothing else is changed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from needs import HEARING, needs_root, tare
from tare import bounds
from tare.command import start_time
from tare.errors import Exit, UnavailableError
from tare.leftovers import clean
from tare.pauses import pauses
from tare.record import Record
from tare.testing import traces
from tare.undo import Entry, undo


def versions() -> set[int]:
    """Of the control groups that bound something here."""
    try:
        return {one.version for one in bounds.places().values()}
    except UnavailableError:
        return set()


pytestmark = [
    pytest.mark.system,
    needs_root,
    pytest.mark.skipif(not versions(), reason="no control group can be made here"),
]

PATIENCE_S = 120.0
SHARE = 0.4
SETTINGS = (
    "cpu.shares", "cpu.cfs_quota_us", "memory.limit_in_bytes", "cpu.rt_runtime_us",
    "cpu.weight", "cpu.max", "memory.max", "cgroup.subtree_control",
)  # fmt: skip
KERNEL = ("/proc/sys/kernel", "/proc/sys/vm", "/proc/sys/net")
"""Not KSM's, which other tests may set at the same time. Who would is refused, below."""
COUNTED = {"random", "pty", "ns_last_pid"}
"""What the kernel counts there by itself."""


@pytest.fixture(scope="module", autouse=True)
def among_few() -> Iterator[None]:
    """Be in a group with nobody else: behind all of a busy machine a run would take for ever."""
    place = bounds.places()["cpu"]
    group = place.parent / f"tare-tests-{os.getpid()}"
    group.mkdir()
    (group / "cgroup.procs").write_text(str(os.getpid()))
    yield
    (place.own / "cgroup.procs").write_text(str(os.getpid()))
    undo(Entry("cgroup", str(group)))


def machine() -> dict[str, str]:
    """Every setting that a run could change, outside of groups of runs."""
    found = {}
    for root in KERNEL:
        for folder, _, files in os.walk(root):
            for path in (Path(folder, name) for name in files):
                if not COUNTED & {*path.parts} and path.stat().st_mode & 0o200:
                    with suppress(OSError):
                        found[str(path)] = path.read_text()
    for place in bounds.places().values():
        for name in SETTINGS:
            for path in place.point.rglob(name):
                if "tare-" not in str(path):
                    with suppress(OSError):  # somebody else's group that goes meanwhile
                        found[str(path)] = path.read_text()
    return found


@contextmanager
def running(folder: Path, *argv: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [*HEARING, sys.executable, "-m", "tare", *argv],
        cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "COLUMNS": "200", "NO_COLOR": "1"},
    ) as child:  # fmt: skip
        try:
            yield child
        finally:
            child.kill()


def groups(pid: int) -> dict[str, str]:
    """Controller -> group of a process; of version 2 all have the same, by the name of none."""
    found = {}
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        found |= dict.fromkeys(controllers.split(","), path)
    return found


def bounds_of(place: bounds.Hierarchy, controller: str) -> dict[str, int]:
    """What a run's group is allowed, in numbers: weight, quota and period, or bytes."""
    group = next(place.parent.glob("tare-*-polite"))
    if place.version == 2:
        if controller == "memory":
            return {"bytes": int((group / "memory.max").read_text())}
        quota, period = (group / "cpu.max").read_text().split()
        weight = int((group / "cpu.weight").read_text())
        return {"quota": int(quota), "period": int(period), "weight": weight}
    if controller == "memory":
        return {"bytes": int((group / "memory.limit_in_bytes").read_text())}
    quota, period = (int((group / f"cpu.cfs_{n}_us").read_text()) for n in ("quota", "period"))
    weight = int((group / "cpu.shares").read_text()) - 1  # 2 is the least
    return {"quota": quota, "period": period, "weight": weight}


def await_program(child: subprocess.Popen[str], name: str) -> list[int]:
    """Wait until a program of a run is there; return all processes of the run, Tare first."""
    mark = f"{child.pid}:{start_time(child.pid)}"
    for _ in pauses(PATIENCE_S):
        ours = traces.processes_of(mark)
        for pid in ours:
            with suppress(OSError):
                if Path(f"/proc/{pid}/comm").read_text().strip() == name:
                    return [child.pid, *ours]
        assert child.poll() is None, child.communicate()
    raise AssertionError(f"no {name} came")


@pytest.mark.parametrize("where", ["native", "container"])
def test_all_that_runs_is_within_and_nothing_else_is_changed(tmp_path: Path, where: str) -> None:
    if where == "container" and 2 in versions():
        refused = tare("measure", "--polite", "--in", where, "--", "true", cwd=tmp_path)
        assert refused.returncode == Exit.UNAVAILABLE
        assert "groups that are not ours" in " ".join(refused.stderr.split())
        return
    before = machine()
    with running(
        tmp_path, "measure", "--polite", "--share", "40%", "--in", where, "--blocks", "2",
        "-r", "1", "-w", "0", "--takes", "2 s", "--out", "result", "--", "sleep", "2",
    ) as child:  # fmt: skip
        pids = await_program(child, "sleep")
        seen = 0
        for pid in pids:
            with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
                found = groups(pid)
                if not Path(f"/proc/{pid}/environ").read_bytes():
                    continue  # it has ended, and who has is in no group any more
                within = (found.get(name, found.get("", "")) for name in ("cpu", "memory"))
                assert all("-polite" in group for group in within), found
                assert os.getpriority(os.PRIO_PROCESS, pid) == 19
                ionice = subprocess.run(
                    ["ionice", "-p", str(pid)], capture_output=True, text=True, check=False
                )
                assert ionice.returncode or ionice.stdout.strip().startswith("idle")
                seen += 1
        assert seen >= 2
        allowed: dict[str, int] = {}
        for controller, place in bounds.places().items():
            allowed |= bounds_of(place, controller)
        processors = len(os.sched_getaffinity(0))
        assert allowed["weight"] == 1
        assert allowed["quota"] / allowed["period"] == pytest.approx(SHARE * processors)
        whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        assert allowed["bytes"] == pytest.approx(SHARE * whole, rel=1e-3)
        during = machine()
        _, err = child.communicate(timeout=PATIENCE_S)
    assert child.returncode == Exit.OK, err
    for now in (during, machine()):
        assert {n: v for n, v in now.items() if v != before.get(n, v)} == {}
    assert not [*bounds.places()["cpu"].point.rglob("tare-*-polite")]
    polite = Record(tmp_path / "result").plan.experiment.polite
    assert polite is not None
    assert polite.bounds == bounds.Bounds(SHARE, SHARE)
    assert "40% of the processors" in (tmp_path / "result" / "report.html").read_text()


def test_responses_are_measured_without_real_time_priority(tmp_path: Path) -> None:
    (tmp_path / "file.yaml").write_text(
        "title: t\nfactors: {transport: [udp]}\nbaseline: {}\nfamily: none\n"
        "blocks: {min: 2, max: 2}\nsession: {requests: 300, warmup: 30, timeout: 1 s}\n"
    )
    done = tare("run", "file.yaml", "--polite", "--out", "result", cwd=tmp_path)
    assert done.returncode == Exit.OK, done.stderr
    record = Record(tmp_path / "result")
    assert {cell.levels["scheduling"] for cell in record.plan.cells} == {"other"}
    assert {trial.status for trial in record.trials()} == {"ok"}
    assert "# It was run with --polite.\n" in (tmp_path / "result/experiment.yaml").read_text()


MIGRATION = "workload: migration\nfactors: {arm: [plain, ksm]}\nbaseline: {arm: plain}\n"


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ("factors: {transport: [udp], scheduling: [fifo]}\nbaseline: {}\n", "real-time priority"),
        ("factors: {environment: [native, ssh root@10.0.0.1], transport: [udp]}\n"
         "baseline: {environment: native}\n", "another machine"),
        ("factors: {transport: [udp]}\nbaseline: {}\ncauses: 1\n", "Set it to 0"),
        (MIGRATION, "KSM is turned on and off"),
    ],
)  # fmt: skip
def test_what_no_bounds_could_hold_is_refused_before_the_first_block(
    tmp_path: Path, asked: str, why: str
) -> None:
    (tmp_path / "file.yaml").write_text(
        f"title: t\nfamily: none\nblocks: {{min: 2, max: 2}}\n{asked}"
    )
    done = tare("run", "file.yaml", "--polite", "--out", "result", cwd=tmp_path)
    assert done.returncode == Exit.UNAVAILABLE, done.stderr
    assert why in done.stderr
    assert "control group of its own" in done.stderr
    assert not (tmp_path / "result").exists()


def test_after_a_kill_the_group_goes_with_the_next_start(tmp_path: Path) -> None:
    with running(
        tmp_path, "measure", "--polite", "--blocks", "2", "-r", "1", "--takes", "60 s",
        "--out", "result", "--", "sleep", "60",
    ) as child:  # fmt: skip
        await_program(child, "sleep")
        group = next(bounds.places()["cpu"].parent.glob("tare-*-polite"))
        child.send_signal(signal.SIGKILL)
        child.wait()
    clean()  # what it says is told to whoever is first, and a run beside this one may have been
    assert not group.exists()


def test_a_share_needs_what_it_is_a_share_of(tmp_path: Path) -> None:
    done = tare("measure", "--share", "10%", "--", "true", cwd=tmp_path)
    assert done.returncode == Exit.USAGE
    assert "add --polite" in done.stderr
    for share in ("0%", "101%", "much"):
        (tmp_path / "file.yaml").write_text(
            "title: t\nfactors: {transport: [udp]}\nbaseline: {}\nfamily: none\n"
        )
        done = tare("run", "file.yaml", "--polite", "--share", share, "--dry-run", cwd=tmp_path)
        assert done.returncode == Exit.USAGE, done.stderr
    shown = tare("run", "file.yaml", "--polite", "--dry-run", "--json", cwd=tmp_path)
    plan = json.loads(shown.stdout)
    assert plan["experiment"]["polite"] == {"processors": "50 %", "memory": "50 %"}
