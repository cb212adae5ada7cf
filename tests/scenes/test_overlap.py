"""How much of an object others may hide."""

from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import COLORFUL, DEFAULT

from vlm.config.data import WorldConfig
from vlm.scenes import overlap
from vlm.scenes.interventions import NO_OBJECT, move, pick_objects
from vlm.scenes.out_of_distribution import sample_unlike
from vlm.scenes.overlap import hidden_shares, hides_too_much, limits_overlap
from vlm.scenes.render import paint, stamp
from vlm.scenes.sampler import sample_scenes
from vlm.scenes.scene import ObjectRecord, Scenes, from_records

CROWDED: dict[str, Any] = COLORFUL | {"spacing": 0, "min_objects": 3, "image_size": 32}


def world_of(values: dict[str, Any] = CROWDED, **changes: Any) -> WorldConfig:
    return WorldConfig.model_validate(values | changes)


def same(one: Scenes, other: Scenes) -> bool:
    return all(
        np.array_equal(getattr(one, field.name), getattr(other, field.name))
        for field in fields(Scenes)
    )


def pixels(item: ObjectRecord, size: int) -> set[tuple[int, int]]:
    """Where the object is in the picture."""
    radius = item["radius"]
    corner = item["row"] - radius, item["col"] - radius
    places = {(corner[0] + r, corner[1] + c) for r, c in np.argwhere(stamp(item["shape"], radius))}
    return {(r, c) for r, c in places if 0 <= r < size and 0 <= c < size}


def slow_shares(objects: list[ObjectRecord], size: int) -> list[float]:
    shares = []
    for number, item in enumerate(objects):
        own = pixels(item, size)
        alike = [other for other in objects[:number] if other["color"] == item["color"]]
        lost = set().union(*(pixels(other, size) for other in alike + objects[number + 1 :]))
        shares.append(len(own & lost) / len(own))
    return shares


@pytest.mark.parametrize("pixels_at_once", [1 << 22, 1 << 10])
def test_hidden_shares_equal_sets_of_pixels(pixels_at_once: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(overlap, "PIXELS", pixels_at_once)
    world = world_of(margin=0)
    scenes = sample_scenes(world, 0, "test", 150)
    shares = hidden_shares(scenes, world)
    expected = np.zeros_like(shares)
    for row, objects in enumerate(scenes.records(world)):
        expected[row, : len(objects)] = slow_shares(objects, world.image_size)
    assert (shares == expected).all()
    assert (shares == 0).any() and (shares > 0.5).any()
    assert (
        hides_too_much(scenes, world_of(margin=0, overlap=0.3)) == (expected > 0.3).any(axis=1)
    ).all()


@settings(max_examples=6, deadline=None)
@given(
    seed=st.integers(0, 2**40),
    share=st.sampled_from([0.0, 0.1, 0.3, 0.75]),
    spacing=st.integers(0, 7),
    margin=st.integers(0, 6),
)
def test_no_object_is_hidden_to_more_than_its_share(
    seed: int, share: float, spacing: int, margin: int
):
    world = world_of(overlap=share, spacing=spacing, margin=margin)
    for scenes in (sample_scenes(world, seed, "train", 40), sample_unlike(world, seed, 10)):
        for objects in scenes.records(world):
            assert max(slow_shares(objects, world.image_size), default=0) <= share
            for number, one in enumerate(objects):
                for other in objects[:number]:
                    apart = (abs(one[axis] - other[axis]) for axis in ("row", "col"))
                    assert max(apart) >= spacing


def test_objects_still_meet_up_to_the_share_but_none_is_gone():
    for share in (0.0, 0.3, 1.0):
        world = world_of(overlap=share)
        most = hidden_shares(sample_scenes(world, 0, "train", 1024), world).max()
        assert most == 0 if share == 0 else share - 0.05 < most <= share
        assert most < 1


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_scenes_that_look_the_same_hold_the_same_number_of_objects(share: float):
    """A star of a square's colour on it changes no pixel, so nobody could count it."""
    crowded = {"max_objects": 2, "image_size": 16, "min_radius": 3, "max_radius": 4, "margin": 4}
    world = world_of(DEFAULT, **crowded, spacing=0, overlap=share, shapes=["square", "star"])
    scenes = sample_scenes(world, 0, "train", 8192)
    seen: dict[bytes, int] = {}
    for canvas, count in zip(paint(scenes, world), scenes.count.tolist(), strict=True):
        assert seen.setdefault(canvas.tobytes(), count) == count
    assert len(seen) > 1000


def test_all_later_objects_count_together():
    world = world_of(overlap=0.5)
    row: list[ObjectRecord] = [
        {"shape": "square", "color": color, "row": 16, "col": col, "radius": 3}
        # the first loses three of its seven columns on either side
        for col, color in ((16, "red"), (12, "red"), (20, "blue"))
    ]
    scenes = from_records([row, row[:2], [row[0], row[2]]], world)
    assert hidden_shares(scenes, world)[:, 0].tolist() == [6 / 7, 3 / 7, 3 / 7]
    assert hidden_shares(scenes, world)[:, 1].tolist() == [3 / 7, 3 / 7, 0]  # merged, and covering
    assert hides_too_much(scenes, world).tolist() == [True, False, False]


def test_a_world_whose_objects_cannot_meet_is_not_checked():
    assert not limits_overlap(world_of(DEFAULT, overlap=0.0))  # 9 pixels apart, and 9 wide
    assert limits_overlap(world_of(DEFAULT, overlap=0.0, spacing=8))
    assert limits_overlap(world_of(DEFAULT, spacing=0))  # one might lie on another
    one, other = (world_of(DEFAULT, overlap=share) for share in (0.0, 1.0))
    assert same(sample_scenes(one, 3, "val", 2000), sample_scenes(other, 3, "val", 2000))


def test_a_moved_object_keeps_the_rule_and_a_scene_without_room_stays():
    world = world_of(overlap=0.2)
    scenes = sample_scenes(world, 2, "test", 80)
    slots = pick_objects(scenes, 0)
    after, moved = move(scenes, slots, world, 0)
    assert not hides_too_much(after, world).any()
    assert (moved != NO_OBJECT).mean() > 0.9
    changed = (after.row != scenes.row) | (after.col != scenes.col)
    assert (changed.sum(axis=1) == (moved != NO_OBJECT)).all()
    unchecked, _ = move(scenes, slots, world_of(), 0)
    assert hides_too_much(unchecked, world).any()
    full = world_of(overlap=0.0, min_radius=15, max_radius=15, margin=15, shapes=["square"])
    packed = sample_scenes(full, 0, "test", 10)
    assert (packed.count == 1).all()
