"""VQA accuracies against hand-made cases, a leave-one-out loop and scikit-learn."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, balanced_accuracy_score

from vlm.errors import UserError
from vlm.evaluation.vqa_metrics import (
    VqaMode,
    family_accuracy,
    macro_accuracy,
    normalize_answer,
    vqa_accuracy,
    vqa_exact_match,
)


def test_exact_match_is_the_share_of_equal_pairs():
    assert vqa_exact_match(["yes", "2", "red"], ["yes", "two", "Red"]) == pytest.approx(1 / 3)
    assert vqa_exact_match([3, 4], [3, 5]) == 0.5
    with pytest.raises(UserError, match="1 predictions but 2 references"):
        vqa_exact_match(["a"], ["a", "b"])
    with pytest.raises(UserError, match="at least 1"):
        vqa_exact_match([], [])


@pytest.mark.parametrize("seed", [0, 1])
def test_exact_match_agrees_with_scikit_learn(seed: int):
    rng = np.random.default_rng(seed)
    truth, guess = rng.choice(["yes", "no", "2"], size=(2, 200)).tolist()
    assert vqa_exact_match(guess, truth) == pytest.approx(accuracy_score(truth, guess), abs=1e-9)
    # A family a true class: recall by class, and its mean is the balanced accuracy.
    correct = np.array(guess) == np.array(truth)
    balanced = balanced_accuracy_score(truth, guess)
    assert macro_accuracy(correct, truth) == pytest.approx(balanced, abs=1e-9)


@pytest.mark.parametrize(
    ("answer", "normal"),
    [
        ("Yes!", "yes"),
        ("The  two cats.", "2 cats"),
        ("a circle", "circle"),
        ("none", "0"),
        ("dont know", "don't know"),
        ("yes/no", "yes no"),
        ("1,000", "1000"),
        ("2.5", "2.5"),
        ("red, blue", "red blue"),
        ("\tTEN\n", "10"),
        ("", ""),
    ],
)
def test_normalize_answer(answer: str, normal: str):
    assert normalize_answer(answer) == normal
    assert normalize_answer(normal) == normal


@pytest.mark.parametrize(("agreeing", "expected"), list(enumerate([0.0, 0.3, 0.6, 0.9, 1.0, 1.0])))
@pytest.mark.parametrize("mode", ["official", "always"])
def test_ten_annotators(agreeing: int, expected: float, mode: VqaMode):
    answers = ["red"] * agreeing + [f"other{i}" for i in range(10 - agreeing)]
    assert vqa_accuracy("red", answers, mode) == pytest.approx(expected, abs=1e-12)


def test_official_normalises_only_where_annotators_disagree():
    assert vqa_accuracy("Two", ["two"] * 10) == 0.0
    assert vqa_accuracy("Two", ["two"] * 10, "always") == 1.0
    assert vqa_accuracy("Two", ["two"] * 9 + ["2"]) == 1.0


def test_one_annotator_is_an_exact_match():
    assert vqa_accuracy("red", ["red"]) == 1.0
    assert vqa_accuracy("Red", ["red"]) == 0.0
    assert vqa_accuracy("Red", ["red"], "always") == 1.0


def test_refuses_no_answers_and_other_modes():
    with pytest.raises(UserError, match="at least 1 annotator"):
        vqa_accuracy("red", [])
    with pytest.raises(UserError, match="'strict' not in"):
        vqa_accuracy("red", ["red"], "strict")  # pyright: ignore[reportArgumentType]


@given(st.lists(st.sampled_from("abc"), min_size=2, max_size=12))
def test_leave_one_out_agrees_with_the_loop(answers: list[str]):
    scores = []
    for left_out in range(len(answers)):
        others = answers[:left_out] + answers[left_out + 1 :]
        scores.append(min(1.0, others.count("b") / 3))
    assert vqa_accuracy("b", answers) == pytest.approx(np.mean(scores), abs=1e-12)


def test_families_weigh_the_same_in_the_macro_mean():
    correct, families = [1, 1, 1, 0, 0], ["count", "count", "count", "count", "exists"]
    assert family_accuracy(correct, families) == {"count": 0.75, "exists": 0.0}
    assert macro_accuracy(correct, families) == 0.375
    with pytest.raises(UserError, match="2 families"):
        family_accuracy([1], ["a", "b"])
    with pytest.raises(UserError, match="at least 1 question"):
        macro_accuracy([], [])


def test_only_newlines_tabs_and_ends_are_mended_where_annotators_agree():
    assert vqa_accuracy("top\tleft\n", ["top left"] * 10) == 1.0
    assert vqa_accuracy("top  left", ["top left"] * 10) == 0.0
