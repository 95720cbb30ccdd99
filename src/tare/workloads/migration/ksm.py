"""Kernel same-page merging on this machine, which is both hosts: on for a trial, then as before."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tare.errors import TrialError
from tare.leftovers import Registry
from tare.pauses import pauses

_ROOT = Path("/sys/kernel/mm/ksm")
_SETTINGS = {"pages_to_scan": "1000", "sleep_millisecs": "20", "run": "1"}
"""At this pace nearly all that can be merged of small guests is, within 12 s."""
_SCANS = 2
_TIMEOUT_S = 300.0


def available() -> bool:
    """Whether this kernel has it."""
    return _ROOT.is_dir()


@contextmanager
def merging(registry: Registry, pid: int) -> Iterator[None]:
    """Have KSM merge pages until it has seen all of them twice; afterwards unmerge, set it back.

    Args:
        registry: of the run: what was set before stands on it, should the run be killed.
        pid: a QEMU whose memory must have been merged.

    Raises:
        TrialError: this kernel has no KSM, or it merged nothing, or has not seen all in time.
    """
    if not available():
        raise TrialError("this kernel has no KSM", "leave the arm `ksm` out")
    with ExitStack() as stack:
        for name, value in _SETTINGS.items():
            before = (_ROOT / name).read_text().strip()
            stack.enter_context(registry.owing("ksm", name, before))
            (_ROOT / name).write_text(value)
        _wait_for_scans()
        if not _merged(pid):
            raise TrialError(f"KSM merged no page of process {pid}")
        yield


def _wait_for_scans() -> None:
    scans = _ROOT / "full_scans"
    wanted = int(scans.read_text()) + _SCANS + 1  # the one that is under way is not whole
    for _ in pauses(_TIMEOUT_S):
        if int(scans.read_text()) >= wanted:
            return
    raise TrialError(
        f"KSM has not seen all memory twice within {_TIMEOUT_S:g} s: it scans every guest's here",
        "leave the arm `ksm` out, or run it where fewer guests are",
    )


def _merged(pid: int) -> bool:
    """Whether any page of it is merged. Source: proc(5), /proc/PID/ksm_merging_pages."""
    try:
        return int(Path(f"/proc/{pid}/ksm_merging_pages").read_text()) > 0
    except OSError:
        return True  # a kernel before 5.19 does not tell
