"""Who is not root measures in a user namespace: natively, in a container, in a guest."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from archives import docker_archive, layer
from needs import HOME, needs_root
from tare.errors import Exit

pytestmark = [pytest.mark.system, needs_root]

USER = 64_000
"""Of whom this machine knows nothing."""

AS_USER = f"""
import os, sys

sys.path += {[str(HOME / "tests"), str(HOME / "tests/system")]!r}
from opening import open_to_users

open_to_users()
os.chdir(sys.argv[1])
os.setgroups([])
os.setgid({USER})
os.setuid({USER})
os.environ |= {{"HOME": sys.argv[1], "XDG_STATE_HOME": sys.argv[1] + "/state"}}
os.execv(sys.executable, [sys.executable, "-m", "tare", *sys.argv[2:]])
"""
EXPERIMENT = """\
title: A small question
factors: {environment: [native, container, gvisor], transport: [udp]}
baseline: {environment: native}
family: none # so two blocks may do
blocks: {min: 2, max: 2}
session: {requests: 300, warmup: 30, timeout: 1 s}
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A user's own, that the user can reach: each run of pytest closes pytest's own to others."""
    with tempfile.TemporaryDirectory(prefix="rootless-") as made:
        os.chown(made, USER, USER)
        yield Path(made)


def started(folder: Path, *argv: str, **env: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        ["unshare", "--mount", sys.executable, "-c", AS_USER, str(folder), *argv],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **env},
    )  # fmt: skip


def done(folder: Path, *argv: str, **env: str) -> str:
    with started(folder, *argv, **env) as running:
        said, err = running.communicate(timeout=120)
    assert running.returncode == 0, err
    return said


def test_a_user_measures_responses_and_is_told_what_is_roots(folder: Path) -> None:
    (folder / "file.yaml").write_text(EXPERIMENT)
    said = json.loads(done(folder, "run", "file.yaml", "--json"))
    plan = json.loads((folder / said["result"] / "plan.json").read_text())
    cells = {cell["levels"]["environment"] for cell in plan["cells"]}
    assert cells == {"native", "container"}
    assert {cell["levels"]["scheduling"] for cell in plan["cells"]} == {"other"}
    assert (folder / said["report"]).stat().st_uid == USER


def test_a_user_measures_a_command_on_the_users_own_files(folder: Path) -> None:
    (folder / "corpus").write_bytes(os.urandom(100_000))
    os.chown(folder / "corpus", USER, USER)
    (folder / "corpus").chmod(0o600)
    words = ("--in", "native,container", "--blocks", "6", "--seed", "1", "--json")
    said = json.loads(done(folder, "measure", *words, "--", "gzip", "-k", "-f", "corpus"))
    assert not (folder / "corpus.gz").exists()
    assert json.loads(done(folder, "show", said["result"], "--json"))["failed"] == []


def test_a_user_whom_another_became_by_sudo_is_that_user(folder: Path) -> None:
    typed_by = {"SUDO_UID": "64001", "SUDO_GID": "64001"}
    words = ("--blocks", "3", "-r", "1", "-w", "0", "--takes", "1ms", "--out", "result")
    done(folder, "measure", *words, "--", "true", **typed_by)
    assert (folder / "result/report.html").stat().st_uid == USER


def test_a_user_measures_a_command_in_an_image_with_files_of_others(folder: Path) -> None:
    shadow = ("etc/shadow", "file", b"of a group that a namespace of one user does not know")
    image = layer(("bin/sh", "file", Path("/bin/busybox").read_bytes()), shadow)
    os.chown(docker_archive(folder / "image.tar", image), USER, USER)
    words = ("--in", "native,container", "--image", "image.tar", "--blocks", "6", "--json")
    said = json.loads(done(folder, "measure", *words, "--", "/bin/sh", "-c", ":"))
    assert json.loads(done(folder, "show", said["result"], "--json"))["failed"] == []


def test_what_a_killed_run_left_goes_with_the_next(folder: Path) -> None:
    (folder / "file.yaml").write_text(EXPERIMENT)
    lists = folder / "state/tare/left"
    with started(folder, "run", "file.yaml", "--out", "killed") as running:
        trials = folder / "killed/trials.ndjson"
        while not trials.exists() or not trials.stat().st_size:
            assert running.poll() is None
        running.send_signal(signal.SIGKILL)
    (left,) = [path for path in lists.iterdir() if path.is_dir()]
    said = json.loads(done(folder, "clean", "--json"))
    assert f"directory /tmp/tare-{left.name}" in said
    assert [path for path in lists.iterdir() if path.is_dir()] == []


def test_doctor_says_what_a_user_has_not(folder: Path) -> None:
    found = {one["name"]: one for one in json.loads(done(folder, "doctor", "--json"))}
    assert found["privileges"]["available"]
    assert "no real-time priorities" in found["privileges"]["detail"]
    assert found["environment container"]["available"]
    assert not found["file system throttled"]["available"]


def test_a_namespace_in_which_nothing_may_be_done_is_told(folder: Path) -> None:
    """Ubuntu's AppArmor lets every user have one, and refuses what is done in it."""
    (folder / "sitecustomize.py").write_text(
        "from tare import mounts\n"
        "def refused(*_, **__): raise PermissionError(13, 'Permission denied')\n"
        "if __import__('os').geteuid(): mounts.mount = refused\n"
    )
    with started(folder, "run", "file.yaml", PYTHONPATH=str(folder)) as running:
        _, err = running.communicate(timeout=60)
    assert running.returncode == Exit.UNAVAILABLE
    assert "may do nothing in a user namespace: [Errno 13]" in err
    assert "apparmor_restrict_unprivileged_userns" in err
