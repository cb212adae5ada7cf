"""Every probe and breakdown in a world that has all there is to turn on: seven families, two
colours, degenerate questions refused, clutter, and objects that partly hide one another.
"""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from answerers import Blind, Oracle, columns_of, make_data, make_split
from project import read_preset
from slow_truth import brute_force, is_degenerate

from stages import generate
from stages.evaluate import asked, breakdowns, calibration, unlike_figures
from vlm.config import parse_params
from vlm.data.drawn import tell
from vlm.data.tokenizer import TextTokenizer
from vlm.evaluation.altering import ALTERATIONS, Altered, Split, erase_background
from vlm.evaluation.breakdowns import layouts, whole_pictures
from vlm.evaluation.causal import outcomes, score
from vlm.evaluation.examples import example_rows
from vlm.evaluation.heads import HEADS, Heads
from vlm.evaluation.looking import score_looking
from vlm.evaluation.out_of_distribution import KINDS, score_unlike
from vlm.evaluation.scoring import Scorer, score_floors
from vlm.evaluation.word_order import score_word_order
from vlm.model.vlm import VLMConfig
from vlm.model.vqa import AnswerClassifier, PhraseGenerator
from vlm.scenes.interventions import object_pixels, only
from vlm.scenes.out_of_distribution import SPLIT as UNLIKE
from vlm.scenes.out_of_distribution import sample_unlike
from vlm.scenes.overlap import hidden_shares
from vlm.scenes.render import render

WORLD: dict[str, Any] = {
    "channels": 3,
    "colors": ["red", "blue"],
    "shapes": ["plus", "circle", "square"],
    "max_objects": 4,
    "spacing": 4,
    "clutter": 3,
    "overlap": 0.3,
    "held_out": ["plus@top-right", "circle@bottom-left"],
}
FAMILIES = ("what_shape", "count", "exists", "position", "relation", "compare", "color")
CHANGES = {
    "families": dict.fromkeys(FAMILIES, 1.0),
    "questions_per_scene": 7,
    "degenerate": "refuse",
}
DATA = make_data(**WORLD).model_copy(update=CHANGES)
SPLIT, TRAIN, VAL = (
    make_split(number, name, DATA) for number, name in ((150, "test"), (250, "train"), (120, "val"))
)
SEEN = columns_of(TRAIN.scenes, TRAIN.questions)
SCORER = Scorer(list(SPLIT.questions.family), SPLIT.questions.scene_id, 40, seed=0)
ORACLE = Oracle(DATA)
names = pytest.mark.parametrize("name", ALTERATIONS)


def expected(altered: Altered, row: int) -> tuple[str, str] | None:
    """What is asked and true then, by the slow readers; None where nothing is asked."""
    asked = altered.questions
    objects = altered.scenes.objects[asked.scene_index[row]]
    sizes = DATA.world.image_size, DATA.relation_margin
    told = asked.family[row], asked.question[row], objects, *sizes
    return None if is_degenerate(*told) else brute_force(*told)


def test_the_world_has_all_of_it():
    assert set(SPLIT.questions.family) == set(FAMILIES)
    assert len(SPLIT.questions) < 7 * len(SPLIT.scenes)
    assert 0.1 < hidden_shares(SPLIT.layout, DATA.world).max() <= 0.3
    nothing = only(SPLIT.layout, np.zeros_like(SPLIT.layout.present))
    faint = render(nothing, DATA.world, 0, "test").max(axis=(1, 2, 3)) > 64  # noise: up to 33
    assert 0.5 < faint.mean() < 0.95


@names
def test_what_is_asked_then_is_what_the_slow_readers_would(name: str):
    altered = ALTERATIONS[name](SPLIT)
    asked = altered.questions
    assert len(asked) == len(altered.rows) > 50
    assert (np.diff(altered.rows) > 0).all()
    for row in range(len(asked)):
        assert (asked.answer[row], asked.phrase[row]) == expected(altered, row)


@pytest.mark.parametrize("name", ["erased_object", "shuffled_pictures", "shuffled_questions"])
def test_some_can_no_longer_be_asked(name: str):
    altered = ALTERATIONS[name](SPLIT)
    families = altered.questions.family, SPLIT.questions.family
    kept, whole = (Counter(each.tolist()) for each in families)
    assert 0 < kept["color"] < whole["color"]
    assert set(kept) == set(FAMILIES)


def test_an_erased_referent_is_no_error_but_no_question():
    altered = ALTERATIONS["erased_object"](SPLIT)
    own, left_out = SPLIT.questions, set(range(len(SPLIT.questions))) - set(altered.rows.tolist())
    gone = 0
    for row in np.flatnonzero(own.family == "color").tolist():
        scene, shape = own.scene_index[row], own.question[row].split()[-1]
        before, after = (
            sum(each["shape"] == shape for each in table.objects[scene])
            for table in (SPLIT.scenes, altered.scenes)
        )
        assert before == 1
        if not after:
            assert row in left_out
            gone += 1
    assert gone > 5


def test_a_picture_drawn_anew_keeps_its_clutter():
    altered = ALTERATIONS["erased_object"](SPLIT)
    objects = object_pixels(SPLIT.layout, DATA.world)[:, None]
    same = SPLIT.scenes.images == altered.scenes.images
    assert (objects | same).all() and not same.all()
    black = erase_background(SPLIT).scenes.images
    assert not (black * ~objects).any()


def test_who_knows_all_follows_every_change_and_no_one_else_does():
    for answerer, share in ((ORACLE, 1.0), (Blind(TRAIN.questions), 0.0)):
        before = answerer.reply(SPLIT.scenes, SPLIT.questions)
        found = {one.name: one for one in outcomes(answerer, SPLIT, before)}
        assert set(found) == set(ALTERATIONS)
        for name, outcome in found.items():
            figures = score(outcome, SPLIT, SCORER, SEEN, VAL)
            assert example_rows(outcome, SPLIT)
            for head in HEADS if figures["changed_truths"] else ():
                seen = share == 1.0 or name not in ("shuffled_questions", "swapped_words")
                assert not seen or figures[head]["both_right"] == share


def test_breakdowns_of_who_knows_all():
    replies = ORACLE.reply(SPLIT.scenes, SPLIT.questions)
    right = replies.right(SPLIT.questions)
    known = set(layouts(TRAIN.scenes.objects))
    figures = breakdowns(SPLIT, replies, right, SEEN, known, SCORER)
    for head in HEADS:
        assert whole_pictures(SPLIT.questions.scene_id, right[head]).all()
        assert set(figures["by_objects"][head]["by_number"].values()) == {1.0}
        assert figures["counting"][head]["errors"] == {"+0": 1.0}
        assert figures["unseen_layouts"][head]["exact_match"] == 1.0


def test_unlike_scenes_of_who_knows_all():
    scenes = sample_unlike(DATA.world, 0, 80)
    assert hidden_shares(scenes, DATA.world).max() <= 0.3
    unlike = Split(DATA, 0, UNLIKE, *tell(DATA, 0, UNLIKE, scenes).tables())
    right, test_right = (
        ORACLE.reply(each.scenes, each.questions).right(each.questions) for each in (unlike, SPLIT)
    )
    columns = columns_of(unlike.scenes, unlike.questions)
    figures = score_unlike(unlike, right, columns, SEEN, SPLIT, test_right, SCORER)
    for kind in KINDS:
        assert figures[kind]["questions"] > 100
        assert figures[kind]["classifier"]["exact_match"] == 1.0
        assert set(figures[kind]["generator"]["by_family"]) == set(FAMILIES)
    assert figures["by_cell"]["classifier"] == dict.fromkeys(DATA.world.held_out, 1.0)
    assert len(columns.questions) == figures["questions"] < 7 * 80


def test_real_heads_are_probed_whatever_they_say():
    questions = SPLIT.questions
    tokenizer = TextTokenizer.fit([*TRAIN.questions.question, *TRAIN.questions.phrase])
    config = VLMConfig(
        patch_size=8,
        in_channels=3,
        vision_hidden=16,
        vision_depth=1,
        text_hidden=16,
        text_depth=1,
        vocab_size=tokenizer.vocab_size,
        max_text_len=16,
    )
    torch.manual_seed(0)
    classifier = AnswerClassifier(config, sorted(set(TRAIN.questions.answer)), "attention", 1)
    heads = Heads(
        classifier.eval(), PhraseGenerator(config, "tokens", "fused").eval(), tokenizer, 16
    )
    replies = heads.reply(SPLIT.scenes, questions)
    right = replies.right(questions)
    floors = score_floors(SCORER, SEEN, asked(questions, SPLIT.scenes.objects))
    few = make_split(30, "val", DATA)
    spoken = SPLIT.truth.spoken()
    probed = score_word_order(heads, SPLIT.scenes, questions, replies, spoken, SCORER, floors)
    assert probed["questions"] == len(questions)
    figures, maps = score_looking(heads, SPLIT, SCORER)
    named = SPLIT.truth.named(SPLIT.layout, questions.scene_index, questions.question)
    assert figures["classifier_words"]["questions"] == named.any(axis=1).sum()
    assert all(len(each) == len(questions) for each in maps.values())
    judged, _ = calibration(heads, few, SPLIT, replies, right, SCORER)
    assert set(judged) == set(HEADS)


def test_a_scene_without_questions_counts_for_nothing():
    """The families that a scene may have nothing to ask of, alone."""
    families = {"color": 1.0, "compare": 1.0}
    data = DATA.model_copy(update={"families": families, "questions_per_scene": 2})
    split = make_split(120, "test", data)
    silent = set(range(120)) - set(split.questions.scene_index.tolist())
    assert len(silent) > 10
    oracle = Oracle(data)
    before = oracle.reply(split.scenes, split.questions)
    scorer = Scorer(list(split.questions.family), split.questions.scene_id, 40, seed=0)
    val = make_split(80, "val", data)
    train = columns_of(val.scenes, val.questions)
    for outcome in outcomes(oracle, split, before):
        assert outcome.name != "moved_object"  # neither family asks where things are
        figures = score(outcome, split, scorer, train, val)
        assert figures["pictures"] <= 120 - len(silent) or "shuffled" in outcome.name
    whole = replace(SPLIT, questions=split.questions, scenes=split.scenes, data=data)
    right = before.right(split.questions)
    assert whole_pictures(split.questions.scene_id, right["classifier"]).all()
    assert "counting" not in breakdowns(whole, before, right, train, set(), scorer)


def test_scenes_unlike_training_that_are_asked_nothing_have_no_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Circles alone, and several of them: there is never *the* circle, whose colour is asked."""
    values = read_preset("tiny")
    values["data"] |= {"families": {"color": 1}, "test_ood_scenes": 12}
    world = {"shapes": ["circle"], "held_out": [], "channels": 3, "colors": ["red", "blue"]}
    values["data"]["world"] |= world
    monkeypatch.chdir(tmp_path)
    generate.main(parse_params(values))
    assert list(Path("data/test_ood").glob("scenes-*"))
    assert unlike_figures(None, parse_params(values), SPLIT, {}, SEEN, SCORER) == {}  # pyright: ignore[reportArgumentType]
