"""Each kind of leftover, made for real by a run that is then killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from needs import HEARING, dead_run, needs_root
from tare.command import Command
from tare.errors import TareError, UnavailableError
from tare.guests.cache import workspace
from tare.guests.debian import Debian
from tare.leftovers import clean
from tare.process import Output, run, start
from tare.undo import Entry, Kind, undo

pytestmark = [pytest.mark.system, needs_root]


def test_a_mount_that_was_mounted_twice(tmp_path: Path) -> None:
    point = tmp_path / "point with a space"
    point.mkdir()
    code = """
registry.add("mount", values[0])
for _ in range(2):
    subprocess.run(["mount", "-t", "tmpfs", "tare-test", values[0]], check=True)
"""
    dead_run(tmp_path / "root", code, values=[str(point)])
    assert point.is_mount()
    assert clean(tmp_path / "root") == [f"mount {point}"]
    assert not point.is_mount()


@pytest.mark.parametrize("kind", ["mount", "netns"])
def test_what_somebody_else_undoes_meanwhile_is_no_error(
    kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = {"mount": str(tmp_path), "netns": "tare-twice"}[kind]
    made = {
        "mount": ("mount", "-t", "tmpfs", "tare-test", name),
        "netns": ("ip", "netns", "add", name),
    }
    run(Command(made[kind]), 10)

    def again(command: Command, timeout_s: float) -> Output:
        run(command, timeout_s)
        return run(command, timeout_s)

    monkeypatch.setattr("tare.process.run", again)
    assert undo(Entry(kind, name))
    monkeypatch.undo()
    assert not undo(Entry(kind, name))


def test_a_second_ctrl_c_leaves_no_namespace_that_is_just_being_made(tmp_path: Path) -> None:
    name = f"tare-late-{os.getpid()}"
    program = """
import sys, time
from pathlib import Path
from pyroute2 import netns as kernels
from tare import netns
from tare.leftovers import Registry

attach = kernels.attach
def late(*asked):
    print(flush=True)
    time.sleep(2)
    attach(*asked)
kernels.attach = late
try:
    with Registry(Path(sys.argv[1])) as registry, registry.owing("netns", sys.argv[2]):
        netns.make(sys.argv[2])
except KeyboardInterrupt:
    time.sleep(2)  # whoever is interrupted has more to undo
"""
    argv = [sys.executable, "-c", program, str(tmp_path / "root"), name]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as making:
        assert making.stdout is not None
        assert making.stdout.readline() == b"\n"
        for _ in range(2):
            making.send_signal(signal.SIGINT)
            time.sleep(0.5)
    left = Entry("netns", name)
    assert making.returncode == 0
    assert not undo(left), "it was left behind"


def test_a_directory_with_a_mount_in_it_is_not_deleted_through(tmp_path: Path) -> None:
    precious, folder = tmp_path / "precious", tmp_path / "folder"
    precious.mkdir()
    (precious / "file").write_text("x")
    code = """
registry.add("directory", values[0])
Path(values[0], "view").mkdir(parents=True)
subprocess.run(["mount", "--bind", values[1], values[0] + "/view"], check=True)
"""
    dead_run(tmp_path / "root", code, values=[str(folder), str(precious)])
    try:
        with pytest.raises(TareError, match="mounted in it"):
            clean(tmp_path / "root")
        assert (precious / "file").read_text() == "x"
    finally:
        subprocess.run(["umount", str(folder / "view")], check=True)
    assert clean(tmp_path / "root") == [f"directory {folder}"]


PIDS = Path("/sys/fs/cgroup/pids")
"""Of cgroup v1; where there is but v2, its root."""


def cgroup_named(name: str) -> Path:
    return (PIDS if PIDS.exists() else Path("/sys/fs/cgroup")) / f"{name}-{os.getpid()}"


def test_a_cgroup_with_a_process_in_it(tmp_path: Path) -> None:
    cgroup = cgroup_named("tare")
    code = """
registry.add("cgroup", values[0])
(Path(values[0]) / "leaf").mkdir(parents=True)
"""
    dead_run(tmp_path / "root", code, values=[str(cgroup)])
    with start(Command(("sleep", "60"))) as inmate:
        (cgroup / "leaf" / "cgroup.procs").write_text(str(inmate.pid))
        assert clean(tmp_path / "root") == [f"cgroup {cgroup}"]
        assert not inmate.alive()
    assert not cgroup.exists()


def test_who_is_not_in_the_cgroup_once_his_pid_is_pinned_is_not_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As one who got the pid of an inmate that ended between being listed and being pinned."""
    cgroup = cgroup_named("tare")
    cgroup.mkdir()
    pin = os.pidfd_open

    def late(pid: int) -> int:
        (cgroup.parent / "cgroup.procs").write_text(str(pid))
        return pin(pid)

    with start(Command(("sleep", "60"))) as bystander:
        (cgroup / "cgroup.procs").write_text(str(bystander.pid))
        with monkeypatch.context() as patched:
            patched.setattr(os, "pidfd_open", late)
            assert undo(Entry("cgroup", str(cgroup)))
        assert bystander.alive()
    assert not cgroup.exists()


def test_a_cgroup_that_does_not_bear_our_name_is_left_alone(tmp_path: Path) -> None:
    cgroup = cgroup_named("somebody")
    cgroup.mkdir()
    try:
        dead_run(tmp_path / "root", 'registry.add("cgroup", values[0])', values=[str(cgroup)])
        assert clean(tmp_path / "root") == []
        assert cgroup.exists()
    finally:
        cgroup.rmdir()


def test_a_cgroup_that_goes_just_when_it_is_looked_at_is_undone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cgroup = cgroup_named("tare")
    cgroup.mkdir()

    def gone_once_listed(path: Path, topdown: bool) -> list[tuple[str, list[str], list[str]]]:
        cgroup.rmdir()
        return [(str(path), [], [])]

    monkeypatch.setattr("tare.undo.os.walk", gone_once_listed)
    assert undo(Entry("cgroup", str(cgroup)))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_what_would_end_a_run_waits_until_its_things_are_undone(
    tmp_path: Path, number: int
) -> None:
    code = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from tare import leftovers\n"
        "def stop(*_): raise KeyboardInterrupt\n"
        "for n in (signal.SIGTERM, signal.SIGHUP): signal.signal(n, stop)\n"
        "undo = leftovers.undo\n"
        "def interrupted(entry):\n"
        f"    os.kill(os.getpid(), {int(number)})\n"
        "    return undo(entry)\n"
        "leftovers.undo = interrupted\n"
        "try:\n"
        "    with leftovers.Registry(Path(sys.argv[1]) / 'root') as made:\n"
        "        for name in 'abc':\n"
        "            made.add('file', sys.argv[1] + '/' + name)\n"
        "            (Path(sys.argv[1]) / name).touch()\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted')\n"
    )
    found = subprocess.run(
        [*HEARING, sys.executable, "-c", code, str(tmp_path)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert found.stdout == "interrupted\n", found.stderr
    assert [path for path in tmp_path.iterdir() if path.is_file()] == []


@pytest.mark.skipif(
    not Path("/sys/kernel/tracing/uprobe_events").exists(), reason="this kernel has no uprobes"
)
def test_a_tracepoint_on_the_c_library(tmp_path: Path) -> None:
    events = Path("/sys/kernel/tracing/uprobe_events")
    code = """
from tare import uprobes
registry.add("uprobe", "clock_of_a_test")
print(uprobes.add_clock_readings("clock_of_a_test").partition(":")[2], file=open(values[0], "w"))
"""
    dead_run(tmp_path / "root", code, values=[str(tmp_path / "name")])
    name = (tmp_path / "name").read_text().strip()
    assert f":tare/{name} " in events.read_text()
    assert clean(tmp_path / "root") == [f"uprobe {name}"]
    assert f":tare/{name} " not in events.read_text()


def test_a_loop_device_on_a_file_of_the_run(tmp_path: Path) -> None:
    image = tmp_path / "disk"
    image.write_bytes(bytes(1 << 20))
    code = """
registry.add("loop", values[0])
subprocess.run(["losetup", "--find", values[0]], check=True)
"""
    dead_run(tmp_path / "root", code, values=[str(image)])
    look = ["losetup", "--associated", str(image)]
    assert subprocess.run(look, capture_output=True, check=True).stdout
    assert clean(tmp_path / "root") == [f"loop {image}"]
    assert not subprocess.run(look, capture_output=True, check=True).stdout


_DIES_BEFORE_IT_UNMOUNTS = """#!/bin/sh
for root; do :; done
mkdir -p "$root/proc" && mount -t tmpfs tare-test "$root/proc" && touch "$0.mounted"
kill -KILL $$
"""


def test_no_mount_is_left_of_a_debian_whose_making_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("tare.command", "tare.process"):
        monkeypatch.setattr(f"{module}.PATH", f"{tmp_path}:{os.environ['PATH']}")
    for name in ("mmdebstrap", "mke2fs", "qemu-img"):
        (tmp_path / name).write_text(_DIES_BEFORE_IT_UNMOUNTS)
        (tmp_path / name).chmod(0o755)
    with pytest.raises(UnavailableError, match="mmdebstrap was killed"):
        Debian.build(tmp_path / "cache")
    assert (tmp_path / "mmdebstrap.mounted").exists()
    assert str(tmp_path) not in Path("/proc/self/mountinfo").read_text()


def test_a_cache_is_not_cleared_through_a_mount(tmp_path: Path) -> None:
    precious, old = tmp_path / "precious", tmp_path / "cache" / ".new-old"
    for folder in (precious, old / "view"):
        folder.mkdir(parents=True)
    (precious / "file").write_text("x")
    subprocess.run(["mount", "--bind", precious, old / "view"], check=True)
    os.utime(old, (0, 0))
    try:
        with workspace(old.parent):
            assert (precious / "file").exists()
    finally:
        subprocess.run(["umount", old / "view"], check=True)
    with workspace(old.parent):
        assert not old.exists()
