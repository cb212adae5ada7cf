"""Resamples kept or drawn in parts, and intervals of some of a split's questions, by hand."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from vlm.evaluation import intervals
from vlm.evaluation.floors import AskedColumns
from vlm.evaluation.intervals import FEW, bootstrap, ratio_interval, resample_sums, wilson
from vlm.evaluation.scoring import Scorer

RNG = np.random.default_rng(0)
SCENES = np.sort(RNG.choice(np.arange(5, 300, 7), 160))  # up to 42 pictures, numbered with gaps
FAMILIES = RNG.choice(["count", "exists", "relation"], 160).tolist()
CORRECT = RNG.random(160) < 0.6
SCORER = Scorer(FAMILIES, SCENES, resamples=80, seed=3)
Statistic = Callable[[list[int]], float | None]  # of the rows in a resample; None: there are none


def by_hand(rows: Sequence[int], statistic: Statistic, scorer: Scorer = SCORER) -> tuple:
    """The pictures of the whole split drawn one by one, and the rows that they bring along."""
    pictures = sorted(set(SCENES.tolist()))
    generator, values = np.random.default_rng(scorer.seed), []
    for _ in range(scorer.resamples):
        drawn = [pictures[n] for n in generator.integers(len(pictures), size=len(pictures))]
        value = statistic([row for picture in drawn for row in rows if SCENES[row] == picture])
        if value is not None:
            values.append(value)
    return tuple(np.quantile(values, [0.025, 0.975]))


def share(rows: list[int]) -> float | None:
    return float(np.mean(CORRECT[rows])) if rows else None


def macro(rows: list[int]) -> float | None:
    names = np.array(FAMILIES)[rows]
    found = [np.mean(CORRECT[rows][names == name]) for name in sorted(set(names.tolist()))]
    return float(np.mean(found)) if found else None


@pytest.mark.parametrize("at_once", [1, 40, 100, 479, 480])
def test_parts_are_the_same_draws_as_all_at_once(monkeypatch: pytest.MonkeyPatch, at_once: int):
    """12 pictures in 40 resamples are 480 counts."""
    table = np.random.default_rng(1).integers(0, 1000, (12, 3)).astype(float)  # exact sums
    whole = resample_sums(table, 40, seed=7)
    monkeypatch.setattr(intervals, "COUNTS_AT_ONCE", at_once)
    intervals._few_draws.cache_clear()
    np.testing.assert_array_equal(resample_sums(table, 40, seed=7), whole)
    assert intervals._few_draws.cache_info().currsize == (1 if at_once == 480 else 0)


def test_what_is_kept_is_told_apart_and_stays_as_it_is():
    tables = [np.random.default_rng(n).random((n, 2)) for n in (5, 6)]
    keys = [
        (table, resamples, seed) for table in tables for resamples in (9, 10) for seed in (0, 1)
    ]
    intervals._few_draws.cache_clear()
    first = [resample_sums(*key) for key in keys]  # more than are kept
    intervals._few_draws.cache_clear()
    for key, expected in zip(reversed(keys), reversed(first), strict=True):
        generator = np.random.default_rng(key[2])
        number = len(key[0])
        looped = [key[0][generator.integers(number, size=number)].sum(axis=0) for _ in expected]
        np.testing.assert_allclose(expected, looped, atol=1e-12)
        for _ in range(2):
            np.testing.assert_array_equal(resample_sums(*key), expected)


def test_figures_of_all_questions():
    everything = range(160)
    figures = SCORER.accuracy("a", CORRECT) | SCORER.per_question("q", CORRECT)
    assert (figures["a_low"], figures["a_high"]) == pytest.approx(by_hand(everything, macro))
    assert (figures["q_low"], figures["q_high"]) == pytest.approx(by_hand(everything, share))
    assert figures["a"] == pytest.approx(macro(list(everything)))
    assert figures["q"] == pytest.approx(share(list(everything)))


@pytest.mark.parametrize("kept", [0.5, 0.1])
def test_figures_of_some_questions(kept: float):
    """The pictures of the others are drawn as well, and bring nothing."""
    rows = np.random.default_rng(2).random(160) < kept
    chosen, part = np.flatnonzero(rows).tolist(), SCORER.of_rows(rows)
    assert part.families == [FAMILIES[row] for row in chosen]
    figures = part.accuracy("a", CORRECT[rows]) | part.by_family(CORRECT[rows], "x_")
    assert (figures["a_low"], figures["a_high"]) == pytest.approx(by_hand(chosen, macro))
    for family in set(part.families):
        mine = [row for row in chosen if FAMILIES[row] == family]
        ends = figures["x_by_family_low"][family], figures["x_by_family_high"][family]
        assert figures["x_by_family"][family] == pytest.approx(share(mine))
        expected = by_hand(mine, share)
        errors, successes = (
            len({SCENES[row] for row in mine if CORRECT[row] == right}) for right in (False, True)
        )
        alone = len({SCENES[row] for row in mine}) == len(mine)
        if alone or min(errors, successes) < FEW:  # Wilson's, or widened to it
            assert alone or (ends[0] <= expected[0] and expected[1] <= ends[1])
        else:
            assert ends == pytest.approx(expected)


def test_some_of_some_are_some_of_all():
    rng = np.random.default_rng(4)
    one = rng.random(160) < 0.7
    two = rng.random(one.sum()) < 0.7
    both = np.flatnonzero(one)[two]
    nested = SCORER.of_rows(one).of_rows(two).accuracy("a", CORRECT[both])
    assert nested == SCORER.of_rows(np.isin(np.arange(160), both)).accuracy("a", CORRECT[both])


def test_pictures_that_were_asked_nothing_can_be_named():
    all_pictures = np.arange(0, 300)
    wide = Scorer(FAMILIES, SCENES, 80, 3, all_pictures).per_question("q", CORRECT)
    sums = np.zeros((300, 2))
    np.add.at(sums, SCENES, np.stack([CORRECT, np.ones(160)], axis=1))
    low, high = ratio_interval(sums[:, :1], sums[:, 1:], resamples=80, seed=3)
    assert (wide["q_low"], wide["q_high"]) == (low, high)


def test_a_question_a_picture_is_wilsons():
    rows = np.unique(SCENES, return_index=True)[1]
    mask = np.isin(np.arange(160), rows)
    figures = SCORER.of_rows(mask).per_question("q", CORRECT[mask])
    low, high = wilson(int(CORRECT[mask].sum()), int(mask.sum()))
    assert (figures["q_low"], figures["q_high"]) == (low, high)


def test_a_resample_without_a_question_says_nothing():
    """Two of 50 pictures are asked: one resample in eight has neither, and no accuracy."""
    right, asked = np.zeros((50, 1)), np.zeros((50, 1))
    asked[[3, 8]], right[[3, 8]] = 4, 4
    assert ratio_interval(right, asked, resamples=300, seed=0) == wilson(2, 2)
    right[3] = 3
    interval = ratio_interval(right, asked, resamples=300, seed=0)
    assert interval == pytest.approx((wilson(7 / 8 * 2, 2).low, 1.0))  # Wilson's
    # Not one resample with a question: as where all agree.
    assert ratio_interval(np.eye(1, 60).T, np.eye(1, 60).T, resamples=1, seed=1) == wilson(1, 1)


def test_resamples_that_a_function_can_not_read_are_left_out():
    table = np.arange(6.0)[:, None]
    sums = resample_sums(table, 50, seed=0)[:, 0]
    interval = bootstrap(
        table, lambda s: np.where(s[:, 0] > 12, s[:, 0], np.nan), resamples=50, seed=0
    )
    assert interval == pytest.approx(tuple(np.quantile(sums[sums > 12], [0.025, 0.975])))


def test_columns_of_rows():
    table = AskedColumns(["a", "b", "c"], ["1", "2", "3"], ["x", "y", "x"], [("p",), (), ("q",)])
    part = table.of_rows(np.array([2, 0, 2]))
    assert part == AskedColumns(
        ["c", "a", "c"], ["3", "1", "3"], ["x", "x", "x"], [("q",), ("p",), ("q",)]
    )
    assert table.of_family("x") == table.of_rows([0, 2])
    bare = AskedColumns(["a", "b"], ["1", "2"], ["x", "y"]).of_rows([1])
    assert bare == AskedColumns(["b"], ["2"], ["y"])
