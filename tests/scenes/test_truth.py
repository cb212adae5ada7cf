"""The truth told anew: the stored answers, a brute force, and what questions single out."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from slow_truth import brute_force
from worlds import COLORFUL, DEFAULT, SEVEN, SHARES, make_data

from vlm.data.drawn import draw
from vlm.errors import UserError
from vlm.scenes.out_of_distribution import sample_unlike
from vlm.scenes.programs import DIRECTIONS
from vlm.scenes.sampler import sample_scenes
from vlm.scenes.scene import ObjectRecord, Scenes, from_records
from vlm.scenes.truth import Truth

worlds = pytest.mark.parametrize(
    ("world", "families"), [(DEFAULT, SHARES | {"compare": 2.0}), (COLORFUL, SEVEN)]
)


@worlds
def test_the_stored_answers_of_every_family(world: dict[str, object], families: dict[str, float]):
    data = make_data(world, questions_per_scene=16, families=families)
    drawn = draw(data, 2, "test", 150)
    asked = drawn.questions
    assert set(asked.family) == set(families)
    answers, phrases = Truth(data).tell(drawn.scenes, asked.scene_id, asked.question)
    assert answers.tolist() == asked.answer.tolist()
    assert phrases.tolist() == asked.phrase.tolist()


@worlds
def test_every_question_about_any_scene_equals_a_brute_force(
    world: dict[str, object], families: dict[str, float]
):
    """Scenes drawn for none of them, one object more than usual among them."""
    data = make_data(world, families=families)
    truth = Truth(data)
    scenes = sample_unlike(data.world, 0, 20)
    texts = list(truth.questions)
    assert {question.family for question in truth.questions.values()} == set(families)
    index = np.arange(len(scenes)).repeat(len(texts))
    chosen = texts * len(scenes)
    records = scenes.records(data.world)
    answers, phrases = truth.tell(scenes, index, chosen)
    without = Counter()
    for row, text in enumerate(chosen):
        family, size = truth.questions[text].family, data.world.image_size
        expected = brute_force(family, text, records[index[row]], size, data.relation_margin)
        assert (answers[row], phrases[row]) == (expected or (None, None)), text
        without[family] += expected is None
    assert without["color"] == without.total()
    assert (without["color"] > 0) == ("color" in families)
    spoken = truth.spoken()
    told = [(phrase, answer) for phrase, answer in zip(phrases, answers, strict=True) if phrase]
    assert all(spoken[phrase] == answer for phrase, answer in told)


def test_left_is_right_in_a_mirror_and_above_after_a_turn():
    """The four directions are one, seen from four sides."""
    data = make_data(COLORFUL, families={"relation": 1.0})
    truth, size = Truth(data), data.world.image_size
    scenes = sample_scenes(data.world, 4, "test", 60)
    index = np.arange(len(scenes)).repeat(len(truth.questions))

    def told(view: Scenes, exchange: dict[str, str]) -> list[str]:
        texts = [
            text.replace(f" {name} ", f" {other} ")
            for text in truth.questions
            for name, other in exchange.items()
            if f" {name} " in text
        ]
        return truth.tell(view, index, texts * len(view))[0].tolist()

    own = told(scenes, {name: name for name in DIRECTIONS})
    mirrored = replace(scenes, col=size - 1 - scenes.col)
    across = {"left of": "right of", "right of": "left of", "above": "above", "below": "below"}
    turned = replace(scenes, row=scenes.col, col=scenes.row)
    over = {"left of": "above", "above": "left of", "right of": "below", "below": "right of"}
    assert own == told(mirrored, across) == told(turned, over)
    assert 0.02 < np.mean([answer == "yes" for answer in own]) < 0.98


def test_both_orders_of_a_comparison_are_never_true():
    truth = Truth(make_data(COLORFUL, families={"compare": 1.0}))
    anagrams, texts = truth.anagrams(), list(truth.questions)
    assert set(anagrams) == set(texts)
    scenes = sample_scenes(truth.data.world, 1, "test", 200)
    index = np.arange(len(scenes)).repeat(len(texts))
    one, _ = truth.tell(scenes, index, texts * len(scenes))
    other, _ = truth.tell(scenes, index, [anagrams[text] for text in texts] * len(scenes))
    both = Counter(zip(one.tolist(), other.tolist(), strict=True))
    assert set(both) == {("yes", "no"), ("no", "yes"), ("no", "no")}


def test_no_question_has_no_answer():
    data = make_data()
    scenes = sample_scenes(data.world, 0, "test", 3)
    answers, phrases = Truth(data).tell(scenes, np.zeros(0, np.int64), [])
    assert len(answers) == len(phrases) == 0
    assert Truth(data).named(scenes, np.zeros(0, np.int64), []).shape == (0, 3)


NAMED = {
    "what shape is in the image": [],
    "which shape does the image show": [],
    "how many shapes are there in the image": [],
    "how many shapes does the image show": [],
    "is there a circle in the image": [0, 2],
    "is there a plus in the image": [1],
    "is there a shape in the top half of the image": [0],
    "is there a shape in the bottom half of the image": [1, 2],  # 16 is the bottom's first row
    "is there a shape in the left half of the image": [1],
    "is there a shape in the right half of the image": [0, 2],
    "is there a circle left of a plus in the image": [0, 1, 2],
    "is there a plus below a circle in the image": [0, 1, 2],
    "are there more circles than pluses in the image": [0, 1, 2],
    "what color is the plus": [1],
}


def test_what_a_question_names():
    data = make_data(
        DEFAULT | {"channels": 3, "colors": ["white", "red"]},
        families=SEVEN,
    )
    objects: list[ObjectRecord] = [
        {"shape": "circle", "color": "white", "row": 6, "col": 25, "radius": 4},
        {"shape": "plus", "color": "white", "row": 16, "col": 7, "radius": 4},
        {"shape": "circle", "color": "white", "row": 25, "col": 16, "radius": 4},
    ]
    scenes = from_records([[], objects, objects[:1]], data.world)
    truth, texts = Truth(data), list(NAMED)
    named = truth.named(scenes, np.ones(len(texts), np.int64), texts)
    assert {
        text: np.flatnonzero(row).tolist() for text, row in zip(texts, named, strict=True)
    } == NAMED
    assert not truth.named(scenes, np.zeros(len(texts), np.int64), texts).any()
    alone = truth.named(scenes, np.full(len(texts), 2), texts)
    assert [np.flatnonzero(row).tolist() for row in alone] == [
        [slot for slot in slots if slot == 0] for slots in NAMED.values()
    ]


@worlds
def test_anagrams_are_other_questions_in_the_same_words(
    world: dict[str, object], families: dict[str, float]
):
    truth = Truth(make_data(world, families=families))
    anagrams = truth.anagrams()
    assert set(anagrams) == {
        text
        for text, question in truth.questions.items()
        if question.family in ("relation", "compare")
    }
    for text, other in anagrams.items():
        assert other != text and anagrams[other] == text
        assert Counter(text.split()) == Counter(other.split())
        assert truth.questions[other].family == truth.questions[text].family
        assert truth.questions[other].program != truth.questions[text].program
    one = "is there a plus above a circle in the image"
    assert anagrams[one] == "is there a circle above a plus in the image"
    one = "are there more pluses than circles in the image"
    assert anagrams[one] == "are there more circles than pluses in the image"


def test_without_relations_there_are_no_anagrams():
    assert Truth(make_data(families={"count": 1.0, "position": 1.0})).anagrams() == {}


def test_a_question_of_another_world_is_named():
    data = make_data()
    scenes = sample_scenes(data.world, 0, "test", 3)
    texts = ["is there a plus in the image", "is there a star in the image"]
    for ask in (Truth(data).tell, Truth(data).named):
        with pytest.raises(UserError) as error:
            ask(scenes, np.array([0, 1]), texts)
        expected = "question: got 'is there a star in the image', expected one of this world's"
        assert str(error.value) == expected
