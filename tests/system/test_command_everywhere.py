"""One command in every environment: it sees its files, is checked, and nothing comes back."""

from __future__ import annotations

import hashlib
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import platformdirs
import pytest
from one_trial import laid_out, one_trial

from needs import PROGRAMS, needs_root
from tare import environments
from tare.environments import Site

pytestmark = [pytest.mark.system, needs_root]

NAMES = environments.names()


@pytest.mark.parametrize(
    ("name", "files"),
    [
        (name, files)
        for name in NAMES
        for files in (("shared", "copied") if environments.row(name).own_kernel else ("shared",))
    ],
)
def test_a_command_is_checked_and_leaves_nothing(
    name: str, files: str, tidy_site: Site, tmp_path: Path
) -> None:
    here = environments.named(name).availability()
    if not here.available:
        pytest.skip(here.detail)
    work = tmp_path / "work"
    work.mkdir()
    (work / "data").write_bytes(os.urandom(1000) * 50)
    packed = subprocess.run(["gzip", "-n", "-c", "data"], cwd=work, capture_output=True, check=True)
    digest = hashlib.sha256(packed.stdout).hexdigest()
    document = {
        "title": "t",
        "workload": "command",
        "factors": {
            "environment": name,
            "command": {"it": "gzip -n -k data"},
            **({"files": files} if environments.row(name).own_kernel else {}),
        },
        "baseline": {},
        "session": {
            "cwd": str(work), "runs": 2, "prepare": "rm -f data.gz", "inputs": "data /bin/rm",
            "expect_file": f"data.gz sha256:{digest}",
        },
    }  # fmt: skip
    site = replace(tidy_site, cache=platformdirs.user_cache_path("tare"))
    found = one_trial(document, site)
    assert found.counters["executions"] == 2
    assert {"wall", "peak", "start"} <= found.values.keys()
    assert sorted(path.name for path in work.iterdir()) == ["data"]


def test_another_machine_has_not_the_files() -> None:
    document = {
        "title": "t",
        "workload": "command",
        "factors": {"environment": "ssh root@192.0.2.1:22", "command": "true"},
        "baseline": {},
    }
    planned = laid_out(document)
    why = planned.workload.lacking(planned.cells[0].levels, planned.session, PROGRAMS)
    assert why is not None
    assert "are not on another one" in why


@pytest.mark.parametrize("name", [n for n in NAMES if environments.row(n).own_kernel])
def test_what_a_guest_is_given_copied_is_the_input_and_program_of_every_level(
    name: str, tidy_site: Site, tmp_path: Path
) -> None:
    here = environments.named(name).availability()
    if not here.available:
        pytest.skip(here.detail)
    for build in "12":
        (tmp_path / build).mkdir()
        (tmp_path / build / "app").write_text(f"#!/bin/sh\nread -r found; echo {build} $found\n")
        (tmp_path / build / "app").chmod(0o755)
        (tmp_path / f"data-{build}").write_text(f"of {build}\n")
    document = {
        "title": "t",
        "workload": "command",
        "factors": {
            "environment": name, "files": "copied", "command": {"it": "./{build}/app"},
            "build": ["2", "1"],
        },
        "baseline": {},
        "session": {
            "cwd": str(tmp_path), "runs": 1, "warmup": 0, "stdin": "data-{build}",
            "expect_output": "^2 of 2$",
        },
    }  # fmt: skip
    site = replace(tidy_site, cache=platformdirs.user_cache_path("tare"))
    assert one_trial(document, site).counters["executions"] == 1
