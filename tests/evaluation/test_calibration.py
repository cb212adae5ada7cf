"""Calibration against torchmetrics and a loop over bins; temperatures against SciPy and a truth."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from torchmetrics.functional.classification import (
    binary_calibration_error,
    multiclass_calibration_error,
)

from vlm.errors import UserError
from vlm.evaluation.calibration import (
    BINS,
    HIGHEST,
    LOWEST,
    Floats,
    Ints,
    bin_sums,
    error_if_calibrated,
    error_of_sums,
    expected_calibration_error,
    fit_temperature,
    log_odds,
    reliability,
    softmax,
)


def slow_error(confidence: Floats, correct: Floats, bins: int) -> float:
    """Bin by bin, prediction by prediction."""
    total = 0.0
    for number in range(bins):
        low, high = number / bins, (number + 1) / bins
        rows = [
            row
            for row, value in enumerate(confidence)
            if low < value <= high or (number == 0 and value == 0)
        ]
        if rows:
            gap = np.mean(correct[rows]) - np.mean(confidence[rows])
            total += float(abs(gap)) * len(rows) / len(confidence)
    return total


def slow_likelihood(logits: Floats, labels: Ints, temperature: float) -> float:
    """Mean negative log-likelihood, by torch."""
    scaled = torch.from_numpy(logits) / temperature
    return float(torch.nn.functional.cross_entropy(scaled, torch.from_numpy(labels)))


def drawn_labels(true_logits: Floats, rng: np.random.Generator) -> Ints:
    """A label of each row, from softmax of its logits."""
    return (true_logits + rng.gumbel(size=true_logits.shape)).argmax(axis=1)


def test_the_error_equals_a_loop_over_bins():
    rng = np.random.default_rng(0)
    for _ in range(300):
        size, bins = int(rng.integers(1, 60)), int(rng.integers(1, 20))
        confidence = rng.beta(rng.uniform(0.3, 3), rng.uniform(0.3, 3), size)
        correct = (rng.random(size) < rng.random()).astype(float)
        got = expected_calibration_error(confidence, correct, bins)
        assert got == pytest.approx(slow_error(confidence, correct, bins), abs=1e-9)
        assert 0 <= got <= 1


def test_the_error_equals_torchmetrics():
    rng = np.random.default_rng(1)
    for _ in range(300):
        confidence = rng.random(200)
        correct = rng.random(200) < confidence ** rng.uniform(0.3, 3)
        reference = binary_calibration_error(
            torch.from_numpy(confidence), torch.from_numpy(correct).long(), n_bins=15, norm="l1"
        )
        got = expected_calibration_error(confidence, correct)
        assert got == pytest.approx(float(reference), abs=1e-6)


def test_of_many_answers_the_error_equals_torchmetrics():
    rng = np.random.default_rng(2)
    for _ in range(200):
        logits = rng.normal(0, 2, (100, 6))
        labels = rng.integers(6, size=100)
        chances = softmax(logits)
        reference = multiclass_calibration_error(
            torch.from_numpy(chances), torch.from_numpy(labels), num_classes=6, n_bins=15, norm="l1"
        )
        correct = chances.argmax(axis=1) == labels
        got = expected_calibration_error(chances.max(axis=1), correct)
        assert got == pytest.approx(float(reference), abs=1e-6)


def test_borders_belong_to_the_lower_bin():
    confidence = np.array([0.0, 0.1, 0.25, 0.26, 0.5, 0.75, 1.0])
    number = reliability(confidence, np.ones(7), bins=4).number
    assert number.tolist() == [3, 2, 1, 1]
    assert expected_calibration_error(np.array([0.8, 0.8]), [True, False]) == pytest.approx(0.3)


def test_sums_add_up():
    """Over predictions in any grouping, as a bootstrap over pictures needs."""
    rng = np.random.default_rng(3)
    confidence, correct = rng.random(300), rng.random(300) < 0.5
    sums = bin_sums(confidence, correct)
    assert sums.shape == (300, 3 * BINS)
    assert (np.count_nonzero(sums[:, :BINS], axis=1) == 1).all()
    pictures = rng.integers(40, size=300)
    grouped = np.zeros((40, 3 * BINS))
    np.add.at(grouped, pictures, sums)
    whole = expected_calibration_error(confidence, correct)
    assert float(error_of_sums(grouped.sum(axis=0))) == pytest.approx(whole, abs=1e-12)
    drawn = rng.integers(40, size=40)
    rows = np.concatenate([np.flatnonzero(pictures == picture) for picture in drawn])
    resampled = error_of_sums(np.stack([grouped[drawn].sum(axis=0), grouped.sum(axis=0)]))
    expected = expected_calibration_error(confidence[rows], correct[rows]), whole
    assert resampled == pytest.approx(np.array(expected), abs=1e-12)
    assert float(error_of_sums(np.zeros(3 * BINS))) == 0.0


def test_reliability_of_each_bin():
    confidence = np.array([0.1, 0.2, 0.9, 0.8])
    table = reliability(confidence, [False, True, True, True], bins=2)
    assert table.number.tolist() == [2, 2]
    assert table.confidence == pytest.approx(np.array([0.15, 0.85]))
    assert table.accuracy == pytest.approx(np.array([0.5, 1.0]))
    empty = reliability(np.array([0.9]), [True], bins=3)
    assert (empty.number.tolist(), empty.accuracy.tolist()) == ([0, 0, 1], [0, 0, 1])


def test_the_error_of_the_calibrated_is_that_of_simulated_sets():
    rng = np.random.default_rng(4)
    confidence = rng.uniform(0.4, 1.0, 400)
    simulated = [
        expected_calibration_error(confidence, rng.random(400) < confidence) for _ in range(2000)
    ]
    floor, high = error_if_calibrated(confidence, seed=0)
    error = np.std(simulated) / 200**0.5
    assert abs(floor - np.mean(simulated)) < 4 * error
    assert 0.95 < np.mean(np.array(simulated) < high) < 1.0  # 0.975, from 200 simulations
    again = error_if_calibrated(confidence, seed=0)
    assert (floor, high) == again != error_if_calibrated(confidence, 1)
    assert error_if_calibrated(np.ones(50), seed=0) == (0.0, 0.0)
    assert error_if_calibrated(np.tile(confidence, 25), seed=0)[0] < floor / 3  # as 1 / sqrt(M)


def test_a_temperature_is_found_again():
    rng = np.random.default_rng(5)
    true_logits = rng.normal(0, 1.5, (20_000, 5))
    labels = drawn_labels(true_logits, rng)
    for factor in (0.5, 1.0, 3.0):
        assert fit_temperature(factor * true_logits, labels) == pytest.approx(factor, rel=0.03)
    mended = softmax(3 * true_logits, fit_temperature(3 * true_logits, labels))
    correct = mended.argmax(axis=1) == labels
    assert expected_calibration_error(mended.max(axis=1), correct) < 0.01
    hasty = softmax(3 * true_logits).max(axis=1)
    assert expected_calibration_error(hasty, correct) > 0.1


def test_a_temperature_is_the_minimum_that_scipy_finds():
    rng = np.random.default_rng(6)
    for _ in range(40):
        logits = rng.uniform(1.5, 4) * rng.normal(0, 1, (80, int(rng.integers(2, 7))))
        labels = drawn_labels(logits / rng.uniform(0.5, 3), rng)
        found = fit_temperature(logits, labels)
        least = slow_likelihood(logits, labels, found)
        assert least < slow_likelihood(logits, labels, found * 1.01)
        assert least < slow_likelihood(logits, labels, found / 1.01)
        reference = minimize_scalar(
            lambda log, z=logits, y=labels: slow_likelihood(z, y, float(np.exp(log))),
            bounds=(np.log(LOWEST), np.log(HIGHEST)),
            method="bounded",
            options={"xatol": 1e-9},
        )
        # The likelihood is flat at its minimum: values agree to rounding, places to its root.
        assert least <= reference.fun + 1e-12
        assert np.log(found) == pytest.approx(reference.x, abs=1e-5)


def test_a_temperature_changes_no_answer():
    rng = np.random.default_rng(7)
    logits = rng.normal(0, 3, (500, 6))
    labels = rng.integers(6, size=500)
    found = fit_temperature(logits, labels)
    assert (softmax(logits, found).argmax(axis=1) == logits.argmax(axis=1)).all()


def test_the_ends_of_what_is_looked_at():
    """All right: no temperature is low enough. All wrong: none high enough."""
    logits = np.array([[0.0, 2.0], [3.0, 0.0]])
    assert fit_temperature(logits, np.array([1, 0])) == pytest.approx(LOWEST)
    assert fit_temperature(logits, np.array([0, 1])) == pytest.approx(HIGHEST)
    large = np.array([[0.0, 2e4], [3e4, 0.0]])
    assert fit_temperature(large, np.array([1, 0])) == pytest.approx(LOWEST)  # no overflow


def test_logits_of_a_confidence():
    confidence = np.array([0.0, 1e-6, 0.3, 0.5, 0.9, 1.0])
    assert softmax(log_odds(confidence))[:, 1] == pytest.approx(confidence, abs=1e-11)
    assert log_odds(np.array([0.75]))[0] == pytest.approx(np.array([0.0, np.log(3)]))


def test_a_temperature_of_a_bare_confidence():
    """The log-odds are three times what they should be."""
    rng = np.random.default_rng(8)
    odds = rng.normal(0.5, 1.2, 40_000)
    right = rng.random(40_000) < 1 / (1 + np.exp(-odds))
    said = 1 / (1 + np.exp(-3 * odds))
    found = fit_temperature(log_odds(said), right.astype(np.int64))
    assert found == pytest.approx(3, rel=0.03)
    mended = softmax(log_odds(said), found)[:, 1]
    assert expected_calibration_error(mended, right) < 0.015 < 0.1
    assert expected_calibration_error(said, right) > 0.1


def test_softmax_equals_torch():
    logits = np.random.default_rng(9).normal(0, 300, (20, 3, 5))
    for temperature in (0.5, 1.0, 4.0):
        expected = (torch.from_numpy(logits) / temperature).softmax(dim=-1).numpy()
        assert softmax(logits, temperature) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("value", [-1e-9, 1.0 + 1e-9, np.nan])
def test_refuses_what_is_no_confidence(value: float):
    with pytest.raises(UserError, match=r"confidence must be in \[0, 1\]"):
        bin_sums(np.array([0.5, value]), [True, True])


def test_refuses_shapes_that_do_not_fit():
    with pytest.raises(UserError, match=r"confidence \(2,\) and correct \(3,\) differ"):
        expected_calibration_error(np.array([0.5, 0.5]), [True] * 3)
    for logits, labels in ((np.zeros((0, 3)), []), (np.zeros(3), [0, 1, 2]), (np.eye(3), [0])):
        with pytest.raises(UserError, match="must be"):
            fit_temperature(logits, np.array(labels, np.int64))
