#!/usr/bin/env python3
"""Generate nvio's MPI entry points from the one table, functions.csv.

Its outputs are included by hand-written C++:
  entries.inc      X(index, name) for the neutral loader: every name of every MPI
  narrowed.inc     X(index, plain, count) for each function of large counts: which one takes an
                   int, and the count's place among the arguments (-1: there is none)
  shims_<abi>.inc  a typed shim for each function the MPI has, at both levels (MPI_ and PMPI_)

`handling` in the table decides what a shim does before it calls the MPI's own function:
  transfer  `transfer_...` of transfers.h takes over, and calls the MPI where nvio does not serve,
            or is to join the others of a collective call
  wrap      an ordinary function `on_<Name>` in calls.h takes over and may call the MPI
  position  the MPI's individual file pointer is brought up to date first (calls.h, `settle`)
  plain     nothing but counting
"""

from __future__ import annotations

import argparse
import csv
import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path


@dataclass(frozen=True)
class Function:
    """One row of functions.csv."""

    name: str
    returns: str
    handling: str
    abi: str
    parameters: str

    @property
    def arguments(self) -> str:
        """The names of its parameters, as a call passes them on."""
        if self.parameters == "void":
            return ""
        names = [re.split(r"[ *]+", part.strip())[-1] for part in self.parameters.split(",")]
        return ", ".join(names)

    @property
    def short(self) -> str:
        """Its name without MPI_."""
        return self.name.removeprefix("MPI_")


def read_table(path: Path) -> list[Function]:
    """All rows, checked."""
    with path.open(newline="") as table:
        functions = [Function(**row) for row in csv.DictReader(table)]
    for function in functions:
        if function.handling not in ("transfer", "wrap", "position", "plain"):
            raise SystemExit(f"{path}: {function.name}: unknown handling {function.handling!r}")
        if function.abi not in ("both", "mpich"):
            raise SystemExit(f"{path}: {function.name}: unknown abi {function.abi!r}")
    return functions


def entries(functions: list[Function]) -> str:
    """The table as X(index, name), for the loader."""
    return "".join(f"X({i}, {f.name})\n" for i, f in enumerate(functions))


def narrowed(functions: list[Function]) -> str:
    """The functions of large counts as X(index, plain, count), for the loader."""
    index = {f.name: i for i, f in enumerate(functions)}
    text = ""
    for function in functions:
        if function.name.endswith("_c"):
            names = function.arguments.split(", ")
            count = names.index("count") if "count" in names else -1
            plain = index[function.name.removesuffix("_c")]
            text += f"X({index[function.name]}, {plain}, {count})\n"
    return text


def transfer(function: Function) -> str:
    """What a shim of a read or write does when the program calls it."""
    name = function.short.removesuffix("_c").removeprefix("File_")
    names = function.arguments.split(", ")
    call = f"next({function.arguments})"
    if name.endswith("_end"):
        return f"return transfer_end(fh, status, [&] {{ return {call}; }});"
    given = {"count": "0", "datatype": "byte_type()", "status": "MPI_STATUS_IGNORE"}
    given["request"] = "joined"
    with_none = f"next({', '.join(given.get(one, one) for one in names)})"
    asked = ", ".join(
        (
            "fh",
            str("write" in name).lower(),
            *(("true", "offset") if "offset" in names else ("false", "0")),
            "const_cast<void*>(buf)" if "write" in name else "buf",
            "count",
            "datatype",
        )
    )
    kind, told, parameters = "blocking", ", status", ""
    if "request" in names:
        kind, told, parameters = "later", ", request", "MPI_Request* joined"
    elif name.endswith("_begin"):
        kind, told = "begin", ""
    way = "together" if "_all" in name else "alone"
    if kind == "later":
        way = "together_later" if "_all" in name else "later"
    way = "" if kind == "begin" else f", Way::{way}"
    return (
        f"return transfer_{kind}(Transfer{{{asked}}}{way}{told}, [&] {{ return {call}; }},\n"
        f"      [&]({parameters}) {{ return {with_none}; }});"
    )


def shim(index: int, function: Function) -> str:
    """One function at both levels."""
    call = f"next({function.arguments})"
    if function.handling == "wrap":
        joined = ", ".join(filter(None, ["next", function.arguments]))
        body = f"return nested.outermost() ? on_{function.short}({joined}) : {call};"
    elif function.handling == "transfer":
        body = f"if (!nested.outermost()) return {call};\n  {transfer(function)}"
    elif function.handling == "position":
        body = f"if (nested.outermost()) settle(fh);\n  return {call};"
    else:
        body = f"if (nested.outermost()) count_passed();\n  return {call};"
    signature = f"{function.returns} (*)({function.parameters})"
    shims = ""
    for level in ("mpi", "pmpi"):
        shims += (
            f"{function.returns} {level}_{function.short}({function.parameters}) {{\n"
            f"  const Nested nested({index});\n"
            f"  const auto next = next_function<{signature}>(Level::{level}, {index});\n"
            f"  {body}\n"
            f"}}\n"
        )
    return shims


def shims(functions: list[Function], abi: str) -> str:
    """All shims of one MPI, and the tables of their addresses."""
    present = [(i, f) for i, f in enumerate(functions) if f.abi in ("both", abi)]
    text = "".join(shim(i, f) for i, f in present)
    text += f"constexpr std::size_t kEntryCount = {len(functions)};\n"
    for level in ("mpi", "pmpi"):
        text += f"void fill_{level}(void** table) {{\n"
        for i, f in present:
            text += f"  table[{i}] = reinterpret_cast<void*>(&{level}_{f.short});\n"
        text += "}\n"
    names = ", ".join(f'"{f.name}"' for f in functions)
    text += f"constexpr const char* kEntryNames[] = {{{names}}};\n"
    return text


def main() -> None:
    """Write one of the outputs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("table", type=Path, help="functions.csv")
    parser.add_argument("kind", choices=("entries", "narrowed", "mpich", "openmpi"))
    parser.add_argument("output", type=Path)
    options = parser.parse_args()
    functions = read_table(options.table)
    made = {"entries": entries, "narrowed": narrowed}.get(
        options.kind, partial(shims, abi=options.kind)
    )
    options.output.write_text("// Generated by generate.py from functions.csv.\n" + made(functions))


if __name__ == "__main__":
    main()
