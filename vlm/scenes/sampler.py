"""Scenes drawn from (seed, split, scene number) and nothing else."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from vlm.errors import UserError
from vlm.scenes.overlap import hides_too_much, limits_overlap
from vlm.scenes.scene import CELLS, Bools, Ints, Scenes, cell_name, cell_of, concatenate
from vlm.scenes.streams import BLOCK, blocks, stream

if TYPE_CHECKING:
    from vlm.config.data import WorldConfig


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
    low, high = world.margin, world.image_size - world.margin
    row, col = rng.integers(low, high, size), rng.integers(low, high, size)
    count = _place(world, rng, Scenes(count, shape, color, row, col, radius))
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


def _place(world: WorldConfig, rng: np.random.Generator, scenes: Scenes) -> Ints:
    """Puts objects elsewhere, in place, until all may be where they are; (n,) how many fit.

    An object is placed anew that clashes with an earlier one of its scene, that hides too much of
    one, or whose shape is held out of the cell that it falls in. A scene that has spent its redraws
    loses that object and those that were to follow.
    """
    held = held_out_cells(world)
    low, high = world.margin, world.image_size - world.margin
    row, col, count = scenes.row, scenes.col, scenes.count.copy()
    redraws = np.full(len(count), world.max_tries)

    def misplaced(slot: int, rows: Ints) -> Bools:
        members = scenes[rows]
        cell = cell_of(members.row[:, slot], members.col[:, slot], world.image_size)
        wrong = _clashes(members.row, members.col, slot, world.spacing)
        wrong |= held[members.shape[:, slot], cell]
        if limits_overlap(world):
            so_far = replace(members, count=np.full(len(rows), slot + 1))
            wrong |= hides_too_much(so_far, world)
        return wrong

    for slot in range(world.max_objects):
        placed = np.flatnonzero(slot < count)
        while len(wrong := placed[misplaced(slot, placed)]):
            count[wrong[redraws[wrong] == 0]] = slot
            placed = wrong[redraws[wrong] > 0]
            row[placed, slot] = rng.integers(low, high, len(placed))
            col[placed, slot] = rng.integers(low, high, len(placed))
            redraws[placed] -= 1
    return count


def _clashes(row: Ints, col: Ints, slot: int, spacing: int) -> Bools:
    """Where the object in `slot` is too near to one in an earlier slot, (n,)."""
    near_rows = np.abs(row[:, :slot] - row[:, slot, None]) < spacing
    near_cols = np.abs(col[:, :slot] - col[:, slot, None]) < spacing
    return np.any(near_rows & near_cols, axis=1)
