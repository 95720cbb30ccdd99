"""What nvio's campaigns take as done already: parts that ended, of these very programs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from conformance_scripts import FOLDER, loaded


@pytest.fixture
def campaign(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    with loaded("campaign", monkeypatch) as script:
        yield script


@pytest.fixture
def build(tmp_path: Path) -> Path:
    program = tmp_path / "nvio"
    program.write_text("first")
    program.chmod(0o755)
    return tmp_path


def parts(campaign: Any, ran: list[str]) -> list[Any]:
    def part(name: str) -> Any:
        return campaign.Part(name, lambda: ran.append(name) or {"passed": 1})

    return [part("own/mpich/0"), part("own/mpich/1")]


def test_a_part_that_ended_is_not_run_again(campaign: Any, build: Path):
    log, ran = build / "campaign.ndjson", list[str]()
    digest = campaign.digest_of(build, [])
    campaign.go_on(parts(campaign, ran), log, digest, None)
    outcomes = campaign.go_on(parts(campaign, ran), log, digest, None)
    assert ran == ["own/mpich/0", "own/mpich/1"]
    assert outcomes == {"own/mpich/0": {"passed": 1}, "own/mpich/1": {"passed": 1}}


def test_what_a_part_was_served_is_counted_with_what_passed(campaign: Any, build: Path):
    said = (
        "10 programs, 1 without an oracle, 0 failures, 70 pieces served from the store,"
        " 30 of them at another node\n"
    )
    found = campaign.compared(build, said, "programs")
    assert found == {"passed": 9, "skipped": 1, "failed": 0, "served": 70, "remote": 30}
    found = campaign.compared(
        build, "3 pairs of programs, 0 without an oracle, 0 failures", "pairs of programs"
    )
    assert found == {"passed": 3, "skipped": 0, "failed": 0}


def test_what_other_programs_passed_is_not_done(campaign: Any, build: Path):
    log, ran = build / "campaign.ndjson", list[str]()
    campaign.go_on(parts(campaign, ran), log, campaign.digest_of(build, []), None)
    (build / "nvio").write_text("second")
    campaign.go_on(parts(campaign, ran), log, campaign.digest_of(build, []), None)
    assert len(ran) == 4


def test_other_settings_are_another_campaign_and_its_log_is_none_of_it(campaign: Any, build: Path):
    before = campaign.digest_of(build, [])
    (build / "campaign.ndjson").write_text("{}\n")
    assert campaign.digest_of(build, []) == before
    assert campaign.digest_of(build, ["NVIO_NODES=2"]) != before


def test_a_line_that_a_kill_has_torn_is_done_again(campaign: Any, build: Path):
    log, ran = build / "campaign.ndjson", list[str]()
    digest = campaign.digest_of(build, [])
    campaign.go_on(parts(campaign, ran), log, digest, None)
    log.write_text(log.read_text()[:-20])
    campaign.go_on(parts(campaign, ran), log, digest, None)
    assert ran == ["own/mpich/0", "own/mpich/1", "own/mpich/1"]
    assert [json.loads(line)["part"] for line in log.read_text().splitlines()] == ran[:2]


def test_kinds_run_beside_each_other_and_parts_of_a_kind_in_turns(campaign: Any, build: Path):
    meeting = threading.Barrier(2, timeout=20)  # passed only by two at once
    here, seen = Counter[str](), list[str]()

    def part(kind: str, number: int) -> Any:
        def run() -> dict[str, int]:
            here[kind] += 1
            assert here[kind] == 1
            meeting.wait()
            here[kind] -= 1
            seen.append(f"{kind}/{number}")
            return {"passed": 1}

        return campaign.Part(f"{kind}/{number}", run)

    both = [part(kind, number) for number in range(3) for kind in ("own", "mpi4py")]
    campaign.go_on(both, build / "campaign.ndjson", "", None, jobs=2)
    assert sorted(seen) == sorted(one.name for one in both)


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT])
def test_what_an_interrupted_campaign_started_ends_and_counts_as_not_done(
    build: Path, ending: signal.Signals
):
    # A launcher in a session of its own, as launch.py has it, and a shell below a shell, as `run`.
    seconds = f"3600.{os.getpid()}{ending:d}"  # names them among all processes
    hanging = build / "hanging.py"
    hanging.write_text(
        f"""\
import sys
from pathlib import Path
sys.path.insert(0, {str(FOLDER)!r})
import campaign
import launch

launch.leave_on_sigterm()
mark = sys.argv[1]
if mark == "launch":
    launch.run(["sleep", "{seconds}"], {{"PATH": "/usr/bin:/bin"}}, 3600)
shell = "(setpriv --pdeathsig TERM timeout {seconds} sleep {seconds}); true"
parts = [
    campaign.Part("own/0", lambda: campaign.output_of([sys.executable, __file__, "launch"])),
    campaign.Part("hdf5/0", lambda: campaign.output_of(["bash", "-c", shell])),
]
campaign.go_on(parts, Path(mark), "", None, jobs=2)
"""
    )
    log = build / "campaign.ndjson"
    with subprocess.Popen([sys.executable, str(hanging), str(log)]) as started:
        wait_for(lambda: len(sleepers(seconds)) == 3)  # timeout, and what both have started
        started.send_signal(ending)
        assert started.wait(30) != 0
    wait_for(lambda: not sleepers(seconds))
    assert not log.exists()


def sleepers(seconds: str) -> list[str]:
    """Processes of the test above."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            words = path.read_bytes().split(b"\0")
            if seconds.encode() in words and words[0] in (b"sleep", b"timeout"):
                found.append(path.parent.name)
    return found


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_own_programs_are_tried_on_one_two_and_four_nodes_of_both_mpis(campaign: Any, build: Path):
    options = SimpleNamespace(build=build, own=6, mpi4py=1, suites=1, set=[])
    names = [part.name for part in campaign.same_parts(options)]
    for mpi in ("mpich", "openmpi"):
        for nodes in (1, 2, 4):
            # A store smaller than the files, and one that admission decides about.
            assert sum(name.startswith(f"own/{mpi}/{nodes} nodes/") for name in names) == 2
    assert len(set(names)) == len(names)
    assert campaign.totals({names[0]: {"passed": 1}}) == {
        "own/mpich/1 nodes": {"parts": 1, "passed": 1}
    }


def test_datatypes_of_each_depth_are_tried_on_one_two_and_four_nodes(campaign: Any, build: Path):
    options = SimpleNamespace(build=build, programs=90, set=[])
    names = [part.name for part in campaign.types_parts(options)]
    for mpi in ("mpich", "openmpi"):
        for nodes in (1, 2, 4):
            for depth in (1, 2, 3):
                assert sum(n.startswith(f"{mpi}/{nodes} nodes/depth {depth}/") for n in names) == 1
    assert len(set(names)) == len(names) == 18


def test_what_a_failed_part_printed_is_kept(
    campaign: Any, build: Path, monkeypatch: pytest.MonkeyPatch
):
    said = (
        "seed 7: rank 0, line 3: differs\n1 programs, 0 without an oracle, 1 failures, 9 pieces\n"
    )
    monkeypatch.setattr(campaign, "python", lambda *_: said)
    assert campaign.programs(build, "openmpi", 2, range(7, 8), (), []) == {
        "passed": 0, "skipped": 0, "failed": 1,
    }  # fmt: skip
    assert (build / campaign.FAILURES).read_text() == said


def test_what_a_part_starts_after_the_interruption_ends_too(campaign: Any):
    campaign.STOPPING.set()
    began = time.monotonic()
    campaign.output_of(["sleep", "3600"])
    assert time.monotonic() - began < 1800
