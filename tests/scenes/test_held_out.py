"""Combinations of shape and cell that no ordinary split holds."""

from itertools import product

import numpy as np
import pytest
from project import read_preset
from worlds import COLORFUL, DEFAULT

from vlm.config import parse_params
from vlm.config.data import WorldConfig
from vlm.errors import UserError
from vlm.scenes.sampler import check_held_out, held_out_cells, sample_scenes
from vlm.scenes.scene import CELLS, Ints, Scenes
from vlm.scenes.streams import BLOCK, stream

THIRDS = ("top", "middle", "bottom"), ("left", "center", "right")
CELL_NAMES = [cell.replace(" ", "-") for cell in CELLS]


def world_of(values: dict[str, object] = DEFAULT, **changes: object) -> WorldConfig:
    return WorldConfig.model_validate(values | changes)


def combinations(scenes: Scenes, world: WorldConfig) -> set[str]:
    """What lies where, from names and fractions of the picture's side."""
    found = set()
    for each in (item for objects in scenes.records(world) for item in objects):
        down, right = (each[axis] / world.image_size for axis in ("row", "col"))
        place = f"{THIRDS[0][int(down // (1 / 3))]}-{THIRDS[1][int(right // (1 / 3))]}"
        found.add(f"{each['shape']}@{place.replace('middle-center', 'center')}")
    return found


@pytest.mark.parametrize(
    ("values", "held_out"),
    [
        (DEFAULT, ["plus@top-right", "circle@bottom-left"]),
        (DEFAULT, [f"plus@{cell}" for cell in CELL_NAMES if cell != "center"]),
        (COLORFUL, ["star@center", "ring@middle-left", "ring@top-center"]),
    ],
)
def test_no_ordinary_scene_has_a_held_out_combination_and_all_others_occur(
    values: dict[str, object], held_out: list[str]
):
    world = world_of(values, held_out=held_out)
    every = {f"{shape}@{cell}" for shape, cell in product(world.shapes, CELL_NAMES)}
    for split in ("train", "val", "test"):
        assert combinations(sample_scenes(world, 1, split, BLOCK), world) == every - set(held_out)


def plain_block(world: WorldConfig, rng: np.random.Generator) -> list[list[tuple[int, ...]]]:
    """A block as it was drawn before anything could be held out: one scene after another."""
    size = (BLOCK, world.max_objects)
    count = rng.integers(world.min_objects, world.max_objects + 1, BLOCK).tolist()
    shape = rng.integers(len(world.shapes), size=size)
    color = rng.integers(len(world.colors), size=size)
    radius = rng.integers(world.min_radius, world.max_radius + 1, size)
    ends = world.margin, world.image_size - world.margin
    row, col = rng.integers(*ends, size).tolist(), rng.integers(*ends, size).tolist()
    left = [world.max_tries] * BLOCK

    def near(scene: int, one: int, other: int) -> bool:
        apart = (abs(axis[scene][one] - axis[scene][other]) for axis in (row, col))
        return max(apart) < world.spacing

    for slot in range(world.max_objects):
        while clashing := [
            scene
            for scene in range(BLOCK)
            if slot < count[scene] and any(near(scene, slot, other) for other in range(slot))
        ]:
            again = [scene for scene in clashing if left[scene]]
            for scene in set(clashing) - set(again):
                count[scene] = slot
            for axis in (row, col):
                for scene, place in zip(again, rng.integers(*ends, len(again)), strict=True):
                    axis[scene][slot] = int(place)
            for scene in again:
                left[scene] -= 1
    columns = shape.tolist(), color.tolist(), row, col, radius.tolist()
    return [
        [tuple(column[scene][slot] for column in columns) for slot in range(count[scene])]
        for scene in range(BLOCK)
    ]


@pytest.mark.parametrize("values", [DEFAULT, COLORFUL, DEFAULT | {"max_objects": 9}])
def test_a_world_that_holds_nothing_out_draws_what_it_always_drew(values: dict[str, object]):
    world = world_of(values)
    scenes = sample_scenes(world, 4, "val", BLOCK)
    columns = scenes.shape, scenes.color, scenes.row, scenes.col, scenes.radius
    drawn = [
        [tuple(int(column[scene, slot]) for column in columns) for slot in range(count)]
        for scene, count in enumerate(scenes.count.tolist())
    ]
    assert drawn == plain_block(world, stream(4, "val", 0, "layout"))


def test_what_is_held_out_moves_only_scenes_that_had_it():
    """Of the first object of each scene: later ones may be placed by other draws."""
    whole, less = world_of(), world_of(held_out=["plus@center"])
    one, other = (sample_scenes(world, 0, "train", BLOCK) for world in (whole, less))

    def first(scenes: Scenes) -> Ints:
        return np.stack([scenes.shape[:, 0], scenes.row[:, 0], scenes.col[:, 0]], axis=1)

    moved = (first(one) != first(other)).any(axis=1)
    had = [
        any(each["shape"] == "plus" and min(each["row"], each["col"]) >= 11 for each in objects[:1])
        and max(objects[0]["row"], objects[0]["col"]) <= 21
        for objects in one.records(whole)
    ]
    assert moved.tolist() == had and 50 < sum(had) < 300


def test_the_table_of_cells():
    world = world_of(held_out=["circle@center", "plus@top-right", "circle@center"])
    expected = np.zeros((2, 9), bool)
    expected[0, 2] = expected[1, 4] = True
    np.testing.assert_array_equal(held_out_cells(world), expected)
    assert not held_out_cells(world_of()).any()


@pytest.mark.parametrize(
    "one", ["ring@center", "plus@middle", "plus@top left", "plus", "@center", "center@plus", ""]
)
def test_an_unknown_combination_is_named(one: str):
    values = read_preset("tiny")
    values["data"]["world"]["held_out"] = ["plus@center", one]
    with pytest.raises(UserError) as error:
        parse_params(values)
    assert str(error.value) == (
        f"data.world.held_out: got {one}, expected SHAPE@CELL with a shape of plus, circle and a"
        f" cell of {', '.join(CELL_NAMES)}"
    )


def test_a_cell_that_the_margin_keeps_empty_can_not_be_held_out():
    world = world_of(margin=11)  # centres in 11 to 20 of 32: the middle third
    with pytest.raises(UserError, match=r"got plus@top-left, expected .* a cell of center$"):
        check_held_out(world.model_copy(update={"held_out": ["plus@top-left"]}))
    check_held_out(world_of(margin=10, held_out=["plus@top-left"]))  # row 10 is in the top third


@pytest.mark.parametrize("margin", [0, 6, 11])
def test_a_shape_must_have_a_cell_left(margin: int):
    reached = ["center"] if margin == 11 else CELL_NAMES
    held_out = [f"circle@{cell}" for cell in reached]
    with pytest.raises(UserError, match="got every cell for circle, expected one left"):
        check_held_out(world_of(margin=margin, held_out=held_out))
    check_held_out(world_of(margin=margin, held_out=held_out[1:]))
