"""Whether a confidence of 80% is right in 80 of 100 cases, and one number that mends it.

Source: Guo et al. 2017, "On calibration of modern neural networks": expected calibration error over
bins of equal width, and temperature scaling.

M: predictions, A: answers, B: bins.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from vlm.errors import UserError

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

BINS = 15
# Temperatures looked at, and halvings of the bracket: to 1e-9 of its logarithm.
LOWEST, HIGHEST, HALVINGS = 0.02, 50.0, 60
SIMULATIONS = 200


class Reliability(NamedTuple):
    """The predictions of each bin of confidence, (B,) each; bins without any hold zeros."""

    number: Ints
    confidence: Floats  # mean
    accuracy: Floats


def bin_sums(confidence: Floats, correct: npt.ArrayLike, bins: int = BINS) -> Floats:
    """What the error is made of: (M, 3 B), the count, confidence and rightness in its own bin.

    Rows add up, over the predictions of a picture for one, so that resampled pictures give
    resampled errors. A confidence on a border belongs to the lower bin, and 0 to the first.

    Raises:
        UserError: confidences outside [0, 1], or lengths that differ.
    """
    right = np.asarray(correct, dtype=np.float64)
    if confidence.shape != right.shape:
        raise UserError(f"confidence {confidence.shape} and correct {right.shape} differ")
    if not ((confidence >= 0) & (confidence <= 1)).all():
        raise UserError("confidence must be in [0, 1]")
    place = np.clip(np.ceil(confidence * bins).astype(int) - 1, 0, bins - 1)
    table = np.zeros((len(right), 3, bins))
    rows = np.arange(len(right))
    for quantity, values in enumerate((1.0, confidence, right)):
        table[rows, quantity, place] = values
    return table.reshape(len(right), 3 * bins)


def error_of_sums(sums: npt.ArrayLike) -> Floats:
    """The expected calibration error of summed `bin_sums`: (..., 3 B) to (...), in [0, 1].

    The mean over predictions of |accuracy - confidence| of their bin.
    """
    count, confidence, right = np.split(np.asarray(sums, dtype=np.float64), 3, axis=-1)
    return np.abs(right - confidence).sum(axis=-1) / np.maximum(1, count.sum(axis=-1))


def expected_calibration_error(
    confidence: Floats, correct: npt.ArrayLike, bins: int = BINS
) -> float:
    """How far confidence and accuracy lie apart, in [0, 1]; 0 is calibrated.

    Example: two predictions of confidence 0.8 of which one is right are 0.3 off.

    Raises:
        UserError: as `bin_sums`.
    """
    return float(error_of_sums(bin_sums(confidence, correct, bins).sum(axis=0)))


def error_if_calibrated(confidence: Floats, seed: int, bins: int = BINS) -> tuple[float, float]:
    """The error of answers that are right exactly as often as their confidence says.

    It isn't 0: in a finite sample accuracy strays from confidence by chance. So its mean is the
    floor that no calibration gets under, and only an error above its 97.5% quantile tells of
    confidences that are off.

    Returns:
        The mean, and that quantile.
    """
    rng = np.random.default_rng(seed)
    draws = (rng.random(len(confidence)) < confidence for _ in range(SIMULATIONS))
    errors = [expected_calibration_error(confidence, drawn, bins) for drawn in draws]
    return float(np.mean(errors)), float(np.quantile(errors, 0.975))


def reliability(confidence: Floats, correct: npt.ArrayLike, bins: int = BINS) -> Reliability:
    """Mean confidence and accuracy of each bin."""
    sums = bin_sums(confidence, correct, bins).sum(axis=0)
    count, summed, right = np.split(sums, 3)
    some = np.maximum(1, count)
    return Reliability(count.astype(np.int64), summed / some, right / some)


def fit_temperature(logits: Floats, labels: Ints) -> float:
    """The T for which softmax(logits / T) gives `labels` the smallest mean negative log-likelihood.

    That is convex in 1 / T, so the sign of its slope leads to the only minimum. Where all labels
    have the largest logit the best T is 0, and the lowest one looked at comes back.

    Args:
        logits: (M, A).
        labels: (M,) the right column.

    Raises:
        UserError: no rows, or shapes that don't fit.
    """
    if logits.ndim != 2 or labels.shape != logits.shape[:1] or not len(labels):
        raise UserError(f"logits {logits.shape} and labels {labels.shape} must be (M, A) and (M,)")
    of_label = logits[np.arange(len(labels)), labels]

    def slope(inverse: float) -> float:
        """Of the mean negative log-likelihood, against 1 / T."""
        scaled = inverse * logits
        weights = np.exp(scaled - scaled.max(axis=1, keepdims=True))
        expected = (weights * logits).sum(axis=1) / weights.sum(axis=1)
        return float((expected - of_label).mean())

    low, high = np.log(1 / HIGHEST), np.log(1 / LOWEST)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if slope(np.exp(middle)) > 0 else (middle, high)
    return float(np.exp(-(low + high) / 2))


def log_odds(confidence: Floats) -> Floats:
    """Logits (M, 2) of wrong and right, of which softmax gives the confidence of right back.

    So a temperature can be fitted to a confidence that comes without logits.
    """
    held = np.clip(confidence, 1e-12, 1 - 1e-12)
    return np.stack([np.zeros_like(held), np.log(held) - np.log1p(-held)], axis=1)


def softmax(logits: Floats, temperature: float = 1.0) -> Floats:
    """softmax(logits / T) over the last axis."""
    scaled = logits / temperature
    weights = np.exp(scaled - scaled.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)
