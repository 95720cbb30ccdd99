"""Each command of each guide, typed word for word: it takes what the page says, and ends well.

Two things are not as on a page: what its reader has is made here, and plans are cut, two blocks and
only what needs no guest. What takes long even so is run by the test that is named.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import records
from needs import HOME, needs_root
from tare.errors import Exit

pytestmark = [pytest.mark.system, needs_root]

GUIDES = HOME / "docs/guides"
PATIENCE_S = 300
SHIM = f"""\
#!{sys.executable}
# `tare`, whose runs are of two blocks and few requests.
import sys
from pathlib import Path
from ruamel.yaml import YAML
from tare.cli import paths
words = sys.argv[1:]
if words[:1] == ["measure"]:
    compares = {{"--against", "--in", "--parameter"}} & {{*words}}
    blocks = [] if "--fail-on" in words else ["--blocks", "8" if compares else "2"]
    words[1:1] = ["-r", "1", "-w", "0", *blocks]
if words[:1] == ["run"] and not words[1].startswith("-") and "--dry-run" not in words:
    file = paths.experiment(Path(words[1]))
    asked = YAML(typ="safe").load(file)
    asked |= {{"blocks": {{"min": 2, "max": 2}}, "family": "none"}}
    of = asked["factors"].get("environment")
    if isinstance(of, list):
        asked["factors"]["environment"] = [one for one in of if one in ("native", "container")]
    if asked.get("workload", "request-reply") == "request-reply":
        asked["session"] = {{"requests": 300, "warmup": 30, "timeout": "1 s"}}
    with open(file.name, "w") as short:
        YAML(typ="safe").dump(asked, short)
    words[1] = file.name
sys.argv = ["tare", *words]
from tare.cli import main
main()
"""

ELSEWHERE = {
    "make run": "setup/fresh",
    "make build": "setup/fresh",
    "tare new  ": "tests/test_new_and_check.py",
    "tare claim check": "claims",
    "tare replay --budget 1h": "tests/test_replay.py",
    "tare replay kvm-arm": "tests/test_replay.py",
    "tare run --resume results/replay": "tests/test_replay.py",
    "tare report results/replay": "tests/test_replay.py",
    "tare run quickstart-native --polite": "tests/system/test_polite.py",
    "tare measure --polite": "tests/system/test_polite.py",
    "tare measure --in native,container,gvisor,uml,qemu": "tests/system/test_command_everywhere.py",
    "tare slurm": "tests/system/test_slurm_running.py",
    "tare report results/lustre": "tests/system/test_slurm_running.py",
}
"""Begin of a command -> what runs it, since it takes minutes, a cluster or an idle machine."""
OF_OTHERS = {
    "libvirt": "pageshare/proxy/tests/libvirt.rs",
    "kubevirt": "tests/system/test_kubevirt_libvirt.py",
    "slurm": "nvio/conformance/slurm.py",
    "slurm-experiments": "tests/system/test_slurm_running.py",
}
"""Guide -> what follows it, on hosts and clusters that it sets up."""
ENDS = {
    "tare measure --fail-on slower": {Exit.FAILED},
    # Equal programs, one after the other: once in forty they are slower.
    "tare compare old new": {Exit.OK, Exit.INCONCLUSIVE, Exit.FAILED},
}
"""Begin of a command -> how it ends, if not well. What judges may have too few blocks here."""


def lines(guide: str) -> Iterator[str]:
    """The commands of a guide, as a shell takes them in: whole, each with all of its lines."""
    text = (GUIDES / f"{guide}.md").read_text(encoding="utf-8")
    for block in re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        typed = ""
        for line in block.splitlines(keepends=True):
            typed += line
            whole = subprocess.run(["bash", "-n", "-c", typed], capture_output=True, check=False)
            if not (whole.returncode or whole.stderr) and not typed.endswith("\\\n"):
                yield typed.strip()
                typed = ""
        assert not typed, f"{guide}: no command: {typed}"


def program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def of_measure(here: Path) -> None:
    subprocess.run(["tar", "-cf", here / "corpus.tar", "-C", HOME, "docs/guides"], check=True)
    for side in ("old", "new"):
        program(here / side / "app", "seq 1000 | sort >/dev/null")
    program(here / "client", """echo '{"latency": {"p99": 12}}'""")
    program(here / "self-test", "echo ok")
    program(here / "sign-release", 'test -n "$GPG_PASSPHRASE"')
    (here / "words").write_text("b\na\nb\n")
    (here / "out").write_text("to be packed\n")


def of_history(here: Path) -> None:
    for ago in range(4):
        day = datetime.now(UTC).date() - timedelta(days=7 * ago)
        records.make(
            here / f"ci-results/{day}",
            records.Recipe(seed=ago, day=str(day)),
            records.EXPERIMENT.replace("What does a response cost", "What does the gateway cost"),
        )
    records.make(here / "results/0")


def of_pipeline(here: Path) -> None:
    records.make(here / "results/mine-20260101-120000")
    for seed, name in enumerate(("main", "mine", "other")):
        for run in range(4):
            records.make(here / f"results/{name}/{run}", records.Recipe(seed=10 * seed + run))
    records.make(here / "results/A")
    program(here / "bin/generate", f"cat {HOME}/experiments/quickstart.yaml")
    # Services of others, which are not asked from here: it is seen that they are given something.
    program(here / "bin/bencher", 'grep -q value "$5"')
    program(here / "bin/curl", "grep -q '^# EOF'")
    for side in ("old", "new"):
        program(here / side / "app", "true")
    program(here / "app", "true")


MADE: dict[str, Callable[[Path], None]] = {
    "history": of_history,
    "measure": of_measure,
    "pipeline": of_pipeline,
}
"""Guide -> what makes what its reader has."""


def as_typed(command: str, here: Path) -> str:
    """With what stands for something of the reader's, or lies where a test writes nothing."""
    packed = subprocess.run(
        ["gzip", "-n", "-c"], input=b"to be packed\n", capture_output=True, check=True
    ).stdout
    command = command.replace("sha256:1f8a…", f"sha256:{hashlib.sha256(packed).hexdigest()}")
    return command.replace(">/etc/", f">{here}/etc/")


@pytest.mark.parametrize(
    "guide", sorted(path.stem for path in GUIDES.glob("*.md") if path.stem not in OF_OTHERS)
)
def test_what_a_guide_says_can_be_typed(guide: str, tmp_path: Path) -> None:
    commands = [one for one in lines(guide) if not one.startswith(tuple(ELSEWHERE))]
    for room in ("experiments", "testdata"):
        (tmp_path / room).symlink_to(HOME / room)
    (tmp_path / "etc/bash_completion.d").mkdir(parents=True)
    program(tmp_path / "bin/tare", "")
    (tmp_path / "bin/tare").write_text(SHIM)
    MADE.get(guide, lambda _: None)(tmp_path)
    environment = {
        **os.environ, "COLUMNS": "200", "NO_COLOR": "1", "HOME": str(tmp_path),
        "PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "PYTHONPATH": str(HOME / "src"),
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"), "GPG_PASSPHRASE": "not told",
    }  # fmt: skip
    for command in commands:
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", f"{as_typed(command, tmp_path)}\nexit $?"],
            cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL, capture_output=True,
            text=True, timeout=PATIENCE_S, check=False,
        )  # fmt: skip
        said = [codes for begin, codes in ENDS.items() if command.startswith(begin)]
        ends = said[0] if said else {Exit.OK, Exit.INCONCLUSIVE}
        assert done.returncode in ends, (command, done.stdout, done.stderr)


def test_what_is_run_elsewhere_is_there() -> None:
    for where in (*ELSEWHERE.values(), *OF_OTHERS.values()):
        assert (HOME / where).exists(), where
    every = [one for path in GUIDES.glob("*.md") for one in lines(path.stem)]
    assert len(every) > 40
    for begin in ELSEWHERE:
        assert any(one.startswith(begin) for one in every), begin
