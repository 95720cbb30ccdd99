"""Manual pages and completion of a native program, made of what its --help says.

    command_line.py PROGRAM NAME DIRECTORY

DIRECTORY gets NAME.1, NAME-COMMAND.1 of each command (by help2man), and NAME.bash, NAME.zsh and
NAME.fish. CLI11 and clap lay help out alike: an option or a command begins a line a little
indented, two spaces or more lie before what it means, and what is indented further goes on.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

_GOES_ON = re.compile(r"\n {9,}")
_OPTION = re.compile(r" {2,6}(?:-(\w),? ?)?--([\w-]+)(?:\{\w+\})?( \S+)?.*?  +(.*)")
_COMMAND = re.compile(r"  ([a-z]+)  +(.*)")


@dataclass(frozen=True)
class Option:
    """One of a command."""

    short: str
    long: str
    takes_value: bool
    help: str


@dataclass(frozen=True)
class Command:
    """One of a program; named "" what is before any."""

    name: str
    help: str
    options: tuple[Option, ...]


def main() -> None:
    """Write everything."""
    program, name, directory = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    directory.mkdir(parents=True, exist_ok=True)
    said = _help(program)
    first = next(line for line in said.splitlines() if line.strip()).removeprefix(f"{name}: ")
    commands = [Command("", first.rstrip("."), _options(said))]
    for inner, help_ in _commands(said):
        commands.append(Command(inner, help_, _options(_help(program, inner))))
    for command in commands:
        _page(program, name, command, directory)
    for shell, script in (("bash", _bash), ("zsh", _zsh), ("fish", _fish)):
        (directory / f"{name}.{shell}").write_text(script(name, commands[0], commands[1:]))


def _help(program: str, *words: str) -> str:
    """What `-h` says: clap's --help has paragraphs where this has lines."""
    done = subprocess.run([program, *words, "-h"], capture_output=True, text=True, check=True)
    return _GOES_ON.sub("  ", done.stdout)


def _options(said: str) -> tuple[Option, ...]:
    found = filter(None, map(_OPTION.fullmatch, said.splitlines()))
    return tuple(Option(m[1] or "", m[2], bool(m[3]), _briefly(m[4])) for m in found)


def _commands(said: str) -> list[tuple[str, str]]:
    below = re.split(r"^(?:Subcommands|Commands):\n", said, flags=re.MULTILINE)[1]
    found = filter(None, map(_COMMAND.fullmatch, below.partition("\n\n")[0].splitlines()))
    return [(m[1], _briefly(m[2])) for m in found if m[1] != "help"]


def _briefly(text: str) -> str:
    """A help text up to where it goes into particulars, in one line."""
    return " ".join(re.split(r"[;:] |\. (?=[A-Z])| [\[(]", text)[0].split())


def _page(program: str, name: str, command: Command, directory: Path) -> None:
    """By help2man, which asks the program; pages call it by the name that it is installed by."""
    words = " ".join((program, command.name)).strip()
    page = "-".join((name, command.name)).removesuffix("-")
    argv = ["help2man", "--no-info", "--no-discard-stderr", f"--name={command.help}",
            f"--version-string={_version(program)}", words]  # fmt: skip
    made = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    title = rf'.TH {page.upper()} "1" \g<1>'
    made = re.sub(r'^\.TH \S+ "1" (.*)$', title, made, count=1, flags=re.MULTILINE)
    made = re.sub(r"(^\.SH NAME\n).*? \\-", rf"\g<1>{page} \\-", made, flags=re.MULTILINE)
    (directory / f"{page}.1").write_text(made)


def _version(program: str) -> str:
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    return said.stdout.split()[-1]


def _flags(options: tuple[Option, ...]) -> str:
    return " ".join(f"--{option.long}" for option in options)


def _bash(name: str, top: Command, commands: list[Command]) -> str:
    cases = "\n".join(f"    {c.name}) words='{_flags(c.options)}' ;;" for c in commands)
    names = " ".join(c.name for c in commands)
    return f"""\
_{name}() {{
  local words
  case $COMP_CWORD:${{COMP_WORDS[1]}} in
    1:*) words='{names} {_flags(top.options)}' ;;
{cases.replace("    ", "    *:")}
  esac
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "${{COMP_WORDS[COMP_CWORD]}}")
}}
complete -o default -F _{name} {name}
"""


def _zsh(name: str, top: Command, commands: list[Command]) -> str:
    def arguments(options: tuple[Option, ...]) -> str:
        return " ".join(
            shlex.quote(f"--{o.long}[{escaped(o.help)}]{':value:_files' if o.takes_value else ''}")
            for o in options
        )

    def escaped(text: str) -> str:
        return re.sub(r"([][:\\])", r"\\\1", text)

    names = " ".join(shlex.quote(f"{c.name}:{escaped(c.help)}") for c in commands)
    cases = "\n".join(f"  {c.name}) _arguments {arguments(c.options)} '*:file:_files' ;;"
                      for c in commands)  # fmt: skip
    return f"""\
#compdef {name}
if ((CURRENT == 2)); then
  local -a known=({names})
  _describe command known
  _arguments {arguments(top.options)}
  return
fi
shift words
((CURRENT--))
case $words[1] in
{cases}
esac
"""


def _fish(name: str, top: Command, commands: list[Command]) -> str:
    def rows(options: tuple[Option, ...], condition: str) -> list[str]:
        return [
            f"complete -c {name} -n '{condition}' -l {o.long}{f' -s {o.short}' if o.short else ''}"
            f"{' -r' if o.takes_value else ''} -d {quoted(o.help)}"
            for o in options
        ]

    def quoted(text: str) -> str:
        return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"

    lines = [f"complete -c {name} -n __fish_use_subcommand -f -a {c.name} -d {quoted(c.help)}"
             for c in commands]  # fmt: skip
    lines += rows(top.options, "__fish_use_subcommand")
    for command in commands:
        lines += rows(command.options, f"__fish_seen_subcommand_from {command.name}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
