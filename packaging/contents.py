"""What a package holds that others wrote: its SBOM (CycloneDX), and its notices.

Writes NAME.cdx.json and NAME.copyright, from what was compiled in: crates as Cargo resolved them,
Debian's libraries of headers and of static code, and distributions of Python in a folder.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import re
import subprocess
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_HOME = Path(__file__).parents[1]
_CRATE = re.compile(r"^(\S+) v(\S+).*?\|([^(\n]*?)(?: \(\*\))?$", re.MULTILINE)
_OURS = """\
Tare is licensed under the Apache License, Version 2.0, whose text is in
/usr/share/common-licenses/Apache-2.0 on Debian systems.

Copyright 2025-2026 the authors of Tare
"""


@dataclass(frozen=True, order=True)
class Part:
    """One that others wrote."""

    purl: str
    name: str
    version: str
    licence: str = ""
    sha256: str = ""
    notices: tuple[str, ...] = field(default=(), compare=False)

    def as_json(self) -> dict[str, Any]:
        """Return a component of CycloneDX 1.6."""
        said: dict[str, Any] = {"type": "library", "bom-ref": self.purl, "name": self.name}
        said |= {"version": self.version, "purl": self.purl}
        if self.licence:
            said["licenses"] = [{"expression": self.licence}]
        if self.sha256:
            said["hashes"] = [{"alg": "SHA-256", "content": self.sha256}]
        return said


def crates(package: str) -> list[Part]:
    """What is linked into a program of ours; without what runs while it is compiled."""
    lock = tomllib.loads((_HOME / "Cargo.lock").read_text(encoding="utf-8"))
    sums = {(p["name"], p["version"]): p["checksum"] for p in lock["package"] if "checksum" in p}
    argv = ["cargo", "tree", "--locked", "--package", package, "--edges", "normal,no-proc-macro",
            "--prefix", "none", "--format", "{p}|{l}"]  # fmt: skip
    said = subprocess.run(argv, cwd=_HOME, capture_output=True, text=True, check=True).stdout
    found = {}
    for name, version, licence in _CRATE.findall(said):
        if (name, version) in sums:  # the others are ours
            spdx, purl = licence.replace("/", " OR "), f"pkg:cargo/{name}@{version}"
            # Where it leaves the choice we choose our own.
            notices = () if "Apache-2.0" in spdx.split(" OR ") else _notices(f"{name}-{version}")
            found[purl] = Part(purl, name, version, spdx, sums[name, version], notices)
    return list(found.values())


def _notices(crate: str) -> tuple[str, ...]:
    """The texts that a crate has to be passed on with, from where Cargo unpacked it."""
    unpacked = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo")) / "registry/src"
    files = sorted(unpacked.glob(f"*/{crate}/LICEN*")) + sorted(unpacked.glob(f"*/{crate}/COPY*"))
    if not files:
        message = f"{crate} has no licence in {unpacked}"
        raise FileNotFoundError(message)
    return tuple(file.read_text(encoding="utf-8") for file in files)


def debian(package: str) -> Part:
    """A library of Debian's whose code is in a program of ours."""
    show = ["dpkg-query", "--show", "--showformat", "${Version}", package]
    version = subprocess.run(show, capture_output=True, text=True, check=True).stdout
    notice = Path(f"/usr/share/doc/{package}/copyright").read_text(encoding="utf-8")
    purl = f"pkg:deb/debian/{package}@{version.replace('+', '%2B').replace(':', '%3A')}"
    return Part(purl, package, version, notices=(notice,))


def distributions(folder: Path) -> list[Part]:
    """What pip put into a folder; each has its own licence beside it there."""
    found = []
    for one in importlib.metadata.distributions(path=[str(folder)]):
        name, version = one.metadata["Name"], one.version
        licence = one.metadata.get("License-Expression") or ""
        if name != "tare-lab":
            found.append(Part(f"pkg:pypi/{name.lower()}@{version}", name, version, licence))
    return found


def main() -> None:
    """Write both."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name")
    parser.add_argument("version")
    parser.add_argument("out", type=Path)
    parser.add_argument("--crate", help="of ours, whose dependencies are linked in")
    parser.add_argument("--debian", nargs="*", default=[], help="packages that are compiled in")
    parser.add_argument("--python", type=Path, help="a folder that pip filled")
    asked = parser.parse_args()
    parts = sorted(
        [
            *(crates(asked.crate) if asked.crate else []),
            *map(debian, asked.debian),
            *(distributions(asked.python) if asked.python else []),
        ]
    )
    bom = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "name": asked.name,
                "version": asked.version,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
            }
        },
        "components": [part.as_json() for part in parts],
    }
    asked.out.mkdir(parents=True, exist_ok=True)
    text = json.dumps(bom, indent=1) + "\n"
    (asked.out / f"{asked.name}.cdx.json").write_text(text, encoding="utf-8")
    notices = [
        f"\n\n--- {part.name} {part.version}: {part.licence or 'as follows'}\n\n{notice}"
        for part in parts
        for notice in part.notices
    ]
    text = "".join((_OURS, *notices))
    (asked.out / f"{asked.name}.copyright").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
