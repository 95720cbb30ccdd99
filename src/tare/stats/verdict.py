"""What may be said of a comparison, and of a whole family of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from tare.stats.compare import Ratio
from tare.stats.family import holm


class Verdict(StrEnum):
    """What a comparison allows to be said of cell a against cell b."""

    SLOWER = "slower"
    FASTER = "faster"
    MORE = "more"
    """Of what is neither a time nor a rate, such as bytes."""
    LESS = "less"
    EQUIVALENT = "equivalent"
    NO_WORSE = "no worse"
    """Of a gate: what would be worse by the margin is ruled out, whatever else it is."""
    INCONCLUSIVE = "inconclusive"
    """More data is needed."""
    NOT_MEASURED = "not measured"
    """No block has both cells: more blocks of the same would not help where all trials fail."""
    BELOW_INSTRUMENT = "below instrument"


@dataclass(frozen=True)
class Judgement:
    """A verdict with its reason."""

    verdict: Verdict
    """What may be said."""
    reason: str
    """One clause with the figures that decided."""
    adjusted_p: float | None
    """The p-value after Holm over the family, 0 to 1; None of a gate, which has none."""


def judge(
    comparison: Ratio,
    adjusted_p: float,
    *,
    alpha: float = 0.05,
    margin: float | None = None,
    floor: float | None = None,
    above_below: tuple[Verdict, Verdict] = (Verdict.SLOWER, Verdict.FASTER),
) -> Judgement:
    """Turn a comparison into the one thing that may be said of it.

    In this order, the first that holds:

    1. *equivalent*: the whole interval lies within [1/(1+margin), 1+margin]. At 95 % this is two
       one-sided tests at 2.5 % each (Schuirmann 1987, J. Pharmacokinet. Biopharm. 15:657), stricter
       than the customary 5 %. A difference within the declared margin is equivalent even where it
       is significant: the margin says what matters.
    2. *slower* or *faster* (*more* or *less*): the family-adjusted p is at most alpha and the
       interval excludes 1.
    3. *inconclusive*: anything else, NaN included, and every paired comparison of fewer blocks than
       its interval needs (6 at 95 %), where Student's stands in.

    Where no block has both cells there is nothing to judge: *not measured*.

    Verdicts 1 and 2 are refused as *below instrument* where what they speak of, the margin or the
    difference, is smaller than the instrument's own floor.

    Args:
        comparison: from `paired_ratio`; or unpaired, with the interval that its maker declares.
        adjusted_p: its p-value after Holm over the family.
        alpha: family-wise error rate, 0 to 1.
        margin: the declared equivalence margin as a fraction (0.03 is ±3 %), or None.
        floor: the smallest difference that the calibrated instrument can tell, in the unit of the
            comparison's input, or None where it is not known.
        above_below: what a ratio above 1 means, and one below: slower and faster for times, the
            other way round for rates, more and less for what is neither.

    Raises:
        ValueError: a margin that is not positive or a floor that is negative.
    """
    if margin is not None and not margin > 0.0:
        raise ValueError(f"margin must be positive, but is {margin}")
    if floor is not None and not floor >= 0.0:
        raise ValueError(f"floor must not be negative, but is {floor}")
    verdict, reason, size = _say(comparison, adjusted_p, alpha, margin, above_below)
    below = below_floor(verdict, size, floor)
    if below is not None:
        return Judgement(Verdict.BELOW_INSTRUMENT, below, adjusted_p)
    return Judgement(verdict, reason, adjusted_p)


def below_floor(verdict: Verdict, size: float | None, floor: float | None) -> str | None:
    """Say that a verdict speaks of less than the instrument can tell; None where it does not.

    Args:
        verdict: what would be said.
        size: of the difference, or of the margin, that it speaks of; None where of neither.
        floor: see `judge`; in the same unit.
    """
    if size is None or floor is None or size >= floor:
        return None
    return f"{verdict} speaks of {size:g}, but the instrument's floor is {floor:g}"


def _say(
    comparison: Ratio,
    adjusted_p: float,
    alpha: float,
    margin: float | None,
    above_below: tuple[Verdict, Verdict],
) -> tuple[Verdict, str, float | None]:
    """Return the verdict, its reason, and the absolute size of what the verdict speaks of."""
    ratio, base = comparison.ratio, comparison.b.estimate
    if ratio.estimate is None or base is None or not ratio.resolved:
        verdict = Verdict.INCONCLUSIVE if ratio.n else Verdict.NOT_MEASURED
        return verdict, f"{ratio.n} complete blocks give no interval", None
    if not comparison.allows_verdict:
        # Student's interval leans on normality, which so few blocks cannot show.
        return Verdict.INCONCLUSIVE, f"{ratio.n} complete blocks are too few for a verdict", None
    if margin is not None and ratio.within(1.0 / (1.0 + margin), 1.0 + margin):
        reason = f"the interval lies within the declared ±{100 * margin:g} %"
        return Verdict.EQUIVALENT, reason, margin * base
    if not ratio.excludes(1.0):
        return Verdict.INCONCLUSIVE, "the interval includes 1", None
    # Asked this way round, NaN is inconclusive: an error must never look like a finding.
    if not adjusted_p <= alpha:
        return Verdict.INCONCLUSIVE, f"adjusted p {adjusted_p:.2g} is above {alpha:g}", None
    reason = f"adjusted p {adjusted_p:.2g} is at most {alpha:g} and the interval excludes 1"
    return (
        above_below[0] if ratio.estimate > 1.0 else above_below[1],
        reason,
        abs(base * (ratio.estimate - 1.0)),
    )


def judge_family(
    comparisons: Mapping[str, Ratio],
    *,
    alpha: float = 0.05,
    margin: float | None = None,
    floors: Mapping[str, float | None] = MappingProxyType({}),
    above_below: tuple[Verdict, Verdict] = (Verdict.SLOWER, Verdict.FASTER),
) -> dict[str, Judgement]:
    """Judge every comparison of a family, with Holm's adjustment over all of them.

    The chance that any *slower* or *faster* of the family is wrong is at most alpha. *Equivalent*
    is not adjusted: each such verdict is wrong with a chance of at most 2.5 % at 95 % confidence.

    Args:
        comparisons: name -> `paired_ratio` result. A comparison that failed still belongs here
            (its p is 1): leaving it out would make the others easier.
        alpha: see `judge`, as are the others.
        margin: see `judge`.
        floors: name -> the comparison's `floor`, where there is one.
        above_below: see `judge`.
    """
    adjusted = holm([comparison.p for comparison in comparisons.values()])
    return {
        name: judge(
            one, p, alpha=alpha, margin=margin, floor=floors.get(name), above_below=above_below
        )
        for (name, one), p in zip(comparisons.items(), adjusted, strict=True)
    }
