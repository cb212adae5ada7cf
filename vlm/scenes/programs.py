"""A small typed language of questions over scenes, and its interpreter.

A program is a tree. Each node names an operation of the table `OPERATIONS`, which says what
kinds it takes and gives, so that a program of the wrong kinds cannot be built:

    circles = Program("filter_shape", (Program("scene"),), ("circle",))
    execute(Program("count", (circles,)), scenes, world)  # (n,) circles in each scene

A program may have no value for a scene: the colour of *the* circle where there are two.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from vlm.scenes.grammar import NUMBERS
from vlm.scenes.scene import Bools, Ints, Scenes

if TYPE_CHECKING:
    from vlm.config.data import Color, Shape, WorldConfig

# objects: (n, K) bool, the slots chosen. object: (n,) the one slot chosen, or NO_VALUE.
# The others are answers, (n,) integers, or NO_VALUE: truth 0 or 1; number; color a colour's index;
# shape_or_number a shape's index, or the number of shapes plus a number.
Kind = Literal["objects", "object", "truth", "number", "shape_or_number", "color"]
NO_VALUE = -1

DIRECTIONS = ("left of", "right of", "above", "below")
HALVES = ("top", "bottom", "left", "right")


class Operation(NamedTuple):
    """What an operation takes from its inputs, what it gives, and how it is computed.

    `run` is called with the scenes, the world, one array for each input, and the arguments.
    """

    takes: tuple[Kind, ...]
    gives: Kind
    run: Callable[..., npt.NDArray[Any]]


@dataclass(frozen=True)
class Program:
    """One operation, the programs whose values it takes, and its constant arguments."""

    operation: str
    inputs: tuple[Program, ...] = ()
    arguments: tuple[str | int, ...] = ()

    def __post_init__(self) -> None:
        if self.operation not in OPERATIONS:
            raise ValueError(f"operation {self.operation!r} not in {sorted(OPERATIONS)}")
        takes, got = OPERATIONS[self.operation].takes, tuple(each.kind for each in self.inputs)
        if got != takes:
            raise ValueError(f"operation {self.operation}: got inputs {got}, expected {takes}")

    @property
    def kind(self) -> Kind:
        """What the program's value is."""
        return OPERATIONS[self.operation].gives


def execute(program: Program, scenes: Scenes, world: WorldConfig) -> npt.NDArray[Any]:
    """The program's value for every scene, coded as its kind says."""
    inputs = (execute(each, scenes, world) for each in program.inputs)
    return OPERATIONS[program.operation].run(scenes, world, *inputs, *program.arguments)


def is_degenerate(program: Program, scenes: Scenes, world: WorldConfig) -> Bools:
    """Where a filter or a relation hands on exactly the objects that it was given, (n,).

    There the question could be answered without that step: "is there a circle" of circles alone.
    A step that is given nothing hands on nothing.
    """
    found = np.zeros(len(scenes), np.bool_)
    for each in program.inputs:
        found |= is_degenerate(each, scenes, world)
    if program.kind == "objects" and program.inputs:
        given, handed_on = (execute(each, scenes, world) for each in (program.inputs[0], program))
        found |= (given == handed_on).all(axis=1)
    return found


def answers(program: Program, world: WorldConfig) -> tuple[str, ...]:
    """The word of each code that the program's value may take."""
    digits = tuple(str(number) for number in range(len(NUMBERS)))
    words: dict[Kind, tuple[str, ...]] = {
        "truth": ("no", "yes"),
        "number": digits,
        "shape_or_number": (*world.shapes, *digits),
        "color": tuple(world.colors),
    }
    if program.kind not in words:
        raise ValueError(f"a program that gives {program.kind} is no question")
    return words[program.kind]


def _scene(scenes: Scenes, world: WorldConfig) -> Bools:
    return scenes.present


def _filter_shape(scenes: Scenes, world: WorldConfig, objects: Bools, shape: Shape) -> Bools:
    return objects & (scenes.shape == world.shapes.index(shape))


def _filter_color(scenes: Scenes, world: WorldConfig, objects: Bools, color: Color) -> Bools:
    return objects & (scenes.color == world.colors.index(color))


def _filter_half(scenes: Scenes, world: WorldConfig, objects: Bools, half: str) -> Bools:
    """By the centre against size / 2; a centre on the line is in the bottom or right half."""
    centre = scenes.row if half in ("top", "bottom") else scenes.col
    first = 2 * centre < world.image_size
    return objects & (first if half in ("top", "left") else ~first)


def _relate(
    scenes: Scenes, world: WorldConfig, objects: Bools, others: Bools, direction: str, margin: int
) -> Bools:
    """The objects that lie in `direction` from one of `others`, by at least `margin` pixels."""
    centre = scenes.col if direction in ("left of", "right of") else scenes.row
    ahead = centre[:, None, :] - centre[:, :, None]  # (n, object, other)
    if direction in ("right of", "below"):
        ahead = -ahead
    return objects & ((ahead >= margin) & others[:, None, :]).any(axis=2)


def _exist(scenes: Scenes, world: WorldConfig, objects: Bools) -> Ints:
    return np.where(objects.any(axis=1), 1, 0)


def _count(scenes: Scenes, world: WorldConfig, objects: Bools) -> Ints:
    return objects.sum(axis=1)


def _query_shape(scenes: Scenes, world: WorldConfig, objects: Bools) -> Ints:
    """The shape where there is exactly one object, else how many there are."""
    count = objects.sum(axis=1)
    only = np.take_along_axis(scenes.shape, objects.argmax(axis=1)[:, None], axis=1)[:, 0]
    return np.where(count == 1, only, len(world.shapes) + count)


def _more(scenes: Scenes, world: WorldConfig, number: Ints, other: Ints) -> Ints:
    return np.where(number > other, 1, 0)


def _unique(scenes: Scenes, world: WorldConfig, objects: Bools) -> Ints:
    """The slot of the object that is meant, where only one can be."""
    return np.where(objects.sum(axis=1) == 1, objects.argmax(axis=1), NO_VALUE)


def _query_color(scenes: Scenes, world: WorldConfig, slot: Ints) -> Ints:
    color = np.take_along_axis(scenes.color, np.maximum(slot, 0)[:, None], axis=1)[:, 0]
    return np.where(slot == NO_VALUE, NO_VALUE, color)


OPERATIONS: dict[str, Operation] = {
    "scene": Operation((), "objects", _scene),
    "filter_shape": Operation(("objects",), "objects", _filter_shape),
    "filter_color": Operation(("objects",), "objects", _filter_color),
    "filter_half": Operation(("objects",), "objects", _filter_half),
    "relate": Operation(("objects", "objects"), "objects", _relate),
    "exist": Operation(("objects",), "truth", _exist),
    "count": Operation(("objects",), "number", _count),
    "query_shape": Operation(("objects",), "shape_or_number", _query_shape),
    "more": Operation(("number", "number"), "truth", _more),
    "unique": Operation(("objects",), "object", _unique),
    "query_color": Operation(("object",), "color", _query_color),
}
