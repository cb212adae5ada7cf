"""Scenes changed in one thing: an object taken away or moved, the background wiped.

n: scenes, K: object slots.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from vlm.scenes.overlap import hides_too_much, limits_overlap
from vlm.scenes.render import draw
from vlm.scenes.sampler import held_out_cells
from vlm.scenes.scene import Bools, Ints, Scenes, cell_of

if TYPE_CHECKING:
    from vlm.config.data import WorldConfig

NO_OBJECT = -1


def pick_objects(scenes: Scenes, seed: int) -> Ints:
    """The slot of one object of each scene, all equally likely, (n,); -1 in an empty scene."""
    chance = np.random.default_rng(seed).random(scenes.shape.shape)
    slots = np.where(scenes.present, chance, -1.0).argmax(axis=1)
    return np.where(scenes.count > 0, slots, NO_OBJECT)


def erase(scenes: Scenes, slots: Ints) -> Scenes:
    """The scenes without the objects in `slots`, (n,); those after them move up a slot."""
    return only(scenes, np.arange(scenes.shape.shape[1]) != slots[:, None])


def move(scenes: Scenes, slots: Ints, world: WorldConfig, seed: int) -> tuple[Scenes, Ints]:
    """The scenes with the objects in `slots` elsewhere, wherever the world may put them.

    The new centre is drawn from all that keep the margin, the distance to the other objects and
    the held-out combinations; an object with no such place stays. So does one that in none of
    `max_tries` of them leaves every object as much to be seen as the world's `overlap` asks.

    Returns:
        The scenes, and the slots of the objects that were moved, -1 where none was.
    """
    row, col = scenes.row.copy(), scenes.col.copy()
    moved = slots.copy()
    held = held_out_cells(world)
    ends = np.arange(world.margin, world.image_size - world.margin)
    rows, cols = (each.ravel() for each in np.meshgrid(ends, ends, indexing="ij"))
    cells = cell_of(rows, cols, world.image_size)
    chance = np.random.default_rng(seed).random(len(scenes))
    for scene in np.flatnonzero(slots != NO_OBJECT).tolist():
        slot, number = slots[scene], scenes.count[scene]
        others = np.delete(np.arange(number), slot)
        near = np.abs(rows - scenes.row[scene, others, None]) < world.spacing
        near &= np.abs(cols - scenes.col[scene, others, None]) < world.spacing
        free = ~near.any(axis=0) & ~held[scenes.shape[scene, slot], cells]
        free &= (rows != scenes.row[scene, slot]) | (cols != scenes.col[scene, slot])
        places = np.flatnonzero(free)
        if limits_overlap(world):
            order = np.random.default_rng((seed, scene)).permutation(places)[: world.max_tries]
            twins = scenes[np.full(len(order), scene)]
            twins.row[:, slot], twins.col[:, slot] = rows[order], cols[order]
            places = order[~hides_too_much(twins, world)]
        if not len(places):
            moved[scene] = NO_OBJECT
            continue
        place = places[int(chance[scene] * len(places))]
        row[scene, slot], col[scene, slot] = rows[place], cols[place]
    return replace(scenes, row=row, col=col), moved


def object_pixels(scenes: Scenes, world: WorldConfig) -> Bools:
    """The pixels that any object covers, (n, H, W)."""
    return np.asarray((draw(scenes, world) > 0).any(axis=1), np.bool_)


def only(scenes: Scenes, slots: Bools) -> Scenes:
    """The scenes with the objects of `slots`, (n, K), alone."""
    kept = slots & scenes.present
    order = np.argsort(~kept, axis=1, kind="stable")
    count = kept.sum(axis=1)
    filled = np.arange(slots.shape[1]) < count[:, None]
    columns = (scenes.shape, scenes.color, scenes.row, scenes.col, scenes.radius)
    return Scenes(
        count, *(np.where(filled, np.take_along_axis(each, order, axis=1), 0) for each in columns)
    )
