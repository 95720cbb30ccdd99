"""`tare show`, `report`, `compare`, `export`, `list`: what is on record, read. No privileges."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer

from tare.cli import completing, paths, printing
from tare.cli.arguments import FLAG, Json, Result
from tare.command import shell_line
from tare.errors import Exit, TareError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tare.analysis import Analysis
    from tare.compare import Versions
    from tare.record import Record
    from tare.suite import SuiteResult


def show(
    result: Annotated[
        Path | None,
        typer.Argument(
            help="A result folder; the newest in results/ if absent.",
            autocompletion=completing.results,
        ),
    ] = None,
    json_: Json = False,
) -> None:
    """Show the verdicts of a result in the terminal, even while it runs."""
    from tare import catalogue, suite  # noqa: PLC0415 - so that --help is fast
    from tare.record import Record  # noqa: PLC0415

    folder = catalogue.newest(Path("results")) if result is None else result
    if not suite.is_result(folder):
        said = _shown(Record(folder), as_json=json_)
        if json_:
            printing.show_json(said)
        return
    whole = suite.SuiteResult(folder)
    parts = {name: _shown(record, as_json=json_) for name, record in whole.parts.items()}
    if json_:
        printing.show_json({"result": str(folder), "title": whole.title, "parts": parts})


def _shown(record: Record, *, as_json: bool) -> dict[str, Any]:
    """Print the verdicts of one result, unless they are asked for as JSON."""
    from tare import analysis  # noqa: PLC0415
    from tare.report import terminal  # noqa: PLC0415

    running = record.being_written  # before it is read: what ends meanwhile is told as running
    found = analysis.analyse(record)
    if as_json:
        said = {"result": str(record.folder), "running": running}
        return {**said, **terminal.verdicts(found)}
    printing.out.print(terminal.summary(found))
    if running:
        printing.show(f"running now: {len(found.trials)} trials are on record")
    printing.show(f"result  {record.folder}\n")
    return {}


def report(
    result: Result,
    out: Annotated[
        Path | None, typer.Option(help="The file to write; report.html in the result if absent.")
    ] = None,
    pages: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="For a replay: also write a page for each paper, in Markdown with a picture.",
        ),
    ] = None,
    json_: Json = False,
) -> None:
    """Draw the report of a result again."""
    from tare import suite  # noqa: PLC0415 - so that --help is fast
    from tare.record import Record  # noqa: PLC0415

    whole = suite.SuiteResult(result) if suite.is_result(result) else None
    if pages is not None and (whole is None or not whole.replays):
        raise UsageError(
            f"{result} is not the result of a replay", "leave --pages out, or run tare replay"
        )
    if whole is not None:
        draw_suite(whole, out, pages, as_json=json_)
    else:
        draw(Record(result), out, as_json=json_)


def draw_suite(
    suite: SuiteResult, out: Path | None, pages: Path | None = None, *, as_json: bool
) -> None:
    """Draw the page over a suite, and print its summaries.

    Of every part, too, unless the page goes elsewhere: the result is not written to then.
    """
    from tare import analysis  # noqa: PLC0415
    from tare import report as reporting  # noqa: PLC0415
    from tare.report import overview, papers, replayed, terminal  # noqa: PLC0415

    parts = {name: analysis.analyse(record) for name, record in suite.parts.items()}
    for name, found in parts.items() if out is None else ():
        if not (suite.folder / name).is_symlink():  # to another result, which is its author's
            _write(reporting.render(found), None, suite.folder / name)
    way = "" if out is None else quote(f"{os.path.relpath(suite.folder, out.parent)}/")
    kind = replayed if suite.replays else overview
    page = _write(kind.render(suite, parts, way), out, suite.folder)
    if pages is not None:
        _write_pages(papers.pages(suite, parts), pages)
    said = {"result": str(suite.folder), "report": str(page)}
    if as_json:
        shown = {name: reporting.as_json(found) for name, found in parts.items()}
        claims = {"papers": replayed.told(suite, parts)} if suite.replays else {}
        printing.show_json({**said, **claims, "parts": shown})
        return
    if suite.replays:
        printing.out.print(replayed.summary(suite, parts), "")
    else:
        for found in parts.values():
            printing.out.print(terminal.summary(found), "")
    printing.show(f"result  {suite.folder}\nreport  {page}")


def _write_pages(texts: Mapping[str, str], folder: Path) -> None:
    from tare import report as reporting  # noqa: PLC0415

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TareError(
            f"cannot make {folder}: {error.strerror}", "name another folder: --pages FOLDER"
        ) from error
    for name, text in texts.items():
        reporting.write(text, folder / name)


def _write(page: str, out: Path | None, result: Path) -> Path:
    """Write it where the user asked for it; else into the result, by no link that lies there."""
    from tare import report as reporting  # noqa: PLC0415

    path = out or result / "report.html"
    try:
        reporting.write(page, path, follow=out is not None)
    except TareError as error:
        raise TareError(
            error.what, f"draw it elsewhere: {shell_line('tare', 'report', result)} --out FILE"
        ) from error
    return path


def draw(record: Record, out: Path | None, *, as_json: bool) -> None:
    """Draw the page of a result, and print its summary."""
    from tare.report import terminal  # noqa: PLC0415

    if as_json:
        printing.show_json(drawn_for_machines(record, out))
        return
    found, page = _drawn(record, out)
    printing.out.print(terminal.summary(found))
    printing.show(f"result  {record.folder}\nreport  {page}")


def drawn_for_machines(record: Record, out: Path | None = None) -> dict[str, Any]:
    """Draw the page of a result, and return all that it says."""
    from tare import report as reporting  # noqa: PLC0415

    found, page = _drawn(record, out)
    said = {"result": str(record.folder), "report": str(page)}
    return {**said, **reporting.as_json(found)}


def _drawn(record: Record, out: Path | None) -> tuple[Analysis, Path]:
    from tare import analysis  # noqa: PLC0415
    from tare import report as reporting  # noqa: PLC0415

    found = analysis.analyse(record)
    return found, _write(reporting.render(found), out, record.folder)


def compare(
    results: Annotated[
        list[Path],
        typer.Argument(
            metavar="A B",
            help="Result folders, or folders of them: the runs of one version each. Or what"
            " hyperfine, Criterion, Google Benchmark, pyperf or JMH wrote: a file or a folder of"
            " files; for Criterion target/criterion, or target/criterion@BASELINE.",
            autocompletion=completing.results,
        ),
    ],
    fail_on: Annotated[
        str | None,
        typer.Option(
            help="Exit with 1 on a verdict: slower (worse), faster (better) or different; else with"
            " 4 if trials of the later runs failed, with 5 if the runs are too few for a verdict,"
            " or one has fewer blocks than its least."
        ),
    ] = None,
    across_machines: Annotated[
        bool,
        typer.Option(
            "--across-machines",
            metavar=FLAG,
            help="Compare results of different machines, or of guests under KVM with TCG.",
        ),
    ] = False,
    markdown: Annotated[
        bool, typer.Option("--markdown", metavar=FLAG, help="Print tables for a pull request.")
    ] = False,
    json_: Json = False,
) -> None:
    """Compare results, or runs of versions, cell by cell: B and the others, each with A.

    A verdict needs several runs of each version. All versions are compared with the first, and
    p-values are adjusted over all.
    """
    from tare import compare as comparing  # noqa: PLC0415
    from tare import compared, sides  # noqa: PLC0415

    if fail_on not in (None, "slower", "faster", "different"):
        raise UsageError(f"--fail-on takes slower, faster or different, not {fail_on!r}")
    if len(results) < 2:
        raise UsageError(f"there is nothing to compare {results[0]} with", "name another: A B")
    if json_ and markdown:
        raise UsageError("--json and --markdown are two formats", "choose one")
    first, *others = every = [*map(sides.runs_of, results)]
    sides.refuse_shared(every)
    found = comparing.compare_all(first, others, across_machines=across_machines)
    if json_:
        shown = [comparing.as_json(versions) for versions in found]
        printing.show_json(shown[0] if len(shown) == 1 else {"comparisons": shown})
    elif markdown:
        printing.show(compared.markdown(found))
    else:
        for versions in found:
            printing.out.print(compared.table(versions))
    if fail_on is not None:
        raise typer.Exit(_gated(found, fail_on, say=json_))


def _gated(found: Iterable[Versions], fail_on: str, *, say: bool) -> Exit:
    """What failed, or was not judged, cannot pass; `say` why not where no table says it."""
    from tare import compare as comparing  # noqa: PLC0415
    from tare import compared  # noqa: PLC0415

    every = [*found]
    if any(comparing.fails(versions, fail_on) for versions in every):
        return Exit.FAILED
    unjudged = [versions for versions in every if versions.unjudged]
    unfinished = [one for versions in every for one in versions.unfinished]
    if unjudged and say:
        printing.say("", compared.no_verdict(unjudged[0]))
    for one in unfinished if say else ():
        printing.say("", one)
    if any(versions.failed for versions in every):
        return Exit.TRIALS_FAILED
    return Exit.INCONCLUSIVE if unjudged or unfinished else Exit.OK


def export(
    result: Result,
    format_: Annotated[
        str,
        typer.Option(
            "--format",
            help="A row a session: csv, parquet or json. Or what another tool reads: bencher,"
            " google-benchmark, hyperfine or openmetrics.",
            autocompletion=completing.formats,
        ),
    ] = "csv",
    out: Annotated[
        Path | None, typer.Option(help="Where to write; standard output if absent.")
    ] = None,
    statistic: Annotated[
        str | None,
        typer.Option(
            help="Write this statistic alone (not in a table). If absent all; in google-benchmark,"
            " which holds one, that which the experiment declares.",
        ),
    ] = None,
) -> None:
    """Write every session of a result as one table, or its cells as another tool's file.

    Tables of several runs can be concatenated: each row names its run.

    tare export results/A --format parquet --out A.parquet

    tare export results/A --format openmetrics --statistic p99
    """
    from tare import export as exporting  # noqa: PLC0415
    from tare.record import Record  # noqa: PLC0415

    exporting.export(Record(result), format_, out, statistic)


def list_(
    results: Annotated[Path, typer.Option(help="The folder of results.")] = Path("results"),
    json_: Json = False,
) -> None:
    """List the experiments that ship, and the results so far."""
    from tare import catalogue  # noqa: PLC0415

    found = [*catalogue.experiments(paths.home() / "experiments"), *catalogue.results(results)]
    if json_:
        printing.show_json([asdict(one) for one in found])
        return
    rows = [(one.kind, str(paths.near(one.path)), one.title, one.state) for one in found]
    printing.out.print(printing.table("kind", "path", "title", "state", rows=rows))
