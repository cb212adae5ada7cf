"""Pictures drawn from scenes alone: stamps on a canvas, clutter beneath, then noise.

Noise is looked up: a random 16-bit word picks one of 65,536 equally likely quantiles of the
Gaussian, and a table holds, for each intensity and word, the 8-bit pixel that they give. So no
value lies further out than the last quantile, 4.3 sigma; of a true Gaussian two values in a hundred
thousand do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from vlm.errors import UserError
from vlm.scenes.clutter import add_clutter, sample_marks, with_faint
from vlm.scenes.scene import Bools, Ints, Scenes
from vlm.scenes.streams import blocks, stream

if TYPE_CHECKING:
    from vlm.config.data import WorldConfig

Images = npt.NDArray[np.uint8]
BATCH_VALUES = 1 << 18  # pixel values drawn at once: they and their words stay in the cache
WORDS = 1 << 16  # that noise is drawn from

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


def paint(scenes: Scenes, world: WorldConfig) -> Images:
    """What each pixel shows, (n, H, W): 0 for background, else 1 and its colour's number.

    A later object covers an earlier one.
    """
    size = world.image_size
    radii = np.unique(scenes.radius[scenes.present])
    edge = int(radii.max(initial=0))
    width = size + 2 * edge  # the edge spares clipping
    canvas = np.zeros((len(scenes), width, width), np.uint8)
    flat = canvas.reshape(-1)
    corner = np.arange(len(scenes))[:, None] * width**2
    centre = corner + (scenes.row + edge) * width + scenes.col + edge
    for slot in range(scenes.shape.shape[1]):
        present = slot < scenes.count
        for shape, name in enumerate(world.shapes):
            for radius in radii.tolist():
                here = present & (scenes.shape[:, slot] == shape)
                here = np.flatnonzero(here & (scenes.radius[:, slot] == radius))
                pixel_row, pixel_col = np.nonzero(stamp(name, radius))
                offset = (pixel_row - radius) * width + pixel_col - radius
                flat[centre[here, slot, None] + offset] = 1 + scenes.color[here, slot, None]
    return canvas[:, edge : edge + size, edge : edge + size]


def draw(scenes: Scenes, world: WorldConfig) -> npt.NDArray[np.float32]:
    """The pictures without noise, (n, C, H, W) in [0, 1]."""
    canvas, palette = paint(scenes, world), _palette(world)
    return np.stack([palette[canvas, channel] for channel in range(world.channels)], axis=1)


def render_batches(
    scenes: Scenes, world: WorldConfig, seed: int, split: str, first: int = 0
) -> Iterator[Images]:
    """The pictures of a split's scenes from block `first` on, some at a time: each (b, C, H, W)."""
    check_stamps(world)
    step = max(1, BATCH_VALUES // (world.channels * world.image_size**2))
    for block, part in blocks(len(scenes), first):
        rng = stream(seed, split, block, "noise")
        members = scenes[part]
        marks = sample_marks(world, seed, split, block)[: len(members)]
        for start in range(0, len(members), step):
            canvas = paint(members[start : start + step], world)
            add_clutter(canvas, marks[start : start + step], world)
            yield _noisy(canvas, world, rng)


def render(scenes: Scenes, world: WorldConfig, seed: int, split: str) -> Images:
    """The pictures of a split's first scenes, (n, C, H, W) uint8: noise, clip, round."""
    return np.concatenate(list(render_batches(scenes, world, seed, split)))


def _noisy(canvas: Images, world: WorldConfig, rng: np.random.Generator) -> Images:
    """The pictures of a canvas (n, H, W), with noise of its own for every pixel and channel."""
    palette = _palette(world)
    levels, level_of = np.unique(palette, return_inverse=True)
    level_of = level_of.reshape(palette.shape).astype(np.uint8)
    shown = np.empty((len(canvas), world.channels, *canvas.shape[1:]), np.uint8)
    for channel in range(world.channels):
        np.take(level_of[:, channel], canvas, out=shown[:, channel])
    table = _pixels(tuple(levels.tolist()), world.noise)
    if not world.noise:
        return table[shown, 0]
    # Raw words, since NumPy promises that these stay the same; each picture takes whole draws of
    # 64 bits, so that none hangs on how many are drawn at once.
    draws = -(-shown[0].size // 4)
    raw = rng.bit_generator.random_raw(len(canvas) * draws)
    words = raw.astype("<u8", copy=False).view("<u2").reshape(len(canvas), 4 * draws)
    index = np.left_shift(shown.reshape(len(canvas), -1), 16, dtype=np.intp)
    index += words[:, : index.shape[1]]
    return table.reshape(-1)[index].reshape(shown.shape)


def _palette(world: WorldConfig) -> npt.NDArray[np.float32]:
    """The intensities of background and colours, then of clutter if there is any: (., C)."""
    colors = [(0, 0, 0), *(RGB[color] for color in world.colors)]
    palette = np.array(colors, np.float32)[:, : world.channels]
    return with_faint(palette) if world.clutter else palette


@cache
def _pixels(levels: tuple[float, ...], noise: float) -> Images:
    """The 8-bit pixel of each intensity under each word's noise, (levels, `WORDS`).

    Platforms may differ in the last bit of a quantile. That would change a pixel only if a value
    came so close to the half between two: at sigma 0.03 none is nearer to one than 1e-5 of a step.
    """
    values = np.array(levels)[:, None] + noise * _quantiles()
    return np.rint(np.clip(values, 0, 1) * 255).astype(np.uint8)


@cache
def _quantiles() -> npt.NDArray[np.float64]:
    """The Gaussian's value at the middle of each of `WORDS` equally likely steps."""
    half = WORDS // 2
    upper = [NormalDist().inv_cdf(0.5 + (step + 0.5) / WORDS) for step in range(half)]
    return np.concatenate([-np.array(upper[::-1]), upper])
