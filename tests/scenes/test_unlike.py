"""Scenes unlike those of training: what is in them, and that no other split has it."""

from dataclasses import fields

import numpy as np
import pytest
from worlds import COLORFUL, DEFAULT

from vlm.config.data import WorldConfig
from vlm.scenes.out_of_distribution import has_held_out, sample_unlike
from vlm.scenes.sampler import sample_scenes
from vlm.scenes.scene import ObjectRecord, from_records
from vlm.scenes.streams import BLOCK

HELD_OUT = ["plus@top-right", "circle@bottom-left"]


def world_of(values: dict[str, object] = DEFAULT, **changes: object) -> WorldConfig:
    return WorldConfig.model_validate(values | {"held_out": HELD_OUT} | changes)


def is_held_out(each: ObjectRecord) -> bool:
    """For these two combinations and the sides of `DEFAULT`, a 32 pixel picture."""
    row, col = each["row"], each["col"]
    if each["shape"] == "plus":
        return row < 32 / 3 and col > 64 / 3
    return row > 64 / 3 and col < 32 / 3


@pytest.mark.parametrize("n", [2, 11, 300, 2500])
def test_half_are_combinations_and_the_rest_crowds(n: int):
    world = world_of()
    scenes = sample_unlike(world, 0, n)
    assert len(scenes) == n
    records = scenes.records(world)
    for objects in records[: n // 2]:
        assert any(is_held_out(each) for each in objects)
        assert 1 <= len(objects) <= world.max_objects
    for objects in records[n // 2 :]:
        assert not any(is_held_out(each) for each in objects)
        assert len(objects) == world.max_objects + 1
    held = has_held_out(scenes, world)
    assert held.tolist() == [any(is_held_out(each) for each in objects) for objects in records]


def test_margin_and_spacing_hold_as_elsewhere():
    world = world_of()
    for objects in sample_unlike(world, 1, 200).records(world):
        for number, one in enumerate(objects):
            assert min(one["row"], one["col"]) >= 6 and max(one["row"], one["col"]) <= 25
            for other in objects[:number]:
                apart = (abs(one[axis] - other[axis]) for axis in ("row", "col"))
                assert max(apart) >= world.spacing


def test_a_world_that_holds_nothing_out_has_crowds_alone():
    world = world_of(COLORFUL, held_out=[])
    scenes = sample_unlike(world, 0, 50)
    assert scenes.count.tolist() == [6] * 50
    assert not has_held_out(scenes, world).any()


def test_the_same_again_other_for_another_seed_and_apart_from_other_splits():
    world = world_of()
    one, again, other = (sample_unlike(world, seed, 60) for seed in (3, 3, 4))
    for field in fields(one):
        np.testing.assert_array_equal(getattr(one, field.name), getattr(again, field.name))
    assert one.records(world) != other.records(world)
    crowds = [frozenset(map(str, objects)) for objects in one.records(world)[30:]]
    assert len(set(crowds)) == 30
    whole = world.model_copy(update={"held_out": []})
    for split in ("train", "val", "test", "fresh"):
        drawn = sample_scenes(whole, 3, split, BLOCK).records(world)
        assert sum(objects in drawn for objects in one.records(world)[:30]) < 6  # single objects


def test_the_first_of_each_kind_do_not_depend_on_how_many_there_are():
    world = world_of()
    few, many = (sample_unlike(world, 0, n).records(world) for n in (20, 200))
    assert few[:10] == many[:10] and few[10:] == many[100:110]


def test_fewer_where_there_is_no_room():
    """Ten centres that keep 9 pixels apart don't fit in 20 by 20."""
    world = world_of(max_objects=9)
    scenes = sample_unlike(world, 0, 40)
    assert len(scenes) == 20 and has_held_out(scenes, world).all()
    assert len(sample_unlike(world_of(max_objects=9, held_out=[]), 0, 40)) == 0


def test_ten_objects_where_there_is_room():
    world = world_of(max_objects=9, min_objects=9, spacing=3, held_out=[])
    scenes = sample_unlike(world, 0, 7)
    assert scenes.count.tolist() == [10] * 7


def test_none_are_none():
    scenes = sample_unlike(world_of(), 0, 0)
    assert len(scenes) == 0 and scenes.records(world_of()) == []
    assert has_held_out(scenes, world_of()).tolist() == []


def test_one_is_a_crowd():
    assert sample_unlike(world_of(), 0, 1).count.tolist() == [4]


def test_empty_slots_hold_nothing_out():
    """They hold zeros, and so does a plus in the corner."""
    world = world_of(margin=0, held_out=["plus@top-left"])
    corner: ObjectRecord = {"shape": "plus", "color": "white", "row": 0, "col": 0, "radius": 4}
    elsewhere: ObjectRecord = {**corner, "row": 20}
    scenes = from_records([[], [corner], [elsewhere], [elsewhere, corner]], world)
    assert has_held_out(scenes, world).tolist() == [False, True, False, True]
