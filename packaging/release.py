"""Make a release: its version wherever one stands, its date in CHANGELOG.md, a commit and a tag.

    make release VERSION=0.2.0
    make release VERSION=0.2.0 PENDING=--pending

Nothing is pushed. Refused are what is not committed, a version that is not new, a changelog
without a part for it, and claims whose last result is not of what is here. `--pending` lets
those be, and the tag says which they are.
"""

from __future__ import annotations

import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, NoReturn

import typer

import claims
from claims import ledger

_HOME = Path(__file__).parents[1]

_STANDS = (
    ("pyproject.toml", r'^version = "(.+)"$'),
    ("src/tare/__init__.py", r'^__version__ = "(.+)"$'),
    ("Cargo.toml", r'^version = "(.+)"$'),
    ("nvio/CMakeLists.txt", r"^project\(nvio VERSION (\S+) "),
    ("walks/CMakeLists.txt", r"^project\(walks VERSION (\S+) "),
)
"""File -> where it has the version."""


def main(
    version: Annotated[str, typer.Argument(help="Such as 0.2.0.")],
    pending: Annotated[bool, typer.Option("--pending", help="Let claims be pending.")] = False,
) -> None:
    """Check, write, commit and tag."""
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        _refuse(f"{version!r} is no version: three numbers, such as 0.2.0")
    if left := _git("status", "--porcelain"):
        _refuse(f"not everything is committed:\n{left}")
    if _git("tag", "--list", f"v{version}"):
        _refuse(f"there is a v{version} already")
    changelog = _HOME / "CHANGELOG.md"
    text = changelog.read_text(encoding="utf-8")
    part = re.search(
        rf"^## {re.escape(version)}, unreleased\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL
    )
    if part is None:
        _refuse(f"CHANGELOG.md has no part '## {version}, unreleased'")
    waiting = [one.id for one in claims.every() if ledger.pending(_HOME, one)]
    if waiting and not pending:
        _refuse(
            f"{len(waiting)} claims have no result of what is here: {', '.join(waiting)}"
            "\n  → make claims, which takes up to a day; or add PENDING=--pending"
        )
    for name, where in _STANDS:
        _set(_HOME / name, where, version)
    today = datetime.now(UTC).date()
    changelog.write_text(text.replace(f"## {version}, unreleased", f"## {version}, {today}"))
    subprocess.run(
        ["cargo", "update", "--workspace", "--offline", "--quiet"], cwd=_HOME, check=True
    )
    _git("commit", "--quiet", "--all", "--message", f"Release {version}")
    told = f"\n\nPending claims: {', '.join(waiting)}" if waiting else ""
    _git("tag", "--annotate", f"v{version}", "--message", f"Tare {version}\n\n{part[1]}{told}")
    typer.echo(f"v{version} is tagged here; `git push --follow-tags` gives it to others")


def _set(path: Path, where: str, version: str) -> None:
    text = path.read_text(encoding="utf-8")
    found = re.search(where, text, re.MULTILINE)
    if found is None:
        _refuse(f"{path} has no version where one is expected")
    path.write_text(text[: found.start(1)] + version + text[found.end(1) :], encoding="utf-8")


def _git(*words: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(_HOME), *words], stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout.rstrip()


def _refuse(why: str) -> NoReturn:
    sys.exit(f"release: {why}")


if __name__ == "__main__":
    typer.run(main)
