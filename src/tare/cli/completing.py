"""What a shell is offered when a word is completed: files, results, cells, names.

Whatever cannot be read is not offered: a shell that asks has no place for an error. Where nothing
is offered, the shell completes files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path

import typer

from tare.cli import paths

Offer = Iterable[tuple[str, str]]
"""Words, each with what a shell that shows help says of it."""

_TITLE = re.compile(r"^title:\s*(.+?)\s*$", re.MULTILINE)
_MARKERS = ("plan.json", "suite.json")
_HEAD = 4096  # bytes, in which a title stands


def experiments(incomplete: str) -> Offer:
    """Experiment files: here and in `experiments/`, or as far as the word goes; else what ships."""
    files = [
        file
        for path in _begun(incomplete, "experiments")
        for file in ([path] if path.suffix in (".yaml", ".yml") else sorted(path.glob("*.yaml")))
    ]
    here = [(_as_typed(file, incomplete), title) for file in files if (title := _title(file))]
    shipped = sorted((paths.home() / "experiments").glob("*.yaml"))
    return here or [(f.stem, _title(f)) for f in shipped if f.stem.startswith(incomplete)]


def results(incomplete: str) -> Offer:
    """Result folders, the newest first: in `results/`, or as far as the word goes."""
    found = {
        folder
        for path in _begun(incomplete, "results")
        for folder in (path, *(marker.parent for m in _MARKERS for marker in path.glob(f"*/{m}")))
        if any(_is_there(folder / marker) for marker in _MARKERS)
    }
    for folder in sorted(found, key=lambda path: path.stat().st_mtime, reverse=True):
        yield _as_typed(folder, incomplete), _title(folder / "experiment.yaml")


def cells(context: typer.Context) -> Offer:
    """The cells of the result that the command line names."""
    try:
        plan = json.loads((Path(context.params["result"]) / "plan.json").read_bytes())
        return [(str(cell["id"]), "") for cell in plan["cells"] if cell["replica"] == 1]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def workloads() -> Offer:
    """Every workload."""
    from tare import workloads as kinds  # noqa: PLC0415 - so that --help is fast

    return [(name, kinds.about(name)) for name in kinds.by_name()]


def statistics(context: typer.Context) -> Offer:
    """What the workload that the command line names measures."""
    from tare import workloads as kinds  # noqa: PLC0415 - so that --help is fast

    named = context.params.get("workload")
    found = [kind for name, kind in kinds.by_name().items() if named in (None, name)]
    return {n: s.help for kind in found for n, s in kind.statistics.items()}.items()


def papers() -> Offer:
    """The papers that can be replayed."""
    from tare import published  # noqa: PLC0415 - so that --help is fast

    return [(paper.name, paper.title) for paper in published.papers().values()]


def formats() -> Offer:
    """What a result can be exported as."""
    from tare import export  # noqa: PLC0415 - so that --help is fast

    return [(name, "") for name in export.formats()]


def _begun(incomplete: str, folder: str) -> list[Path]:
    """What a word can become; where there is none yet, the files here and the usual folder."""
    where, slash, begun = incomplete.rpartition("/")
    parent = Path(where + slash)
    try:
        inside = sorted(path for path in parent.iterdir() if path.name.startswith(begun))
    except OSError:
        return []
    return inside if incomplete else [Path(folder), *(p for p in inside if p.is_file())]


def _is_there(file: Path) -> bool:
    try:
        return file.is_file()
    except OSError:
        return False


def _as_typed(path: Path, incomplete: str) -> str:
    return f"./{path}" if incomplete.startswith("./") else str(path)


def _title(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            found = _TITLE.search(opened.read(_HEAD).decode("utf-8", "replace"))
    except OSError:
        return ""
    return found[1].strip("'\"") if found else ""
