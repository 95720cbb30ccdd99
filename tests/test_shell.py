"""What a shell completes, asked as the shell asks, and manual pages that man reads."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import records
from needs import HOME, in_a_line, read_by_man, refused, tare
from tare.errors import Exit

TEXT = """\
title: A container?
factors: {environment: [native, container], transport: [udp]}
baseline: {environment: native}
blocks: {min: 8, max: 8}
"""
BASH = """
eval "$(_TARE_COMPLETE=source_bash tare)"
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_tare_completion tare
printf '%s\\n' "${COMPREPLY[@]}"
"""
ZSH = """
_arguments() { print -r -- "$*" }
_files() { print -r files }
compdef() { : }
eval "$(_TARE_COMPLETE=source_zsh tare)"
words=("$@"); CURRENT=$#
_tare_completion
"""
FISH = """
_TARE_COMPLETE=source_fish tare | source
complete --do-complete "$argv"
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A working directory with an experiment, a result, and what is neither."""
    made = tmp_path_factory.mktemp("here")
    (made / "experiments").mkdir()
    (made / "experiments" / "mine.yaml").write_text(TEXT)
    (made / "experiments" / "notes.yaml").write_text("nothing: of ours\n")
    (made / "loose.yaml").write_text(TEXT)
    records.make(made / "results" / "mine-1", records.Recipe(blocks=1), TEXT)
    (made / "results" / "empty").mkdir()
    (made / "tare").write_text(f'#!/bin/sh\nexec "{sys.executable}" "{made}/start" "$@"\n')
    (made / "tare").chmod(0o755)
    (made / "start").write_text(
        "import sys; sys.argv[0] = 'tare'; from tare.cli import main; main()"
    )
    return made


def offered(folder: Path, shell: str, *words: str) -> list[str]:
    """What a shell offers for the last word."""
    script, flag = {"bash": (BASH, "-c"), "zsh": (ZSH, "-c"), "fish": (FISH, "-c")}[shell]
    argv = [shell, flag, script]
    argv += [" ".join(words)] if shell == "fish" else ["-", *words]
    found = subprocess.run(
        argv, cwd=folder, capture_output=True, text=True, timeout=120, check=True,
        env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "HOME": str(folder)},
    )  # fmt: skip
    assert not found.stderr, found.stderr
    return found.stdout.split("\n")[:-1]


COMPLETED = [
    (("tare", "sho"), ["show"]),
    (("tare", "run", "exp"), ["experiments/mine.yaml"]),
    (("tare", "check", "./exp"), ["./experiments/mine.yaml"]),
    (("tare", "check", "lo"), ["loose.yaml"]),
    (("tare", "show", "res"), ["results/mine-1"]),
    (("tare", "compare", "results/mine-1", "results/"), ["results/mine-1"]),
    (("tare", "run", "--resume", "results/m"), ["results/mine-1"]),
    (("tare", "explain", "results/mine-1", "c"), ["container"]),
    (("tare", "explain", "results/mine-1", "container", "n"), ["native"]),
    (("tare", "new", "--workload", "req"), ["request-reply"]),
    (("tare", "new", "--workload", "disk", "--statistic", "r"), ["rate"]),
]


@pytest.mark.parametrize(("words", "expected"), COMPLETED)
def test_bash_completes(folder, words, expected):
    assert offered(folder, "bash", *words) == expected


@pytest.mark.parametrize("shell", ["zsh", "fish"])
@pytest.mark.parametrize(("words", "expected"), COMPLETED[:8:2])
def test_zsh_and_fish_complete_with_help(folder, shell, words, expected):
    said = offered(folder, shell, *words)
    assert any(expected[0] in line for line in said), said
    assert not any("notes" in line for line in said)


def test_an_experiment_is_offered_with_its_title(folder):
    found = subprocess.run(
        ["./tare"], cwd=folder, capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, "_TARE_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": "tare run "},
    )  # fmt: skip
    assert '"experiments/mine.yaml":"A container?"' in found.stdout
    assert '"loose.yaml":"A container?"' in found.stdout


@pytest.mark.parametrize(
    "words",
    [
        ("tare", "explain", "nowhere", ""),
        ("tare", "show", "/nowhere/"),
        ("tare", "run", "/nowhe"),
        ("tare", "run", "a**"),
    ],
)
def test_what_cannot_be_read_is_not_offered_and_no_error(folder, words):
    assert offered(folder, "bash", *words) == [""]


def test_every_command_has_a_page_that_man_reads_without_a_complaint(tmp_path):
    assert tare("man", "--out", str(tmp_path)).returncode == 0
    pages = {path.name for path in tmp_path.iterdir()}
    assert {"tare.1", "tare-run.1", "tare-claim-check.1"} <= pages
    for page in sorted(tmp_path.iterdir()):
        assert "NAME" in read_by_man(page)


def test_a_page_says_what_help_says(tmp_path):
    page = tare("man", "export").stdout.replace("\\-", "-").replace("\\fB", "").replace("\\fR", "")
    said = tare("export", "--help").stdout
    for word in ("--format", "--out", "Write every session of a result"):
        assert word in page
        assert word in said
    assert "[default: csv]" in page
    assert "130 interrupted" in page


def test_a_page_of_no_command_is_refused_with_the_commands():
    refused("there is no command 'fly'", "man", "fly")


def test_pages_are_not_written_where_that_cannot_be():
    found = tare("man", "--out", str(HOME / "README.md"))
    assert found.returncode == Exit.UNAVAILABLE
    in_a_line(found, "cannot write the manual pages")
