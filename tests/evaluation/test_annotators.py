"""Accuracy against annotators by hand."""

import numpy as np
import pytest

from vlm.evaluation.annotators import score_annotated
from vlm.evaluation.floors import AskedColumns

TEN = ["yes"] * 3 + ["no"] * 7
TRAIN = AskedColumns(["is it?", "what?"], ["no", "cat"], ["a", "a"])
QUESTIONS = ["is it?", "what?", "is it?", "what?"]
ANNOTATORS = [TEN, ["Cat"], [], ["two"] * 10]
SCENES = np.array([0, 0, 1, 1])


def score(**said: list[str]) -> dict:
    return score_annotated(said, ANNOTATORS, TRAIN, QUESTIONS, SCENES, 200, 0)


def test_the_official_accuracy_by_hand():
    figures = score(classifier=["yes", "cat", "no", "2"])
    assert figures["questions"] == 3 and figures["annotators"] == pytest.approx(21 / 3)
    own = figures["classifier"]
    # Three of ten agree: 0.9. One annotator wrote "Cat": exact match. All ten say "two".
    assert own["official"] == pytest.approx((0.9 + 0 + 0) / 3)
    assert own["always"] == pytest.approx((0.9 + 1 + 1) / 3)
    assert own["official_low"] <= own["official"] <= own["official_high"]


def test_the_floor_knows_the_question_alone():
    floor = score(generator=[""] * 4)["question_only_floor"]
    assert floor["official"] == pytest.approx((1 + 0 + 0) / 3)  # "no", "cat", "cat"
    assert floor["always"] == pytest.approx((1 + 1 + 0) / 3)


def test_without_annotators_there_is_no_such_figure():
    assert score_annotated({"classifier": ["x"]}, [[]], TRAIN, ["q"], SCENES[:1], 10, 0) == {}
