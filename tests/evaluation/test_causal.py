"""Probes of stand-ins whose scores are known: one that knows all, and one that sees nothing."""

from collections.abc import Mapping

import numpy as np
import pytest
from answerers import Blind, Oracle, columns_of, make_data, make_split, replies

from vlm.data.tables import QuestionTable, SceneTable
from vlm.evaluation.altering import ALTERATIONS, Split
from vlm.evaluation.causal import Outcome, outcomes, score
from vlm.evaluation.floors import AskedColumns
from vlm.evaluation.heads import HEADS, Answerer, Replies
from vlm.evaluation.intervals import ratio_interval, sums_by_image
from vlm.evaluation.scoring import Figures, Scorer

SPLIT = make_split(120)
TRAIN = make_split(300, "train")
VAL = make_split(120, "val")
SEEN = columns_of(TRAIN.scenes, TRAIN.questions)
OF_PICTURES = ("shuffled_pictures", "erased_object", "moved_object", "erased_background")


def scorer_of(split: Split) -> Scorer:
    return Scorer(list(split.questions.family), split.questions.scene_id, 100, seed=0)


def probed(
    answerer: Answerer, split: Split = SPLIT, train: AskedColumns = SEEN
) -> tuple[Figures, Mapping[str, Outcome]]:
    before = answerer.reply(split.scenes, split.questions)
    found = {one.name: one for one in outcomes(answerer, split, before)}
    scorer = scorer_of(split)
    return {name: score(one, split, scorer, train, VAL) for name, one in found.items()}, found


ALL_KNOWING, ORACLE_OUTCOMES = probed(Oracle(SPLIT.data))
SIGHTLESS, BLIND_OUTCOMES = probed(Blind(TRAIN.questions))


def test_every_alteration_applies_to_the_preset():
    assert list(ALL_KNOWING) == list(ALTERATIONS)
    for name in set(ALTERATIONS) - {"erased_background"}:
        assert ALL_KNOWING[name]["changed_truths"] > 20
    assert ALL_KNOWING["erased_background"]["changed_truths"] == 0
    assert "follows" not in ALL_KNOWING["erased_background"]["classifier"]


@pytest.mark.parametrize("name", ALTERATIONS)
def test_who_knows_all_follows_and_holds(name: str):
    for head in HEADS:
        figures = ALL_KNOWING[name][head]
        shares = [key for key in figures if key in ("follows", "both_right", "holds")]
        assert len(shares) == (1 if name == "erased_background" else 3)
        for key in shares:
            assert figures[key] == figures[f"{key}_high"] == 1.0
            assert 0.8 < figures[f"{key}_low"] < 1.0  # Wilson's, by pictures
        assert set(figures.get("follows_by_family", {"": 1.0}).values()) == {1.0}


@pytest.mark.parametrize("name", OF_PICTURES)
def test_who_sees_nothing_keeps_every_reply(name: str):
    for head in HEADS:
        assert SIGHTLESS[name][head]["same_reply"] == 1.0
        if name != "erased_background":
            assert SIGHTLESS[name][head]["both_right"] == 0.0  # one reply, and two truths


@pytest.mark.parametrize("name", ALTERATIONS)
def test_who_sees_nothing_scores_the_floors(name: str):
    """To the last answer: it is one of the two guessers, and the other is at least as good."""
    figures = SIGHTLESS[name]
    for part in ("follows", "holds"):
        blind = figures.get(f"{part}_blind")
        assert (blind is None) == (part not in figures["classifier"])
        if blind is not None:
            assert figures["classifier"][part] == blind <= figures[f"{part}_floor"]
            assert figures["generator"][f"{part}_low"] <= blind
            assert blind <= figures["generator"][f"{part}_high"]
    if name != "erased_background":
        families = figures["follows_floor_by_family"]
        for family, share in figures["classifier"]["follows_by_family"].items():
            assert share <= families[family]


def test_the_floor_of_an_erased_object_knows_that_erasing_turns_yes_into_no():
    """Who always says no follows far oftener than who answers as train does, and sees as little."""

    class Naysayer:
        def reply(self, scenes: SceneTable, questions: QuestionTable) -> Replies:
            return replies(["no"] * len(questions), ["no"] * len(questions))

    figures = probed(Naysayer())[0]["erased_object"]
    follows = figures["classifier"]["follows"]
    assert figures["follows_blind"] + 0.1 < follows <= figures["follows_floor"]
    assert figures["classifier"]["both_right"] == 0.0


def test_who_sees_nothing_may_answer_a_new_question_anew():
    assert SIGHTLESS["shuffled_questions"]["classifier"]["same_reply"] < 1.0
    assert 0 < SIGHTLESS["shuffled_questions"]["classifier"]["both_right"] < 1.0


@pytest.mark.parametrize("name", ALTERATIONS)
@pytest.mark.parametrize("outcomes", [ORACLE_OUTCOMES, BLIND_OUTCOMES], ids=["oracle", "blind"])
def test_the_figures_are_counted_as_told(outcomes: Mapping[str, Outcome], name: str):
    """Question by question, from the tables."""
    outcome = outcomes[name]
    figures = score(outcome, SPLIT, scorer_of(SPLIT), SEEN, VAL)
    asked, own = outcome.altered.questions, SPLIT.questions
    counts: dict[str, list[bool]] = {"follows": [], "holds": [], "both_right": [], "same_reply": []}
    for row, was in enumerate(outcome.altered.rows.tolist()):
        then, now = outcome.before.answers.answer[row], outcome.after.answers.answer[row]
        counts["same_reply"].append(then == now)
        right = now == asked.answer[row]
        if asked.answer[row] == own.answer[was]:
            counts["holds"].append(right)
        else:
            counts["follows"].append(right)
            counts["both_right"].append(right and then == own.answer[was])
    assert figures["questions"] == len(counts["same_reply"])
    assert figures["changed_truths"] == len(counts["follows"])
    assert figures["pictures"] == len(set(asked.scene_id.tolist()))
    for key, values in counts.items():
        if values:
            assert figures["classifier"][key] == pytest.approx(np.mean(values), abs=1e-12)
        else:
            assert key not in figures["classifier"]


def test_intervals_resample_all_pictures_of_the_split():
    """Those without a changed truth too: they count for nothing, and for how many others are in."""
    outcome = BLIND_OUTCOMES["erased_object"]
    asked = outcome.altered.questions
    changed = asked.answer != SPLIT.questions.answer[outcome.altered.rows]
    right = (outcome.after.answers.answer == asked.answer) & changed
    pictures = np.concatenate([asked.scene_id, SPLIT.scenes.scene_id])  # each at least once
    padded = [np.concatenate([values, np.zeros(120)]) for values in (right, changed)]
    sums = [sums_by_image(values, pictures)[0] for values in padded]
    low, high = ratio_interval(sums[0], sums[1], resamples=100, seed=0)
    figures = SIGHTLESS["erased_object"]["classifier"]
    assert (figures["follows_low"], figures["follows_high"]) == pytest.approx((low, high))
    assert low < figures["follows"] < high


def test_an_alteration_that_asks_nothing_is_left_out():
    data = make_data().model_copy(update={"families": {"count": 1.0, "exists": 1.0}})
    split, train = make_split(30, data=data), make_split(40, "train", data)
    figures, outcomes = probed(Oracle(data), split, columns_of(train.scenes, train.questions))
    assert set(figures) == set(outcomes) == set(ALTERATIONS) - {"swapped_words", "moved_object"}


def test_replies_to_some_rows():
    said = replies(["yes", "no", "2"], ["yes it is", "no", "two"])
    part = said.of_rows(np.array([2, 0]))
    assert part.answers.answer.tolist() == ["2", "yes"]
    assert part.phrases.tolist() == ["two", "yes it is"]
    equal = part.equal(np.array(["2", "no"], object), np.array(["2", "yes it is"], object))
    assert equal["classifier"].tolist() == [True, False]
    assert equal["generator"].tolist() == [False, True]
    differs = part.changed(said.of_rows(np.array([2, 1])), {})
    assert {head: values.tolist() for head, values in differs.items()} == {
        "classifier": [False, True],
        "generator": [False, True],
    }
    reworded = replies(["2"], ["2 of them"]).changed(replies(["2"], ["two"]), {"two": "2"})
    assert reworded["generator"].tolist() == [True]  # a phrase that says no known answer
    known = {"two": "2", "2 of them": "2"}
    reworded = replies(["2"], ["2 of them"]).changed(replies(["2"], ["two"]), known)
    assert reworded["generator"].tolist() == [False]
