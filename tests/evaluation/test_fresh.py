"""Figures in which every question weighs the same, counted slowly; and pictures seen before."""

import numpy as np
import pytest

from vlm.evaluation.floors import AskedColumns, floor_correct
from vlm.evaluation.fresh import count_shared, score_fresh
from vlm.evaluation.intervals import ratio_interval, sums_by_image, wilson
from vlm.evaluation.scoring import Scorer, score_floors, score_head

FAMILIES = ["count", "count", "count", "exists"] * 30
SCENES = np.arange(120) // 4
RIGHT = np.random.default_rng(0).random(120) < 0.7
TRAIN = AskedColumns(
    ["how many", "how many", "how many", "is there"] * 30,
    ["1", "2", "3", "yes"] * 20 + ["1", "1", "1", "yes"] * 10,
    FAMILIES,
    [("circle",), ("plus",), ("plus", "plus"), ("circle",)] * 30,
)
FRESH = AskedColumns(
    TRAIN.questions,
    ["1", "3", "2", "yes"] * 30,
    FAMILIES,
    [("circle",), ("plus", "plus"), ("plus",), ("circle",)] * 30,
)


def test_questions_weigh_the_same_counted_slowly():
    scorer = Scorer(FAMILIES, SCENES, 200, seed=0)
    figures = score_head(scorer, RIGHT, {"majority": 0.1})
    right = 0
    for one in RIGHT:
        right += 1 if one else 0
    assert figures["exact_match_per_question"] == right / 120
    assert figures["exact_match_per_question"] != figures["exact_match"]
    low, high = ratio_interval(*sums_by_image(RIGHT, SCENES), resamples=200, seed=0)
    assert figures["exact_match_per_question_low"] == low
    assert figures["exact_match_per_question_high"] == high
    assert low < right / 120 < high


def test_a_question_a_picture_has_wilsons_interval():
    figures = Scorer(FAMILIES, np.arange(120), 200, seed=0).per_question("share", RIGHT)
    low, high = wilson(int(RIGHT.sum()), 120)
    assert figures == {"share": RIGHT.mean(), "share_low": low, "share_high": high}


def test_floors_of_shares_are_learned_for_shares():
    """ "1" is commonest of all, but "yes" where the two families weigh the same."""
    scorer = Scorer(FAMILIES, SCENES, 50, seed=0)
    train = AskedColumns(["q"] * 120, ["1", "1", "2", "yes"] * 30, FAMILIES)
    fresh = AskedColumns(["q"] * 120, ["1", "1", "1", "yes"] * 30, FAMILIES)
    floors = score_floors(scorer, train, fresh)
    assert floors["majority_per_question"] == 0.75  # "1", which is right three times of four
    assert floors["majority"] == 0.5  # "yes", which is right in one family of two
    assert "image_only_per_question" not in floors


def test_fresh_figures_have_their_floors_and_intervals():
    scorer = Scorer(FAMILIES, SCENES, 50, seed=0)
    figures = score_fresh(scorer, {"classifier": RIGHT, "generator": ~RIGHT}, TRAIN, FRESH)
    correct = floor_correct(TRAIN, FRESH, families_alike=False)
    for name in ("majority", "question_only", "image_only"):
        assert figures[name] == correct[name].mean()
        assert figures[f"{name}_low"] <= figures[name] <= figures[f"{name}_high"]
    assert figures["majority"] == 0.25  # "1" to all
    best = max(figures[name] for name in correct)
    for head, right in (("classifier", RIGHT), ("generator", ~RIGHT)):
        assert figures[head]["exact_match"] == right.mean()
        assert figures[head]["lift"] == pytest.approx(right.mean() - best)
        assert figures[head]["by_family"]["exists"] == right[3::4].mean()
    assert figures["floors_by_family"]["majority"] == {"count": pytest.approx(1 / 3), "exists": 1}


def test_pictures_seen_before_are_counted():
    seen = np.random.default_rng(0).integers(0, 256, (20, 1, 8, 8), np.uint8)
    fresh = np.random.default_rng(1).integers(0, 256, (10, 1, 8, 8), np.uint8)
    assert count_shared(fresh, seen) == 0
    fresh[[2, 7]] = seen[[0, 19]]
    fresh[4] = seen[0]
    assert count_shared(fresh, seen) == 3
