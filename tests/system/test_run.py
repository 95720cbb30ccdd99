"""`tare run` for real: small experiments from their file to their report, and what befalls them."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from claims.crash import killed_run
from needs import HEARING, SMALL, needs_root, tare
from tare import leftovers
from tare.command import OWNER_VARIABLE, Command, start_time
from tare.errors import Exit
from tare.process import run
from tare.record import Record

pytestmark = [pytest.mark.system, needs_root]
HOME = Path(__file__).parents[2]


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(SMALL)
    return path


def test_an_experiment_becomes_a_report(small, tmp_path):
    found = tare("run", str(small), "--json", "--profile", cwd=tmp_path)
    assert found.returncode == 0, found.stderr
    assert re.search(r"measuring: [\d.]+ of [\d.]+ s", found.stderr)
    said = json.loads(found.stdout)
    record = Record(tmp_path / said["result"])
    assert len(record.trials()) == len(record.plan.cells) * 2
    assert all(t.status == "ok" and t.counters["lost"] == 0 for t in record.trials())
    # ICMP too, which the kernel answers: somebody looks on, so that the layer is accounted for.
    assert all(t.server and t.server.threads for t in record.trials())
    calibrated = [t.calibration for t in record.trials() if t.block == 0]
    assert all(c is not None and c.floor_ns > 0 for c in calibrated)
    page = (tmp_path / said["report"]).read_text()
    assert "A small question" in page


def test_counting_sessions_are_kept_apart_from_trials(tmp_path):
    path = tmp_path / "counted.yaml"
    path.write_text(SMALL + "causes: 2\n")
    found = tare("run", str(path), "--json", cwd=tmp_path)
    assert found.returncode == 0, found.stderr
    record = Record(tmp_path / json.loads(found.stdout)["result"])
    udp = [c for c in record.causes() if c.cell == "native/udp"]
    assert [c.repeat for c in udp] == [0, 1]
    for session in udp:
        assert session.error is None
        assert session.counts["client sends"] == pytest.approx(1, abs=0.1)
        assert session.counts["server receives"] == pytest.approx(1, abs=0.1)
        assert session.unit_costs_ns["send"] > session.unit_costs_ns["receive"] > 0


def test_kill_9_loses_no_trial_and_repeats_none(tmp_path):
    found = killed_run(tmp_path, kills=3, seed=7)
    assert found["kills"] >= 1
    assert found["found"] == found["expected"]
    assert found["failed"] == found["repeated"] == found["left"] == 0


def await_a_trial(run, out):
    deadline = time.monotonic() + 60
    while not (out / "trials.ndjson").exists() or not Record(out).trials():
        assert time.monotonic() < deadline, "no trial within a minute"
        assert run.poll() is None, run.stderr
        time.sleep(0.05)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_ctrl_c_and_its_like_clean_up_and_say_how_to_go_on(small, tmp_path, number):
    out = tmp_path / "result"
    victim = subprocess.Popen(
        [*HEARING, sys.executable, "-m", "tare", "run", str(small), "--out", str(out)],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    await_a_trial(victim, out)
    mark = f"{victim.pid}:{start_time(victim.pid)}"
    os.kill(victim.pid, number)
    _, err = victim.communicate(timeout=60)
    assert victim.returncode == Exit.INTERRUPTED, err
    assert f"all was cleaned up; go on with: tare run --resume {out}" in err
    lists = (path for path in leftovers.ROOT.iterdir() if path.is_dir())
    assert mark not in {leftovers._owner(path)[1] for path in lists}
    assert leftovers.marked(OWNER_VARIABLE, mark) == []
    before = len(Record(out).trials())
    resumed = tare("run", "--resume", str(out), "--json", cwd=tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    assert before <= len(Record(out).trials()) == len(Record(out).plan.cells) * 2
    (resumption,) = Record(out).resumptions()
    assert resumption.fingerprint == Record(out).fingerprint


def test_a_run_under_nohup_outlives_a_hangup(small, tmp_path):
    out = tmp_path / "result"
    deaf = ["env", "--ignore-signal=HUP", sys.executable, "-m", "tare", "run", str(small)]
    with subprocess.Popen([*deaf, "--out", str(out)], cwd=tmp_path, stderr=subprocess.PIPE) as run:
        await_a_trial(run, out)
        run.send_signal(signal.SIGHUP)
        _, err = run.communicate(timeout=120)
    assert run.returncode == 0, err
    assert len(Record(out).trials()) == len(Record(out).plan.cells) * 2


def test_a_run_is_not_resumed_with_other_programs(small, tmp_path):
    out = tmp_path / "result"
    assert tare("run", str(small), "--out", str(out), cwd=tmp_path).returncode == 0
    path = out / "environment.json"
    fingerprint = json.loads(path.read_text())
    fingerprint["programs"]["echo/echo-udp"] = "0" * 64
    path.write_text(json.dumps(fingerprint))
    found = tare("run", "--resume", str(out), cwd=tmp_path)
    assert found.returncode == Exit.USAGE
    assert "programs.echo/echo-udp changed" in found.stderr


def test_a_run_is_not_resumed_with_another_build_or_another_secret(tmp_path):
    app, out = tmp_path / "app", tmp_path / "result"
    app.write_text("#!/bin/sh\n")
    app.chmod(0o755)
    argv = ("measure", "--env", "API_TOKEN", "--blocks", "2", "-r", "1", "--out", str(out), "./app")
    assert tare(*argv, cwd=tmp_path, API_TOKEN="one").returncode == 0
    assert str(app) in Record(out).fingerprint.whole["programs"]

    def resumed(**env):
        return tare("run", "--resume", str(out), cwd=tmp_path, **env)

    assert resumed(API_TOKEN="one").returncode == 0
    for env, said in (({"API_TOKEN": "two"}, "is not what it was"), ({}, "is not set")):
        found = resumed(**env)
        assert found.returncode == Exit.USAGE
        assert said in " ".join(found.stderr.split())
    app.write_text("#!/bin/sh\n: another\n")
    found = resumed(API_TOKEN="one")
    assert found.returncode == Exit.USAGE
    assert f"since it began, programs.{app} changed" in " ".join(found.stderr.split())


def test_two_runs_at_once_do_not_meet(small, tmp_path):
    both = [
        subprocess.Popen(
            [sys.executable, "-m", "tare", "run", str(small), "--out", str(tmp_path / name)],
            cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )
        for name in ("one", "two")
    ]  # fmt: skip
    for running in both:
        _, err = running.communicate(timeout=250)
        assert running.returncode == 0, err
    for name in ("one", "two"):
        assert all(t.status == "ok" for t in Record(tmp_path / name).trials())


def test_two_runs_into_one_folder_are_refused(small, tmp_path):
    out = tmp_path / "result"
    assert tare("run", str(small), "--out", str(out), cwd=tmp_path).returncode == 0
    with Record(out).writing():
        found = tare("run", "--resume", str(out), cwd=tmp_path)
    assert found.returncode == Exit.UNAVAILABLE
    assert "another tare is writing" in " ".join(found.stderr.split())


def test_a_full_disk_stops_the_run_and_it_goes_on_when_there_is_room(small, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    run(Command(("mount", "-t", "tmpfs", "-o", "size=132k", "tmpfs", str(disk))), timeout_s=10)
    try:
        found = tare("run", str(small), "--out", str(disk / "r"), cwd=tmp_path)
        assert found.returncode == Exit.UNAVAILABLE
        said = " ".join(found.stderr.split())
        assert "No space left" in said
        assert "Traceback" not in said
        kept = len(Record(disk / "r").trials())
        run(Command(("mount", "-o", "remount,size=64m", str(disk))), timeout_s=10)
        resumed = tare("run", "--resume", str(disk / "r"), cwd=tmp_path)
        assert resumed.returncode == 0, resumed.stderr
        trials = Record(disk / "r").trials()
        assert len(trials) == len(Record(disk / "r").plan.cells) * 2
        assert kept > 0
    finally:
        run(Command(("umount", str(disk))), timeout_s=10)
