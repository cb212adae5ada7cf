"""Intervals against SciPy's figures, a plain loop, and their own promise of coverage."""

import numpy as np
import pytest

from vlm.errors import UserError
from vlm.evaluation.intervals import (
    bootstrap,
    ratio_interval,
    resample_sums,
    sums_by_image,
    wilson,
)
from vlm.evaluation.text_metrics import bleu_from_statistics, bleu_statistics, corpus_bleu4


@pytest.mark.parametrize(
    ("successes", "n", "expected"),
    [  # scipy.stats.binomtest(...).proportion_ci(method="wilson"), SciPy 1.17.1
        (186, 200, (0.8859451911438936, 0.9578478281716571)),
        (45, 50, (0.7863976856, 0.9565242351)),
        (0, 20, (0.0, 0.1611251581)),
        (20, 20, (0.8388748419, 1.0)),
    ],
)
def test_wilson(successes: int, n: int, expected: tuple[float, float]):
    assert wilson(successes, n) == pytest.approx(expected, abs=1e-9)


def test_wilson_ends_are_exact_and_narrow_with_confidence():
    assert wilson(0, 7).low == 0.0
    assert wilson(7, 7).high == 1.0
    wide, narrow = wilson(3, 7, 0.99), wilson(3, 7, 0.5)
    assert wide.low < narrow.low < 3 / 7 < narrow.high < wide.high


@pytest.mark.parametrize(
    ("successes", "n", "confidence"), [(0, 0, 0.95), (3, 2, 0.95), (-1, 2, 0.95), (1, 2, 1.0)]
)
def test_wilson_refuses(successes: int, n: int, confidence: float):
    with pytest.raises(UserError):
        wilson(successes, n, confidence)


def test_resampled_sums_equal_a_plain_loop():
    table = np.random.default_rng(1).random((9, 3))
    generator = np.random.default_rng(5)
    looped = [sum(table[i] for i in generator.integers(9, size=9)) for _ in range(30)]
    assert resample_sums(table, 30, seed=5) == pytest.approx(np.array(looped), abs=1e-12)


def test_resamples_depend_on_the_seed_alone():
    table = np.arange(12.0).reshape(6, 2)
    assert np.array_equal(resample_sums(table, 40, seed=1), resample_sums(table, 40, seed=1))
    assert not np.array_equal(resample_sums(table, 40, seed=1), resample_sums(table, 40, seed=2))
    # Paired comparisons rest on this: other columns see the same pictures.
    assert np.array_equal(resample_sums(table[:, :1], 40, 1), resample_sums(table, 40, 1)[:, :1])
    assert np.array_equal(resample_sums(table, 10, seed=1), resample_sums(table, 40, seed=1)[:10])


def test_macro_interval_equals_a_plain_loop_over_questions():
    rng = np.random.default_rng(2)
    num_questions, num_images = 60, 12
    image_ids = np.concatenate([np.arange(num_images), rng.integers(num_images, size=48)])
    families = rng.choice(["count", "exists", "relation"], size=num_questions).tolist()
    correct = rng.random(num_questions) < 0.7
    generator, values = np.random.default_rng(3), []
    for _ in range(200):
        rows = [q for i in generator.integers(num_images, size=num_images)
                for q in np.flatnonzero(image_ids == i)]  # fmt: skip
        drawn = np.array(families)[rows]
        values.append(np.mean([correct[rows][drawn == name].mean() for name in set(drawn)]))
    expected = np.quantile(values, [0.025, 0.975])
    interval = ratio_interval(*sums_by_image(correct, image_ids, families), resamples=200, seed=3)
    assert interval == pytest.approx(tuple(expected), abs=1e-12)


def test_corpus_bleu_interval_equals_a_plain_loop():
    rng = np.random.default_rng(4)
    pairs = [(rng.choice(list("ab"), 8).tolist(), [rng.choice(list("ab"), 8).tolist()])
             for _ in range(10)]  # fmt: skip
    rows = np.stack([bleu_statistics(*pair) for pair in pairs])
    generator, values = np.random.default_rng(0), []
    for _ in range(50):
        drawn = [pairs[i] for i in generator.integers(10, size=10)]
        values.append(corpus_bleu4([h for h, _ in drawn], [r for _, r in drawn]))
    interval = bootstrap(rows, bleu_from_statistics, resamples=50)
    assert interval == pytest.approx(tuple(np.quantile(values, [0.025, 0.975])), abs=1e-12)


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_a_bootstrap_without_width_falls_back_to_wilson(value: float):
    asked = np.full((20, 2), 3.0)
    assert ratio_interval(value * asked, asked, resamples=50) == wilson(20 * value, 20)


def test_one_picture_says_little():
    assert ratio_interval([[1.0]], [[2.0]], resamples=50) == wilson(0.5, 1)


def test_a_family_that_a_resample_lacks_is_left_out():
    numerators, denominators = [[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]], [[1, 0], [1, 0], [0, 1]]
    assert ratio_interval(numerators, denominators, resamples=50) == wilson(3, 3)


def test_sharing_a_picture_widens_the_interval():
    correct = np.random.default_rng(0).random(50) < 0.5
    alone = ratio_interval(*sums_by_image(np.repeat(correct, 8), np.arange(400)))
    shared = ratio_interval(*sums_by_image(np.repeat(correct, 8), np.repeat(np.arange(50), 8)))
    assert shared.high - shared.low > 2 * (alone.high - alone.low)


def test_coverage_is_about_what_it_says():
    rng, covered, runs = np.random.default_rng(6), 0, 200
    for run in range(runs):
        skill = rng.beta(7, 3, size=(80, 1))  # mean 0.7: some pictures are easier than others
        asked = np.full((80, 1), 4)
        interval = ratio_interval(rng.binomial(asked, skill), asked, resamples=200, seed=run)
        covered += interval.low <= 0.7 <= interval.high
    assert wilson(covered, runs, 0.999).low <= 0.95
    assert covered / runs > 0.88


def test_sums_by_image():
    numerators, denominators = sums_by_image([1, 0, 1], [7, 7, 9])
    assert (numerators.tolist(), denominators.tolist()) == ([[1], [1]], [[2], [1]])
    numerators, denominators = sums_by_image([1, 0, 1], [7, 7, 9], ["b", "a", "b"])
    assert numerators.tolist() == [[0, 1], [0, 1]]
    assert denominators.tolist() == [[1, 1], [0, 1]]
    with pytest.raises(UserError, match="differ"):
        sums_by_image([1, 0], [7])


def test_refuses_what_it_cannot_resample():
    for table in (np.zeros((0, 2)), np.zeros(3), [[np.nan]]):
        with pytest.raises(UserError):
            resample_sums(table)
    with pytest.raises(UserError, match="resamples"):
        resample_sums([[1.0]], resamples=0)
    with pytest.raises(UserError, match="an accuracy needs at least 1 question, got 0"):
        ratio_interval([[0.0], [0.0]], [[0.0], [0.0]])
    with pytest.raises(UserError, match="must be"):
        ratio_interval([[0.0]], [[0.0, 1.0]])
