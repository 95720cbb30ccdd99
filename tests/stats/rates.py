"""Whether a count of draws is believable: at most one seed in 10 000 would fail it."""

from scipy import stats


def at_most(found, rate):
    """Whether it is if the true rate is at most `rate`."""
    return stats.binom.sf(found.count - 1, found.of, rate) > 1e-4


def at_least(found, rate):
    return stats.binom.cdf(found.count, found.of, rate) > 1e-4
