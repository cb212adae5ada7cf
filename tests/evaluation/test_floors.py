"""The floors under an accuracy, on tables small enough to read."""

import numpy as np
import pytest

from vlm.errors import UserError
from vlm.evaluation.floors import (
    AskedColumns,
    best_guesses,
    floor_correct,
    floor_correct_within_families,
)

TRAIN = AskedColumns(
    questions=["how many", "how many", "how many", "is there", "is there", "is there", "is there"],
    answers=["1", "2", "2", "yes", "yes", "yes", "no"],
    families=["count"] * 3 + ["exists"] * 4,
    facts=[("circle",), ("circle", "plus"), ("circle", "plus")] + [("circle",)] * 3 + [()],
)
TEST = AskedColumns(
    questions=["how many", "is there", "how many", "is there"],
    answers=["2", "no", "1", "yes"],
    families=["count", "exists", "count", "exists"],
    facts=[("circle", "plus"), (), ("circle",), ("plus",)],
)


def test_each_floor_uses_only_what_it_may_see():
    floors = {name: correct.tolist() for name, correct in floor_correct(TRAIN, TEST).items()}
    assert floors == {
        "majority": [False, False, False, True],  # "yes" to all
        "question_only": [True, False, False, True],  # how many: 2; is there: yes
        # Two shapes: 2; none: no; a circle: yes; a lone plus is new, so the overall "yes".
        "image_only": [True, True, False, True],
    }


def test_within_families_learns_each_family_apart():
    floors = floor_correct_within_families(TRAIN, TEST)
    assert floors["majority"].tolist() == [True, False, False, True]
    assert floors["question_only"].tolist() == [True, False, False, True]
    # A circle asked "how many" is now 1, and a lone plus asked "is there" the family's "yes".
    assert floors["image_only"].tolist() == [True, True, True, True]


def test_a_family_that_train_lacks_is_wrong():
    test = AskedColumns(["what color"], ["yes"], ["color"], [()])
    assert not any(correct.any() for correct in floor_correct_within_families(TRAIN, test).values())


def test_own_pictures_have_no_image_floor():
    train = AskedColumns(TRAIN.questions, TRAIN.answers, TRAIN.families)
    assert set(floor_correct(train, TEST)) == {"majority", "question_only"}
    assert set(floor_correct_within_families(train, TEST)) == {"majority", "question_only"}


def test_families_weigh_the_same_where_the_accuracy_says_so():
    """Two "x" that are all of a small family outweigh three "y" of a large one."""
    train = AskedColumns(["q"] * 5, ["x", "x", "y", "y", "y"], ["a", "a", "b", "b", "b"])
    alike = AskedColumns(["q"] * 6, ["x"] * 2 + ["y", "y", "y", "z"], ["a"] * 2 + ["b"] * 4)
    test = AskedColumns(["q"], ["x"], ["a"])
    assert floor_correct(alike, test)["question_only"].tolist() == [True]  # 1 against 3/4
    assert not floor_correct(alike, test, families_alike=False)["question_only"].any()
    assert floor_correct(train, test)["majority"].tolist() == [True]  # a tie: the alphabet


def test_ties_go_to_the_first_in_the_alphabet():
    assert best_guesses(["q"] * 4, ["yes", "no", "no", "yes"], ["q", "new"]) == ["no", "no"]
    thirds = [1 / 3, 1 / 3, 1 / 3, 1.0]  # sums that only rounding tells apart
    assert best_guesses(["q"] * 4, ["b", "b", "b", "a"], ["q"], thirds) == ["a"]


def test_guesses_agree_with_a_slow_count():
    rng = np.random.default_rng(0)
    keys, answers = rng.choice(list("pqr"), (2, 80)), rng.choice(list("abcd"), 80)
    expected = []
    for key in keys[1]:
        seen = sorted(answers[keys[0] == key].tolist())
        expected.append(max(dict.fromkeys(seen), key=seen.count))
    assert best_guesses(keys[0].tolist(), answers.tolist(), keys[1].tolist()) == expected


def test_no_test_questions_is_an_empty_answer():
    assert best_guesses(["q"], ["a"], []) == []


def test_refuses_nothing_to_learn_from_and_ragged_columns():
    with pytest.raises(UserError, match="at least 1 train row"):
        best_guesses([], [], ["q"])
    with pytest.raises(UserError, match="got 1 keys and 2 answers"):
        best_guesses(["q"], ["a", "b"], ["q"])
    with pytest.raises(UserError, match="differ in length"):
        AskedColumns(["q"], ["a", "b"], ["count"])
