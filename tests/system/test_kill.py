"""kill -9 at any moment: the next start removes what was left, and only that."""

from __future__ import annotations

import os
import random
import shlex
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from reach import await_that

from needs import HEARING, PROGRAMS, needs_root
from tare.command import start_time
from tare.environments import Site
from tare.environments.native import Native
from tare.leftovers import clean
from tare.testing import traces

pytestmark = [pytest.mark.system, needs_root]

LIFE = """
import os, sys
from pathlib import Path
from tare.environments import Site
from tare.environments.container import Container
from tare.hosts import Hosts
from tare.interference import Interference
from tare.leftovers import Registry
from tare.placement import Placement

root, programs, scratch = map(Path, sys.argv[1:])
while True:
    with Registry(root) as registry, Hosts(registry) as hosts, hosts.tap():
        site = Site(hosts, programs, scratch, scratch, registry, Placement())
        serve = ("echo/echo-udp", "serve", "--bind", hosts.server_address, "--port", "7400")
        with Container().enter(site) as inside, inside.start(serve) as server:
            server.event(30)
            with Interference("cpu", 10, "inside").running(site, inside):
                print("alive", flush=True)
"""


def listed(root: Path) -> set[str]:
    """Runs that have things on their list."""
    return {path.name for path in root.glob("*") if path.is_dir()}


def struck(folder: Path, attempt: int, number: signal.Signals) -> bytes:
    """End a life at a random moment; see that nothing is left of it, and return its last words."""
    root, scratch = folder / "root", folder / "scratch"
    scratch.mkdir()
    argv = [sys.executable, "-c", LIFE, str(root), str(PROGRAMS), str(scratch)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as life:
        mark = f"{life.pid}:{start_time(life.pid)}"
        assert life.stdout is not None
        assert life.stderr is not None
        assert life.stdout.readline() == b"alive\n"  # Python is up: it is a round that is hit
        with pytest.raises(subprocess.TimeoutExpired):
            life.wait(random.Random(attempt).uniform(0.0, 1.2))
        runs = listed(root)
        life.send_signal(number)
        life.wait(60)
        words = life.stderr.read() if number == signal.SIGINT else b""
    runs |= listed(root)
    if number == signal.SIGKILL:
        clean(root)
    assert listed(root) == set()
    for run_id in runs or ["no run had begun"]:
        assert traces.of_run(run_id, mark) == []
    assert list(scratch.glob("tare-*")) == []
    return words


@pytest.mark.parametrize("attempt", range(10))
def test_nothing_is_left_after_a_kill_at_a_random_moment(tmp_path: Path, attempt: int) -> None:
    struck(tmp_path, attempt, signal.SIGKILL)


@pytest.mark.parametrize("attempt", range(8))
def test_ctrl_c_at_a_random_moment_leaves_nothing_by_itself(tmp_path: Path, attempt: int) -> None:
    # In a session of its own, as a terminal has it: its children have theirs.
    assert b"KeyboardInterrupt" in struck(tmp_path, attempt, signal.SIGINT)


def runs(*words: str) -> bool:
    wanted = b"".join(word.encode() + b"\0" for word in words)
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has ended
            if path.read_bytes() == wanted:
                return True
    return False


def test_ctrl_c_ends_what_a_command_left_in_the_background(tmp_path: Path) -> None:
    daemon = ("sleep", f"600.{os.getpid()}")
    prepare = f"env -i setsid -f {shlex.join(daemon)}"
    words = ["--takes", "1s", "--prepare", prepare, "--out", "result"]
    argv = [*HEARING, sys.executable, "-m", "tare", "measure", *words, "--", "sleep", "60"]
    with subprocess.Popen(argv, cwd=tmp_path, stderr=subprocess.PIPE) as run:
        assert await_that(lambda: runs(*daemon)), "it did not begin"
        run.send_signal(signal.SIGINT)
        _, errors = run.communicate(timeout=60)
    assert b"all was cleaned up" in errors
    assert not runs(*daemon)


def test_a_living_run_goes_on_while_a_dead_ones_things_are_removed(tidy_site: Site) -> None:
    root = tidy_site.leftovers.directory.parent
    scratch = tidy_site.scratch / "dead"
    scratch.mkdir()
    argv = [sys.executable, "-c", LIFE, str(root), str(PROGRAMS), str(scratch)]
    with Native().enter(tidy_site) as inside:
        serve = ("echo/echo-udp", "serve", "--bind", inside.address, "--port", "7400")
        with inside.start(serve) as server:
            server.event(30)
            with subprocess.Popen(argv, stdout=subprocess.PIPE) as life:
                assert life.stdout is not None
                assert life.stdout.readline() == b"alive\n"
                mark = f"{life.pid}:{start_time(life.pid)}"
                os.kill(life.pid, signal.SIGKILL)
            assert clean(root) != []
            assert traces.processes_of(mark) == []
            server.account()
            assert server.stop(30)["event"] == "stopped"
