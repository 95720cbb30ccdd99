"""How stress-ng is called."""

from __future__ import annotations

_ALWAYS = (
    # Before it starts it writes to memory of the size of a cache, of the last one unless told: that
    # of some servers is as large as a guest.
    "--cache-level", "1",
    "--temp-path", "/tmp",  # noqa: S108 - it only tries it
)  # fmt: skip


def stress_ng_argv(stressor: str, workers: int, seconds: int, *options: str) -> tuple[str, ...]:
    """A stressor at work.

    Args:
        stressor: its name, such as "cpu".
        workers: how many processes.
        seconds: for how long, at most.
        options: of the stressor, such as "--cpu-method", "int64"; and others of stress-ng's.
    """
    how_long = ("--timeout", str(seconds))
    return ("stress-ng", f"--{stressor}", str(workers), *options, *how_long, *_ALWAYS)
