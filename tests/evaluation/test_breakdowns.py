"""Where the errors are, counted slowly, and for stand-ins whose figures are known."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from answerers import Blind, ImageOnly, Oracle, columns_of, make_data, make_split, replies

from vlm.evaluation.breakdowns import (
    layouts,
    score_by_objects,
    score_counting,
    score_unseen,
    score_whole_pictures,
    whole_pictures,
)
from vlm.evaluation.floors import AskedColumns, floor_correct_within_families
from vlm.evaluation.heads import HEADS
from vlm.evaluation.intervals import wilson
from vlm.evaluation.scoring import Scorer, score_floors, score_head
from vlm.scenes.questions import question_table

SPLIT = make_split(150)
QUESTIONS = SPLIT.questions
TRAIN = make_split(400, "train")
SEEN, ASKED = (columns_of(each.scenes, each.questions) for each in (TRAIN, SPLIT))
SCORER = Scorer(list(QUESTIONS.family), QUESTIONS.scene_id, resamples=60, seed=0)
FLOORS = floor_correct_within_families(SEEN, ASKED)
OBJECTS = [len(SPLIT.scenes.objects[scene]) for scene in QUESTIONS.scene_index.tolist()]
SPOKEN = {
    phrase: answer
    for question in question_table(make_data())["count"]
    for phrase, answer in zip(question.phrases, question.answers, strict=True)
}
ORACLE = Oracle(SPLIT.data).reply(SPLIT.scenes, QUESTIONS)
BLIND = Blind(TRAIN.questions).reply(SPLIT.scenes, QUESTIONS)


def test_a_picture_is_right_where_all_its_questions_are():
    ids = np.array([7, 3, 7, 9, 3, 3])
    correct = np.array([True, True, True, False, False, True])
    assert whole_pictures(ids, correct).tolist() == [False, True, False]  # 3, 7, 9
    rng = np.random.default_rng(0)
    for _ in range(50):
        ids, correct = rng.integers(0, 9, 30) * 5, rng.random(30) < 0.8
        slowly = [all(correct[ids == picture]) for picture in sorted(set(ids.tolist()))]
        assert whole_pictures(ids, correct).tolist() == slowly


def test_whole_pictures_of_who_knows_all_and_who_sees_nothing():
    right = ORACLE.right(QUESTIONS) | {"blind": BLIND.right(QUESTIONS)["classifier"]}
    figures = score_whole_pictures(SCORER, right, FLOORS)
    for head in HEADS:
        assert figures[head] == {
            "all_right": 1.0,
            "all_right_low": wilson(150, 150).low,
            "all_right_high": 1.0,
            "if_independent": 1.0,
        }
    slowly = np.mean([FLOORS["question_only"][QUESTIONS.scene_id == n].all() for n in range(150)])
    assert figures["question_only_floor"] == pytest.approx(slowly)
    assert figures["blind"]["all_right"] == figures["question_only_floor"]


def test_independent_errors_counted_slowly():
    correct = BLIND.right(QUESTIONS)["classifier"]
    figures = score_whole_pictures(SCORER, {"blind": correct}, {})
    shares = {name: correct[QUESTIONS.family == name].mean() for name in set(QUESTIONS.family)}
    products = [
        math.prod(shares[name] for name in QUESTIONS.family[QUESTIONS.scene_id == picture])
        for picture in range(150)
    ]
    assert figures["blind"]["if_independent"] == pytest.approx(np.mean(products))


def test_independent_errors_give_the_share_of_independence():
    rng = np.random.default_rng(0)
    families, ids = ["a", "b", "b"] * 20_000, np.repeat(np.arange(20_000), 3)
    correct = rng.random(60_000) < np.array([0.9, 0.6, 0.6] * 20_000)
    figures = score_whole_pictures(Scorer(families, ids, 2, 0), {"head": correct}, {})["head"]
    assert figures["if_independent"] == pytest.approx(0.9 * 0.6 * 0.6, abs=0.01)
    assert figures["all_right_low"] < figures["if_independent"] < figures["all_right_high"]
    together = np.repeat(rng.random(20_000) < 0.7, 3)  # a picture's answers are right together
    figures = score_whole_pictures(Scorer(families, ids, 2, 0), {"head": together}, {})["head"]
    assert figures["if_independent"] == pytest.approx(0.7**3, abs=0.02)
    assert figures["all_right_low"] > 2 * figures["if_independent"] - 0.1


def test_by_number_of_objects():
    right = ORACLE.right(QUESTIONS) | {"blind": BLIND.right(QUESTIONS)["classifier"]}
    figures = score_by_objects(SCORER, right, FLOORS, OBJECTS)
    numbers = [str(number) for number in sorted(set(OBJECTS))]
    assert numbers == ["0", "1", "2", "3"]
    for head in HEADS:
        assert figures[head]["by_number"] == dict.fromkeys(numbers, 1.0)
    for number in numbers:
        rows = np.array(OBJECTS) == int(number)
        share = right["blind"][rows].mean()
        assert figures["blind"]["by_number"][number] == pytest.approx(share)
        low, high = (figures["blind"][f"by_number_{end}"][number] for end in ("low", "high"))
        assert low <= share <= high and low < high
        for name, correct in FLOORS.items():
            assert figures[f"{name}_floor"][number] == pytest.approx(correct[rows].mean())
    assert figures["blind"]["by_number"] == figures["question_only_floor"]


COUNTING = np.flatnonzero(QUESTIONS.family == "count")
NUMBERS = QUESTIONS.answer[COUNTING]
OF_COUNTS = Scorer(["count"] * len(COUNTING), QUESTIONS.scene_id[COUNTING], 50, seed=0)


def seen(numbers: Sequence[str]) -> AskedColumns:
    """What the floor learns from."""
    return AskedColumns(["how many"] * len(numbers), list(numbers), ["count"] * len(numbers))


COUNTS_SEEN = seen(NUMBERS)


def alone(number: int) -> Scorer:
    """Of questions with a picture each."""
    return Scorer(["count"] * number, np.arange(number), 50, seed=0)


def test_who_knows_all_counts_right():
    figures = score_counting(ORACLE.of_rows(COUNTING), NUMBERS, SPOKEN, COUNTS_SEEN, OF_COUNTS)
    assert figures["questions"] == len(COUNTING) == 150
    for head in HEADS:
        assert figures[head]["errors"] == {"+0": 1.0}
        assert figures[head]["within_one"] == figures[head]["within_one_high"] == 1.0


def test_the_floor_of_counts_is_the_best_constant():
    """Not the commonest number: that may lie at an end, with half as many near it."""
    shares = {}
    for phrase, number in SPOKEN.items():
        said = replies([number] * 150, [phrase] * 150)
        figures = score_counting(said, NUMBERS, SPOKEN, COUNTS_SEEN, OF_COUNTS)
        near = np.mean([abs(int(each) - int(number)) <= 1 for each in NUMBERS])
        for head in HEADS:
            assert figures[head]["within_one"] == pytest.approx(near)
            assert sum(figures[head]["errors"].values()) == pytest.approx(1.0)
        shares[number] = (near, figures["within_one_floor"])
    assert {floor for _, floor in shares.values()} == {max(near for near, _ in shares.values())}
    truth = np.array(["3"] * 4 + ["0"] * 3 + ["1"] * 3 + ["2"] * 3, object)
    figures = score_counting(replies(["3"] * 13, [""] * 13), truth, SPOKEN, seen(truth), alone(13))
    assert figures["within_one_floor"] == pytest.approx(10 / 13)  # 2: and 3, the commonest, 7 / 13
    assert figures["classifier"]["within_one"] == pytest.approx(7 / 13)


def test_errors_of_every_size_and_words_that_are_no_number():
    truth = np.array(["2", "2", "2", "2", "0"], object)
    said = ["1", "2", "9", "yes", "1"]
    spoken = ["there are ten shapes", "there are two shapes", "", "there are two", "there is one"]
    figures = score_counting(replies(said, spoken), truth, SPOKEN, seen(truth), alone(5))
    assert figures["classifier"]["errors"] == pytest.approx(
        {"-1": 0.2, "+0": 0.2, "+7": 0.2, "no number": 0.2, "+1": 0.2}
    )
    assert figures["classifier"]["within_one"] == pytest.approx(0.6)
    assert figures["generator"]["errors"] == pytest.approx({"+8": 0.2, "+0": 0.2, "no number": 0.6})
    assert figures["generator"]["within_one"] == pytest.approx(0.2)
    assert figures["within_one_floor"] == pytest.approx(0.8)


@pytest.mark.parametrize("alike", [True, False])
def test_who_reads_no_question_scores_the_floor_of_pictures(alike: bool):
    answerer = ImageOnly(SEEN, families_alike=alike)
    right = answerer.reply(SPLIT.scenes, QUESTIONS).right(QUESTIONS)["classifier"]
    floors = score_floors(SCORER, SEEN, ASKED)
    figures = score_head(SCORER, right, floors)
    kind = "" if alike else "_per_question"
    for end in ("", "_low", "_high"):
        assert figures[f"exact_match{kind}{end}"] == floors[f"image_only{kind}{end}"]


def test_who_sees_nothing_scores_the_floor_of_questions():
    floors = score_floors(SCORER, SEEN, ASKED)
    figures = score_head(SCORER, BLIND.right(QUESTIONS)["classifier"], floors)
    assert figures["exact_match_per_question"] == floors["question_only_per_question"]
    assert figures["by_family"] == pytest.approx(floors["by_family"]["question_only"])
    best = max(floors[name] for name in ("majority", "question_only", "image_only"))
    assert figures["lift"] == pytest.approx(figures["exact_match"] - best)


def test_layouts_that_train_lacks():
    """The same objects in any order are one layout; accuracy is over the others alone."""
    one = {"shape": "plus", "color": "white", "row": 7, "col": 9, "radius": 4}
    two = one | {"shape": "circle", "row": 20}
    first, second, third = layouts([[one, two], [two, one], [one]])
    assert first == second != third and layouts([[]]) == [()]
    known = set(layouts(SPLIT.scenes.objects[:90]))
    unseen = np.array([layout not in known for layout in layouts(SPLIT.scenes.objects)])
    assert not unseen[:90].any() and unseen[90:].any()
    rows = unseen[QUESTIONS.scene_index]
    right = {"oracle": np.ones(len(rows), np.bool_), "blind": BLIND.right(QUESTIONS)["classifier"]}
    figures = score_unseen(SCORER, right, FLOORS, rows)
    assert figures["questions"] == rows.sum()
    assert figures["oracle"]["exact_match"] == 1.0
    families = QUESTIONS.family[rows].astype(str)
    shares = [right["blind"][rows][families == family].mean() for family in np.unique(families)]
    assert figures["blind"]["exact_match"] == pytest.approx(np.mean(shares))
    assert set(figures["question_only_floor"]) == set(families)
