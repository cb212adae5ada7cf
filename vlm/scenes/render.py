"""Pictures drawn from scenes alone: stamps on a canvas, then noise."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from vlm.errors import UserError
from vlm.scenes.sampler import blocks, stream
from vlm.scenes.scene import Bools, Ints, Scenes

if TYPE_CHECKING:
    from vlm.config.data import WorldConfig

Images = npt.NDArray[np.uint8]
BATCH_VALUES = 1 << 24  # pixel values drawn at once, so that large pictures fit in memory

RGB = {
    "white": (1, 1, 1),
    "red": (1, 0, 0),
    "green": (0, 1, 0),
    "blue": (0, 0, 1),
    "yellow": (1, 1, 0),
    "cyan": (0, 1, 1),
    "magenta": (1, 0, 1),
}

# Which pixels belong to a shape of radius r, from the distances (dr, dc) to its centre.
# All stay within r rows and r columns. From radius 3 on no two of them are the same.
STAMPS: dict[str, Callable[[Ints, Ints, int], Bools]] = {
    "plus": lambda dr, dc, r: np.minimum(abs(dr), abs(dc)) <= 1,
    "circle": lambda dr, dc, r: dr**2 + dc**2 <= r**2,
    "square": lambda dr, dc, r: np.maximum(abs(dr), abs(dc)) <= r,
    "triangle": lambda dr, dc, r: 2 * abs(dc) <= dr + r,
    "diamond": lambda dr, dc, r: abs(dr) + abs(dc) <= r,
    "ring": lambda dr, dc, r: (dr**2 + dc**2 <= r**2) & (dr**2 + dc**2 > max(r - 2, 0) ** 2),
    "star": lambda dr, dc, r: (dr == 0) | (dc == 0) | (abs(dr) == abs(dc)),
}


@cache
def stamp(shape: str, radius: int) -> Bools:
    """The pixels of one object, (2 radius + 1, 2 radius + 1)."""
    dr, dc = np.mgrid[-radius : radius + 1, -radius : radius + 1]
    return STAMPS[shape](dr, dc, radius)


def check_stamps(world: WorldConfig) -> None:
    """Raise UserError where two shapes of the world would look the same."""
    for radius in range(world.min_radius, world.max_radius + 1):
        seen: dict[bytes, str] = {}
        for shape in world.shapes:
            twin = seen.setdefault(stamp(shape, radius).tobytes(), shape)
            if twin != shape:
                raise UserError(
                    f"data.world.min_radius {world.min_radius}: {twin} and {shape} look the same"
                    f" at radius {radius}, expected at least {radius + 1}"
                )


def draw(scenes: Scenes, world: WorldConfig) -> npt.NDArray[np.float32]:
    """The pictures without noise, (n, C, H, W) in [0, 1]; a later object covers an earlier one."""
    size = world.image_size
    radii = np.unique(scenes.radius[scenes.present])
    edge = int(radii.max(initial=0))
    # Each pixel of the canvas holds 0 for background or 1 + color; the edge spares clipping.
    canvas = np.zeros((len(scenes), size + 2 * edge, size + 2 * edge), np.uint8)
    for slot in range(scenes.shape.shape[1]):
        present = slot < scenes.count
        for shape, name in enumerate(world.shapes):
            for radius in radii.tolist():
                here = present & (scenes.shape[:, slot] == shape)
                here = np.flatnonzero(here & (scenes.radius[:, slot] == radius))
                pixel_row, pixel_col = np.nonzero(stamp(name, radius))
                rows = scenes.row[here, slot, None] + pixel_row - radius + edge
                cols = scenes.col[here, slot, None] + pixel_col - radius + edge
                canvas[here[:, None], rows, cols] = 1 + scenes.color[here, slot, None]
    inner = canvas[:, edge : edge + size, edge : edge + size]
    palette = np.array([(0, 0, 0), *(RGB[color] for color in world.colors)], np.float32)
    return np.stack([palette[inner, channel] for channel in range(world.channels)], axis=1)


def render_batches(scenes: Scenes, world: WorldConfig, seed: int, split: str) -> Iterator[Images]:
    """The pictures of a split's first scenes, in order, some at a time: each (b, C, H, W)."""
    check_stamps(world)
    step = max(1, BATCH_VALUES // (world.channels * world.image_size**2))
    for block, part in blocks(len(scenes)):
        rng = stream(seed, split, block, "noise")
        members = scenes[part]
        for start in range(0, len(members), step):
            images = draw(members[start : start + step], world)
            images += world.noise * rng.standard_normal(images.shape, np.float32)
            yield np.rint(np.clip(images, 0, 1) * 255).astype(np.uint8)


def render(scenes: Scenes, world: WorldConfig, seed: int, split: str) -> Images:
    """The pictures of a split's first scenes, (n, C, H, W) uint8: noise, clip, round."""
    return np.concatenate(list(render_batches(scenes, world, seed, split)))
