"""E3: what a stranger types first: the guides' commands, help, manual pages, completion."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from claims.benchmarks import toolchain
from claims.checking import Found, Workshop
from claims.new_machines import counted
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


def typed(workshop: Workshop) -> Found:
    """The tests of them, counted: what was skipped was not shown."""
    workshop.say("the guides' commands, and each command's help, page and completion")
    # Packages are built for some of them, by programs that no other check needs.
    programs = ("make", "build/.setup/venv-packages")
    process.run(Command(programs, env=toolchain(), cwd=workshop.home), _TIMEOUT_S)
    counts = of_tests(workshop.home, _TESTS)
    guides = len([*(workshop.home / "docs/guides").glob("*.md")])
    return Found(
        f"of the tests of {guides} guides' commands, of help, pages and completion"
        f" {', '.join(f'{n} {what}' for what, n in counts.items())}",
        dict(counts),
        counted=Kept.counted(set(counts) == {"passed"}),
    )


def of_tests(home: Path, tests: Sequence[str]) -> Counter[str]:
    """Run tests of the checkout: how many passed, failed, were skipped."""
    pytest = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *tests)
    command = Command(pytest, env=toolchain(), cwd=home)
    return counted(process.run(command, _TIMEOUT_S, accept=(0, 1)).stdout)[0]
