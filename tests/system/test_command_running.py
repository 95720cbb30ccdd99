"""Commands of the system, run and measured for real."""

from __future__ import annotations

import hashlib
import zlib
from pathlib import Path
from typing import Any

import pytest
from one_trial import one_trial

from needs import needs_root
from tare.command import owner_mark
from tare.environments import Site
from tare.errors import TrialError
from tare.testing import traces
from tare.workloads import Measurement
from tare.workloads.command import executing

pytestmark = [pytest.mark.system, needs_root]

COMMANDS = {
    "gzip": "gzip -9 -n -c /usr/share/common-licenses/GPL-3",
    "openssl": "openssl dgst -sha256 /usr/share/common-licenses/GPL-3",
    "python": "python3 -c 'print(sum(range(1000)))'",
    "compiler": "gcc -x c -c -o out /dev/null",
    "sqlite": "sqlite3 :memory: 'select 6 * 7'",
}


def measured(
    site: Site,
    cwd: Path,
    command: str,
    session: dict[str, Any] | None = None,
    read: dict[str, Any] | None = None,
    statistic: str = "wall",
    **factors: Any,
) -> Measurement:
    """One trial in the first environment of an experiment."""
    document = {
        "title": "t",
        "workload": "command",
        "factors": {"command": {"it": command}, **factors},
        "baseline": {},
        "session": {"cwd": str(cwd), "runs": 2, **(session or {})},
        "read": read or {},
        "statistic": statistic,
    }
    return one_trial(document, site)


@pytest.mark.parametrize("name", COMMANDS)
def test_programs_that_nobody_here_wrote_are_measured(
    name: str, tidy_site: Site, tmp_path: Path
) -> None:
    found = measured(tidy_site, tmp_path, COMMANDS[name])
    always = ("wall", "peak", "faults", "switches", "read", "start")
    assert all(found.values[name] > 0 for name in always)
    assert found.values.keys() - always == {"user", "system", "written"}
    assert found.values["user"] + found.values["system"] < 2 * found.values["wall"]
    assert len(found.settings["wall_ns"]) == found.counters["executions"] == 2


def test_what_it_prints_is_checked_and_read(tidy_site: Site, tmp_path: Path) -> None:
    command = 'python3 -c \'import os; print(os.environ["N"], "queries/s")\''
    session = {"env": "N={n}", "expect_output": "^4 q"}
    read = {"qps": {"regex": r"(\S+) queries/s", "unit": "1/s"}}
    found = measured(tidy_site, tmp_path, command, session, read, n=4)
    assert found.values["qps"] == 4
    with pytest.raises(TrialError, match=r"printed nothing that matches '\^4 q'; its end: 5 q"):
        measured(tidy_site, tmp_path, command, session, read, n=5)
    long = 'python3 -c \'print("x" * 40000, 4, "x" * 40000)\''
    for asked in ({"session": {"expect_output": " 4 "}}, {"read": {"n": {"regex": " 4 "}}}):
        with pytest.raises(TrialError, match="the middle of its 80004 bytes was not kept"):
            measured(tidy_site, tmp_path, long, **asked)


def test_a_zero_is_a_value_and_is_not_judged(tidy_site: Site, tmp_path: Path) -> None:
    assert measured(tidy_site, tmp_path, "true").values["written"] == 0
    with pytest.raises(TrialError, match="written was 0: only positive numbers can be judged"):
        measured(tidy_site, tmp_path, "true", statistic="written")


@pytest.mark.parametrize("name", ["-", "-x", "a\\b", "it's one"])
def test_a_file_is_checked_whatever_its_name(name: str, tidy_site: Site, tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"words")
    session = {"expect_file": "{file} sha256:" + hashlib.sha256(b"words").hexdigest()}
    assert measured(tidy_site, tmp_path, "cp in ./{file}", session, file=name).values


def test_a_file_that_it_writes_is_checked(tidy_site: Site, tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(bytes(10_000))
    digest = hashlib.sha256(zlib.compress(bytes(10_000))).hexdigest()
    code = "import sys, zlib; open('out', 'wb').write(zlib.compress(sys.stdin.buffer.read()))"
    session = {"stdin": "in", "prepare": "test ! -e out", "cleanup": "rm out"}
    good = {**session, "expect_file": f"out sha256:{digest}"}
    assert measured(tidy_site, tmp_path, f'python3 -c "{code}"', good).values
    bad = {**session, "expect_file": f"out sha256:{'0' * 64}"}
    with pytest.raises(TrialError, match=f"wrote another out: its checksum is sha256:{digest}"):
        measured(tidy_site, tmp_path, f'python3 -c "{code}"', bad)


@pytest.mark.parametrize("shell", ["sh", "/usr/bin/env bash"])
def test_a_shell_line_is_run_by_the_shell_that_is_asked_for(
    shell: str, tidy_site: Site, tmp_path: Path
) -> None:
    session = {"shell": shell, "expect_output": "^10000$", "expect_exit": 3}
    measured(tidy_site, tmp_path, "head -c {n} /dev/zero | wc -c; exit 3", session, n=10_000)


@pytest.mark.parametrize(
    ("command", "session", "said"),
    [
        ("sh -c 'echo no room >&2; exit 4'", {}, "exit code 4.*last words: no room"),
        ("sh -c 'kill -SEGV $$'", {}, "killed by signal 11"),
        ("sleep 30", {"timeout": "200 ms"}, "did not end within 200 ms"),
        ("no-such-program", {}, "cannot start no-such-program"),
        ("true", {"prepare": "echo first; false"}, "the preparation .* code 1: first"),
        ("true", {"stdin": "not-there"}, "cannot open not-there as its input"),
        ("true", {"cwd": "/not/there"}, "/not/there, where the program would start, is no folder"),
    ],
)
def test_a_command_that_fails_says_why(
    command: str, session: dict[str, Any], said: str, tidy_site: Site, tmp_path: Path
) -> None:
    with pytest.raises(TrialError, match=said):
        measured(tidy_site, tmp_path, command, session)


def test_a_trial_that_is_given_up_leaves_nothing_for_the_next(
    tidy_site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executing, "SLACK_S", 1.0)
    stopping = "sh -c 'setsid -f sleep 600; kill -STOP $PPID'"
    before = traces.processes_of(owner_mark())
    with pytest.raises(TrialError, match="said nothing within 2 s"):
        measured(tidy_site, tmp_path, stopping, {"timeout": "1 s"})
    assert set(traces.processes_of(owner_mark())) <= set(before)
