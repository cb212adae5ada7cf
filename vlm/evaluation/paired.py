"""Two models on the same pictures: an interval of their difference, and McNemar's test.

Both meet the same pictures, so a resample of pictures holds for both, and what is hard for both
cancels in the difference: its interval is narrower than two intervals side by side would suggest.

I: pictures, S: summed quantities, R: resamples.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from vlm.evaluation.intervals import (
    DEFAULT_CONFIDENCE,
    DEFAULT_RESAMPLES,
    FloatArray,
    Interval,
    bootstrap,
)

Statistic = Callable[[FloatArray], FloatArray]


def paired_interval(
    a: ArrayLike,
    b: ArrayLike,
    function: Statistic,
    resamples: int = DEFAULT_RESAMPLES,
    seed: int = 0,
    confidence: float = DEFAULT_CONFIDENCE,
) -> Interval:
    """Percentile interval of function(b) - function(a), each resample of pictures for both.

    Args:
        a: (I, S) per-picture sums of one model.
        b: (I, S) those of the other on the same pictures.
        function: Maps summed statistics (R, S) to (R,).
        resamples: R.
        seed: Of the resampling.
        confidence: In (0, 1).

    Raises:
        UserError: see `bootstrap`.
    """

    def difference(sums: FloatArray) -> FloatArray:
        of_a, of_b = np.split(sums, 2, axis=-1)
        return function(of_b) - function(of_a)

    table = np.concatenate([np.asarray(a, np.float64), np.asarray(b, np.float64)], axis=1)
    return bootstrap(table, difference, confidence, resamples, seed)


def mcnemar(only_a: int, only_b: int) -> float:
    """McNemar's exact two-sided p: are the trials that one model alone has right split evenly?

    A binomial test of the discordant trials against 1/2 (McNemar, 1947). It holds the trials to be
    independent, which questions about one picture aren't: over such questions the p is too small.

    Example: `mcnemar(1, 5)` is 2 (1 + 6) / 2^6 = 0.21875; without discordant trials it is 1.

    Args:
        only_a: Trials that the one model alone has right, 0 or more.
        only_b: Trials that the other alone has right, 0 or more.
    """
    fewer, total = min(only_a, only_b), only_a + only_b
    if 2 * fewer == total:
        return 1.0
    # The tail's terms relative to its largest, each at most 1: no count is too large for it.
    k = np.arange(fewer, 0, -1)
    tail = 1.0 + float(np.cumprod(k / (total - k + 1.0)).sum())
    log_largest = math.lgamma(total + 1) - math.lgamma(fewer + 1) - math.lgamma(total - fewer + 1)
    return min(1.0, 2 * math.exp(log_largest - total * math.log(2)) * tail)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down correction of p-values for their number (Holm, 1979), in their order.

    Below a level it holds the chance of any false alarm among them to that level, whatever their
    dependence.

    Example: `holm([0.01, 0.04, 0.03])` is [0.03, 0.06, 0.06].
    """
    corrected, largest = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        corrected[place] = largest
    return corrected
