"""The papers' figures, each with what a run measured of the same kind: a file a paper."""

from tare.workloads.papers import a, b, c, d

__all__ = ["a", "b", "c", "d"]
