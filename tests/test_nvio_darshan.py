"""`nvio predict` and `nvio inspect --picture` on logs that Darshan wrote."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from needs import HEARING, PROGRAMS
from tare.command import PATH

darshan = pytest.importorskip("darshan", reason="pydarshan has no wheel for this Python")

EXAMPLES = Path(darshan.__file__).parent
RECORDED = Path(__file__).parents[1] / "testdata/darshan"
SIMPLE = "tests/input/sample-dxt-simple.darshan"
IOR = "examples/example_logs/ior_hdf5_example.darshan"
WAYS = ("read", "write", "fresh_read", "cached_read", "cached_write", "cached_new")
NVIO = str(PROGRAMS / "nvio/nvio")


def nvio(
    *words: str, cwd: Path, path: str = f"{Path(sys.executable).parent}:{PATH}"
) -> subprocess.CompletedProcess[str]:
    """Run nvio with the python3 that has pydarshan."""
    env = {**os.environ, "PATH": path}
    return subprocess.run(
        [NVIO, *words], cwd=cwd, env=env, text=True, capture_output=True, timeout=120, check=False
    )


@pytest.fixture
def on_nfs(tmp_path: Path) -> Path:
    """A folder with a calibration of an NFS whose calls take 2 ms, and a store that takes none."""
    costs = dict.fromkeys(WAYS, 2e-3) | dict.fromkeys(WAYS[3:], 1e-6)
    ranges = {name: dict.fromkeys(("low", "median", "high"), s) for name, s in costs.items()}
    none = dict.fromkeys(("low", "median", "high"), 1e-6)
    said = {
        "format": "nvio-calibration", "version": 1, "folder": "/data", "file_system": "nfs srv:/x",
        "store": "/dev/shm",
        **{f"{name}_seconds": none for name in ("open", "close", "sync", "join")},
        "calls": [
            {"call": way, "bytes": size, "clients": 1, "seconds": ranges[way]}
            for way in WAYS for size in (4096, 1 << 20)
        ],
    }  # fmt: skip
    (tmp_path / "nvio-calibration.json").write_text(json.dumps(said))
    return tmp_path


def refusal(done: subprocess.CompletedProcess[str]) -> str:
    """The one line that says why there is none."""
    assert done.returncode == 1, done
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    return line


def test_a_log_of_another_machine_is_predicted_and_says_what_it_assumes(on_nfs: Path) -> None:
    done = nvio("predict", str(EXAMPLES / SIMPLE), cwd=on_nfs)
    assert done.returncode == 0, done.stderr
    assert "advice      do not bother" in done.stdout  # 16 ranks open a file, one writes 4000 bytes
    assert done.stdout.count("assumed  ") == 3
    said = json.loads(nvio("predict", "--json", str(EXAMPLES / SIMPLE), cwd=on_nfs).stdout)
    assert said["writes"] == 1
    assert len(said["assumed"]) == 3


@pytest.mark.parametrize(
    ("log", "why"),
    [
        (IOR, "did not all open it as often"),
        ("tests/input/sample.darshan", "DXT_ENABLE_IO_TRACE=1"),
        ("tests/input/noposix.darshan", "no MPI-IO call"),
        ("examples/example_logs/dxt.darshan", "no MPI-IO call"),
    ],
)
def test_a_log_that_lacks_what_is_needed_is_refused(log: str, why: str, on_nfs: Path) -> None:
    assert why in refusal(nvio("predict", str(EXAMPLES / log), cwd=on_nfs))


def test_a_damaged_log_is_refused_in_one_sentence(on_nfs: Path) -> None:
    whole = (EXAMPLES / SIMPLE).read_bytes()
    damaged = on_nfs / "damaged.darshan"
    chance = random.Random(12)
    for cut in (0, 7, 900, len(whole) // 2, len(whole) - 1):
        damaged.write_bytes(whole[:cut])
        assert "damaged" in refusal(nvio("predict", damaged.name, cwd=on_nfs))
    for _ in range(8):
        bytes_ = bytearray(whole)
        for _ in range(20):
            bytes_[chance.randrange(len(bytes_))] = chance.randrange(256)
        damaged.write_bytes(bytes_)
        refusal(nvio("predict", damaged.name, cwd=on_nfs))


def test_what_an_import_says_is_no_complaint_about_the_log(
    on_nfs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = "import sys; sys.stderr.write('/mirror/x.py:1: Warning: an error is on its way\\n')"
    (on_nfs / "sitecustomize.py").write_text(said)
    monkeypatch.setenv("PYTHONPATH", str(on_nfs))
    done = nvio("predict", str(EXAMPLES / SIMPLE), cwd=on_nfs)
    assert done.returncode == 0, done.stderr


def test_a_reader_that_is_ended_is_no_fault_of_the_log(
    on_nfs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (on_nfs / "sitecustomize.py").write_text("import os; os.kill(os.getpid(), 9)")
    monkeypatch.setenv("PYTHONPATH", str(on_nfs))
    why = refusal(nvio("predict", str(EXAMPLES / SIMPLE), cwd=on_nfs))
    assert "ended by signal 9" in why
    assert "damaged" not in why


def test_a_stop_ends_the_reader_too(on_nfs: Path) -> None:
    pipe = on_nfs / "pipe"
    os.mkfifo(pipe)
    waits = "import os, signal; signal.alarm(90)"  # at most
    waits += f"; open({str(pipe)!r}, 'w').write(str(os.getpid())); signal.pause()"
    (on_nfs / "sitecustomize.py").write_text(waits)
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{PATH}", "PYTHONPATH": str(on_nfs)}
    command = (*HEARING, NVIO, "predict", str(EXAMPLES / SIMPLE))
    with subprocess.Popen(command, cwd=on_nfs, env=env, text=True, stderr=subprocess.PIPE) as one:
        reader = int(pipe.read_text())
        one.terminate()
        _, said = one.communicate(timeout=60)
    assert one.returncode == 1
    assert "stopped" in said
    assert not Path(f"/proc/{reader}").exists()


def test_without_pydarshan_the_remedy_is_told(on_nfs: Path) -> None:
    done = nvio("predict", str(EXAMPLES / SIMPLE), cwd=on_nfs, path=str(on_nfs))
    assert "pip install darshan" in refusal(done)


def test_the_same_run_is_predicted_alike_from_both_logs(tmp_path: Path) -> None:
    calibration = ("--calibration", str(RECORDED / "calibration.json"), "--json")
    log, traces = (
        json.loads(nvio("predict", str(RECORDED / name), *calibration, cwd=tmp_path).stdout)
        for name in ("job.darshan", "traces")
    )
    for exact in ("reads", "writes", "writes_cached", "read_hits", "verdict"):
        assert log[exact] == traces[exact], exact
    assert log["verdict"] == "use"
    io = "recorded_io_seconds"
    assert log[io] == pytest.approx(traces[io], rel=0.05)
    # Each rank's clock begins at its own MPI_Init: unaligned, this is 1.42 times the other.
    ours, theirs = (of["cached_io_seconds"]["median"] for of in (log, traces))
    assert ours == pytest.approx(theirs, rel=0.2)


@pytest.mark.parametrize("trace", [EXAMPLES / IOR, EXAMPLES / SIMPLE, RECORDED / "traces"])
def test_a_picture_is_an_image_without_scripts(trace: Path, tmp_path: Path) -> None:
    done = nvio("inspect", "--picture", "job.svg", str(trace), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    root = ElementTree.parse(tmp_path / "job.svg").getroot()
    kinds = {element.tag.rpartition("}")[2] for element in root.iter()}
    assert kinds <= {"svg", "title", "style", "text", "rect", "path"}
    shades = [element.get("class", "") for element in root.iter() if element.get("d")]
    assert any(shade.startswith(("r", "w")) for shade in shades)


def test_what_cannot_be_drawn_is_refused(on_nfs: Path) -> None:
    log = str(EXAMPLES / "tests/input/sample.darshan")
    assert "no DXT trace" in refusal(nvio("inspect", "--picture", "x.svg", log, cwd=on_nfs))
    assert not (on_nfs / "x.svg").exists()
    nowhere = nvio("inspect", "--picture", "/nowhere/x.svg", str(EXAMPLES / IOR), cwd=on_nfs)
    assert "cannot write /nowhere/x.svg" in refusal(nowhere)
