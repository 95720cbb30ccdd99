"""How numbers become claims: pure functions on arrays, no files, nothing else of Tare.

The unit of replication is a block: a cell's sessions in it are one value. `docs/method.md` explains
the method and its sources.
"""

from tare.stats.compare import Ratio, paired_ratio
from tare.stats.deadlines import DeadlineView, deadline_view
from tare.stats.describe import PERCENTS, Estimate, Summary, across, summarise
from tare.stats.drift import BlockTrend, SessionDrift, block_trend, session_drift
from tare.stats.family import Resolvability, family_resolvable, holm
from tare.stats.interval import Interval, Method, mean_interval
from tare.stats.proportion import Proportion, clustered_proportion, proportion, upper_bound
from tare.stats.quantiles import Percentile, percentiles, samples_needed
from tare.stats.stopping import Action, Decision, decide
from tare.stats.verdict import Judgement, Verdict, judge, judge_family

__all__ = [
    "paired_ratio",
    "Ratio",
    "judge_family",
    "judge",
    "Judgement",
    "Verdict",
    "family_resolvable",
    "Resolvability",
    "holm",
    "summarise",
    "Summary",
    "PERCENTS",
    "Percentile",
    "percentiles",
    "samples_needed",
    "across",
    "Estimate",
    "decide",
    "Decision",
    "Action",
    "deadline_view",
    "DeadlineView",
    "session_drift",
    "SessionDrift",
    "block_trend",
    "BlockTrend",
    "mean_interval",
    "Interval",
    "Method",
    "proportion",
    "clustered_proportion",
    "upper_bound",
    "Proportion",
]
