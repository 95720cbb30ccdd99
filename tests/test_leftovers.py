import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from limits import no_file_grows
from needs import dead_run, needs_root
from tare import command, leftovers, netns
from tare.command import Command, start_time
from tare.errors import TareError, UnavailableError, UsageError
from tare.leftovers import Kind, Registry, clean, clean_unlisted
from tare.process import run, start
from tare.undo import undo

_NOBODY = 65534


def test_a_run_that_ends_leaves_no_list_and_nothing_that_is_on_it(tmp_path: Path) -> None:
    folder = tmp_path / "made"
    with Registry(tmp_path / "root") as registry:
        registry.add("directory", str(folder))
        folder.mkdir()
        (folder / "file").write_text("x")
    assert not folder.exists()
    assert not registry.directory.exists()


def test_a_run_that_ends_leaves_no_process_wherever_it_went(tmp_path: Path) -> None:
    line = "setsid sleep 600 >/dev/null 2>&1 & echo $!"
    with start(Command(("sleep", "60"))) as earlier:
        with Registry(tmp_path / "root"):
            pid = int(run(Command(("sh", "-c", line)), 20).stdout)
            assert state_of(pid) not in (None, "Z")
        assert state_of(pid) in (None, "Z")
        assert earlier.alive()


def test_it_is_undone_after_an_exception_too(tmp_path: Path) -> None:
    folder = tmp_path / "made"
    with (
        pytest.raises(ZeroDivisionError),
        Registry(tmp_path / "root") as registry,
        registry.owing("directory", str(folder)),
    ):
        folder.mkdir()
        raise ZeroDivisionError
    assert not folder.exists()


def test_a_dead_runs_things_are_removed_and_what_was_only_intended_does_no_harm(
    tmp_path: Path,
) -> None:
    made, never = tmp_path / "made", tmp_path / "never"
    code = """
registry.add("directory", made)
Path(made).mkdir()
registry.add("file", made + ".file")
Path(made + ".file").write_text("x")
registry.add("directory", never)
"""
    dead_run(tmp_path / "root", code, made=str(made), never=str(never))
    assert made.exists()
    undone = clean(tmp_path / "root")
    assert undone == [f"file {made}.file", f"directory {made}"]
    assert not made.exists()
    assert not Path(f"{made}.file").exists()
    assert clean(tmp_path / "root") == []


def test_a_living_run_is_not_touched(tmp_path: Path) -> None:
    folder = tmp_path / "made"
    with Registry(tmp_path / "root") as registry, registry.owing("directory", str(folder)):
        folder.mkdir()
        assert clean(tmp_path / "root") == []
        assert folder.exists()


def dead_runs_process(folder: Path) -> int:
    """In a session of its own, without a tie: what a program that detaches itself would be."""
    code = """
from tare.command import Command
from tare.process import run
run(Command(("sh", "-c", "setsid sleep 600 >/dev/null 2>&1 & echo $! > " + pidfile)), 20)
"""
    pidfile = folder / "pid"
    dead_run(folder / "root", code, pidfile=str(pidfile))
    return int(pidfile.read_text())


def test_processes_of_a_dead_run_are_killed_wherever_they_went(tmp_path: Path) -> None:
    pid = dead_runs_process(tmp_path)
    assert start_time(pid) is not None
    assert any(f"process {pid}" in line for line in clean(tmp_path / "root"))
    assert state_of(pid) in (None, "Z")


@pytest.mark.parametrize("alive", [False, True])
def test_processes_on_no_list_are_killed_once_their_owner_is_dead(
    tmp_path: Path, alive: bool
) -> None:
    owner = tmp_path / "owner.py"
    owner.write_text(
        "import sys\nfrom tare.command import Command\nfrom tare.process import run\n"
        "line = 'setsid sleep 600 >/dev/null 2>&1 & echo $!'\n"
        "print(run(Command(('sh', '-c', line)), 20).stdout, flush=True)\nsys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, owner], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        pid = int(running.stdout.readline())
        if not alive:
            running.kill()
            running.wait()
        try:
            said = f"process {pid} of a dead run" in clean_unlisted()
            assert (said, state_of(pid) in (None, "Z")) == (not alive, not alive)
        finally:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@needs_root
@pytest.mark.parametrize("alive", [False, True])
def test_a_namespace_on_no_list_goes_once_its_owner_is_dead(alive: bool) -> None:
    name = f"tare-test-{os.getpid()}"
    maker = (
        f"import sys; from tare import netns; netns.make({name!r}); print(flush=True);"
        " sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", maker], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        running.stdout.readline()
        try:
            if not alive:
                running.kill()
                running.wait()
            assert (f"netns {name}" in clean_unlisted()) is not alive
            assert Path("/run/netns", name).exists() is alive
        finally:
            undo(leftovers.Entry("netns", name))


MARKLESS = """
from tare import netns
from tare.pauses import pauses
registry.add("netns", name)
netns.make(name)
words = ["ip", "netns", "exec", name, "env", "-i", "setsid", "sleep", "600"]
pid = subprocess.Popen(words, stdout=subprocess.DEVNULL).pid
comm = Path(f"/proc/{pid}/comm")
assert any(comm.read_text() == "sleep\\n" for _ in pauses(20))
Path(pidfile).write_text(str(pid))
"""
"""Makes a namespace, and in it a process with no mark: as a daemon does that sets its title."""


@needs_root
def test_a_namespace_that_goes_while_one_looks_is_not_made_anew() -> None:
    with pytest.raises(UnavailableError, match="no such network namespace: 'tare-gone'"):
        netns.owner("tare-gone")
    assert not Path("/run/netns/tare-gone").exists()


@needs_root
def test_who_is_in_a_dead_runs_namespace_is_killed_whatever_its_environment(tmp_path: Path) -> None:
    name, pidfile = f"tare-test-{os.getpid()}", tmp_path / "pid"
    dead_run(tmp_path / "root", MARKLESS, name=name, pidfile=str(pidfile))
    pid = int(pidfile.read_text())
    try:
        assert Path(f"/proc/{pid}/environ").read_bytes() == b""
        assert clean(tmp_path / "root") == [f"netns {name}"]
        assert state_of(pid) in (None, "Z")
        assert not Path("/run/netns", name).exists()
    finally:
        undo(leftovers.Entry("netns", name))
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


BESIDE = """
import os, subprocess, sys
from tare.undo import Entry, undo
subprocess.run(["ip", "netns", "attach", sys.argv[1], str(os.getpid())], check=True)
with subprocess.Popen(["sleep", "600"]) as beside:
    print(undo(Entry("netns", sys.argv[1])), beside.poll())
    beside.kill()
"""


@needs_root
def test_nobody_is_killed_who_is_where_this_process_is() -> None:
    name = f"tare-test-{os.getpid()}"
    # In a namespace of its own, lest all of this machine is beside it.
    words = ("unshare", "--net", sys.executable, "-c", BESIDE, name)
    said = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True).stdout
    assert said == "True None\n"
    assert not Path("/run/netns", name).exists()


def test_a_process_on_its_way_to_its_program_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lock is free by then, and it shows nothing yet of who started it."""
    pid = dead_runs_process(tmp_path)
    read, looks = Path.read_bytes, [True, True, False]
    monkeypatch.setattr(
        Path,
        "read_bytes",
        lambda path: b"" if str(path) == f"/proc/{pid}/environ" and looks else read(path),
    )
    monkeypatch.setattr(
        leftovers, "is_within_exec", lambda one: one == pid and bool(looks) and looks.pop(0)
    )
    assert any(f"process {pid}" in line for line in clean(tmp_path / "root"))
    assert looks == []
    assert state_of(pid) in (None, "Z")


def test_who_shows_no_environment_for_a_moment_and_who_never_will(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert not command.is_within_exec(os.getpid())
    assert not command.is_within_exec(2)  # kthreadd
    with subprocess.Popen(["true"]) as ended:
        while state_of(ended.pid) != "Z":
            time.sleep(0.001)
        assert not command.is_within_exec(ended.pid)
    # The kernel's fields from the third on, of one that was caught in the act.
    flags, environment = 9 - 3, 50 - 3
    fields = [b"R", *[b"1"] * 49]
    fields[flags], fields[environment] = b"4194304", b"0"
    monkeypatch.setattr(command, "_stat", lambda _: fields)
    assert command.is_within_exec(7)


def state_of(pid: int) -> str | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return None
    return stat.rpartition(")")[2].split()[0]


def test_a_recycled_pid_is_never_killed(tmp_path: Path) -> None:
    with start(Command(("sleep", "60"))) as bystander:
        started = start_time(bystander.pid)
        assert started is not None
        earlier = f"{bystander.pid}:{started - 1}"
        dead_run(tmp_path / "root", 'registry.add("process", earlier)', earlier=earlier)
        assert clean(tmp_path / "root") == []
        assert bystander.alive()
        same = f"{bystander.pid}:{started}"
        dead_run(tmp_path / "root", 'registry.add("process", same)', same=same)
        assert clean(tmp_path / "root") == [f"process {same}"]
        assert not bystander.alive()


def test_a_file_in_place_of_a_directory_is_left_alone_and_the_other_way_round(
    tmp_path: Path,
) -> None:
    file, folder, link = tmp_path / "file", tmp_path / "folder", tmp_path / "link"
    file.write_text("x")
    folder.mkdir()
    link.symlink_to(folder)
    with Registry(tmp_path / "root") as registry:
        registry.add("directory", str(file))
        registry.add("file", str(folder))
        registry.add("directory", str(link))
    assert file.exists()
    assert folder.exists()
    assert link.exists()


def test_after_a_reboot_only_files_are_removed(tmp_path: Path) -> None:
    folder = tmp_path / "made"
    with start(Command(("sleep", "60"))) as bystander:
        name = f"{bystander.pid}:{start_time(bystander.pid)}"
        code = """
registry.add("process", name)
registry.add("directory", folder)
Path(folder).mkdir()
"""
        run_id = dead_run(tmp_path / "root", code, name=name, folder=str(folder))
        owner = tmp_path / "root" / run_id / "owner"
        owner.write_text(json.dumps({**json.loads(owner.read_text()), "boot": "another"}))
        assert clean(tmp_path / "root") == [f"directory {folder}"]
        assert bystander.alive()


def test_what_resists_keeps_its_list_and_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stubborn, other = tmp_path / "stubborn", tmp_path / "other"
    code = """
for path in (other, stubborn):
    registry.add("directory", path)
    Path(path).mkdir()
"""
    run_id = dead_run(tmp_path / "root", code, stubborn=str(stubborn), other=str(other))
    with monkeypatch.context() as patch:
        # A bind mount in it, say: what it shows must not be deleted through it.
        patch.setattr("tare.mounts.within", lambda path: [path] * (path == stubborn))
        with pytest.raises(TareError, match="stubborn"):
            clean(tmp_path / "root")
    assert stubborn.exists()
    assert not other.exists()
    assert (tmp_path / "root" / run_id / "entries.ndjson").exists()
    assert clean(tmp_path / "root") == [f"directory {stubborn}"]


def test_one_list_that_resists_does_not_keep_the_next_from_being_cleaned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        code = 'registry.add("directory", folder)\nPath(folder).mkdir()'
        dead_run(tmp_path / "root", code, folder=str(folder))
    monkeypatch.setattr("tare.mounts.within", lambda path: [path] * (path == folders[0]))
    with pytest.raises(TareError, match="one"):
        clean(tmp_path / "root")
    assert folders[0].exists()
    assert not folders[1].exists()


def test_a_run_killed_before_it_wrote_anything_is_swept(tmp_path: Path) -> None:
    (tmp_path / "abcdef").mkdir()
    assert clean(tmp_path) == []
    assert not (tmp_path / "abcdef").exists()


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.binary(max_size=40)
        | st.builds(
            lambda *words: json.dumps(
                dict(zip(("kind", "name", "detail"), words, strict=True))
            ).encode(),
            st.sampled_from(["netns", "process", "cgroup", "wish"]) | st.integers(),
            st.text(max_size=5) | st.none(),
            st.just(""),
        ),
        max_size=5,
    ),
    st.binary(max_size=40),
)
def test_any_bytes_in_a_list_are_survived(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], owner: bytes
) -> None:
    root = tmp_path_factory.mktemp("root")
    run = root / "abcdef"
    run.mkdir()
    (run / "entries.ndjson").write_bytes(b"\n".join(lines))
    (run / "owner").write_bytes(owner)
    clean(root)
    assert not run.exists()


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("file", "LICENSE"),
        ("file", "/tmp/a\0b"),
        ("directory", "/tmp/../etc"),
        ("directory", ""),
        ("netns", "../../etc/passwd"),
        ("uprobe", "-x"),
    ],
)
def test_a_name_that_could_hit_something_else_is_refused(
    tmp_path: Path, kind: Kind, name: str
) -> None:
    with Registry(tmp_path / "root") as registry, pytest.raises(UsageError, match="cannot name"):
        registry.add(kind, name)


def test_where_no_list_can_be_written_it_is_said_and_nothing_stays(tmp_path: Path) -> None:
    said = f"cannot write to {tmp_path}: File too large"
    with no_file_grows(), pytest.raises(TareError, match=said):
        Registry(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]


def test_two_runs_have_lists_of_their_own(tmp_path: Path) -> None:
    with Registry(tmp_path) as one, Registry(tmp_path) as other:
        assert one.run_id != other.run_id
        assert sorted(p.name for p in tmp_path.iterdir() if p.is_dir()) == sorted(
            [one.run_id, other.run_id]
        )


@needs_root
def test_only_root_can_hold_the_real_list() -> None:
    with Registry():  # so that there is a place for lists
        child = os.fork()
        if child == 0:
            os.setgroups([])
            os.setresgid(*[_NOBODY] * 3)
            os.setresuid(*[_NOBODY] * 3)
            refused = 0
            for act in (Registry, clean):
                with suppress(BaseException):
                    try:
                        act()
                    except UnavailableError as error:
                        refused += "cannot write" in error.what
            os._exit(refused)
        _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 2


def test_nobody_else_can_write_a_list_whatever_is_masked(tmp_path: Path) -> None:
    usual = os.umask(0)
    try:
        with Registry(tmp_path / "root") as registry:
            registry.add("file", "/nowhere/tare-test")
            made = [tmp_path / "root", *(tmp_path / "root").rglob("*")]
            assert len(made) == 6
            assert [path for path in made if path.stat().st_mode & 0o022] == []
    finally:
        os.umask(usual)
