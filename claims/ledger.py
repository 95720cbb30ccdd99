"""Keeps what checks found, and draws the table of CLAIMS.md from it."""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from claims.checking import Claim, Result
from tare.errors import TareError
from tare.stats.bounds import Kept

_BEGIN = "<!-- results: drawn by `tare claim table --write` from claims/*.json -->"
_END = "<!-- end of results -->"


def keep(home: Path, claim: Claim, result: Result, commit: str | None) -> Path:
    """Write a result to `claims/ID.json`, in place of the last one."""
    path = home / "claims" / f"{claim.id}.json"
    path.parent.mkdir(exist_ok=True)
    entry = {
        "id": claim.id,
        "when": datetime.now(UTC).strftime("%Y-%m-%d"),
        "commit": commit,
        "machine": f"{platform.system()} {platform.release()} {platform.machine()}",
        **result.as_json(),
    }
    path.write_text(json.dumps(entry, indent=1, default=str) + "\n")
    return path


def table(home: Path, claims: Sequence[Claim]) -> str:
    """The claims with their last results, in Markdown; "pending" where there is none."""
    rows = ["| | claim | wanted | last result |", "|---|---|---|---|"]
    rows += [f"| **{c.id}** | {_claim(c)} | {c.wanted} | {_last(home, c)} |" for c in claims]
    return "\n".join(rows)


def write(home: Path, claims: Sequence[Claim]) -> Path:
    """Draw the table into CLAIMS.md between its marks.

    Raises:
        TareError: the marks are not there.
    """
    path = home / "CLAIMS.md"
    text = path.read_text(encoding="utf-8")
    head, begin, rest = text.partition(_BEGIN)
    _, end, tail = rest.partition(_END)
    if not begin or not end:
        raise TareError(f"{path} has lost the marks around its results", f"put back {_BEGIN!r}")
    path.write_text(f"{head}{_BEGIN}\n{table(home, claims)}\n{_END}{tail}", encoding="utf-8")
    return path


def _claim(claim: Claim) -> str:
    by = ", ".join(f"[{name}](experiments/{name})" for name in claim.experiments)
    return f"{claim.sentence} By {by}" if by else claim.sentence


def _last(home: Path, claim: Claim) -> str:
    path = home / "claims" / f"{claim.id}.json"
    if not path.is_file():
        return "pending"
    entry: dict[str, Any] = json.loads(path.read_bytes())
    verdict = _verdict(entry)
    mark = verdict if verdict == Kept.HOLDS else f"**{verdict}**"
    if why := entry.get("pending"):
        mark = f"**pending** ({why}; then judged: {verdict})"
    origin = ", ".join([*_at(entry["commit"]), entry["when"]])
    return f"{mark} ({origin}): {entry['figure']}"


def _verdict(entry: dict[str, Any]) -> str:
    """The verdict of an entry; older ones told only whether it holds."""
    return str(entry.get("verdict") or Kept.counted(entry["holds"]))


def _at(commit: str | None) -> list[str]:
    """The commit that a result is of, as short as git writes one."""
    if commit is None:
        return []
    head, plus, _ = commit.partition("+")
    return [f"{head[:7]}{plus}"]
