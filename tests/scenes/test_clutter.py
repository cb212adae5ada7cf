"""Marks under the objects: what they are, and that nothing else changes with them."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from worlds import COLORFUL, DEFAULT, make_data

from vlm.config.data import WorldConfig
from vlm.scenes import render as rendering
from vlm.scenes.asking import draw_questions
from vlm.scenes.clutter import add_clutter, sample_marks
from vlm.scenes.interventions import erase, only, pick_objects
from vlm.scenes.render import RGB, draw, render
from vlm.scenes.sampler import sample_scenes
from vlm.scenes.scene import Scenes
from vlm.scenes.streams import BLOCK

Place = tuple[int, int]
WORLDS = [DEFAULT | {"clutter": 4}, COLORFUL | {"clutter": 12}]


def drawn(values: dict[str, Any], n: int = 300, **changes: Any) -> tuple[WorldConfig, Scenes]:
    world = WorldConfig.model_validate(values | {"noise": 0.0} | changes)
    return world, sample_scenes(world, 0, "test", n)


def bare(scenes: Scenes) -> Scenes:
    """Without any object."""
    return only(scenes, np.zeros_like(scenes.present))


def pieces(image: np.ndarray) -> list[list[Place]]:
    """Pixels that are lit, and touch at a side or a corner."""
    left = {(int(r), int(c)) for r, c in np.argwhere(image.any(axis=0))}
    found = []
    while left:
        piece, edge = [], [left.pop()]
        while edge:
            row, col = edge.pop()
            piece.append((row, col))
            near = {(row + r, col + c) for r in (-1, 0, 1) for c in (-1, 0, 1)} & left
            left -= near
            edge += near
        found.append(sorted(piece))
    return found


@pytest.mark.parametrize("values", WORLDS)
def test_a_mark_is_a_short_thin_faint_line_apart_from_others(values: dict[str, Any]):
    world, scenes = drawn(values)
    numbers, lengths, colors = Counter(), Counter(), Counter()
    faint = {
        tuple(round(127.5 * v) for v in RGB[color][: world.channels]): color
        for color in world.colors
    }
    for image in render(bare(scenes), world, 0, "test"):
        marks = pieces(image)
        numbers[len(marks)] += 1
        for mark in marks:
            rows, cols = ({place[axis] for place in mark} for axis in (0, 1))
            assert min(len(rows), len(cols)) == 1 and 2 <= len(mark) <= 4
            assert max(max(rows) - min(rows), max(cols) - min(cols)) == len(mark) - 1
            (color,) = {tuple(image[:, row, col].tolist()) for row, col in mark}
            lengths[len(mark), len(rows) == 1] += 1
            colors[faint[color]] += 1
    assert max(numbers) <= world.clutter and numbers[0] > 0 and len(numbers) > world.clutter / 2
    assert set(colors) == set(world.colors)
    assert len(lengths) == 6 and min(lengths.values()) > 0.1 * lengths.total()


def test_as_many_as_asked_for_come_evenly():
    world, _ = drawn(DEFAULT, clutter=2, image_size=256)  # where they hardly ever touch
    counts = sample_marks(world, 0, "train", 0).present.sum(axis=1)
    shares = np.bincount(counts, minlength=3) / BLOCK
    np.testing.assert_allclose(shares, 1 / 3, atol=0.06)


@pytest.mark.parametrize("values", WORLDS)
def test_objects_lie_over_it_and_are_as_they_were(values: dict[str, Any]):
    world, scenes = drawn(values)
    images, marks = render(scenes, world, 0, "test"), render(bare(scenes), world, 0, "test")
    plain = np.rint(draw(scenes, world) * 255).astype(np.uint8)
    inside = plain.any(axis=1)[:, None]
    assert (images == np.where(inside, plain, marks)).all()
    assert (marks.any(axis=1)[:, None] & inside).any()


@pytest.mark.parametrize("values", WORLDS)
def test_it_hangs_on_seed_split_and_scene_alone(
    values: dict[str, Any], monkeypatch: pytest.MonkeyPatch
):
    world, scenes = drawn(values, BLOCK + 30)
    plain = WorldConfig.model_validate(values | {"clutter": 0})
    other = sample_scenes(plain, 9, "val", len(scenes))
    marks = render(bare(scenes), world, 0, "test")
    assert (marks == render(bare(other), world, 0, "test")).all()
    assert (marks[:50] == render(bare(scenes)[:50], world, 0, "test")).all()
    assert (marks[:30] != marks[BLOCK:]).any()
    assert (marks[:30] != render(bare(scenes[:30]), world, 1, "test")).any()
    assert (marks[:30] != render(bare(scenes[:30]), world, 0, "val")).any()
    monkeypatch.setattr(rendering, "BATCH_VALUES", 1 << 16)
    assert (marks == render(bare(scenes), world, 0, "test")).all()


@pytest.mark.parametrize("values", WORLDS)
def test_a_scene_drawn_anew_keeps_its_clutter(values: dict[str, Any]):
    world, scenes = drawn(values, 100, noise=0.03)
    before = render(scenes, world, 0, "test")
    after = erase(scenes, pick_objects(scenes, 0))
    where = (draw(scenes, world) != draw(after, world)).any(axis=1)[:, None]
    then = render(after, world, 0, "test")
    assert (where | (before == then)).all()
    nothing = render(bare(scenes), world, 0, "test")
    outside = ~(draw(after, world) > 0).any(axis=1)[:, None]
    assert (~outside | (then == nothing)).all()


@pytest.mark.parametrize("values", WORLDS)
def test_scenes_noise_and_questions_are_those_of_a_world_without(values: dict[str, Any]):
    world = WorldConfig.model_validate(values)
    plain = WorldConfig.model_validate(values | {"clutter": 0})
    scenes = sample_scenes(world, 2, "train", 80)
    assert scenes.records(world) == sample_scenes(plain, 2, "train", 80).records(plain)
    one, other = render(scenes, world, 2, "train"), render(scenes, plain, 2, "train")
    marks = (render(bare(scenes), world.model_copy(update={"noise": 0.0}), 2, "train").any(axis=1))[
        :, None
    ]
    assert (marks | (one == other)).all() and (one != other).any()
    asked = [
        draw_questions(make_data(each), scenes, 2, "train").question
        for each in (values, values | {"clutter": 0})
    ]
    assert (asked[0] == asked[1]).all()


def test_without_clutter_nothing_is_drawn_on_the_canvas():
    world, scenes = drawn(DEFAULT)
    marks = sample_marks(world, 0, "test", 0)
    assert marks.present.shape == (BLOCK, 0)
    canvas = np.zeros((len(scenes), 32, 32), np.uint8)
    add_clutter(canvas, marks[: len(scenes)], world)
    assert not canvas.any()
