"""How much of each object is not to be seen, since others lie on it or merge with it.

A pixel of an object is lost where a later object covers it, and to both where they are of one
colour: a small red star on a red square leaves no trace.

n: scenes, K: object slots, D: pixels across the largest stamp.
"""

from __future__ import annotations

from functools import cache
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
    return world.spacing <= 2 * world.max_radius


def hides_too_much(scenes: Scenes, world: WorldConfig) -> Bools:
    """Where an object is lost to more than the share that the world allows, or wholly, (n,).

    Nobody could tell that a wholly hidden object is there, so no world allows one.
    """
    shares = hidden_shares(scenes, world)
    return np.any((shares > world.overlap) | (shares == 1), axis=1)


def hidden_shares(scenes: Scenes, world: WorldConfig) -> Floats:
    """The share of each object's pixels in the picture that is lost, (n, K).

    All later objects, and the earlier ones of its colour, count together. An empty slot has 0.
    """
    step = max(1, PIXELS // (2 * world.max_radius + 1) ** 2)
    parts = (scenes[start : start + step] for start in range(0, len(scenes), step))
    return np.concatenate([np.zeros(scenes.shape.shape)[:0], *(_shares(p, world) for p in parts)])


def _shares(scenes: Scenes, world: WorldConfig) -> Floats:
    slots = np.arange(scenes.shape.shape[1])
    shares = np.zeros(scenes.shape.shape)
    for slot in slots.tolist():
        near = abs(scenes.row - scenes.row[:, slot, None]) <= 2 * world.max_radius
        near &= abs(scenes.col - scenes.col[:, slot, None]) <= 2 * world.max_radius
        near &= (slots > slot) | ((slots < slot) & (scenes.color == scenes.color[:, slot, None]))
        near &= scenes.present & (scenes.count > slot)[:, None]
        met = np.flatnonzero(near.any(axis=1))
        members = scenes[met]
        area = np.arange(-world.max_radius, world.max_radius + 1)
        rows, cols = (each[:, slot, None] + area for each in (members.row, members.col))
        own = _covered(members, slot, rows, cols, world)
        own &= _inside(rows, world)[:, :, None] & _inside(cols, world)[:, None, :]
        hidden = np.zeros_like(own)
        for other in np.flatnonzero(near.any(axis=0)).tolist():
            here = np.flatnonzero(near[met, other])
            hidden[here] |= _covered(members[here], other, rows[here], cols[here], world)
        shares[met, slot] = (own & hidden).sum(axis=(1, 2)) / own.sum(axis=(1, 2))
    return shares


def _covered(scenes: Scenes, slot: int, rows: Ints, cols: Ints, world: WorldConfig) -> Bools:
    """Which pixels of these rows and columns, (n, D) each, the object in `slot` covers: (n, D, D).

    The slot must hold an object in every scene.
    """
    edge = world.max_radius + 1
    down = np.clip(rows - scenes.row[:, slot, None], -edge, edge) + edge
    right = np.clip(cols - scenes.col[:, slot, None], -edge, edge) + edge
    kind = scenes.shape[:, slot], scenes.radius[:, slot] - world.min_radius
    stamps = _stamps(tuple(world.shapes), world.min_radius, world.max_radius)
    shape, radius = (each[:, None, None] for each in kind)
    return stamps[shape, radius, down[:, :, None], right[:, None, :]]


def _inside(places: Ints, world: WorldConfig) -> Bools:
    return (places >= 0) & (places < world.image_size)


@cache
def _stamps(shapes: tuple[str, ...], smallest: int, largest: int) -> Bools:
    """Objects of these shapes and radii, (shape, radius, row, column), all about one centre.

    The outermost rows and columns are empty.
    """
    side = 2 * largest + 3
    stamps = np.zeros((len(shapes), largest - smallest + 1, side, side), np.bool_)
    for shape, name in enumerate(shapes):
        for radius in range(smallest, largest + 1):
            inner = slice(largest + 1 - radius, largest + 2 + radius)
            stamps[shape, radius - smallest, inner, inner] = stamp(name, radius)
    return stamps
