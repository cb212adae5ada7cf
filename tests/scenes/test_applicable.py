"""What is never asked: questions without an answer, and degenerate ones where the world refuses."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from slow_truth import brute_force, is_degenerate
from worlds import COLORFUL, DEFAULT, SEVEN, SHARES, make_data

from vlm.config.data import DataConfig
from vlm.errors import UserError
from vlm.scenes.asking import draw_questions
from vlm.scenes.sampler import sample_scenes
from vlm.scenes.scene import ObjectRecord, from_records
from vlm.scenes.truth import Truth

FEW = COLORFUL | {"shapes": ["plus", "circle", "star"], "max_objects": 4}
WORLDS = {
    "default": (DEFAULT, SHARES | {"compare": 2.0}),
    "colorful": (COLORFUL, SEVEN),
    "few": (FEW, SEVEN),
}
worlds = pytest.mark.parametrize(("world", "families"), WORLDS.values(), ids=WORLDS)
degenerate = pytest.mark.parametrize("rule", ["keep", "refuse"])


def is_asked(data: DataConfig, family: str, text: str, objects: list[ObjectRecord]) -> bool:
    """Slowly, from the words."""
    told = family, text, objects, data.world.image_size, data.relation_margin
    refused = data.degenerate == "refuse" and is_degenerate(*told)
    return not refused and brute_force(*told) is not None


@worlds
@degenerate
def test_the_truth_tells_what_is_asked_and_nothing_else(
    world: dict[str, Any], families: dict[str, float], rule: str
):
    data = make_data(world, families=families, degenerate=rule)
    truth, scenes = Truth(data), sample_scenes(data.world, 1, "test", 20)
    texts = list(truth.questions) * len(scenes)
    index = np.arange(len(scenes)).repeat(len(truth.questions))
    answers, phrases = truth.tell(scenes, index, texts)
    records = scenes.records(data.world)
    seen: Counter[tuple[str, bool]] = Counter()
    for row, (text, scene) in enumerate(zip(texts, index.tolist(), strict=True)):
        family = truth.questions[text].family
        wanted = is_asked(data, family, text, records[scene])
        assert (answers[row] is not None) == (phrases[row] is not None) == wanted, text
        seen[family, wanted] += 1
    left_out = {family for family, wanted in seen if not wanted}
    expected = {"keep": {"color"}, "refuse": set(families) - {"count", "what_shape"}}
    assert left_out == expected[rule] & set(families)
    assert {family for family, wanted in seen if wanted} == set(families)


@worlds
@degenerate
@pytest.mark.parametrize("balance", ["natural", "balanced"])
def test_a_slot_is_left_out_only_where_its_family_has_nothing_to_ask(
    world: dict[str, Any], families: dict[str, float], rule: str, balance: str
):
    data = make_data(
        world,
        families=families,
        degenerate=rule,
        answer_balance=balance,
        questions_per_scene=int(sum(families.values())),
    )
    scenes = sample_scenes(data.world, 0, "test", 40)
    table, truth = draw_questions(data, scenes, 0, "test"), Truth(data)
    assert (np.diff(table.scene_id) >= 0).all()
    got = Counter(zip(table.scene_id.tolist(), table.family.tolist(), strict=True))
    missing = 0
    for scene, objects in enumerate(scenes.records(data.world)):
        for family, share in families.items():
            texts = [text for text, each in truth.questions.items() if each.family == family]
            fits = any(is_asked(data, family, text, objects) for text in texts)
            assert got[scene, family] == (share if fits else 0)
            missing += not fits
    assert (missing > 0) == (rule == "refuse" or "color" in families)
    records = scenes.records(data.world)
    for scene, family, text in zip(table.scene_id, table.family, table.question, strict=True):
        assert is_asked(data, family, text, records[scene])


def test_what_fits_is_asked_before_it_is_asked_twice():
    data = make_data(FEW, families={"color": 1.0}, questions_per_scene=3)
    objects: list[ObjectRecord] = [
        {"shape": shape, "color": "red", "row": 9 + 9 * n, "col": 9, "radius": 3}  # pyright: ignore
        for n, shape in enumerate(["plus", "star", "circle", "circle"])
    ]
    scenes = from_records([objects, objects[2:], [*objects, objects[0]]], data.world)
    table = draw_questions(data, scenes, 0, "test")
    assert table.scene_id.tolist() == [0, 0, 0, 2, 2, 2]
    assert set(table.question[:2]) == {"what color is the plus", "what color is the star"}
    assert set(table.question[3:]) == {"what color is the star"}
    assert set(table.phrase) == {"the plus is red", "the star is red"}


@pytest.mark.parametrize("family", ["exists", "position", "relation", "compare"])
def test_balance_counts_only_what_is_asked(family: str):
    distance = {}
    for balance in ("natural", "balanced"):
        data = make_data(
            FEW,
            questions_per_scene=1,
            families={family: 1.0},
            degenerate="refuse",
            answer_balance=balance,
        )
        scenes = sample_scenes(data.world, 0, "train", 4000)
        table = draw_questions(data, scenes, 0, "train")
        distance[balance] = abs((table.answer == "yes").mean() - 0.5)
    assert distance["balanced"] < max(0.03, distance["natural"] / 1.2)


def test_keeping_asks_what_refusing_never_would():
    asked = {}
    for rule in ("keep", "refuse"):
        data = make_data(degenerate=rule)
        scenes = sample_scenes(data.world, 0, "train", 300)
        asked[rule] = draw_questions(data, scenes, 0, "train")
    assert len(asked["keep"].family) == 2400 > len(asked["refuse"].family) > 1200
    alone = ("exists", "yes there is a circle")
    records = sample_scenes(make_data().world, 0, "train", 300).records(make_data().world)
    circles = [bool(each) and all(o["shape"] == "circle" for o in each) for each in records]
    found = {
        rule: any(
            circles[scene] and (family, phrase) == alone
            for scene, family, phrase in zip(
                table.scene_id, table.family, table.phrase, strict=True
            )
        )
        for rule, table in asked.items()
    }
    assert found == {"keep": True, "refuse": False}


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("compare", {"max_objects": 1, "shapes": ["plus", "circle"]}),  # a filter keeps all
        ("color", {"min_objects": 2, "max_objects": 3, "shapes": ["ring"]}),  # which ring?
    ],
)
def test_a_family_that_is_never_asked_is_refused(family: str, changes: dict[str, Any]):
    world = FEW | changes
    data = make_data(world, families={"count": 1.0, family: 1.0}, degenerate="refuse")
    scenes = sample_scenes(data.world, 0, "val", 5)
    with pytest.raises(UserError) as error:
        draw_questions(data, scenes, 0, "val")
    assert str(error.value) == (
        f"data.families.{family}: got no question that fits any of 1024 scenes of this world,"
        " expected at least one"
    )


def test_a_few_scenes_may_be_asked_nothing():
    data = make_data(FEW, families={"color": 1.0})
    empty = from_records([[], []], data.world)
    table = draw_questions(data, empty, 0, "test")
    assert len(table.scene_id) == len(table.question) == len(table.phrase) == 0
