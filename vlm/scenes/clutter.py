"""Marks that belong to no object: they make objects harder to see and no answer untrue.

A mark is a piece of a straight line, 2 to 4 pixels long and one pixel thick, along a row or a
column, in one of the world's colours at half an object's intensity. An object spans three rows and
three columns at least. So no mark is an object, and since those of one scene never touch each
other, nor do two make one.
Marks lie under the objects, whose pixels are what they are without clutter.

n: scenes, M: marks at most, H, W: pixels.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from vlm.scenes.scene import Bools, Ints
from vlm.scenes.streams import BLOCK, stream

if TYPE_CHECKING:
    from vlm.config.data import WorldConfig

SHORTEST, LONGEST = 2, 4
INTENSITY = 0.5  # of an object's


@dataclass(frozen=True, eq=False)
class Marks:
    """The marks of n scenes, (n, M) each; those that `present` leaves out are not drawn."""

    present: Bools
    row: Ints  # of its first pixel
    col: Ints
    height: Ints
    width: Ints
    color: Ints  # indexes `world.colors`

    def __getitem__(self, part: slice) -> Marks:
        """The marks of some of the scenes."""
        return Marks(*(getattr(self, field.name)[part] for field in fields(self)))


def sample_marks(world: WorldConfig, seed: int, split: str, block: int) -> Marks:
    """The marks of a block of scenes, whatever objects these hold.

    How many is drawn evenly from 0 to `clutter`; a mark that would touch one before it is then left
    out.
    """
    rng = stream(seed, split, block, "clutter")
    size = (BLOCK, world.clutter)
    count = rng.integers(world.clutter + 1, size=BLOCK)
    length = rng.integers(SHORTEST, LONGEST + 1, size)
    upright = rng.integers(2, size=size) == 1
    height, width = np.where(upright, length, 1), np.where(upright, 1, length)
    row = rng.integers(world.image_size - height + 1)
    col = rng.integers(world.image_size - width + 1)
    color = rng.integers(len(world.colors), size=size)
    present = np.arange(world.clutter) < count[:, None]
    for mark in range(world.clutter):
        own, earlier = np.s_[:, mark, None], np.s_[:, :mark]
        touches = row[own] <= row[earlier] + height[earlier]
        touches &= row[earlier] <= row[own] + height[own]
        touches &= col[own] <= col[earlier] + width[earlier]
        touches &= col[earlier] <= col[own] + width[own]
        present[:, mark] &= ~(touches & present[earlier]).any(axis=1)
    return Marks(present, row, col, height, width, color)


def add_clutter(canvas: npt.NDArray[np.uint8], marks: Marks, world: WorldConfig) -> None:
    """Draws the marks of n scenes, in place, wherever there is no object.

    Args:
        canvas: (n, H, W) where each pixel holds 0 for the background or 1 + colour for an object. A
            mark's pixels are set to 1 + len(world.colors) + colour, as `with_faint` has them.
        marks: of these scenes.
        world: theirs.
    """
    scene, mark = np.nonzero(marks.present)
    faint = 1 + len(world.colors) + marks.color
    for step in range(LONGEST):
        row = marks.row + np.minimum(step, marks.height - 1)
        col = marks.col + np.minimum(step, marks.width - 1)
        pixels = scene, row[scene, mark], col[scene, mark]
        canvas[pixels] = np.where(canvas[pixels], canvas[pixels], faint[scene, mark])


def with_faint(palette: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """A palette, (1 + colours, channels), with the colours of marks after those of objects."""
    return np.concatenate([palette, INTENSITY * palette[1:]])
