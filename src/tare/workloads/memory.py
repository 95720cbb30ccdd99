"""Memory (paper B, Fig. 3): allocating, copying and touching it, and streaming through it.

Which methods stand for a class, and why: docs/guides/what-is-measured.md. The working sets have a
fixed size: left to themselves, programs ask the processor for its caches, and a guest's tells of
others.
"""

from __future__ import annotations

from tare.workloads.stressors import Class, Stressing, stress_ng, sysbench

_STREAM_CACHE = "4M"
"""stress-ng's stream takes three arrays of four times this, beyond what a core has for itself."""
_BLOCK = "--memory-block-size=32M"
"""A block is passed through from end to end, or at random, before the next begins."""
_UNLIMITED = "--memory-total-size=1024T"

MEMORY = Stressing(
    "memory",
    {
        "memory": Class(
            "Memory work",
            {
                "malloc": stress_ng("allocations up to 64 KiB and their release", "malloc"),
                "memcpy": stress_ng("copies and moves of 2 KiB to 2 MiB by libc", "memcpy"),
                "first-touch": stress_ng(
                    "32 MiB mapped anew, written and checked: page faults",
                    "vm",
                    "--vm-bytes",
                    "32M",
                    "--vm-method",
                    "write64",
                ),
                "random-read": sysbench(
                    "64-bit reads at random in 32 MiB",
                    "memory",
                    _BLOCK,
                    _UNLIMITED,
                    "--memory-oper=read",
                    "--memory-access-mode=rnd",
                    unit="B/s",
                ),
            },
        ),
        "stream": Class(
            "Streaming through memory",
            {
                "stream": stress_ng(
                    "copy, scale, add and triad over arrays of 16 MiB",
                    "stream",
                    "--stream-l3-size",
                    _STREAM_CACHE,
                ),
                "sequential-read": sysbench(
                    "64-bit reads in order through 32 MiB",
                    "memory",
                    _BLOCK,
                    _UNLIMITED,
                    "--memory-oper=read",
                    unit="B/s",
                ),
                "sequential-write": sysbench(
                    "64-bit writes in order through 32 MiB",
                    "memory",
                    _BLOCK,
                    _UNLIMITED,
                    "--memory-oper=write",
                    unit="B/s",
                ),
            },
        ),
    },
)
WORKLOAD = MEMORY
