"""Scenes drawn from (seed, split, scene number) and nothing else.

Scenes come in blocks of a constant size, with one random stream for each block and purpose,
and a last partial block is drawn whole and cut. So the first scenes do not depend on how
many follow, and what is asked about a scene cannot change its picture.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from vlm.errors import UserError
from vlm.scenes.scene import CELLS, Bools, Ints, Scenes, cell_name, cell_of, concatenate

if TYPE_CHECKING:
    from vlm.config.data import WorldConfig

BLOCK = 1024  # scenes a block; changing it changes every scene
SPLITS = {
    "train": 0,
    "val": 1,
    "test": 2,
    "calibration": 3,
    "fresh": 4,
    "test_ood": 5,
}  # append only
PURPOSES = {"layout": 0, "noise": 1, "captions": 2, "questions": 3}  # append only


def stream(seed: int, split: str, block: int, purpose: str) -> np.random.Generator:
    """The random stream of one block for one purpose."""
    entropy = (seed, SPLITS[split], block, PURPOSES[purpose])
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(entropy)))


def blocks(n: int, first: int = 0) -> Iterator[tuple[int, slice]]:
    """The number and the scenes of each block of n scenes; the last may be partial.

    `first` is the number of their first block.
    """
    for block, start in enumerate(range(0, n, BLOCK), first):
        yield block, slice(start, min(start + BLOCK, n))


def sample_scenes(world: WorldConfig, seed: int, split: str, n: int, first: int = 0) -> Scenes:
    """n scenes of a split, n at least 1, from block `first` on."""
    drawn = [
        sample_block(world, stream(seed, split, block, "layout")) for block, _ in blocks(n, first)
    ]
    return concatenate(drawn)[:n]


def sample_block(world: WorldConfig, rng: np.random.Generator) -> Scenes:
    """`BLOCK` scenes from one stream."""
    size = (BLOCK, world.max_objects)
    count = rng.integers(world.min_objects, world.max_objects + 1, BLOCK)
    shape = rng.integers(len(world.shapes), size=size)
    color = rng.integers(len(world.colors), size=size)
    radius = rng.integers(world.min_radius, world.max_radius + 1, size)
    row, col, count = _place(world, rng, count, shape)
    mask = np.arange(world.max_objects) < count[:, None]
    return Scenes(count, shape * mask, color * mask, row * mask, col * mask, radius * mask)


def held_out_cells(world: WorldConfig) -> Bools:
    """Which shapes the world keeps out of which cells, (shapes, 9)."""
    cells = [cell_name(cell) for cell in CELLS]
    names = [[f"{shape}@{cell}" for cell in cells] for shape in world.shapes]
    return np.isin(names, world.held_out)


def check_held_out(world: WorldConfig) -> None:
    """Raise UserError where a held-out combination can't be, or leaves a shape no place."""
    low, high = world.margin, world.image_size - 1 - world.margin
    ends = np.arange(low, high + 1)
    reached = np.unique(cell_of(ends[:, None], ends, world.image_size)).tolist()
    cells = [cell_name(CELLS[cell]) for cell in reached]
    for combination in world.held_out:
        shape, _, cell = combination.partition("@")
        if shape not in world.shapes or cell not in cells:
            raise UserError(
                f"data.world.held_out: got {combination}, expected SHAPE@CELL with a shape of"
                f" {', '.join(world.shapes)} and a cell of {', '.join(cells)}"
            )
    for shape in world.shapes:
        if all(f"{shape}@{cell}" in world.held_out for cell in cells):
            raise UserError(
                f"data.world.held_out: got every cell for {shape}, expected one left for training"
            )


def _place(
    world: WorldConfig, rng: np.random.Generator, count: Ints, shape: Ints
) -> tuple[Ints, Ints, Ints]:
    """Centres that keep their distance: rows (n, K), columns (n, K), and the counts that fit.

    An object that clashes with an earlier one of its scene, or whose shape is held out of the cell
    that it falls in, is placed anew. A scene that has spent its redraws loses that object and those
    that were to follow.
    """
    held = held_out_cells(world)
    low, high = world.margin, world.image_size - world.margin
    size = (len(count), world.max_objects)
    row, col = rng.integers(low, high, size), rng.integers(low, high, size)
    redraws = np.full(len(count), world.max_tries)

    def misplaced(slot: int) -> Bools:
        cell = cell_of(row[:, slot], col[:, slot], world.image_size)
        return _clashes(row, col, slot, world.spacing) | held[shape[:, slot], cell]

    for slot in range(world.max_objects):
        while (clash := (slot < count) & misplaced(slot)).any():
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
