"""What CONTRIBUTING.md says it takes to add something: a file, for a transport also a row.

The files of tests/additions are put where they would be added, in a checkout of a test's own, and
measured with.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from needs import PROGRAMS, needs_root
from tare import mounts

pytestmark = [pytest.mark.system, needs_root]

HOME = Path(__file__).parents[2]
ADDITIONS = HOME / "tests/additions"
ROW = 'Transport("udplite", "UDP-Lite", datagram=True)'
ASKED = """\
title: What was added
{what}
baseline: {{environment: native}}
family: none # so two blocks may do
blocks: {{min: 2, max: 2}}
"""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Tare with an environment, a workload and a transport more."""
    root = tmp_path_factory.mktemp("checkout")
    lab = root / "src/tare"
    shutil.copytree(HOME / "src/tare", lab, ignore=shutil.ignore_patterns("__pycache__"))
    for kind in ("environments", "workloads"):
        shutil.copytree(ADDITIONS / kind, lab / kind, dirs_exist_ok=True)
    table = lab / "transports.py"
    table.write_text(table.read_text().replace("ROWS = (", f"ROWS = (\n    {ROW},", 1))
    for program in ("echo/echo-null", "echo/echo-udp", "probe/probe"):
        (root / "build" / program).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(PROGRAMS / program, root / "build" / program)
    compile_transport("udplite", root / "build/echo")
    yield root


def compile_transport(name: str, target: Path) -> None:
    """As echo/CMakeLists.txt makes a program of each file in transports/."""
    echo = HOME / "echo"
    subprocess.run(
        [
            "c++", "-std=c++20", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{echo}",
            str(echo / "main.cc"), str(ADDITIONS / f"transports/{name}.cc"),
            str(PROGRAMS / "echo/libecho_core.a"), "-pthread", "-o", str(target / f"echo-{name}"),
        ],
        check=True,
    )  # fmt: skip


def tare(checkout: Path, *argv: str) -> str:
    found = subprocess.run(
        [sys.executable, "-m", "tare", *argv],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": str(checkout / "src")},
        capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    return found.stdout


def measured(checkout: Path, what: str) -> tuple[list[dict[str, Any]], str]:
    """Run an experiment; return its trials, every one whole, and its page.

    As JSON: this Tare knows nothing of what was added.
    """
    (checkout / "asked.yaml").write_text(ASKED.format(what=what))
    said = json.loads(tare(checkout, "run", "asked.yaml", "--json"))
    result = checkout / said["result"]
    cells = json.loads((result / "plan.json").read_text())["cells"]
    trials = [json.loads(line) for line in (result / "trials.ndjson").read_text().splitlines()]
    assert len(trials) == 2 * len(cells)
    assert all(trial["status"] == "ok" for trial in trials)
    return trials, (checkout / said["report"]).read_text()


def test_an_environment_and_a_transport_that_are_added_are_measured_and_named(
    checkout: Path,
) -> None:
    try:
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_UDPLITE).close()
    except OSError:
        pytest.skip("this kernel has no UDP-Lite")
    asked = "factors: {environment: [native, chroot], transport: [udp, udplite]}"
    trials, page = measured(checkout, asked + "\nsession: {requests: 200, warmup: 20}")
    assert {trial["cell"].partition("/")[2] for trial in trials} >= {"udp", "udplite"}
    assert all(trial["counters"]["received"] == 200 for trial in trials)
    chrooted = [trial for trial in trials if trial["cell"].startswith("chroot")]
    assert chrooted
    assert all(t["facts"]["root"] == "ours" and t["server"]["threads"] for t in chrooted)
    assert "in a chroot" in page
    assert "UDP-Lite" in page
    assert not [one for one in mounts.listed() if one.point.is_relative_to(checkout)]


def test_a_workload_that_is_added_is_measured_in_what_was_added(checkout: Path) -> None:
    asked = "workload: hashing\nfactors: {environment: [native, chroot], amount: 64 KiB}"
    trials, page = measured(checkout, asked)
    assert all(trial["values"]["time"] > 0 for trial in trials)
    assert "Hashing" in page


def test_what_is_added_is_known_to_doctor_schema_and_refusals(checkout: Path) -> None:
    parts = {part["name"]: part for part in json.loads(tare(checkout, "doctor", "--json"))}
    assert parts["environment chroot"]["available"]
    assert parts["transport udplite"]["detail"] == "built"
    schema = json.loads(tare(checkout, "schema"))
    factors = schema["$defs"] | schema["else"].get("$defs", {})
    assert "udplite" in str(factors["request-reply-level"]["properties"]["transport"]["enum"])
    assert "amount" in factors["hashing-level"]["properties"]
    (checkout / "asked.yaml").write_text(
        ASKED.format(
            what="factors: {environment: [native, chroot], transport: udplite, payload: 1 MiB}"
        )
    )
    with pytest.raises(AssertionError, match="more than UDP-Lite carries in one packet"):
        tare(checkout, "run", "asked.yaml", "--dry-run")
