"""Figures of scenes unlike training's: kinds, cells and floors counted slowly; and retrieval of a
model that tells nothing apart, which is the last of the stand-ins.
"""

import math

import numpy as np
import pytest
from answerers import Blind, Oracle, columns_of, make_data, make_split

from vlm.data.drawn import tell
from vlm.evaluation.altering import Split
from vlm.evaluation.floors import best_guesses
from vlm.evaluation.gallery import blind_ranks, gallery_hits, score_retrieval
from vlm.evaluation.heads import HEADS
from vlm.evaluation.out_of_distribution import KINDS, score_unlike
from vlm.evaluation.retrieval import first_hits_of_vectors
from vlm.evaluation.scoring import Figures, Scorer
from vlm.scenes.out_of_distribution import SPLIT, sample_unlike

DATA = make_data()
TEST, TRAIN = make_split(200), make_split(300, "train")
SEEN = columns_of(TRAIN.scenes, TRAIN.questions)
UNLIKE = Split(DATA, 0, SPLIT, *tell(DATA, 0, SPLIT, sample_unlike(DATA.world, 0, 120)).tables())
ASKED = columns_of(UNLIKE.scenes, UNLIKE.questions)


def scored(answerer: Oracle | Blind, unlike: Split = UNLIKE, test: Split = TEST) -> Figures:
    right, test_right = (
        answerer.reply(each.scenes, each.questions).right(each.questions) for each in (unlike, test)
    )
    scorer = Scorer(list(test.questions.family), test.questions.scene_id, 50, seed=0)
    asked = columns_of(unlike.scenes, unlike.questions)
    return score_unlike(unlike, right, asked, SEEN, test, test_right, scorer)


ALL_KNOWING, SIGHTLESS = scored(Oracle(DATA)), scored(Blind(TRAIN.questions))


def lies_in(each: dict, combination: str) -> bool:
    """For the two combinations of the preset, in a 32 pixel picture."""
    if combination == "plus@top-right":
        return each["row"] < 32 / 3 and each["col"] > 64 / 3
    return each["row"] > 64 / 3 and each["col"] < 32 / 3


def test_who_knows_all_is_right_everywhere():
    assert ALL_KNOWING["pictures"] == 120 and ALL_KNOWING["questions"] == 960
    for kind in KINDS:
        assert ALL_KNOWING[kind]["questions"] == 480
        for head in HEADS:
            figures = ALL_KNOWING[kind][head]
            assert figures["exact_match"] == figures["exact_match_per_question"] == 1.0
            assert set(figures["by_family"].values()) == {1.0}
            assert figures["lift"] > 0.2
    for table in ("by_cell", "by_cell_in_test"):
        for head in HEADS:
            assert ALL_KNOWING[table][head] == dict.fromkeys(DATA.world.held_out, 1.0)


def test_who_sees_nothing_scores_the_floor_of_questions():
    for rows, kind in ((slice(0, 480), "combination"), (slice(480, 960), "crowd")):
        asked = ASKED.of_rows(range(960)[rows])
        guesses = best_guesses(SEEN.questions, SEEN.answers, asked.questions)
        share = np.mean([one == two for one, two in zip(guesses, asked.answers, strict=True)])
        figures = SIGHTLESS[kind]
        assert figures["classifier"]["exact_match_per_question"] == pytest.approx(share)
        assert figures["floors"]["question_only_per_question"] == pytest.approx(share)
        assert figures["classifier"]["lift"] <= 0.05


def test_four_objects_are_no_answer_of_train():
    """A count of four, and "what shape" where there are four."""
    outside = np.mean([answer == "4" for answer in ASKED.answers])
    assert ALL_KNOWING["answers_outside_vocabulary"] == pytest.approx(outside)
    assert outside == pytest.approx(0.5 * 2 / 8)


@pytest.mark.parametrize("combination", DATA.world.held_out)
def test_cells_counted_slowly(combination: str):
    shape = combination.partition("@")[0]
    for table, split in (("by_cell", UNLIKE), ("by_cell_in_test", TEST)):
        right = Blind(TRAIN.questions).reply(split.scenes, split.questions).right(split.questions)
        counted = []
        for row, scene in enumerate(split.questions.scene_index.tolist()):
            there = [each for each in split.scenes.objects[scene] if lies_in(each, combination)]
            if table == "by_cell":
                there = [each for each in there if each["shape"] == shape]
            else:
                assert all(each["shape"] != shape for each in there)
            if there:
                counted.append(right["classifier"][row])
        figures = SIGHTLESS[table]
        assert len(counted) > 40
        assert figures["classifier"][combination] == pytest.approx(np.mean(counted))
        low, high = (figures[f"classifier{end}"][combination] for end in ("_low", "_high"))
        assert low < figures["classifier"][combination] < high


def test_a_world_that_holds_nothing_out_has_crowds_alone():
    data = make_data(held_out=[])
    scenes = sample_unlike(data.world, 0, 20)
    unlike = Split(data, 0, SPLIT, *tell(data, 0, SPLIT, scenes).tables())
    figures = scored(Oracle(data), unlike, make_split(20, data=data))
    assert set(figures) & {*KINDS, "by_cell", "by_cell_in_test"} == {"crowd"}
    assert figures["crowd"]["questions"] == 160


def test_empty_slots_lie_in_no_cell():
    """They hold zeros, which is the top left."""
    data = make_data(held_out=["plus@top-left"])
    scenes = sample_unlike(data.world, 0, 20)
    unlike = Split(data, 0, SPLIT, *tell(data, 0, SPLIT, scenes).tables())
    test = make_split(60, data=data)
    figures = scored(Blind(TRAIN.questions), unlike, test)
    right = Blind(TRAIN.questions).reply(test.scenes, test.questions).right(test.questions)
    rows = [
        row
        for row, scene in enumerate(test.questions.scene_index.tolist())
        if any(max(each["row"], each["col"]) < 32 / 3 for each in test.scenes.objects[scene])
    ]
    share = figures["by_cell_in_test"]["classifier"]["plus@top-left"]
    assert 0 < len(rows) < 240 and share == pytest.approx(right["classifier"][rows].mean())


@pytest.mark.parametrize("value", [0.0, 0.3, -1.0])
def test_a_constant_model_retrieves_by_chance(value: float):
    vectors = np.full((60, 4), value)
    keys = [keys[0] for keys in TEST.scenes.caption_keys[:60]]
    alike = [keys.count(key) for key in keys]
    assert len(set(keys)) < 60  # empty scenes at least
    found, by_id = (gallery_hits(vectors, vectors[::-1], which) for which in (keys, range(60)))
    alone, blind = dict.fromkeys(found, np.arange(60)), blind_ranks(keys, {})
    figures = score_retrieval(found, by_id, alone, blind, resamples=20, seed=0)
    for k in (1, 5, 10):
        chance = np.mean([1 - math.comb(60 - n, k) / math.comb(60, k) for n in alike])
        assert chance > k / 60
        for direction in ("image_to_text", "text_to_image"):
            assert figures[f"{direction}_R@{k}"] == pytest.approx(chance, abs=1e-12)
        assert figures[f"chance_R@{k}"] == pytest.approx(chance, abs=1e-12)
    for direction in ("image_to_text", "text_to_image"):
        assert figures[f"{direction}_MRR"] == pytest.approx(figures["chance_MRR"])
        assert figures[f"{direction}_id_R@1"] == pytest.approx(1 / 60)


def test_constant_vectors_retrieve_by_chance():
    """Equal but for their lengths, and for rounding."""
    vector = np.random.default_rng(0).standard_normal(16)
    pictures = np.outer(np.linspace(0.1, 7, 60), vector)
    texts = np.outer(np.linspace(3, 0.2, 60), vector[::-1])
    hits = first_hits_of_vectors(pictures, texts, np.arange(60), np.arange(60))
    for k in (1, 5, 10, 60):
        assert hits.within(k) == pytest.approx(k / 60, abs=1e-12)
    keys = np.array([keys[0] for keys in TEST.scenes.caption_keys[:60]])
    hits = first_hits_of_vectors(pictures, texts, keys, keys)
    for k in (1, 5):
        alike = [int((keys == key).sum()) for key in keys]
        expected = [1 - math.comb(60 - n, k) / math.comb(60, k) for n in alike]
        assert hits.within(k) == pytest.approx(np.array(expected), abs=1e-12)
        assert hits.within(k).mean() == hits.by_chance().within(k).mean()
