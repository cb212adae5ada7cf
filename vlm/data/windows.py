"""A split on disk as training reads it: pictures decoded once if they fit memory, else anew.

Texts are read window by window (`vlm.data.order`) either way, so that batches are the same.
"""

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from vlm.data.order import Layout
from vlm.data.schema import SCENES
from vlm.data.shards import (
    Ints,
    Pictures,
    RowGroup,
    decode_all,
    read_column,
    room,
    row_groups,
    string_lists,
)

Data = TypeVar("Data")


class Rows(Protocol):
    """A row for each picture: a tensor, or what makes one of those that are asked for."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: Tensor, /) -> Tensor: ...


class SceneWindow:
    """The scenes of some row groups; n of them.

    Attributes:
        images: (n, C, H, W) uint8.
        features: (n, D) of a frozen encoder, where they were computed before.
        source: the folder.
    """

    def __init__(
        self, groups: list[RowGroup], images: Rows, features: Rows | None, source: str
    ) -> None:
        self._groups = groups
        self.images, self.features, self.source = images, features, source

    @cached_property
    def scene_id(self) -> Ints:
        """(n,)."""
        return read_column(self._groups, "scene_id").to_numpy()

    @cached_property
    def captions(self) -> list[list[str]]:
        """Those of each scene."""
        return string_lists(read_column(self._groups, "captions"))

    @cached_property
    def caption_keys(self) -> list[list[str]]:
        """One for each caption."""
        return string_lists(read_column(self._groups, "caption_keys"))


class Windows(Generic[Data]):
    """A split on disk, of which one window is held at a time.

    Attributes:
        layout: how the pictures lie in row groups.
        picture_shape: (C, H, W).
        images: (N, C, H, W) uint8, all of them, if they fit `memory_mib`; else None, and those of a
            window are held as the table holds them and decoded for each batch.
        features: (N, D) of a frozen encoder; None until someone sets it.

    Args:
        folder: of the split.
        make: what training takes batches from, of the scenes of a window.
        memory_mib: what all pictures together may take, decoded.

    Raises:
        UserError: a scene table that is missing, empty or not `SCENES`, or a picture that cannot be
            decoded or differs in size from the first: here if all are held, else as they are read.
    """

    def __init__(
        self, folder: str | Path, make: Callable[[SceneWindow], Data], memory_mib: int
    ) -> None:
        self._source, self._make = str(folder), make
        self._groups = row_groups(folder, "scenes", SCENES)
        self.layout = Layout.of(self._groups)
        self._begin = np.cumsum(self.layout.sizes) - self.layout.sizes
        self.picture_shape = Pictures(self._groups[0]).decode(0).shape
        fits = len(self) * int(np.prod(self.picture_shape)) <= memory_mib << 20
        self.images = torch.from_numpy(decode_all(self._groups)) if fits else None
        self.features: Tensor | None = None
        self._held: tuple[list[int], Data] | None = None

    def __len__(self) -> int:
        return int(self.layout.sizes.sum())

    def window(self, groups: Ints) -> Data:
        """The data of these row groups."""
        wanted = groups.tolist()
        if self._held is None or self._held[0] != wanted:
            self._held = None  # before the next is read
            self._held = (wanted, self._make(self._scenes(wanted)))
        return self._held[1]

    def _scenes(self, wanted: list[int]) -> SceneWindow:
        groups = [self._groups[index] for index in wanted]
        runs = [np.arange(self._begin[i], self._begin[i] + self.layout.sizes[i]) for i in wanted]
        rows = torch.from_numpy(np.concatenate(runs))
        images, features = (
            None if whole is None else _Part(whole, rows) for whole in (self.images, self.features)
        )
        if images is None:
            images = _Encoded(groups, self.picture_shape)
        return SceneWindow(groups, images, features, self._source)


class _Part:
    """Some rows of a tensor, without a copy of them all."""

    def __init__(self, whole: Tensor, rows: Tensor) -> None:
        self._whole, self._rows = whole, rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, rows: Tensor, /) -> Tensor:
        return self._whole[self._rows[rows]]


class _Encoded:
    """Pictures of some row groups, as bytes of the table."""

    def __init__(self, groups: list[RowGroup], shape: tuple[int, ...]) -> None:
        self._shape = shape
        self._parts = [Pictures(group) for group in groups]
        self._ends = np.cumsum([group.rows for group in groups])

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __getitem__(self, rows: Tensor, /) -> Tensor:
        images = room(len(rows), self._shape)
        for place, row in enumerate(rows.tolist()):
            part = int(np.searchsorted(self._ends, row, side="right"))
            before = int(self._ends[part - 1]) if part else 0
            images[place] = self._parts[part].decode(row - before, self._shape)
        return torch.from_numpy(images)
