"""CLAIMS.md: reads what is promised there, keeps what checks found, and draws the last results."""

from __future__ import annotations

import hashlib
import json
import platform
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from inspect import getsource, isfunction
from pathlib import Path
from typing import Any, NamedTuple

from claims.checking import Claim, Part, Result
from claims.subjects import SUBJECTS, changed
from tare.errors import TareError
from tare.stats.bounds import Kept

_BEGIN = "<!-- results: drawn by `tare claim table --write` from claims/*.json -->"
_END = "<!-- end of results -->"
_ROW = re.compile(r"\| \*\*(\w+)\*\* \| (.*?) \| (.*?) \|")
"""The name of a claim, its sentence, and what is wanted."""
_FIGURES = re.compile(r"; (?![^(]*\))")
"""Between a result's figures, and not within their parentheses."""
_BY = re.compile(r"\[([^]]+)\]\(experiments/\1\)")


def promised(
    home: Path, checks: Mapping[str, tuple[Part, ...]], grow: frozenset[str]
) -> tuple[Claim, ...]:
    """Every claim of CLAIMS.md, with how it is checked.

    Raises:
        TareError: a row of it names a claim that nothing checks, or the other way round.
    """
    rows = [match.groups() for line in _parts(home)[1].splitlines() if (match := _ROW.match(line))]
    if unlike := {row[0] for row in rows} ^ checks.keys():
        raise TareError(
            f"CLAIMS.md and claims/promises.py do not both have {', '.join(sorted(unlike))}",
            "a claim is a row of each",
        )
    found = []
    for name, said, wanted in rows:
        sentence, _, by = said.partition(" By [")
        experiments = tuple(_BY.findall(f"[{by}"))
        found.append(Claim(name, sentence, wanted, experiments, checks[name], name in grow))
    return tuple(found)


def keep(
    home: Path, claim: Claim, result: Result, commit: str | None, made_by: Mapping[str, str]
) -> Path:
    """Write a result to `claims/ID.json`, in place of the last one.

    Args:
        home: the checkout.
        claim: whose it is.
        result: what was found.
        commit: that was checked out when the check began.
        made_by: `digests` of the claim's subjects, of then.
    """
    path = home / "claims" / f"{claim.id}.json"
    entry = {
        "id": claim.id,
        "when": datetime.now(UTC).strftime("%Y-%m-%d"),
        "commit": commit,
        "machine": f"{platform.system()} {platform.release()} {platform.machine()}",
        "wanted": claim.wanted,
        "subjects": dict(made_by),
        "judged by": judged_by(claim),
        **result.as_json(),
    }
    path.write_text(json.dumps(entry, indent=1, default=str) + "\n")
    return path


def subjects(claim: Claim) -> tuple[str, ...]:
    """What a claim's figure is made by: files and folders of the checkout."""
    return (*SUBJECTS[claim.id], *(f"experiments/{name}" for name in claim.experiments))


def judged_by(claim: Claim) -> str:
    """A digest of how a claim is checked: its functions' text, and the bounds of its rows."""
    said = []
    for part in claim.parts:
        held = (part.args, part.keywords) if isinstance(part, partial) else ()
        check = part.func if isinstance(part, partial) else part
        said += [getsource(check) if isfunction(check) else repr(check), repr(held)]
    return hashlib.sha256("\n".join(said).encode()).hexdigest()[:16]


class _Standing(NamedTuple):
    """A claim, its last result, and why that is none of what is here."""

    claim: Claim
    entry: Mapping[str, Any] | None
    pending: str | None


def table(home: Path, claims: Sequence[Claim]) -> str:
    """The claims with their last verdicts, and below each one's figures, in Markdown."""
    standing = [_standing(home, claim) for claim in claims]
    rows = [f"{_counted(standing)}\n", "| | claim | wanted | verdict |", "|---|---|---|---|"]
    rows += [
        f"| **{one.claim.id}** | {_claim(one.claim)} | {one.claim.wanted} | {_last(one)} |"
        for one in standing
    ]
    rows.append("\n## What was found")
    for one in standing:
        rows += _found(one)
    return "\n".join(rows)


def write(home: Path, claims: Sequence[Claim]) -> None:
    """Draw the table into CLAIMS.md between its marks."""
    head, _, tail = _parts(home)
    path = home / "CLAIMS.md"
    path.write_text(f"{head}{_BEGIN}\n{table(home, claims)}\n{_END}{tail}", encoding="utf-8")


def _parts(home: Path) -> tuple[str, str, str]:
    """What stands before, between and after the marks of CLAIMS.md.

    Raises:
        TareError: the marks are not there.
    """
    path = home / "CLAIMS.md"
    head, begin, rest = path.read_text(encoding="utf-8").partition(_BEGIN)
    drawn, end, tail = rest.partition(_END)
    if not begin or not end:
        raise TareError(f"{path} has lost the marks around its results", f"put back {_BEGIN!r}")
    return head, drawn, tail


def _claim(claim: Claim) -> str:
    by = ", ".join(f"[{name}](experiments/{name})" for name in claim.experiments)
    return f"{claim.sentence} By {by}" if by else claim.sentence


def pending(home: Path, claim: Claim) -> str | None:
    """Why a claim has no result of what is here; None where it has."""
    return _standing(home, claim).pending


def _standing(home: Path, claim: Claim) -> _Standing:
    entry = _entry(home, claim)
    if entry is None:
        return _Standing(claim, None, "not measured yet")
    why = entry.get("pending") or _since(home, claim, entry.get("subjects", {}))
    if why is None and entry.get("wanted", claim.wanted) != claim.wanted:
        why = "something else was wanted of it then"
    if why is None and entry.get("judged by", how := judged_by(claim)) != how:
        why = "it was judged otherwise then"
    return _Standing(claim, entry, why)


def commit(home: Path, claim: Claim) -> str:
    """Of the last result; empty where there is none."""
    return _commit(_entry(home, claim) or {})[0]


def _commit(entry: Mapping[str, Any]) -> tuple[str, str]:
    """Of a result, and + where something was not committed."""
    head, plus, _ = (entry.get("commit") or "").partition("+")
    return head, plus


def _entry(home: Path, claim: Claim) -> dict[str, Any] | None:
    path = home / "claims" / f"{claim.id}.json"
    if not path.is_file():
        return None
    try:
        found: dict[str, Any] = json.loads(path.read_bytes())
    except ValueError as error:
        raise TareError(
            f"{path} is no result: {error}", f"`git checkout {path}`, or measure {claim.id} again"
        ) from error
    return found


def _counted(standing: Sequence[_Standing]) -> str:
    """How many have which verdict; of those that are pending, what was found last."""
    now: Counter[str] = Counter()
    then: Counter[str] = Counter()
    for one in standing:
        found = _verdict(one.entry) if one.entry else "never"
        (then if one.pending else now)[found] += 1

    def said(counts: Counter[str]) -> str:
        return ", ".join(f"*{verdict}* {count}" for verdict, count in counts.most_common())

    return (
        f"{len(standing)} claims: {said(now)}, *pending* {then.total()}. Those that are pending,"
        f" when last measured: {said(then)}."
    )


def _verdict(entry: Mapping[str, Any]) -> str:
    """Older entries told only whether it holds."""
    return str(entry.get("verdict") or Kept.counted(entry["holds"]))


def _last(one: _Standing) -> str:
    """The verdict, which leads to the figures."""
    if one.entry is None:
        return "pending"
    verdict = _verdict(one.entry)
    mark = f"[{verdict if verdict == Kept.HOLDS else f'**{verdict}**'}](#{one.claim.id.lower()})"
    return f"pending; last {mark}" if one.pending else mark


def _found(one: _Standing) -> list[str]:
    """A claim's section: where it was measured, why that is no result of today, the figures."""
    if one.entry is None:
        return []
    head, plus = _commit(one.entry)
    # As short as git writes one.
    origin = (f"{head[:7]}{plus}", one.entry["when"], one.entry.get("machine", ""))
    measured = f"*{_verdict(one.entry)}* at {', '.join(word for word in origin if word)}"
    said = f"*pending*: {one.pending}. Last {measured}:" if one.pending else f"{measured}:"
    figures = (f"- {figure}" for figure in _FIGURES.split(one.entry["figure"]))
    return [f"\n### {one.claim.id}\n", f"{said}\n", *figures]


def _since(home: Path, claim: Claim, before: Mapping[str, str]) -> str | None:
    """Which of its subjects are others now than when it was measured; None where none is."""
    rooms = subjects(claim)
    if set(rooms) != set(before):
        return "measured before this was looked at" if not before else "it is made by more now"
    found = changed(home, before)
    more = f" and {len(found) - 2} more" if len(found) > 3 else ""
    return f"{', '.join(found[:2] if more else found)}{more} changed since" if found else None
