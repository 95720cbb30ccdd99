"""Experiments by Slurm: a block is a task of an array job, and all blocks become one result.

A block is the unit of the design: it visits every cell, and comparisons are made within it. So
blocks can be measured by themselves, on any node that is alike, and one that is lost is lost alone.
"""

from tare.slurm.gather import Gathered, gather
from tare.slurm.job import Job, apart
from tare.slurm.queue import submit, waiting
from tare.slurm.script import Asked, ranges

__all__ = ["Job", "apart", "gather", "Gathered", "Asked", "ranges", "submit", "waiting"]
