"""E3: what a stranger types first: the guides' commands, help, manual pages, completion."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from claims.benchmarks import toolchain
from claims.checking import Found, Workshop
from tare import process
from tare.command import Command
from tare.stats.bounds import Kept

_TESTS = (
    "tests/system/test_guides.py",
    "tests/test_documented_commands.py",
    "tests/test_shell.py",
    "tests/test_cli.py::test_every_command_has_help",
    "tests/system/test_packages.py::test_a_shell_completes_a_native_program",
    "tests/system/test_packages.py::test_every_page_is_one_that_man_reads_without_a_complaint",
)
_TIMEOUT_S = 1800.0
_COUNTED = re.compile(r"(\d+) (passed|failed|skipped|error)")


def typed(workshop: Workshop) -> Found:
    """The tests of them, counted: what was skipped was not shown."""
    workshop.say("the guides' commands, and each command's help, page and completion")
    counts = counted(workshop.home, _TESTS)
    guides = len([*(workshop.home / "docs/guides").glob("*.md")])
    return Found(
        f"of the tests of {guides} guides' commands, of help, pages and completion"
        f" {', '.join(f'{n} {what}' for what, n in counts.items())}",
        dict(counts),
        counted=Kept.counted(set(counts) == {"passed"}),
    )


def counted(home: Path, tests: Sequence[str]) -> dict[str, int]:
    """Run tests of the checkout: how many passed, failed, were skipped."""
    pytest = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *tests)
    command = Command(pytest, env=toolchain(), cwd=home)  # packages are built
    said = process.run(command, _TIMEOUT_S, accept=(0, 1)).stdout
    return {what: int(number) for number, what in _COUNTED.findall(said.splitlines()[-1])}
