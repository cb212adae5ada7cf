"""Altered splits: one thing is changed, all else is to the pixel as it was, and what is true."""

from collections import Counter

import numpy as np
import pytest
from answerers import COLORFUL, make_data, make_split
from slow_truth import brute_force

from vlm.evaluation.altering import (
    ALTERATIONS,
    Altered,
    Split,
    another,
    erase_background,
    erase_object,
    move_object,
    shuffle_pictures,
    shuffle_questions,
    swap_words,
)
from vlm.scenes.interventions import NO_OBJECT, erase, only, pick_objects
from vlm.scenes.render import render, stamp
from vlm.scenes.scene import Bools

SPLITS = {"tiny": make_split(80), "colorful": make_split(60, data=make_data(**COLORFUL))}
both = pytest.mark.parametrize("split", SPLITS.values(), ids=SPLITS)


def stamped(split: Split, objects: list[dict]) -> Bools:
    """The pixels of these objects, (H, W)."""
    size, edge = split.data.world.image_size, 10
    pixels = np.zeros((size + 2 * edge, size + 2 * edge), bool)
    for each in objects:
        top, left, side = each["row"] + edge, each["col"] + edge, each["radius"]
        area = np.s_[top - side : top + side + 1, left - side : left + side + 1]
        pixels[area] |= stamp(each["shape"], side)
    return pixels[edge:-edge, edge:-edge]


def differing(altered: Altered, split: Split) -> Bools:
    """(N, H, W)."""
    return (altered.scenes.images != split.scenes.images).any(axis=1)


@both
def test_drawn_anew_unchanged_is_the_very_split(split: Split):
    rows = np.arange(len(split.questions))
    altered = split.redrawn(split.layout, rows)
    assert (altered.scenes.images == split.scenes.images).all()
    assert altered.scenes.objects == split.scenes.objects
    for name in ("question_id", "scene_id", "scene_index", "family", "question", "answer"):
        assert (getattr(altered.questions, name) == getattr(split.questions, name)).all()
    assert (altered.questions.phrase == split.questions.phrase).all()


@both
def test_nothing_but_the_erased_object_is_gone(split: Split):
    altered = erase_object(split)
    changed, kinds = differing(altered, split), Counter()
    world = split.data.world
    nothing = only(split.layout, np.zeros_like(split.layout.present))
    noise = render(nothing, world, split.seed, split.name)
    for scene, (before, after) in enumerate(
        zip(split.scenes.objects, altered.scenes.objects, strict=True)
    ):
        kinds[len(before) - len(after)] += 1
        gone = [each for each in before if each not in after]
        assert len(gone) == len(before) - len(after) == min(1, len(before))
        assert not (changed[scene] & ~stamped(split, gone)).any()
        assert changed[scene].any() == (len(gone) > 0) or split is SPLITS["colorful"]  # covered
        bare = stamped(split, gone) & ~stamped(split, after)
        assert (altered.scenes.images[scene][:, bare] == noise[scene][:, bare]).all()
    asked = set(split.questions.scene_index[altered.rows].tolist())
    assert asked == {scene for scene, objects in enumerate(split.scenes.objects) if objects}
    assert kinds[0] > 0 and kinds[1] > 40


@both
def test_nothing_but_the_moved_object_is_elsewhere(split: Split):
    altered = move_object(split)
    changed = differing(altered, split)
    moved = set()
    for scene, (before, after) in enumerate(
        zip(split.scenes.objects, altered.scenes.objects, strict=True)
    ):
        pairs = [(one, two) for one, two in zip(before, after, strict=True) if one != two]
        assert len(pairs) <= 1
        assert not (changed[scene] & ~stamped(split, [each for p in pairs for each in p])).any()
        if pairs:
            moved.add(scene)
    own = split.questions
    rows = [
        row
        for row, scene in enumerate(own.scene_index.tolist())
        if scene in moved and own.family[row] in ("position", "relation")
    ]
    assert altered.rows.tolist() == rows and len(moved) > 40


@both
def test_the_background_is_black_and_the_objects_are_as_they_were(split: Split):
    altered = erase_background(split)
    for before, after, objects in zip(
        split.scenes.images, altered.scenes.images, split.scenes.objects, strict=True
    ):
        inside = stamped(split, objects)
        assert (after[:, inside] == before[:, inside]).all()
        assert not after[:, ~inside].any()
    assert (altered.scenes.images != split.scenes.images).any()
    assert altered.questions is split.questions
    assert altered.rows.tolist() == list(range(len(split.questions)))


@both
@pytest.mark.parametrize("name", ALTERATIONS)
def test_what_is_true_then_equals_a_brute_force(name: str, split: Split):
    altered = ALTERATIONS[name](split)
    asked, size = altered.questions, split.data.world.image_size
    assert len(asked) == len(altered.rows) > 50
    for row, scene in enumerate(asked.scene_index.tolist()):
        objects = altered.scenes.objects[scene]
        told = asked.family[row], asked.question[row]
        expected = brute_force(*told, objects, size, split.data.relation_margin)
        assert (asked.answer[row], asked.phrase[row]) == expected, told
        assert altered.scenes.scene_id[scene] == asked.scene_id[row]


@pytest.mark.parametrize("name", ALTERATIONS)
def test_the_split_stays_as_it_was_and_the_same_again(name: str):
    split = make_split(30)
    before = split.scenes.images.copy(), split.questions.question.copy()
    one, two = ALTERATIONS[name](split), ALTERATIONS[name](split)
    assert (one.scenes.images == two.scenes.images).all()
    assert (one.questions.question == two.questions.question).all()
    assert (one.rows == two.rows).all()
    assert (split.scenes.images == before[0]).all() and (
        split.questions.question == before[1]
    ).all()


@pytest.mark.parametrize("name", ["erased_object", "moved_object", "swapped_words"])
def test_which_question_each_one_was(name: str):
    split = SPLITS["tiny"]
    altered = ALTERATIONS[name](split)
    own = split.questions
    for column in ("question_id", "scene_id", "scene_index", "family"):
        assert (getattr(altered.questions, column) == getattr(own, column)[altered.rows]).all()
    same = altered.questions.question == own.question[altered.rows]
    assert same.all() if name != "swapped_words" else not same.any()


def test_a_shuffled_picture_takes_all_questions_ofanother():
    split = SPLITS["tiny"]
    altered = shuffle_pictures(split)
    own, asked = split.questions, altered.questions
    pairs = set(zip(own.scene_index.tolist(), asked.scene_index.tolist(), strict=True))
    assert len(pairs) == len({one for one, _ in pairs}) == len({two for _, two in pairs}) == 80
    assert all(one != two for one, two in pairs)
    assert (asked.question == own.question).all() and (asked.family == own.family).all()
    assert altered.scenes is split.scenes


def test_shuffled_questions_are_all_there_and_mostly_elsewhere():
    split = SPLITS["tiny"]
    altered = shuffle_questions(split)
    own, asked = split.questions, altered.questions
    assert (asked.scene_index == own.scene_index).all()
    told = [Counter(zip(each.family, each.question, strict=True)) for each in (own, asked)]
    assert told[0] == told[1]
    assert (asked.question != own.question).mean() > 0.8


@pytest.mark.parametrize("number", [*range(2, 12), 1000])
def test_a_shuffle_leaves_none_in_its_place(number: int):
    orders = {tuple(another(number, seed).tolist()) for seed in range(30)}
    for order in orders:
        assert sorted(order) == list(range(number))
        assert all(one != two for one, two in enumerate(order))
    assert len(orders) > 1 or number == 2
    assert another(1, 0).tolist() == [0]


def test_swapped_words_ask_the_other_relation():
    altered = swap_words(SPLITS["tiny"])
    own = SPLITS["tiny"].questions
    assert (own.family == "relation").sum() == len(altered.rows)
    for row, text in zip(altered.rows.tolist(), altered.questions.question, strict=True):
        words = str(own.question[row]).split()
        first, second = words.index("plus"), words.index("circle")
        words[first], words[second] = words[second], words[first]
        assert text == " ".join(words)


def test_an_alteration_of_a_world_it_does_not_fit_asks_nothing():
    data = make_data().model_copy(update={"families": {"count": 1.0}})
    split = make_split(10, data=data)
    assert len(swap_words(split).rows) == len(move_object(split).rows) == 0
    slots = pick_objects(split.layout, split.seed)
    assert (slots == NO_OBJECT).any()  # an empty scene: it stays, and is asked nothing
    left = erase(split.layout, slots).count
    assert (left == np.maximum(split.layout.count - 1, 0)).all()
