"""What a process is given: arguments, environment, network namespace, processors, priority.

Namespaces and priorities are entered by exec-chaining (`nsenter`, `taskset`, `chrt`), never through
a shell, so that the pid is the program's own and a logged command can be pasted into a shell.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

OWNER_VARIABLE = "TARE_OWNER"
"""Environment variable of every process that Tare starts; see `owner_mark`."""

_NO_PROGRAM = 0x00200000 | 0x00000004
"""Flags of a kernel thread and of a process that ends (PF_KTHREAD, PF_EXITING)."""

_GIVEN = "TARE_GIVEN_"
"""Before the name of a variable that is a program's alone; as probe/become.cc has it."""

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Where programs are looked for, whatever the caller's own PATH says."""


def python_module(name: str) -> tuple[str, ...]:
    """The command line that runs a module of Tare, wherever Tare lies.

    `python -m` would look into the working directory first, which is the user's, and not where
    Debian's package keeps Tare.
    """
    room = str(Path(__file__).parents[1])
    found = f"sys.path.insert(0, {room!r})"
    run = f"runpy.run_module({name!r}, run_name='__main__', alter_sys=True)"
    return (sys.executable, "-P", "-c", f"import runpy, sys; {found}; {run}")


def missing_packages(packages: Mapping[str, str]) -> str:
    """Name the Debian packages of programs that are not here, as `apt-get install` takes them.

    Args:
        packages: a program on PATH, or a file by its absolute path -> the package that has it.

    Returns:
        Each package once, in their order, with spaces between; empty if nothing is missing.
    """
    missing = (
        package
        for program, package in packages.items()
        if not (Path(program).is_file() if "/" in program else shutil.which(program, path=PATH))
    )
    return " ".join(dict.fromkeys(missing))


class Secret(str):
    """A variable's value that its process is given and nobody is told: no log or message has it."""

    __slots__ = ()


def given(env: Mapping[str, str]) -> dict[str, str]:
    """Variables of a user's program, under names that nothing obeys which leads to it.

    That has more rights than the program, and would be found on its PATH, and load its LD_PRELOAD.
    `probe/execute --become` gives them their names.
    """
    return {_GIVEN + name: value for name, value in env.items()}


Tool = Callable[[str], Sequence[str]]
"""Words that start a program of the system, by its name."""


def by_name(name: str) -> tuple[str, ...]:
    """Start a program of the system by its name, which is found on PATH."""
    return (name,)


@dataclass(frozen=True)
class Command:
    """A program and all that it is given.

    Attributes:
        argv: the program (a path, or a name on PATH) and its arguments.
        env: variables beyond the base (PATH, HOME, a C locale); nothing else is inherited.
        netns: network namespace, by name (as `ip netns` has it) or by path.
        cpus: processors that it may use; empty leaves the choice to the kernel.
        fifo: SCHED_FIFO priority, or None for SCHED_OTHER. Never for QEMU.
        within: what starts it, last of the chain, such as `chroot FOLDER`.
        cwd: working directory; None is Tare's own.
        entering: what gives it another root folder, in which `within` and `argv` are looked for.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    netns: str | Path | None = None
    cpus: tuple[int, ...] = ()
    fifo: int | None = None
    within: tuple[str, ...] = ()
    cwd: Path | None = None
    entering: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The program's own name, for messages and log files."""
        return Path(self.argv[0]).name

    def full_env(self) -> dict[str, str]:
        """Everything that the process finds in its environment."""
        return {
            "PATH": PATH,
            "HOME": os.environ.get("HOME", "/"),
            "LC_ALL": "C.UTF-8",
            OWNER_VARIABLE: owner_mark(),
            **self.env,
        }

    def full_argv(self, tool: Tool = by_name) -> list[str]:
        """Return the exec chain: each link replaces itself by the next, down to the program.

        Its first link has the kernel kill the program when Tare dies.

        Args:
            tool: how the links are started, where there are none of these names.
        """
        return [*tool("setpriv"), "--pdeathsig", "KILL", *self.untied_argv(tool)]

    def untied_argv(self, tool: Tool = by_name) -> list[str]:
        """Return the exec chain without the tie to this process."""
        chain: list[str] = []
        if self.netns is not None:
            path = self.netns if os.sep in str(self.netns) else f"/run/netns/{self.netns}"
            chain += ["nsenter", f"--net={path}", "--"]
        if self.cpus:
            chain += [*tool("taskset"), "--cpu-list", ",".join(map(str, self.cpus))]
        if self.fifo is not None:
            chain += [*tool("chrt"), "--fifo", str(self.fifo)]
        return [*chain, *self.entering, *self.within, *self.argv]

    def __str__(self) -> str:
        """Return a line that can be pasted into a shell, without the tie to this process."""
        line = " ".join([*_shown(self.env), shlex.join(self.untied_argv())])
        return line if self.cwd is None else f"(cd {shlex.quote(str(self.cwd))} && {line})"


def shell_line(*words: object) -> str:
    """A command in one line that can be pasted into a shell, whatever a path in it holds."""
    quoted = shlex.join(map(str, words))
    # A character that does not print stands within single quotes: these end before it.
    return "".join(c if c.isprintable() else f"'$'\\U{ord(c):08x}''" for c in quoted)


def _shown(env: Mapping[str, str]) -> list[str]:
    """Variables as words of a shell's line, which takes a secret from its own environment."""
    words = [
        f'{name}="${name.removeprefix(_GIVEN)}"'
        if isinstance(value, Secret)
        else shlex.quote(f"{name}={value}")
        for name, value in env.items()
    ]
    return ["env", *words] if words else []


@cache
def owner_mark() -> str:
    """Name this very process: `PID:START TIME`, which no later process can have by chance."""
    return f"{os.getpid()}:{start_time(os.getpid())}"


def spaces(process: int | str = "self") -> str:
    """In which namespaces a process's number and start time mean something; empty if it is gone."""
    try:
        return " ".join(str(Path(f"/proc/{process}/ns/{of}").readlink()) for of in ("pid", "time"))
    except (FileNotFoundError, ProcessLookupError):
        return ""


def start_time(pid: int) -> int | None:
    """Clock ticks between boot and a process's start, or None if there is no such process.

    With the pid it names a process for good: a recycled pid has another start time. Source:
    proc(5), /proc/PID/stat field 22.
    """
    fields = _stat(pid)
    return None if fields is None else int(fields[22 - 3])


def is_within_exec(pid: int) -> bool:
    """Whether a process has let go of one program, and does not show the next one's environment.

    Descriptors that close on exec are closed by then. Kernel threads and processes that end show
    none either, and never will. Source: proc(5), /proc/PID/stat fields 3, 9 and 50.
    """
    fields = _stat(pid)
    if fields is None:
        return False
    state, flags, environment = fields[0], int(fields[9 - 3]), int(fields[50 - 3])
    return environment == 0 and state not in ("Z", "X") and not flags & _NO_PROGRAM


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat from the third on, or None if there is no such process."""
    try:
        return stat_fields(Path(f"/proc/{pid}/stat").read_text(errors="replace"))
    except (FileNotFoundError, ProcessLookupError):
        return None


def stat_fields(stat: str) -> list[str]:
    """Return what stands in a /proc/PID/stat from its third field on. Source: proc(5)."""
    # The second, the name, stands in parentheses and may itself hold any character.
    return stat.rpartition(")")[2].split()
