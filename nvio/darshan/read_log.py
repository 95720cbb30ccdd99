#!/usr/bin/env python3
"""Print what a Darshan log tells of the files that MPI-IO reached, as one JSON object.

    read_log.py LOG

pydarshan reads the log: its library knows every version of the format. Ends with 3 where there is
no pydarshan, with 1 and a sentence where the log cannot be read. What the library has to say goes
to standard error as it is, since after an error in a log it only stops early.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_LACKING = 3
_SEGMENT = ("offset", "length", "start_time", "end_time")


def records(backend: Any, log: Any, module: str) -> Iterator[dict[str, Any]]:
    """All records of a module; none where the log lacks it."""
    while (record := backend.log_get_record(log, module, dtype="dict")) is not None:
        yield record


def counters(backend: Any, log: Any, module: str, files: set[int] | None) -> list[dict[str, Any]]:
    """Each record's counters by their Darshan names, without the module's; of `files`, or all."""
    return [
        {
            "file": record["id"],
            "rank": record["rank"],
            "counters": {
                name.partition("_")[2]: value.item()
                for kind in ("counters", "fcounters")
                for name, value in record[kind].items()
            },
        }
        for record in records(backend, log, module)
        if files is None or record["id"] in files
    ]


def traces(backend: Any, log: Any, module: str, files: set[int]) -> list[dict[str, Any]]:
    """Each rank's calls on each of these files: offset, length, start, end, one after another."""
    return [
        {
            "file": record["id"],
            "rank": record["rank"],
            "host": record["hostname"],
            **{
                kind: [segment[name] for segment in record[segments] for name in _SEGMENT]
                for kind, segments in (("reads", "read_segments"), ("writes", "write_segments"))
            },
        }
        for record in records(backend, log, module)
        if record["id"] in files
    ]


def contents(backend: Any, path: Path) -> dict[str, Any]:
    """The whole log."""
    log = backend.log_open(str(path))
    if log["handle"] == backend.ffi.NULL:
        raise ValueError("it is no Darshan log, or one of a version that pydarshan does not know")
    job = backend.log_get_job(log)
    modules = backend.log_get_modules(log)
    opened = counters(backend, log, "MPI-IO", None)
    names = backend.log_get_name_records(log)
    # Without any, the others can at least be drawn.
    files = {record["file"] for record in opened} or set(names)
    return {
        "ranks": job["nprocs"],
        "seconds": job["run_time"],
        "mounts": backend.log_get_mounts(log),
        "partial": {name: module["partial_flag"] for name, module in modules.items()},
        "names": [[file, names[file]] for file in sorted(files & names.keys())],
        "mpiio": opened,
        "posix": counters(backend, log, "POSIX", files),
        "streams": [record["file"] for record in counters(backend, log, "STDIO", files)],
        "dxt_posix": traces(backend, log, "DXT_POSIX", files),
        "dxt_mpiio": traces(backend, log, "DXT_MPIIO", files),
    }


def main() -> int:
    """Print the log."""
    try:
        backend = importlib.import_module("darshan.backend.cffi_backend")
    except ImportError as error:
        sys.stderr.write(f"{error}\n")
        return _LACKING
    try:
        said = contents(backend, Path(sys.argv[1]))
    except Exception as error:  # damaged bytes come as any of pydarshan's and Python's own errors
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return 1
    json.dump(said, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
