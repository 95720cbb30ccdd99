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

_LOCKED = r'^name = "pageshare[\w-]*"\nversion = "(?!0\.0\.0")(.+)"$'
"""Of our own packages; that of the fuzz targets has no version."""
_STANDS = {
    "pyproject.toml": r'^version = "(.+)"$',
    "src/tare/__init__.py": r'^__version__ = "(.+)"$',
    "Cargo.toml": r'^version = "(.+)"$',
    "Cargo.lock": _LOCKED,
    "fuzz/pageshare/Cargo.lock": _LOCKED,
    "nvio/CMakeLists.txt": r"^project\(nvio VERSION (\S+) ",
    "walks/CMakeLists.txt": r"^project\(walks VERSION (\S+) ",
}
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
    text = (_HOME / "CHANGELOG.md").read_text(encoding="utf-8")
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
    # All of them first: where one has no place for it, nothing is written.
    written = {name: _put(name, where, version) for name, where in _STANDS.items()}
    today = datetime.now(UTC).date()
    written["CHANGELOG.md"] = text.replace(f"## {version}, unreleased", f"## {version}, {today}")
    for name, said in written.items():
        (_HOME / name).write_text(said, encoding="utf-8")
    _git("commit", "--quiet", "--all", "--message", f"Release {version}")
    told = f"\n\nPending claims: {', '.join(waiting)}" if waiting else ""
    _git("tag", "--annotate", f"v{version}", "--message", f"Tare {version}\n\n{part[1]}{told}")
    typer.echo(f"v{version} is tagged here; `git push --follow-tags` gives it to others")


def _put(name: str, where: str, version: str) -> str:
    """A file's text with the version in each of its places."""
    text = (_HOME / name).read_text(encoding="utf-8")
    found = [*re.finditer(where, text, re.MULTILINE)]
    if not found:
        _refuse(f"{name} has no version where one is expected")
    for one in reversed(found):
        text = text[: one.start(1)] + version + text[one.end(1) :]
    return text


def _git(*words: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(_HOME), *words], capture_output=True, text=True, check=False
    )
    if done.returncode:
        _refuse(f"git {words[0]} failed: {done.stderr.strip()}\n  → git restore . undoes the rest")
    return done.stdout.rstrip()


def _refuse(why: str) -> NoReturn:
    sys.exit(f"release: {why}")


if __name__ == "__main__":
    typer.run(main)
