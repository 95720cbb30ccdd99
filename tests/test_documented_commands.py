"""Every command of the lab in a document is one: its options and arguments are what it takes."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer.main
from typer.core import TyperGroup

from needs import HOME
from tare.cli import app

_BEFORE = {"|", "||", "&&", ";", "&", "("}
_ENDS = {*_BEFORE, ">", ">>", "<"}


def commands(text: str, program: str) -> list[list[str]]:
    """The words of each command of a program in a document's fenced blocks, as a shell has them."""
    found = []
    for block in re.findall(r"^```(?:sh|console)?\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
            lexer.whitespace_split = True
            try:
                words = list(lexer)
            except ValueError:
                continue  # no line for a shell
            for at, word in enumerate(words):
                if Path(word).name == program and (at == 0 or words[at - 1] in _BEFORE):
                    rest = words[at + 1 :]
                    end = next((i for i, one in enumerate(rest) if one in _ENDS), len(rest))
                    found.append(rest[:end])
    return found


def documented(program: str) -> list[tuple[str, list[str]]]:
    """Document -> one command of it, for all of them."""
    pages = [*HOME.glob("*.md"), *(HOME / "docs").rglob("*.md"), HOME / ".github/README.md"]
    return [
        (str(page.relative_to(HOME)), words)
        for page in sorted(pages)
        if page.is_file()
        for words in commands(page.read_text(encoding="utf-8"), program)
    ]


@pytest.mark.parametrize(("page", "words"), documented("tare"))
def test_the_lab_takes_what_its_documents_say(page: str, words: list[str]) -> None:
    command = typer.main.get_command(app)
    context = typer.Context(command, info_name="tare")
    while isinstance(command, TyperGroup):
        if words[0].startswith("-"):
            known = {
                option for parameter in command.get_params(context) for option in parameter.opts
            }
            assert words[0] in known, page
            return
        name, *words = words
        found = command.get_command(context, name)
        assert found is not None, f"{page}: there is no tare {name}"
        command = found
    context = command.make_context(command.name, words, parent=context)
    for value in context.params.values():
        if isinstance(value, Path) and value.parts[:1] == ("experiments",):
            assert (HOME / value).is_file(), f"{page}: {value}"


def test_the_messages_that_a_guide_explains_are_said() -> None:
    text = (HOME / "docs/guides/when-it-goes-wrong.md").read_text(encoding="utf-8")
    said = "".join(path.read_text(encoding="utf-8") for path in (HOME / "src").rglob("*.py"))
    explained = re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE)
    assert explained
    for message in explained:
        assert message in said


def test_commands_are_found_wherever_they_stand_in_a_line() -> None:
    text = (
        "```sh\na | tare check - --json\n.venv/bin/tare run f.yaml \\\n  --out o >tare # why\n```\n"
        "tare no\n"
    )
    assert commands(text, "tare") == [["check", "-", "--json"], ["run", "f.yaml", "--out", "o"]]
    assert len(documented("tare")) > 40
