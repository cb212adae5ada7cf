"""Scenes changed in one thing: that it is one thing, and one that the world allows."""

from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from worlds import COLORFUL, DEFAULT

from vlm.config.data import WorldConfig
from vlm.scenes.interventions import NO_OBJECT, erase, move, object_pixels, only, pick_objects
from vlm.scenes.out_of_distribution import has_held_out
from vlm.scenes.render import draw, stamp
from vlm.scenes.sampler import sample_scenes
from vlm.scenes.scene import Ints, ObjectRecord, Scenes, from_records

WORLDS: list[dict[str, Any]] = [
    DEFAULT | {"held_out": ["plus@top-right", "circle@bottom-left"]},
    COLORFUL | {"held_out": ["star@center"]},
]


def scenes_of(values: dict[str, object], n: int = 200) -> tuple[WorldConfig, Scenes]:
    world = WorldConfig.model_validate(values)
    return world, sample_scenes(world, 0, "test", n)


def same(one: Scenes, other: Scenes) -> bool:
    return all(
        np.array_equal(getattr(one, field.name), getattr(other, field.name))
        for field in fields(Scenes)
    )


def one_object(row: int, col: int, shape: str = "plus", radius: int = 4) -> ObjectRecord:
    return {"shape": shape, "color": "white", "row": row, "col": col, "radius": radius}


def test_objects_are_picked_evenly_and_an_empty_scene_has_none():
    _, scenes = scenes_of(WORLDS[0], 4000)
    slots = pick_objects(scenes, 0)
    assert ((slots == NO_OBJECT) == (scenes.count == 0)).all()
    assert (slots < np.maximum(scenes.count, 1)).all()
    for number in (2, 3):  # about 1000 scenes each: a standard deviation of 0.016
        shares = np.bincount(slots[scenes.count == number], minlength=number)
        np.testing.assert_allclose(shares / shares.sum(), 1 / number, atol=0.06)
    assert (pick_objects(scenes, 0) == slots).all()
    assert (pick_objects(scenes, 1) != slots).any()


@pytest.mark.parametrize("values", WORLDS)
def test_erase_leaves_the_others_in_their_order(values: dict[str, object]):
    world, scenes = scenes_of(values)
    slots = pick_objects(scenes, 3)
    expected = [
        [each for slot, each in enumerate(objects) if slot != gone]
        for objects, gone in zip(scenes.records(world), slots.tolist(), strict=True)
    ]
    left = erase(scenes, slots)
    assert left.records(world) == expected
    # Slots and zeros behind them as from_records has them, so that all else reads it alike.
    assert same(left, from_records(expected, world))
    assert same(erase(scenes, np.full(len(scenes), NO_OBJECT)), scenes)


@pytest.mark.parametrize("values", WORLDS)
def test_only_keeps_the_chosen(values: dict[str, object]):
    world, scenes = scenes_of(values)
    chosen = np.random.default_rng(0).random(scenes.shape.shape) < 0.5
    expected = [
        [each for slot, each in enumerate(objects) if chosen[scene, slot]]
        for scene, objects in enumerate(scenes.records(world))
    ]
    assert same(only(scenes, chosen), from_records(expected, world))
    assert same(only(scenes, np.ones_like(chosen)), scenes)
    assert not only(scenes, np.zeros_like(chosen)).count.any()


@pytest.mark.parametrize("values", WORLDS)
def test_move_changes_one_place_and_keeps_the_rules(values: dict[str, object]):
    world, scenes = scenes_of(values)
    slots = pick_objects(scenes, 5)
    after, moved = move(scenes, slots, world, 5)
    assert (moved[slots == NO_OBJECT] == NO_OBJECT).all()
    assert (moved == slots).mean() > 0.95
    assert not has_held_out(after, world).any()
    for before, then, slot in zip(
        scenes.records(world), after.records(world), moved.tolist(), strict=True
    ):
        for number, (one, two) in enumerate(zip(before, then, strict=True)):
            if number != slot:
                assert one == two
                continue
            assert (one["row"], one["col"]) != (two["row"], two["col"])
            assert {**one, "row": two["row"], "col": two["col"]} == two
            assert world.margin <= min(two["row"], two["col"])
            assert max(two["row"], two["col"]) <= world.image_size - 1 - world.margin
            for other in then[:slot] + then[slot + 1 :]:
                apart = (abs(two[axis] - other[axis]) for axis in ("row", "col"))
                assert max(apart) >= world.spacing
    again, _ = move(scenes, slots, world, 5)
    other, _ = move(scenes, slots, world, 6)
    assert same(again, after) and not same(other, after)


def test_a_lone_object_may_go_anywhere_and_each_place_is_as_likely():
    world = WorldConfig.model_validate(DEFAULT | {"margin": 14, "spacing": 0})  # 4 by 4 centres
    scenes = from_records([[one_object(15, 16)]] * 3000, world)
    after, moved = move(scenes, np.zeros(3000, np.int64), world, 0)
    assert (moved == 0).all()
    places, counts = np.unique(4 * after.row[:, 0] + after.col[:, 0], return_counts=True)
    assert len(places) == 15 and 4 * 15 + 16 not in places
    assert counts.min() > 140 and counts.max() < 270  # 200 each, a standard deviation of 14


def picked(scenes: Scenes, slot: int) -> Ints:
    return np.full(len(scenes), slot)


@pytest.mark.parametrize("slot", [0, 1])
def test_an_object_without_another_place_stays(slot: int):
    """Centres in 6 to 15 of 22; two objects nine apart in a row leave each other one column."""
    values = {"image_size": 22, "max_objects": 2, "max_radius": 4, "spacing": 9}
    world = WorldConfig.model_validate(DEFAULT | values)
    pinned = world.model_copy(update={"spacing": 10})  # nobody has two places then
    pair = [one_object(6, 6), one_object(6, 15)]
    scenes = from_records([pair, [], [pair[0]]], world)
    after, moved = move(scenes[:1], picked(scenes[:1], slot), pinned, 0)
    assert moved.tolist() == [NO_OBJECT] and same(after, scenes[:1])
    # With nine, the other column's ten rows and the opposite row's are free.
    after, moved = move(scenes[:1], picked(scenes[:1], slot), world, 0)
    assert moved.tolist() == [slot] and not same(after, scenes[:1])
    after, moved = move(scenes[1:2], picked(scenes[1:2], NO_OBJECT), world, 0)
    assert moved.tolist() == [NO_OBJECT] and same(after, scenes[1:2])


def test_held_out_cells_leave_the_only_place():
    """One cell of one centre is left for a plus, and the plus is there."""
    values = {"image_size": 9, "min_radius": 1, "max_radius": 1, "margin": 3, "spacing": 1}
    world = WorldConfig.model_validate(DEFAULT | values)  # centres in 3 to 5: the middle third
    scenes = from_records([[one_object(4, 4, radius=1)]], world)
    assert move(scenes, picked(scenes, 0), world, 0)[1].tolist() == [0]
    held = world.model_copy(update={"held_out": ["plus@center"]})
    after, moved = move(scenes, picked(scenes, 0), held, 0)
    assert moved.tolist() == [NO_OBJECT] and same(after, scenes)


@pytest.mark.parametrize("values", WORLDS)
def test_object_pixels_are_those_of_the_stamps(values: dict[str, object]):
    world, scenes = scenes_of(values, 60)
    pixels = object_pixels(scenes, world)
    size = world.image_size
    assert pixels.shape == (60, size, size) and pixels.dtype == np.bool_
    np.testing.assert_array_equal(pixels, draw(scenes, world).max(axis=1) > 0)
    for scene, objects in enumerate(scenes.records(world)):
        expected = np.zeros((size + 20, size + 20), bool)
        for each in objects:
            row, col, radius = each["row"] + 10, each["col"] + 10, each["radius"]
            area = np.s_[row - radius : row + radius + 1, col - radius : col + radius + 1]
            expected[area] |= stamp(each["shape"], radius)
        np.testing.assert_array_equal(pixels[scene], expected[10:-10, 10:-10])
