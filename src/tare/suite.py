"""Several experiments that answer one question together, run by one command into one result.

A suite is a file with a title and a list of experiment files. Each part stays an experiment of its
own: its cells, blocks, verdicts and report are its own, and it can be run alone. A suite's result
is a folder with a result for each part, named as the part's file, and one page over all of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError
from ruamel.yaml.comments import CommentedMap

from tare import document, lines
from tare.errors import UsageError
from tare.published import Letter
from tare.record import Record

_FILE = "suite.json"
_NAME = re.compile("[A-Za-z0-9][A-Za-z0-9_-]*")
_Name = Annotated[str, StringConstraints(pattern=f"^{_NAME.pattern}$")]
"""Of a part's result."""


class Suite(BaseModel):
    """What is asked: a title, and the experiments that answer it, in order."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: str = Field(min_length=1)
    description: str = ""
    parts: tuple[str, ...] = Field(min_length=1)
    """Experiment files, relative to the suite's own."""
    replays: tuple[Letter, ...] = ()
    """Letters of the papers whose claims its parts ask, where it is a replay of theirs."""

    def files(self, suite: Path) -> dict[str, Path]:
        """Name of each part -> its experiment file."""
        return {Path(part).stem: suite.parent / part for part in self.parts}


class _Written(BaseModel):
    """suite.json: what a suite's result consists of."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: str
    description: str
    parts: tuple[_Name, ...]
    absent: dict[str, str] = {}
    """Part -> why it cannot run here."""
    replays: tuple[Letter, ...] = ()


def load(path: Path) -> Suite | None:
    """Read a suite; None where the file is not one but, perhaps, an experiment.

    Raises:
        UsageError: it is a suite, and something in it is wrong.
    """
    try:
        text = document.read(path)
    except UsageError:
        return None  # what is wrong with it is for the experiment's reader to say
    return parse(text, path)


def parse(text: str, path: Path) -> Suite | None:
    """Read the text of a suite, as `load` does; its parts are looked for beside `path`."""
    written = _written(text, path)
    if written is None:
        return None
    try:
        found = Suite.model_validate(written)
    except ValidationError as error:
        raise document.refusal(written, str(path), document.problems(error, written)) from error
    problems = []
    if len(found.files(path)) < len(found.parts):
        said = "two parts have one name: give their files different names"
        problems.append(document.Problem(("parts",), said))
    for i, part in enumerate(found.parts):
        file = path.parent / part
        if not _NAME.fullmatch(file.stem):
            said = f"{file.name!r} names a result badly: call it by letters, digits, - and _"
            problems.append(document.Problem(("parts", i), said))
        elif not file.is_file():
            said = f"there is no part {file}: correct its path"
            problems.append(document.Problem(("parts", i), said))
        elif _is_suite(file):
            said = f"{file} is a suite itself: name its parts here"
            problems.append(document.Problem(("parts", i), said))
    if problems:
        raise document.refusal(written, str(path), problems)
    return found


def _written(text: str, path: Path) -> CommentedMap | None:
    """What a suite's text holds; None where it is none."""
    if "parts" not in text:
        return None  # as most files are: a suite is not worth a second parsing of each
    try:
        written = document.parse(text, str(path))
    except UsageError:
        return None  # what is wrong with it is for the experiment's reader to say
    return written if "parts" in written else None


def _is_suite(file: Path) -> bool:
    try:
        return _written(document.read(file), file) is not None
    except UsageError:
        return False  # as above


def is_result(folder: Path) -> bool:
    """Whether a folder is a suite's result."""
    return (folder / _FILE).is_file()


class SuiteResult:
    """A suite's result folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            self._written = _Written.model_validate_json((folder / _FILE).read_bytes())
        except PermissionError:
            raise  # it is as it was
        except (OSError, ValidationError) as error:
            raise UsageError(
                f"{folder / _FILE} cannot be read",
                "restore it, or read the parts by themselves: each is a result",
            ) from error

    @classmethod
    def create(
        cls, folder: Path, suite: Suite, parts: Iterable[str], absent: Mapping[str, str]
    ) -> SuiteResult:
        """Make a folder a suite's result; its parts are in it already.

        Raises:
            OSError: it cannot be written.
        """
        written = _Written(
            title=suite.title,
            description=suite.description,
            parts=tuple(parts),
            absent=dict(absent),
            replays=suite.replays,
        )
        lines.replace(folder / _FILE, written.model_dump_json(indent=1))
        return cls(folder)

    @property
    def title(self) -> str:
        """The suite's question."""
        return self._written.title

    @property
    def description(self) -> str:
        """What the suite says of itself."""
        return self._written.description

    @property
    def absent(self) -> Mapping[str, str]:
        """Part -> why it could not run here."""
        return self._written.absent

    @property
    def replays(self) -> tuple[Letter, ...]:
        """Letters of the papers that it replays; none of a suite of experiments."""
        return self._written.replays

    @property
    def parts(self) -> dict[str, Record]:
        """Name -> result of each part, in order."""
        return {name: Record(self.folder / name) for name in self._written.parts}
