"""Certificates of one testbed's proxies, laid out as QEMU, libvirt and pageshare read them."""

from __future__ import annotations

from pathlib import Path

from tare import process
from tare.command import Command

RECEIVER = "destination.testbed"
"""The name that the receiver's certificate bears."""
_SENDER = "source.testbed"
_TIMEOUT_S = 60.0
_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2")


def make(directory: Path) -> Path:
    """Make an authority and a certificate for each side, unless they are there; return where."""
    if directory.exists():
        return directory
    directory.mkdir(mode=0o700)
    authority = ("-x509", "-subj", "/CN=testbed", *_written(directory, "ca"))
    _openssl(*authority)
    for side, name in (("server", RECEIVER), ("client", _SENDER)):
        _openssl(
            "-x509", "-CA", str(directory / "ca-cert.pem"), "-CAkey", str(directory / "ca-key.pem"),
            "-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name}",
            "-addext", "basicConstraints=critical,CA:FALSE", *_written(directory, side),
        )  # fmt: skip
    return directory


def _written(directory: Path, name: str) -> tuple[str, ...]:
    return (
        "-keyout", str(directory / f"{name}-key.pem"),
        "-out", str(directory / f"{name}-cert.pem"),
    )  # fmt: skip


def _openssl(*options: str) -> None:
    process.run(Command(("openssl", "req", *_KEY, *options)), _TIMEOUT_S)
