"""Computing (paper B, Fig. 3): what a processor does in a second, integer and floating point.

Which methods stand for a class, and why: docs/guides/what-is-measured.md. They stay within a few
hundred kilobytes, so that it is the processor, not the memory, that an environment changes.
"""

from __future__ import annotations

from tare.workloads.stressors import Class, Method, Stressing, stress_ng, sysbench


def _cpu(method: str, what: str) -> Method:
    return stress_ng(what, "cpu", "--cpu-method", method)


CPU = Stressing(
    "cpu",
    {
        "integer": Class(
            "Integer arithmetic",
            {
                "int64": _cpu("int64", "64-bit additions, multiplications, divisions, shifts"),
                "crc16": _cpu("crc16", "a checksum, bit by bit"),
                "sieve": _cpu("sieve", "Eratosthenes' sieve: stores to a bit field"),
                "queens": _cpu("queens", "the queens problem: recursion and branches"),
                "primes": sysbench("primes up to 10000 by trial division", "cpu", unit="1/s"),
            },
        ),
        "floating-point": Class(
            "Floating-point arithmetic",
            {
                "double": _cpu("double", "additions, multiplications, divisions, and some of libm"),
                "fft": _cpu("fft", "a fast Fourier transform of 4096 points"),
                "matrixprod": _cpu("matrixprod", "a product of two 128 x 128 matrices"),
                "explog": _cpu("explog", "exponentials and logarithms of libm"),
                "nsqrt": _cpu("nsqrt", "square roots by Newton and Raphson"),
            },
        ),
    },
)
WORKLOAD = CPU
