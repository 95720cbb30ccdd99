"""The report's tables as rows of text: every number rounded, every interval beside its number."""

from tare.report.tables.costs import contrasts, operations, resources, threads
from tare.report.tables.differences import conclusion, differences, of_differences
from tare.report.tables.effects import effects, other_statistics, paper
from tare.report.tables.instrument import calibration, failures, machine
from tare.report.tables.table import Table
from tare.report.tables.times import deadlines, levels, tails
from tare.report.tables.values import shown, told, values

__all__ = [
    "Table",
    "effects",
    "other_statistics",
    "levels",
    "tails",
    "shown",
    "told",
    "values",
    "contrasts",
    "threads",
    "operations",
    "resources",
    "differences",
    "of_differences",
    "conclusion",
    "deadlines",
    "calibration",
    "machine",
    "failures",
    "paper",
]
