"""The table of docs/guides/privileges.md: with exactly these capabilities, and with one less."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from needs import HOME, PROGRAMS, dead_run, needs_root
from tare import leftovers
from tare.errors import Exit
from tare.pauses import pauses

pytestmark = [pytest.mark.system, needs_root]

TABLE = (HOME / "docs/guides/privileges.md").read_text()
PAGESHARE = HOME / "target/release/pageshare"
NVIO = PROGRAMS / "nvio/nvio"
PATIENCE_S = 280


def row(begin: str) -> tuple[str, ...]:
    """Capabilities of the table's row that begins so."""
    (found,) = [line for line in TABLE.splitlines() if line.startswith(f"| {begin}")]
    return tuple(re.findall("`([A-Z_]+)`", found.split("|")[2]))


OTHER = row("`tare run`, native")
FIFO = row("the same with `scheduling: fifo`")
ICMP = row("the same over `transport: icmp`")
CONTAINER = row("`tare run`, in a container")
COMMAND = row("`tare measure`")
OF_QEMU = row("`pageshare index`")


def limited(
    names: tuple[str, ...], *words: str | Path, cwd: Path
) -> subprocess.CompletedProcess[str]:
    """Run a program as root, with these capabilities and no others."""
    bounding = ",".join(("-all", *(f"+{name.lower()}" for name in names)))
    return subprocess.run(
        ["setpriv", f"--bounding-set={bounding}", "--inh-caps=-all", *map(str, words)],
        cwd=cwd, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        env={**os.environ, "COLUMNS": "200", "NO_COLOR": "1"},
    )  # fmt: skip


def ran(
    names: tuple[str, ...],
    where: str,
    scheduling: str,
    folder: Path,
    transport: str = "udp",
    descriptors: int | None = None,
) -> subprocess.CompletedProcess[str]:
    (folder / "file.yaml").write_text(
        "title: t\nbaseline: {}\nfamily: none\nblocks: {min: 2, max: 2}\n"
        f"factors: {{environment: [{where}], transport: [{transport}],"
        f" scheduling: [{scheduling}]}}\n"
        "session: {requests: 300, warmup: 30, timeout: 1 s}\n"
    )
    bounded = ("prlimit", f"--nofile={descriptors}") if descriptors else ()
    return limited(names, *bounded, sys.executable, "-m", "tare", "run", "file.yaml", cwd=folder)


@pytest.mark.parametrize(
    ("names", "where", "scheduling"),
    [
        pytest.param(OTHER, "native", "other", id="native"),
        pytest.param(OTHER, "qemu", "other", id="qemu"),
        pytest.param(FIFO, "native", "fifo", id="fifo"),
        pytest.param(CONTAINER, "container", "other", id="container"),
    ],
)
def test_a_run_works_with_exactly_these(
    tmp_path: Path, names: tuple[str, ...], where: str, scheduling: str
) -> None:
    done = ran(names, where, scheduling, tmp_path)
    assert done.returncode == Exit.OK, done.stderr


def test_a_run_works_with_few_descriptors(tmp_path: Path) -> None:
    done = ran(CONTAINER, "container", "other", tmp_path, descriptors=128)
    assert done.returncode == Exit.OK, done.stderr


@pytest.mark.parametrize(
    ("names", "without", "where", "scheduling"),
    [
        *((OTHER, one, "native", "other") for one in OTHER),
        (FIFO, "SYS_NICE", "native", "fifo"),
        *((CONTAINER, one, "container", "other") for one in CONTAINER),
    ],
)
def test_a_run_that_lacks_one_says_which_before_it_begins(
    tmp_path: Path, names: tuple[str, ...], without: str, where: str, scheduling: str
) -> None:
    less = tuple(name for name in names if name != without)
    done = ran(less, where, scheduling, tmp_path)
    assert done.returncode == Exit.UNAVAILABLE, done.stderr
    assert f"this process lacks CAP_{without}" in done.stderr
    assert not (tmp_path / "results").exists()


def test_icmp_takes_one_more(tmp_path: Path) -> None:
    less = tuple(name for name in ICMP if name != "NET_RAW")
    done = ran(less, "native", "fifo", tmp_path, "icmp")
    assert done.returncode == Exit.UNAVAILABLE, done.stderr
    assert "this process lacks CAP_NET_RAW" in done.stderr
    assert not (tmp_path / "results").exists()
    done = ran(ICMP, "native", "fifo", tmp_path, "icmp")
    assert done.returncode == Exit.OK, done.stderr


def test_what_a_dead_run_of_more_rights_left_keeps_nobody_from_measuring(tmp_path: Path) -> None:
    others = tmp_path / "others"
    left = others / "left"
    left.mkdir(parents=True)
    os.chown(others, 64000, 64000)
    try:
        dead_run(leftovers.ROOT, 'registry.add("directory", values[0])', values=[str(left)])
        done = ran(OTHER, "native", "other", tmp_path)
        assert done.returncode == Exit.OK, done.stderr
        if left.exists():  # else a test beside this one has started a run, which removed it
            assert (
                f"still there: could not remove what a run left behind: directory {left}"
                in done.stderr
            )
    finally:
        leftovers.clean()
    assert not left.exists()


def measured(names: tuple[str, ...], folder: Path) -> subprocess.CompletedProcess[str]:
    words = ("measure", "--blocks", "2", "-r", "1", "-w", "0", "--takes", "10 ms", "--", "true")
    return limited(names, sys.executable, "-m", "tare", *words, cwd=folder)


def test_a_command_is_measured_with_exactly_these_and_without_one_it_is_told(
    tmp_path: Path,
) -> None:
    done = measured(COMMAND, tmp_path)
    assert done.returncode == Exit.OK, done.stderr
    for without in COMMAND:
        done = measured(tuple(name for name in COMMAND if name != without), tmp_path)
        assert done.returncode == Exit.UNAVAILABLE, done.stderr
        assert f"this process lacks CAP_{without}" in done.stderr


def test_anothers_qemu_is_read_with_exactly_these_and_without_one_it_is_told(
    tmp_path: Path,
) -> None:
    name = f"privileges-{os.getpid()}"
    qemu = (
        "qemu-system-x86_64", "-S", "-display", "none", "-nodefaults", "-m", "32",
        "-accel", "tcg", "-name", name,
    )  # fmt: skip
    assert limited((), PAGESHARE, "scope", "t", "t.json", cwd=tmp_path).returncode == 0
    index = (PAGESHARE, "index", "--scope", "t.json", "--source", f"qemu:name={name}", "--out")
    with subprocess.Popen(
        ["setpriv", "--reuid", "64000", "--regid", "64000", "--clear-groups", *qemu], cwd="/"
    ) as child:
        try:
            said = ""
            for _ in pauses(PATIENCE_S):  # until it has set its memory up
                done = limited(OF_QEMU, *index, "all.index", cwd=tmp_path)
                assert done.returncode == 0, done.stderr
                said = done.stderr
                if re.search(r"all\.index: [1-9][0-9]* pages", said):
                    break
            else:
                raise AssertionError(said)
            for without in OF_QEMU:
                less = tuple(one for one in OF_QEMU if one != without)
                said = limited(less, *index, f"{without}.index", cwd=tmp_path).stderr
                assert f"{without}.index: 0 pages" in said
                assert "is left out: Permission denied" in said, f"without {without}: {said}"
                assert "CAP_SYS_PTRACE and CAP_DAC_OVERRIDE" in said
        finally:
            child.kill()


def test_nvio_needs_none(tmp_path: Path) -> None:
    done = limited((), NVIO, "run", "--", "true", cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_the_units_of_pageshare_are_limited_to_their_row() -> None:
    for unit in (HOME / "pageshare/systemd").iterdir():
        found = re.search("^CapabilityBoundingSet=(.*)$", unit.read_text(), re.MULTILINE)
        assert found, unit
        allowed = {name.removeprefix("CAP_") for name in found[1].split()}
        assert allowed - {"DAC_READ_SEARCH"} == set(OF_QEMU), unit
