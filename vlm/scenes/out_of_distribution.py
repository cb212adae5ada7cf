"""Scenes unlike those that training draws, in one way each.

- *combination*: at least one object of a shape where the world never puts that shape
  (`world.held_out`), and no more objects than elsewhere. Scenes of many objects are commoner than
  elsewhere, since each object is a chance of such a combination.
- *crowd*: one object more than the world's most, and no held-out combination.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from vlm.scenes.sampler import held_out_cells, sample_block
from vlm.scenes.scene import Bools, Scenes, cell_of, concatenate
from vlm.scenes.streams import BLOCK, stream

if TYPE_CHECKING:
    from vlm.config.data import WorldConfig

SPLIT = "test_ood"
# Scenes are drawn until enough are of the kind that is wanted; where fewer than one in so many is,
# there are fewer.
PATIENCE = 32


def sample_unlike(world: WorldConfig, seed: int, n: int) -> Scenes:
    """n scenes, the first half of them combinations where the world holds any out, then crowds.

    Fewer where the world has hardly any room for them: one object more may not fit.
    """
    crowded = world.model_copy(
        update={"min_objects": world.max_objects + 1, "max_objects": world.max_objects + 1}
    )
    combinations = n // 2 if world.held_out else 0
    crowds = _draw(crowded, seed, 1, n - combinations, lambda s: s.count == crowded.max_objects)
    if not combinations:
        return crowds
    whole = world.model_copy(update={"held_out": []})
    combined = _draw(whole, seed, 0, combinations, lambda s: has_held_out(s, world))
    return concatenate([combined, crowds])


def has_held_out(scenes: Scenes, world: WorldConfig) -> Bools:
    """Which scenes have an object of a combination that the world holds out, (n,)."""
    cell = cell_of(scenes.row, scenes.col, world.image_size)
    found = held_out_cells(world)[scenes.shape, cell] & scenes.present
    return np.asarray(found.any(axis=1), np.bool_)


def _draw(
    world: WorldConfig, seed: int, kind: int, n: int, wanted: Callable[[Scenes], Bools]
) -> Scenes:
    """The first n scenes that are as wanted; even blocks are of kind 0, odd ones of kind 1."""
    found: list[Scenes] = []
    number = 0
    for turn in range(1 + PATIENCE * n // BLOCK):
        scenes = sample_block(world, stream(seed, SPLIT, 2 * turn + kind, "layout"))
        found.append(scenes[wanted(scenes)])
        number += len(found[-1])
        if number >= n:
            break
    return concatenate(found)[:n]
