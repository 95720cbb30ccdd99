"""Kernel same-page merging on this machine, which is both hosts: on for a trial, then as before."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tare.errors import TrialError

__all__ = ["merging"]

_ROOT = Path("/sys/kernel/mm/ksm")
_SETTINGS = {"pages_to_scan": "1000", "sleep_millisecs": "20"}
"""At this pace nearly all that can be merged of small guests is, within 12 s."""
_SCANS = 2
_TIMEOUT_S = 90.0
_UNMERGE, _RUN = "2", "1"


@contextmanager
def merging(pid: int) -> Iterator[None]:
    """Have KSM merge pages until it has seen all of them twice; afterwards unmerge, set it back.

    Args:
        pid: a QEMU whose memory must have been merged.

    Raises:
        TrialError: this kernel has no KSM, or it merged nothing.
    """
    if not _ROOT.is_dir():
        raise TrialError("this kernel has no KSM", "leave the arm `ksm` out")
    before = {name: (_ROOT / name).read_text() for name in ("run", *_SETTINGS)}
    try:
        for name, value in _SETTINGS.items():
            (_ROOT / name).write_text(value)
        (_ROOT / "run").write_text(_RUN)
        _wait_for_scans()
        if not _merged(pid):
            raise TrialError(f"KSM merged no page of process {pid}")
        yield
    finally:
        (_ROOT / "run").write_text(_UNMERGE)
        for name, value in before.items():
            (_ROOT / name).write_text(value)


def _wait_for_scans() -> None:
    scans = _ROOT / "full_scans"
    wanted = int(scans.read_text()) + _SCANS + 1  # the one that is under way is not whole
    deadline = time.monotonic() + _TIMEOUT_S
    while int(scans.read_text()) < wanted and time.monotonic() < deadline:
        time.sleep(0.2)


def _merged(pid: int) -> bool:
    """Whether any page of it is merged. Source: proc(5), /proc/PID/ksm_merging_pages."""
    try:
        return int(Path(f"/proc/{pid}/ksm_merging_pages").read_text()) > 0
    except OSError:
        return True  # a kernel before 5.19 does not tell
