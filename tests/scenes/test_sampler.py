import os
import subprocess
import sys
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import COLORFUL, DEFAULT

from vlm.config.data import WorldConfig
from vlm.scenes.sampler import sample_scenes
from vlm.scenes.scene import Scenes, concatenate, from_records
from vlm.scenes.streams import BLOCK, PURPOSES, SPLITS, stream


def world_of(**changes: object) -> WorldConfig:
    return WorldConfig.model_validate(DEFAULT | changes)


def same(one: Scenes, other: Scenes) -> bool:
    return all(
        np.array_equal(getattr(one, field.name), getattr(other, field.name))
        for field in fields(Scenes)
    )


def test_the_first_scenes_do_not_depend_on_how_many_follow():
    world = world_of()
    assert same(sample_scenes(world, 5, "val", 100), sample_scenes(world, 5, "val", 3000)[:100])


def test_seed_split_and_block_change_the_scenes():
    world = world_of()
    scenes = sample_scenes(world, 0, "train", 2 * BLOCK)
    assert not same(scenes[:BLOCK], scenes[BLOCK:])
    assert not same(scenes, sample_scenes(world, 1, "train", 2 * BLOCK))
    assert not same(scenes, sample_scenes(world, 0, "test", 2 * BLOCK))


def test_every_stream_is_its_own():
    first = {
        stream(seed, split, block, purpose).integers(1 << 62)
        for seed in (0, 1)
        for split in SPLITS
        for block in (0, 1)
        for purpose in PURPOSES
    }
    assert len(first) == 2 * len(SPLITS) * 2 * len(PURPOSES)


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 2**40),
    spacing=st.integers(0, 12),
    margin=st.integers(0, 12),
    low=st.integers(0, 4),
    extra=st.integers(0, 4),
    tries=st.integers(1, 40),
)
def test_spacing_margin_and_count_hold(
    seed: int, spacing: int, margin: int, low: int, extra: int, tries: int
):
    world = world_of(
        spacing=spacing,
        margin=margin,
        min_objects=low,
        max_objects=max(1, low + extra),
        max_tries=tries,
        max_radius=6,
    )
    scenes = sample_scenes(world, seed, "train", 300)
    assert scenes.count.max() <= world.max_objects
    for objects in scenes.records(world):
        for number, one in enumerate(objects):
            assert margin <= one["row"] <= 31 - margin
            assert margin <= one["col"] <= 31 - margin
            assert 4 <= one["radius"] <= 6
            for other in objects[:number]:
                distance = max(abs(one["row"] - other["row"]), abs(one["col"] - other["col"]))
                assert distance >= spacing


def test_counts_and_shapes_are_uniform():
    scenes = sample_scenes(world_of(), 0, "train", 8 * BLOCK)
    counts = np.bincount(scenes.count, minlength=4) / len(scenes)
    np.testing.assert_allclose(counts, 0.25, atol=0.02)
    shares = np.bincount(scenes.shape[scenes.present]) / scenes.count.sum()
    np.testing.assert_allclose(shares, 0.5, atol=0.02)
    places = np.bincount(scenes.row[scenes.present], minlength=32)[6:26] / scenes.count.sum()
    assert places.min() > 0.03 and places.max() < 0.07  # 20 rows; edges a little fuller


def test_a_scene_without_room_ends_with_fewer():
    world = world_of(min_objects=9, max_objects=9, max_tries=5)
    scenes = sample_scenes(world, 0, "train", 200)
    assert scenes.count.min() >= 1 and scenes.count.max() < 9
    empty = ~scenes.present
    assert not any(getattr(scenes, name)[empty].any() for name in ("shape", "row", "col", "radius"))


def test_redraws_of_a_scene_are_limited_in_total():
    # Nothing else fits, so a scene of one object and any number of tries ends with one.
    world = world_of(min_objects=2, max_objects=2, spacing=32, max_tries=7)
    assert (sample_scenes(world, 0, "train", 50).count == 1).all()


@pytest.mark.parametrize("values", [DEFAULT, COLORFUL])
def test_records_and_back(values: dict[str, object]):
    world = WorldConfig.model_validate(values)
    scenes = sample_scenes(world, 3, "test", 50)
    assert same(from_records(scenes.records(world), world), scenes)
    assert same(concatenate([scenes[:20], scenes[20:]]), scenes)
    assert [len(objects) for objects in scenes.records(world)] == scenes.count.tolist()


def test_records_of_another_world_are_refused():
    record = {"shape": "star", "color": "white", "row": 9, "col": 9, "radius": 4}
    with pytest.raises(ValueError, match="shape 'star' is not in this world, expected one of"):
        from_records([[record]], world_of())  # pyright: ignore[reportArgumentType]


def test_the_hash_seed_changes_nothing():
    code = (
        "import sys, hashlib; sys.path.insert(0, sys.argv[1]);"
        "from worlds import make_data; from vlm.scenes.sampler import sample_scenes;"
        "from vlm.scenes.asking import draw_questions; from vlm.scenes.render import render;"
        "from vlm.scenes.captions import write_captions;"
        "data = make_data(); scenes = sample_scenes(data.world, 0, 'train', 50);"
        "asked = draw_questions(data, scenes, 0, 'train');"
        "told = write_captions(data, scenes, 0, 'train');"
        "text = repr((asked.question.tolist(), asked.phrase.tolist(), told.texts.tolist()));"
        "pixels = render(scenes, data.world, 0, 'train').tobytes();"
        "print(hashlib.sha256(text.encode() + pixels).hexdigest())"
    )
    command = [sys.executable, "-c", code, os.path.dirname(__file__)]
    digests = {
        subprocess.run(
            command,
            env=os.environ | {"PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1
