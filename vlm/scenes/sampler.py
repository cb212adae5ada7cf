"""Scenes drawn from (seed, split, scene number) and nothing else.

Scenes come in blocks of a constant size, with one random stream for each block and purpose,
and a last partial block is drawn whole and cut. So the first scenes do not depend on how
many follow, and what is asked about a scene cannot change its picture.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from vlm.scenes.scene import Bools, Ints, Scenes, concatenate

if TYPE_CHECKING:
    from vlm.config.schema import WorldConfig

BLOCK = 1024  # scenes a block; changing it changes every scene
SPLITS = {"train": 0, "val": 1, "test": 2, "calibration": 3, "fresh": 4}  # append only
PURPOSES = {"layout": 0, "noise": 1, "captions": 2, "questions": 3}  # append only


def stream(seed: int, split: str, block: int, purpose: str) -> np.random.Generator:
    """The random stream of one block for one purpose."""
    entropy = (seed, SPLITS[split], block, PURPOSES[purpose])
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(entropy)))


def blocks(n: int) -> Iterator[tuple[int, slice]]:
    """The number and the scenes of each block of n scenes; the last may be partial."""
    for block, start in enumerate(range(0, n, BLOCK)):
        yield block, slice(start, min(start + BLOCK, n))


def sample_scenes(world: WorldConfig, seed: int, split: str, n: int) -> Scenes:
    """The first n scenes of a split, n at least 1."""
    drawn = [_sample_block(world, stream(seed, split, block, "layout")) for block, _ in blocks(n)]
    return concatenate(drawn)[:n]


def _sample_block(world: WorldConfig, rng: np.random.Generator) -> Scenes:
    size = (BLOCK, world.max_objects)
    count = rng.integers(world.min_objects, world.max_objects + 1, BLOCK)
    shape = rng.integers(len(world.shapes), size=size)
    color = rng.integers(len(world.colors), size=size)
    radius = rng.integers(world.min_radius, world.max_radius + 1, size)
    row, col, count = _place(world, rng, count)
    mask = np.arange(world.max_objects) < count[:, None]
    return Scenes(count, shape * mask, color * mask, row * mask, col * mask, radius * mask)


def _place(world: WorldConfig, rng: np.random.Generator, count: Ints) -> tuple[Ints, Ints, Ints]:
    """Centres that keep their distance: rows (n, K), columns (n, K), and the counts that fit.

    An object that clashes with an earlier one of its scene is placed anew. A scene that has
    spent its redraws loses that object and those that were to follow.
    """
    low, high = world.margin, world.image_size - world.margin
    size = (len(count), world.max_objects)
    row, col = rng.integers(low, high, size), rng.integers(low, high, size)
    redraws = np.full(len(count), world.max_tries)
    for slot in range(1, world.max_objects):
        while (clash := (slot < count) & _clashes(row, col, slot, world.spacing)).any():
            count = np.where(clash & (redraws == 0), slot, count)
            again = np.flatnonzero(clash & (redraws > 0))
            row[again, slot] = rng.integers(low, high, len(again))
            col[again, slot] = rng.integers(low, high, len(again))
            redraws[again] -= 1
    return row, col, count


def _clashes(row: Ints, col: Ints, slot: int, spacing: int) -> Bools:
    """Where the object in `slot` is too near to one in an earlier slot, (n,)."""
    near_rows = np.abs(row[:, :slot] - row[:, slot, None]) < spacing
    near_cols = np.abs(col[:, :slot] - col[:, slot, None]) < spacing
    return np.any(near_rows & near_cols, axis=1)
