"""What a run can be seen to have left on this machine."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path

from tare.command import OWNER_VARIABLE


def of_run(run_id: str, mark: str | None = None) -> list[str]:
    """List what of a run is there, network to folders, and its owner's processes.

    Only those: other runs may be at work on this machine.
    """
    found = [f"namespace {p.name}" for p in Path("/run/netns").glob(f"*{run_id}*")]
    found += [f"interface {p.name}" for p in Path("/sys/class/net").glob(f"*{run_id}*")]
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    found += [f"mount {line}" for line in mounts if run_id in line]
    found += [f"cgroup {p}" for p in Path("/sys/fs/cgroup").glob(f"*/tare-{run_id}*")]
    found += [f"cgroup {p}" for p in Path("/sys/fs/cgroup").glob(f"tare-{run_id}*")]
    temporary = Path(tempfile.gettempdir())
    found += [f"folder {p}" for p in temporary.glob(f"tare-{run_id}*")]
    for backing in Path("/sys/block").glob("loop*/loop/backing_file"):
        with suppress(OSError):  # it is being detached
            if run_id in backing.read_text():
                found.append(f"loop device {backing.parts[3]}")
    if mark is not None:
        found += [f"process {pid}" for pid in processes_of(mark)]
    return found


def processes_of(mark: str) -> list[int]:
    """List the living processes that an owner started, directly or not."""
    wanted = f"{OWNER_VARIABLE}={mark}".encode()
    found = []
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                if wanted in (path / "environ").read_bytes().split(b"\0"):
                    found.append(int(path.name))
            except OSError:  # it has ended
                continue
    return found
