"""E1: a new machine of each Debian release, by the README's two commands and by packages."""

from __future__ import annotations

import os
import re
from collections import Counter
from tempfile import TemporaryDirectory

from claims.checking import Found, Workshop
from tare import process
from tare.command import Command
from tare.failures import ProcessError
from tare.stats.bounds import Kept

RELEASES = ("bookworm", "trixie")
_LACKS = 3
"""What the scripts end with where no such machine can be made here."""
_COMMANDS = 'make run && make test; echo "ended with $?"'
_TIMEOUT_S = 4 * 3600.0
_LARGE = "/var/tmp"  # noqa: S108 - a folder of its own is made there
"""A machine is some 7 GB, and /tmp may be in memory."""
_PROXIES = ("http_proxy", "https_proxy", "no_proxy")
_FAILED = re.compile(
    r"\b(?:FAILED|ERROR) (tests/.+?)(?: - .*)?$"
    r"|\b\d+ - (.+) \((?:Failed|Timeout|SEGFAULT|Not Run)\)$|---- (\S+) stdout ----$",
    re.MULTILINE,
)
_COUNTED = re.compile(r"\b(\d+) (passed|failed|skipped|errors?)\b|\bout of (\d+)$", re.MULTILINE)


def installed(workshop: Workshop, release: str) -> Found:
    """Clone to first report to green tests; then packages that are installed, used and removed."""
    workshop.say(f"make run && make test on a new machine of Debian's {release}: about an hour")
    said = said_there(workshop, _TIMEOUT_S, "fresh", release, _COMMANDS)
    tests, green = counted(said)
    failed = failing(said)
    workshop.say(f"the packages on new machines of {release}")
    try:
        said_there(workshop, _TIMEOUT_S, "try-packages", release)
        packages = "install, work and go"
    except ProcessError as error:
        if error.code in (None, _LACKS):
            raise
        packages, green = f"do not work ({error.what})", False
    told = ", ".join(f"{number} {what}" for what, number in tests.items()) or "none ran"
    return Found(
        "; ".join((f"{release}: tests {told}", *failed, f"packages {packages}")),
        {release: {**tests, "which failed": failed}},
        counted=Kept.counted(green),
    )


def counted(said: str) -> tuple[Counter[str], bool]:
    """Sum what pytest, CTest and cargo say of themselves; and whether all of it is green.

    Args:
        said: by the two commands, with their exit code last.
    """
    tests: Counter[str] = Counter()
    for number, what, of in _COUNTED.findall(said):
        tests[what or "passed"] += int(number or of)
    return +tests, tests["passed"] > 0 and said.rstrip().endswith("ended with 0")


def failing(said: str) -> list[str]:
    """Name the tests that failed, by what pytest, CTest and cargo say at their end."""
    return sorted({next(filter(None, names)) for names in _FAILED.findall(said)})


def said_there(
    workshop: Workshop, timeout_s: float, script: str, *words: str, cpus: tuple[int, ...] = ()
) -> str:
    """What a script of `setup/` prints that makes a new machine, and reaches what this one does.

    Nothing of the machine is left, also where the script is killed and so removes nothing itself.

    Args:
        workshop: of the check.
        timeout_s: for how long it may run.
        script: its name.
        words: behind it.
        cpus: that it has; all if none.

    Raises:
        ProcessError: it failed.
    """
    env = {name: os.environ[name] for name in _PROXIES if name in os.environ}
    argv = (str(workshop.home / "setup" / script), *words)
    with TemporaryDirectory(prefix="tare-", dir=os.environ.get("TMPDIR", _LARGE)) as made:
        command = Command(argv, env={**env, "TMPDIR": made}, cpus=cpus, cwd=workshop.home)
        return process.run(command, timeout_s).stdout
