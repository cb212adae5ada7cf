"""How far each head's confidence can be trusted, before and after a temperature fitted on val."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vlm.evaluation.calibration import (
    HIGHEST,
    LOWEST,
    bin_sums,
    error_if_calibrated,
    error_of_sums,
    expected_calibration_error,
    fit_temperature,
    log_odds,
    softmax,
)
from vlm.evaluation.intervals import Interval, bootstrap
from vlm.evaluation.scoring import Bools, Figures, Scorer, ends

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
NO_LABEL = -1


@dataclass(frozen=True, eq=False)
class Judged:
    """Logits (M, A) of a head, and for each the right column; -1 where none is right."""

    logits: Floats
    labels: Ints

    @classmethod
    def of_confidence(cls, confidence: Floats, right: Bools) -> "Judged":
        """Of a head that tells how sure it is and no more: wrong against right."""
        return cls(log_odds(confidence), right.astype(np.int64))


@dataclass(frozen=True, eq=False)
class Calibrated:
    """Confidences (M,) before and after, and the temperature between."""

    before: Floats
    after: Floats
    temperature: float


def calibrate(val: Judged, test: Judged, *, column: int | None = None) -> Calibrated:
    """Fit a temperature on val, and read the confidences of test with and without it.

    Where val tells no temperature (every answer right, or none) it is 1.

    Args:
        val, test: of one head.
        column: whose probability is the confidence; None for the largest.
    """
    known = val.labels != NO_LABEL
    temperature = fit_temperature(val.logits[known], val.labels[known]) if known.any() else 1.0
    if not 1.01 * LOWEST < temperature < HIGHEST / 1.01:  # the end of the search, and no minimum
        temperature = 1.0
    before, after = (
        shares.max(axis=1) if column is None else shares[:, column]
        for shares in (softmax(test.logits), softmax(test.logits, temperature))
    )
    return Calibrated(before, after, temperature)


def score_calibration(found: Calibrated, right: Bools, scorer: Scorer) -> Figures:
    """The expected calibration errors, with intervals over pictures, and what a perfect one has."""
    figures: Figures = {"temperature": found.temperature}
    pictures, place = np.unique(scorer.scene_ids, return_inverse=True)
    for name, confidence in (("ece", found.before), ("ece_calibrated", found.after)):
        rows = bin_sums(confidence, right)
        sums = np.zeros((len(pictures), rows.shape[1]))
        np.add.at(sums, place.reshape(-1), rows)
        interval = bootstrap(sums, error_of_sums, resamples=scorer.resamples, seed=scorer.seed)
        error = expected_calibration_error(confidence, right)
        figures |= {name: error, **ends(name, _mirrored(interval, error))}
        figures[f"{name}_floor"], figures[f"{name}_floor_high"] = error_if_calibrated(
            confidence, scorer.seed
        )
        figures[f"mean_confidence{name.removeprefix('ece')}"] = float(confidence.mean())
    return figures


def _mirrored(interval: Interval, value: float) -> Interval:
    """The basic bootstrap's interval from the percentiles'.

    A resample's error exceeds the sample's by as much as that exceeds the true one, about: what
    resamples add is taken off.
    """
    return Interval(max(0.0, 2 * value - interval.high), max(0.0, 2 * value - interval.low))
