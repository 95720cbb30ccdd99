"""The Epilog of Slurm for nvio, beside a stand-in of `nvio recover`; slurm.py has the real one."""

from __future__ import annotations

import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "nvio/clusters/slurm/epilog"
IN_MEMORY = Path("/dev/shm")
RECOVER = """\
#!/bin/sh
[ "$1 $2" = "recover --latest" ] || exit 2
echo "$3" >>"$(dirname "$0")/recovered"
[ ! -e "$3/running" ] || { echo "its job is still running" && exit 1; }
[ -e "$3/full" ] || rm -r "$3"
[ ! -e "$3" ]
"""


@pytest.fixture
def job() -> Iterator[str]:
    """A job's id that no other has; its stores are removed."""
    name = uuid.uuid4().hex
    yield name
    for store in IN_MEMORY.glob(f"nvio-0-slurm-{name}.*"):
        shutil.rmtree(store)


def recovered(job: str, site: Path, tmp_path: Path) -> list[str]:
    """The stores that the Epilog of a site with that folder has recovered, or tried to."""
    shutil.copy(SCRIPT, tmp_path / "epilog")
    (tmp_path / "nvio.conf").write_text(f"NVIO_PREFIX='{tmp_path}'\nNVIO_SITE_STORE='{site}'\n")
    nvio = tmp_path / "bin/nvio"
    nvio.parent.mkdir()
    nvio.write_text(RECOVER)
    nvio.chmod(0o755)
    slurm = {"SLURM_JOB_ID": job, "SLURM_JOB_UID": "0", "NVIO_EPILOG_SECONDS": "1"}
    subprocess.run([tmp_path / "epilog"], env={**os.environ, **slurm}, check=True, timeout=60)
    told = nvio.parent / "recovered"
    return told.read_text().splitlines() if told.exists() else []


def test_the_store_of_nvio_run_is_found_beside_those_of_the_site(job: str, tmp_path: Path) -> None:
    site = tmp_path / "a site"
    stores = [site / f"nvio-0-slurm-{job}.0", IN_MEMORY / f"nvio-0-slurm-{job}.run-7-9"]
    other = site / f"nvio-0-slurm-{job}0.0"
    for store in (*stores, other):
        store.mkdir(parents=True)
    assert recovered(job, site, tmp_path) == [str(store) for store in stores]
    assert other.exists()
    assert not any(store.exists() for store in stores)


def test_a_store_that_stays_is_tried_once(job: str, tmp_path: Path) -> None:
    store = IN_MEMORY / f"nvio-0-slurm-{job}.0"
    store.mkdir()
    (store / "full").touch()
    assert recovered(job, IN_MEMORY, tmp_path) == [str(store)]
    assert store.exists()


def test_stores_that_are_in_use_are_waited_for_together(job: str, tmp_path: Path) -> None:
    stores = [IN_MEMORY / f"nvio-0-slurm-{job}.{step}" for step in range(2)]
    for store in stores:
        store.mkdir()
        (store / "running").touch()
    tried = recovered(job, IN_MEMORY, tmp_path)
    assert tried.count(str(stores[0])) > 1
    assert tried.count(str(stores[1])) == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes what is another user's")
def test_what_another_user_made_under_such_a_name_is_left_alone(job: str, tmp_path: Path) -> None:
    store = IN_MEMORY / f"nvio-0-slurm-{job}.0"
    store.mkdir()
    os.chown(store, 65534, 65534)
    assert recovered(job, IN_MEMORY, tmp_path) == []
    assert store.exists()
