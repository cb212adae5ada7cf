"""How much of each object the later ones of its scene hide.

n: scenes, K: object slots, P: pixels of a stamp's square.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from vlm.scenes.render import stamp
from vlm.scenes.scene import Bools, Ints, Scenes

if TYPE_CHECKING:
    from vlm.config.data import WorldConfig

Floats = npt.NDArray[np.float64]
PIXELS = 1 << 22  # looked at together, so that large objects fit in memory


def limits_overlap(world: WorldConfig) -> bool:
    """Whether objects could hide more of each other than the world allows."""
    return world.overlap < 1 and world.spacing <= 2 * world.max_radius


def hides_too_much(scenes: Scenes, world: WorldConfig) -> Bools:
    """Where an object is hidden to more than the share that the world allows, (n,)."""
    return (hidden_shares(scenes, world) > world.overlap).any(axis=1)


def hidden_shares(scenes: Scenes, world: WorldConfig) -> Floats:
    """The share of each object's pixels in the picture that later objects cover, (n, K).

    All later ones count together. An empty slot has 0.
    """
    step = max(1, PIXELS // (2 * world.max_radius + 1) ** 2)
    parts = (scenes[start : start + step] for start in range(0, len(scenes), step))
    return np.concatenate([np.zeros(scenes.shape.shape)[:0], *(_shares(p, world) for p in parts)])


def _shares(scenes: Scenes, world: WorldConfig) -> Floats:
    reach, size = world.max_radius, world.image_size
    stamps = _stamps(world)
    row_step, col_step = (each.ravel() for each in np.mgrid[-reach : reach + 1, -reach : reach + 1])
    shares = np.zeros(scenes.shape.shape)

    def covers(slot: int, rows: Ints, cols: Ints) -> Bools:
        """Which pixels, (n, P), the object in `slot` covers."""
        down, right = rows - scenes.row[:, slot, None], cols - scenes.col[:, slot, None]
        near = (abs(down) <= reach) & (abs(right) <= reach) & (slot < scenes.count)[:, None]
        kind = scenes.shape[:, slot, None], scenes.radius[:, slot, None]
        return near & stamps[*kind, (down + reach) * near, (right + reach) * near]

    for slot in range(scenes.shape.shape[1] - 1):
        rows = scenes.row[:, slot, None] + row_step
        cols = scenes.col[:, slot, None] + col_step
        own = covers(slot, rows, cols)
        own &= (rows >= 0) & (rows < size) & (cols >= 0) & (cols < size)
        hidden = np.zeros_like(own)
        for later in range(slot + 1, scenes.shape.shape[1]):
            hidden |= covers(later, rows, cols)
        shares[:, slot] = (own & hidden).sum(axis=1) / np.maximum(own.sum(axis=1), 1)
    return shares


def _stamps(world: WorldConfig) -> Bools:
    """Every object of the world, (shape, radius, row, column), each about the same centre."""
    side = 2 * world.max_radius + 1
    stamps = np.zeros((len(world.shapes), world.max_radius + 1, side, side), np.bool_)
    for shape, name in enumerate(world.shapes):
        for radius in range(world.min_radius, world.max_radius + 1):
            inner = slice(world.max_radius - radius, world.max_radius + radius + 1)
            stamps[shape, radius, inner, inner] = stamp(name, radius)
    return stamps
