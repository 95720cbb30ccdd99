"""Keeps the summaries of a folder's results in Parquet beside them, as new as they are.

`runs.parquet` is the index: a row a result, which names the part that holds its values. A part is
never changed; a result that has changed is read into a new part, and what an old one still has of
it belongs to no row. The index is replaced whole once its parts are on disk: a refresh that is
killed loses at most the results that it had read since, and readers need no lock.
"""

from __future__ import annotations

import fcntl
import glob
import os
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from tare.command import shell_line
from tare.errors import TareError, UnavailableError, UsageError
from tare.history import folder as found

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

FORMAT = 3
"""Of what is kept; another one is kept beside, and made anew."""
EMPTY = "none"
"""A part without rows, so that results without any can be asked as well."""
_NAME = ".history"
_FEW_ROWS = 1 << 19
"""A part with fewer live rows is small."""
_MANY_PARTS = 8
"""More small parts than these are merged into one."""
_COMMIT_S = 10.0
"""What a kill costs at most."""
_POLL_S = 0.1
_MEMORY = "1GB"


class Index:
    """The summaries of a folder's results."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = _home(folder) / f"v{FORMAT}"
        self.runs = self.home / "runs.parquet"

    def part(self, name: str) -> Path:
        """Where a part lies."""
        return self.home / f"{name}.parquet"

    def refresh(self, tell: Callable[[int, int], None], *, anew: bool = False) -> bool:
        """Read what is new or has changed, and forget what is gone.

        Args:
            tell: is told before each result how many of how many were read.
            anew: read every result again.

        Returns:
            Whether it is up to date; not, where another process is refreshing it now.

        Raises:
            TareError: what is kept cannot be written.
        """
        now = dict(found.results(str(self.folder)))
        if not now:
            raise UsageError(
                f"there is no result below {self.folder}",
                "name the folder that holds results, such as `tare history results`",
            )
        if not anew and self.runs.exists() and self._known() == now:
            return True
        self._refuse_links()
        try:
            with self._alone() as alone:
                if alone:
                    self._refresh(now, tell, anew=anew)
                return alone
        except OSError as error:
            raise TareError(
                f"cannot keep the history of {self.folder} in {self.home}: {error}",
                "make room, or make it writable; results themselves are untouched",
            ) from error

    def _known(self) -> dict[str, str]:
        with connected() as database:
            asked = (
                "SELECT folder, mark FROM read_parquet(?, hive_partitioning = false)"
                " WHERE skipped IS NULL"  # what could not be read is tried again
            )
            rows = database.execute(asked, [literal(self.runs)])
            return dict(rows.fetchall())

    def _refresh(
        self, now: Mapping[str, str], tell: Callable[[int, int], None], *, anew: bool
    ) -> None:
        import pyarrow.parquet as pq  # noqa: PLC0415 - not where nothing has changed

        from tare.history.summary import RUNS, summarise  # noqa: PLC0415

        old: list[dict[str, Any]] = []
        if self.runs.exists() and not anew:
            old = pq.read_table(self.runs).to_pylist()
            self._sweep(old)
        # What could not be read is tried again: what was wrong may be in no file's time.
        kept = [run for run in old if now.get(run["folder"]) == run["mark"] and not run["skipped"]]
        broken = {_failure(run) for run in old if run["skipped"]}
        # Never one that was given before: a part still has the values of runs that are gone.
        entry = max([time.time_ns(), *(run["entry"] for run in kept)])
        known = {run["folder"] for run in kept}
        waiting = [name for name in now if name not in known]
        fresh: list[dict[str, Any]] = []
        values: list[dict[str, Any]] = []
        committed = time.monotonic()
        for done, name in enumerate(waiting):
            tell(done, len(waiting))
            entry += 1
            run, rows = summarise(self.folder / name)
            fresh.append(
                {**dict.fromkeys(RUNS.names), **run}
                | {"entry": entry, "folder": name, "mark": now[name], "rows": len(rows)}
            )
            values += [{"entry": entry, **row} for row in rows]
            if time.monotonic() - committed > _COMMIT_S:
                kept = self._commit(kept, fresh, values)
                fresh, values, committed = [], [], time.monotonic()
        if len(fresh) == len(waiting) == len(old) - len(kept) and broken == {*map(_failure, fresh)}:
            return  # all that is new cannot be read, as before
        self._merge(self._commit(kept, fresh, values))

    def _commit(
        self, kept: list[dict[str, Any]], fresh: list[dict[str, Any]], values: list[dict[str, Any]]
    ) -> list[dict[str, Any]]:
        import pyarrow as pa  # noqa: PLC0415

        from tare.history.summary import RUNS, VALUES  # noqa: PLC0415

        if values:
            part = uuid.uuid4().hex
            _write(pa.Table.from_pylist(values, VALUES), self.part(part))
            fresh = [{**run, "part": part if run["rows"] else None} for run in fresh]
        if not self.part(EMPTY).exists():
            _write(VALUES.empty_table(), self.part(EMPTY))
        kept += fresh
        _write(pa.Table.from_pylist(kept, RUNS), self.runs)
        return kept

    def _merge(self, runs: list[dict[str, Any]]) -> None:
        """Make one part of many small ones; what belongs to no run any more is left behind."""
        live: dict[str, int] = {}
        for run in runs:
            if run["part"]:
                live[run["part"]] = live.get(run["part"], 0) + run["rows"]
        small = [part for part, rows in live.items() if rows < _FEW_ROWS]
        if len(small) <= _MANY_PARTS:
            return
        merged, entries = uuid.uuid4().hex, [r["entry"] for r in runs if r["part"] in small]
        making = self.part(merged).with_suffix(".making")
        with connected(self.home) as database:
            # A question for one cell and statistic then reads few row groups.
            database.execute(
                "COPY (SELECT v.* FROM read_parquet($parts, hive_partitioning = false) v"
                " JOIN (SELECT unnest($entries) AS entry) USING (entry)"
                " ORDER BY statistic, cell, entry) TO $making"
                " (FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE 65536)",
                {
                    "parts": [literal(self.part(part)) for part in small],
                    "entries": entries,
                    "making": str(making),
                },
            )
        _settle(making, self.part(merged))
        moved = [{**run, "part": merged if run["part"] in small else run["part"]} for run in runs]
        self._commit(moved, [], [])

    def _sweep(self, runs: list[dict[str, Any]]) -> None:
        """Remove the parts of earlier times, and what a kill left half made."""
        named = {self.part(run["part"] or EMPTY) for run in runs} | {self.part(EMPTY), self.runs}
        for path in self.home.glob("*.*"):
            if path not in named and path.name != "lock":
                path.unlink()

    def _refuse_links(self) -> None:
        """What a stranger put beside the results must not lead to another file of the user's."""
        for path in (self.home.parent, self.home, *self.home.glob("*")):
            if path.is_symlink():
                raise UsageError(
                    f"{path} is a link, and a history is not written through one",
                    f"remove it: {shell_line('rm', path)}",
                )

    @contextmanager
    def _alone(self) -> Iterator[bool]:
        self.home.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW
        with os.fdopen(os.open(self.home / "lock", flags, 0o666), "w") as lock:
            yield self._locked(lock)

    def _locked(self, lock: IO[str]) -> bool:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if self.runs.exists():
                    return False
                time.sleep(_POLL_S)  # until the other has something to ask, or is gone
            else:
                return True


def literal(path: Path | str) -> str:
    """A path as DuckDB takes it for that file alone, and not for a pattern.

    Likewise it takes a folder `x=5` for a column, unless it reads with `hive_partitioning = false`.
    """
    return glob.escape(str(path))


def _installing() -> str:
    """Of a checkout or a wheel into its own virtual environment; else beside Debian's Python."""
    if sys.prefix != sys.base_prefix:
        return shell_line(sys.executable, "-m", "pip", "install", "duckdb")
    options = ("--user", "--break-system-packages")  # which hold no duckdb that it could break
    return (
        f"{shell_line(sys.executable, '-m', 'pip', 'install', *options, 'duckdb')}"
        " (apt-get install python3-pip has pip)"
    )


@contextmanager
def connected(spill: Path | None = None) -> Iterator[duckdb.DuckDBPyConnection]:
    """A database in memory, which asks the network for nothing.

    Args:
        spill: where what does not fit into its memory goes.

    Raises:
        UnavailableError: DuckDB is not installed.
        TareError: a file of the history is damaged.
    """
    try:
        import duckdb  # noqa: PLC0415 - it is no part of what `make run` installs
    except ImportError as error:
        raise UnavailableError(
            "a history is asked by DuckDB, which is not installed",
            _installing(),
        ) from error
    settings: dict[str, str | bool | int | float | list[str]] = {
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "memory_limit": _MEMORY,
        "temp_directory": str(spill / "spill") if spill else "",
    }
    try:
        with duckdb.connect(config=settings) as database:
            yield database
    except duckdb.Error as error:
        raise TareError(
            f"the history cannot be asked: {str(error).splitlines()[0]}",
            "ask again; if it stays so, make it anew from the results: add --rebuild",
        ) from error


def _home(folder: Path) -> Path:
    """Beside the results; in the user's cache where that cannot be written."""
    if (folder / "plan.json").is_file():
        raise UsageError(
            f"{folder} is one result, and a history is of many",
            f"name the folder that holds it: {shell_line('tare', 'history', folder.parent)}",
        )
    if not folder.is_dir():
        raise UsageError(f"there is no folder {folder}", "name the folder that holds results")
    beside = folder / _NAME
    if os.access(beside if beside.exists() else folder, os.W_OK | os.X_OK):
        return beside
    from platformdirs import user_cache_path  # noqa: PLC0415

    key = sha256(os.fsencode(folder.resolve())).hexdigest()[:16]
    return user_cache_path("tare") / "history" / key


def _failure(run: Mapping[str, Any]) -> tuple[str, str, str | None]:
    return run["folder"], run["mark"], run["skipped"]


def _write(table: pa.Table, path: Path) -> None:
    import pyarrow.parquet as pq  # noqa: PLC0415

    making = path.with_suffix(".making")
    pq.write_table(table, making, compression="zstd")
    _settle(making, path)


def _settle(making: Path, path: Path) -> None:
    """Put a file in its place, whole, once it is on disk."""
    from tare import lines  # noqa: PLC0415

    lines.sync(making)
    making.rename(path)
    lines.sync(path.parent)
