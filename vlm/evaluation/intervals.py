"""Confidence intervals: Wilson for one proportion, bootstrap where questions share a picture.

Questions about one picture are right or wrong together, so the picture is what gets resampled.
Every statistic here is a function of sums over pictures, and a resample is a new set of sums.

I: pictures, S: summed quantities, F: question families, R: resamples.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vlm.errors import UserError

FloatArray = NDArray[np.float64]

DEFAULT_CONFIDENCE = 0.95
DEFAULT_RESAMPLES = 2000
# Of pictures with an error (or with a success): with fewer, resamples vary too little.
FEW = 5
COUNTS_AT_ONCE = 1 << 23  # counts of pictures in resamples held in memory, 64 MiB


class Interval(NamedTuple):
    """The two ends of a confidence interval."""

    low: float
    high: float


def wilson(successes: float, n: int, confidence: float = DEFAULT_CONFIDENCE) -> Interval:
    """Wilson score interval of a proportion (Wilson, 1927), without continuity correction.

    Example: `wilson(186, 200)` is (0.8859, 0.9578).

    Args:
        successes: In [0, n]; a fraction is fine (expected hits under ties).
        n: Independent trials.
        confidence: In (0, 1).

    Raises:
        UserError: an argument out of range.
    """
    if n < 1:
        raise UserError(f"wilson needs at least 1 trial, got n {n}")
    if not 0 <= successes <= n:
        raise UserError(f"successes {successes} not in [0, n={n}]")
    z = NormalDist().inv_cdf(0.5 + _checked(confidence) / 2)
    share, weight = successes / n, z * z / n
    centre = (share + weight / 2) / (1 + weight)
    half_width = z * math.sqrt(share * (1 - share) / n + weight / (4 * n)) / (1 + weight)
    # The ends are 0 and 1 in theory where nothing or everything succeeds; rounding blurs them.
    low = 0.0 if successes == 0 else centre - half_width
    high = 1.0 if successes == n else centre + half_width
    return Interval(low, high)


def resample_sums(
    statistics: ArrayLike, resamples: int = DEFAULT_RESAMPLES, seed: int = 0
) -> FloatArray:
    """Sums of per-picture statistics under resampling of the pictures with replacement.

    A resample is how often it holds each picture, and all sums are a matrix product. Two models
    measured on the same pictures are compared in pairs by stacking their columns side by side.

    Args:
        statistics: (I, S) one row a picture.
        resamples: R.
        seed: Of the NumPy generator; same seed and I, same resamples, whatever the statistics.

    Returns:
        (R, S).

    Raises:
        UserError: not a table, no pictures, a value that is not finite, or no resamples.
    """
    table = np.asarray(statistics, dtype=np.float64)
    if table.ndim != 2 or len(table) == 0:
        raise UserError(f"bootstrap needs an (images, sums) table with rows, got {table.shape}")
    if not np.isfinite(table).all():
        raise UserError("bootstrap statistics must be finite, got NaN or infinity")
    if resamples < 1:
        raise UserError(f"resamples must be at least 1, got {resamples}")
    return np.concatenate([counts @ table for counts in _draws(len(table), resamples, seed)])


def bootstrap(
    statistics: ArrayLike,
    function: Callable[[FloatArray], FloatArray],
    confidence: float = DEFAULT_CONFIDENCE,
    resamples: int = DEFAULT_RESAMPLES,
    seed: int = 0,
) -> Interval:
    """Percentile interval (Efron, 1979) of a function of per-picture sums.

    Example: with one row of `bleu_statistics` a picture,
    `bootstrap(rows, bleu_from_statistics)` is the interval of corpus BLEU.

    Where no resample differs from another (all captions perfect, say) both ends are that value,
    which says more than the data do; `share_interval` has a remedy for figures between 0 and 1, and
    `ratio_interval` a better one for accuracies.

    Args:
        statistics: (I, S) one row a picture.
        function: Maps summed statistics (R, S) to (R,); NaN where a resample has nothing to
            divide by. Such resamples say nothing, and are left out.
        confidence: In (0, 1).
        resamples: R.
        seed: Of the resampling.

    Raises:
        UserError: see `resample_sums`; or confidence out of range.
    """
    tail = (1 - _checked(confidence)) / 2
    values = function(resample_sums(statistics, resamples, seed))
    values = values[~np.isnan(values)]
    if not len(values):
        values = function(np.sum(statistics, axis=0, keepdims=True))
    low, high = np.quantile(values, [tail, 1 - tail])
    return Interval(float(low), float(high))


def share_interval(
    statistics: ArrayLike,
    function: Callable[[FloatArray], FloatArray],
    resamples: int = DEFAULT_RESAMPLES,
    seed: int = 0,
) -> Interval:
    """`bootstrap` of a figure between 0 and 1, such as BLEU or a mean of F1s, at 95%.

    Where the resamples don't differ the interval is Wilson's, as if each picture were one trial and
    the figure the share that succeeded.
    """
    low, high = bootstrap(statistics, function, resamples=resamples, seed=seed)
    if not math.isclose(low, high, rel_tol=0, abs_tol=1e-12):
        return Interval(max(low, 0.0), min(high, 1.0))
    number = len(np.asarray(statistics))
    return wilson(min(max(low, 0.0), 1.0) * number, number)


def ratio_interval(
    numerators: ArrayLike,
    denominators: ArrayLike,
    confidence: float = DEFAULT_CONFIDENCE,
    resamples: int = DEFAULT_RESAMPLES,
    seed: int = 0,
) -> Interval:
    """Bootstrap interval of an accuracy: the mean over families of sum(right) / sum(asked).

    One column is the plain (micro) accuracy; a column a family is the macro average, over the
    families that a resample has. Pictures without questions (in these families) are resampled too,
    and count for nothing; nor does a resample that has no question at all.

    Where no picture has a second question in a single column, all trials are independent and the
    interval is Wilson's. Where fewer than `FEW` pictures have an error, or a success, a resample is
    often without any and the bootstrap too narrow: then it is widened to Wilson's with each picture
    that has a question as one trial. So it is where all resamples agree.

    Args:
        numerators: (I, F) right answers, see `sums_by_image`.
        denominators: (I, F) questions asked.
        confidence: In (0, 1).
        resamples: R.
        seed: Of the resampling.

    Raises:
        UserError: shapes that differ, no question, or see `bootstrap`.
    """
    right = np.asarray(numerators, dtype=np.float64)
    asked = np.asarray(denominators, dtype=np.float64)
    if right.shape != asked.shape or right.ndim != 2:
        raise UserError(f"numerators {right.shape} and denominators {asked.shape} must be (I, F)")
    questioned = int((asked.sum(axis=1) > 0).sum())
    if not questioned:
        raise UserError("an accuracy needs at least 1 question, got 0")
    table = np.concatenate([right, asked], axis=1)
    share = min(max(float(_mean_ratio(table.sum(axis=0))), 0.0), 1.0)
    of_pictures = wilson(share * questioned, questioned, confidence)
    if asked.shape[1] == 1 and asked.max() <= 1:
        return of_pictures
    low, high = bootstrap(table, _mean_ratio, confidence, resamples, seed)
    if math.isclose(low, high, rel_tol=0, abs_tol=1e-12):
        return of_pictures
    wrong, succeeded = ((each.sum(axis=1) > 0).sum() for each in (asked - right, right))
    if min(wrong, succeeded) >= FEW:
        return Interval(low, high)
    return Interval(min(low, of_pictures.low), max(high, of_pictures.high))


def sums_by_image(
    scores: ArrayLike, image_ids: ArrayLike, families: Sequence[str] | None = None
) -> tuple[FloatArray, FloatArray]:
    """Adds up scores and questions by picture, and by family: the input of `ratio_interval`.

    Example: scores [1, 0, 1] of images [7, 7, 9] give ([[1], [1]], [[2], [1]]).

    Args:
        scores: (Q,) right or wrong, or scores in [0, 1].
        image_ids: (Q,) the picture of each question.
        families: (Q,) for one column a family in sorted order; None for a single column.

    Returns:
        Numerators and denominators, (I, F) each, pictures in sorted order.

    Raises:
        UserError: lengths that differ.
    """
    values = np.asarray(scores, dtype=np.float64)
    labels = np.zeros(len(values)) if families is None else np.asarray(families)
    ids = np.asarray(image_ids)
    if not values.shape == ids.shape == labels.shape:
        raise UserError(
            f"scores {values.shape}, image ids {ids.shape} and families {labels.shape} differ"
        )
    images, row = np.unique(ids, return_inverse=True)
    names, column = np.unique(labels, return_inverse=True)
    numerators = np.zeros((len(images), len(names)))
    denominators = np.zeros_like(numerators)
    np.add.at(numerators, (row, column), values)
    np.add.at(denominators, (row, column), 1.0)
    return numerators, denominators


def _draws(num_images: int, resamples: int, seed: int) -> Iterator[FloatArray]:
    """How often each resample holds each picture: (r, I) at a time, R in all."""
    if resamples * num_images <= COUNTS_AT_ONCE:
        yield _few_draws(num_images, resamples, seed)
        return
    generator = np.random.default_rng(seed)
    step = max(1, COUNTS_AT_ONCE // num_images)
    for start in range(0, resamples, step):
        yield _count(generator, num_images, min(step, resamples - start))


@lru_cache(maxsize=2)  # a split's pictures are resampled for each of its many figures
def _few_draws(num_images: int, resamples: int, seed: int) -> FloatArray:
    return _count(np.random.default_rng(seed), num_images, resamples)


def _count(generator: np.random.Generator, num_images: int, resamples: int) -> FloatArray:
    drawn = generator.integers(num_images, size=(resamples, num_images))
    drawn += num_images * np.arange(resamples)[:, None]
    counts = np.bincount(drawn.ravel(), minlength=resamples * num_images)
    return counts.reshape(resamples, num_images).astype(np.float64)


def _mean_ratio(sums: FloatArray) -> FloatArray:
    """Mean over the families present of right / asked: (..., 2F) to (...), NaN where none is."""
    right, asked = np.split(sums, 2, axis=-1)
    present = asked > 0
    ratios = right / np.where(present, asked, 1.0)
    number = present.sum(axis=-1)
    mean = np.where(present, ratios, 0.0).sum(axis=-1) / np.maximum(1, number)
    return np.where(number > 0, mean, np.nan)


def _checked(confidence: float) -> float:
    if not 0 < confidence < 1:
        raise UserError(f"confidence {confidence} not in (0, 1)")
    return confidence
