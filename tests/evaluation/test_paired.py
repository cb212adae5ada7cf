"""Paired intervals, McNemar's test and Holm's correction, against scipy and definitions."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from vlm.evaluation.intervals import bootstrap
from vlm.evaluation.paired import holm, mcnemar, paired_interval

COUNTS = st.integers(0, 400)


def share(sums: np.ndarray) -> np.ndarray:
    return sums[..., 0] / sums[..., 1]


@given(COUNTS, COUNTS)
def test_mcnemar_is_scipys_binomial_test(only_a: int, only_b: int) -> None:
    total = only_a + only_b
    expected = binomtest(only_a, total).pvalue if total else 1.0
    assert mcnemar(only_a, only_b) == pytest.approx(expected, rel=1e-10)
    assert mcnemar(only_a, only_b) == mcnemar(only_b, only_a)


@pytest.mark.parametrize(
    ("only_a", "only_b"), [(0, 0), (0, 1), (3, 4), (0, 1000), (5100, 4900), (501_000, 499_000)]
)
def test_mcnemar_at_its_edges(only_a: int, only_b: int) -> None:
    total = only_a + only_b
    expected = binomtest(only_a, total).pvalue if total else 1.0
    assert mcnemar(only_a, only_b) == pytest.approx(expected, rel=1e-7)


def test_mcnemar_of_counts_too_large_to_tell_apart_from_0() -> None:
    assert mcnemar(0, 10**7) == 0.0
    assert mcnemar(10**7, 10**7) == 1.0


def test_pairing_is_worth_much_where_models_mostly_agree() -> None:
    """Hard pictures are hard for both; the unpaired interval pays for them twice."""
    rng = np.random.default_rng(0)
    asked = np.full(300, 8.0)
    easy = rng.random(300)
    right = rng.binomial(8, easy).astype(float)
    better = np.minimum(8, right + (rng.random(300) < 0.2))
    a, b = np.stack([right, asked], 1), np.stack([better, asked], 1)
    paired = paired_interval(a, b, share, 500)
    ends = [bootstrap(side, share, resamples=500, seed=seed) for seed, side in enumerate((a, b))]
    unpaired = np.hypot(*(end.high - end.low for end in ends))
    assert paired.high - paired.low < unpaired / 4
    assert paired.low > 0


def test_a_model_against_itself_has_no_difference() -> None:
    rng = np.random.default_rng(0)
    sums = np.stack([rng.integers(0, 9, 50), np.full(50, 8)], 1)
    assert paired_interval(sums, sums, share, 100) == (0.0, 0.0)


def test_the_interval_holds_the_difference_as_often_as_it_says() -> None:
    """200 experiments in which B is right 5 points more often, and pictures differ in hardness."""
    rng, held = np.random.default_rng(0), 0
    asked = np.full(150, 4.0)
    for _ in range(200):
        hard = rng.uniform(0.2, 0.9, 150)
        sides = [rng.binomial(4, hard + gain).astype(float) for gain in (0.0, 0.05)]
        low, high = paired_interval(*(np.stack([s, asked], 1) for s in sides), share, 200)
        held += low <= 0.05 <= high
    assert 0.89 <= held / 200 <= 0.99


@given(st.lists(st.floats(1e-9, 1), max_size=8), st.randoms())
def test_holm_is_its_definition(p_values: list[float], luck) -> None:
    """The smallest level at which stepping down rejects the hypothesis, by trying them all."""
    corrected = holm(p_values)
    for place, value in enumerate(corrected):
        if value < 1:
            assert place in rejected(p_values, value * (1 + 1e-9))
        assert place not in rejected(p_values, value * (1 - 1e-9))
    order = luck.sample(range(len(p_values)), len(p_values))
    assert holm([p_values[at] for at in order]) == [corrected[at] for at in order]


def rejected(p_values: list[float], level: float) -> set[int]:
    """What Holm's procedure rejects at a level."""
    found: set[int] = set()
    order = sorted(range(len(p_values)), key=lambda place: p_values[place])
    for rank, place in enumerate(order):
        if p_values[place] > level / (len(p_values) - rank):
            break
        found.add(place)
    return found


def test_holm_is_never_below_p_and_keeps_its_order() -> None:
    p_values = sorted(np.random.default_rng(0).random(6).tolist())
    corrected = holm(p_values)
    assert all(c >= p for c, p in zip(corrected, p_values, strict=True))
    assert all(one <= other for one, other in pairwise(corrected))
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
