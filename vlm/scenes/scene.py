"""Many scenes at once, as arrays.

Shape letters of this package: n scenes, K object slots a scene, C channels, H and W pixels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from vlm.config.data import WorldConfig

# The cells of the 3x3 grid that captions name, row by row.
CELLS = (
    *("top left", "top center", "top right"),
    *("middle left", "center", "middle right"),
    *("bottom left", "bottom center", "bottom right"),
)
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class ObjectRecord(TypedDict):
    """One object as it is stored: names, and pixels for centre and radius."""

    shape: str
    color: str
    row: int
    col: int
    radius: int


@dataclass(frozen=True, eq=False)
class Scenes:
    """n scenes of at most K objects; slots from `count` on are empty and hold zeros.

    `shape` and `color` index `world.shapes` and `world.colors`; the rest is in pixels.
    """

    count: Ints  # (n,)
    shape: Ints  # (n, K)
    color: Ints  # (n, K)
    row: Ints  # (n, K), of the centre
    col: Ints  # (n, K), of the centre
    radius: Ints  # (n, K)

    @property
    def present(self) -> Bools:
        """Which slots hold an object, (n, K)."""
        return np.arange(self.shape.shape[1]) < self.count[:, None]

    def __len__(self) -> int:
        return len(self.count)

    def __getitem__(self, part: slice | Ints | Bools) -> Scenes:
        """Some of the scenes: those of a slice, of these numbers, or where a mask holds."""
        return Scenes(*(getattr(self, field.name)[part] for field in fields(self)))

    def records(self, world: WorldConfig) -> list[list[ObjectRecord]]:
        """The objects of each scene, as they are stored."""
        shapes, colors = np.array(world.shapes, object), np.array(world.colors, object)
        mask = self.present
        objects: list[ObjectRecord] = [
            {"shape": shape, "color": color, "row": row, "col": col, "radius": radius}
            for shape, color, row, col, radius in zip(
                shapes[self.shape[mask]].tolist(),
                colors[self.color[mask]].tolist(),
                self.row[mask].tolist(),
                self.col[mask].tolist(),
                self.radius[mask].tolist(),
                strict=True,
            )
        ]
        ends = np.cumsum(self.count).tolist()
        return [
            objects[end - count : end] for end, count in zip(ends, self.count.tolist(), strict=True)
        ]


def cell_of(row: Ints, col: Ints, image_size: int) -> Ints:
    """The index in `CELLS` of each centre; all three arrays have the same shape."""
    return 3 * (3 * row // image_size) + 3 * col // image_size


def cell_name(cell: str) -> str:
    """A cell in one word, as keys and parameters have it: `top-left`."""
    return cell.replace(" ", "-")


def from_records(records: Sequence[Sequence[Mapping[str, Any]]], world: WorldConfig) -> Scenes:
    """The inverse of `Scenes.records`.

    Raises:
        ValueError: A shape or colour that the world does not have.
    """
    count = np.array([len(objects) for objects in records], np.int64).reshape(-1)
    slots = max(world.max_objects, int(count.max(initial=0)))
    flat = [item for objects in records for item in objects]
    mask = np.arange(slots) < count[:, None]

    def column(values: list[int]) -> Ints:
        filled = np.zeros((len(count), slots), np.int64)
        filled[mask] = values
        return filled

    return Scenes(
        count,
        column([_index(world.shapes, item["shape"], "shape") for item in flat]),
        column([_index(world.colors, item["color"], "color") for item in flat]),
        column([item["row"] for item in flat]),
        column([item["col"] for item in flat]),
        column([item["radius"] for item in flat]),
    )


def concatenate(parts: Sequence[Scenes]) -> Scenes:
    """One `Scenes` after another, with the slots of whichever has the most."""
    slots = max(part.shape.shape[1] for part in parts)

    def column(part: Scenes, name: str) -> Ints:
        values = getattr(part, name)
        missing = slots - values.shape[1] if values.ndim == 2 else 0
        return np.pad(values, ((0, 0), (0, missing))) if missing else values

    names = [field.name for field in fields(Scenes)]
    return Scenes(*(np.concatenate([column(part, name) for part in parts]) for name in names))


def _index(names: Sequence[str], name: str, what: str) -> int:
    if name not in names:
        raise ValueError(f"{what} {name!r} is not in this world, expected one of {list(names)}")
    return names.index(name)
