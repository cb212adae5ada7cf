"""The order in which training sees a split's pictures.

It is a function of the seed, the batch size and the files alone, never of the machine's memory.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from vlm.data.shards import Ints, RowGroup
from vlm.rules import check_batch

WINDOW_BYTES = 128 << 20  # of row groups that are shuffled together
WINDOW_BATCHES = 8  # at least, on average: the end of each window is left out


@dataclass(frozen=True, eq=False)
class Layout:
    """How a split's pictures lie in row groups.

    Attributes:
        sizes: (G,) pictures of each.
        total_bytes: of all, before compression.
    """

    sizes: Ints
    total_bytes: int

    @classmethod
    def of(cls, groups: list[RowGroup]) -> "Layout":
        """The layout of a scene table on disk."""
        sizes = np.array([group.rows for group in groups], np.int64)
        return cls(sizes, sum(group.size for group in groups))

    @classmethod
    def whole(cls, num_pictures: int) -> "Layout":
        """That of a table in memory: a single group."""
        return cls(np.array([num_pictures], np.int64), 0)


class Sight(NamedTuple):
    """What a step sees.

    Attributes:
        groups: the row groups of its window, ascending.
        rows: (batch_size,) its pictures, counted over the pictures of those groups in their order.
    """

    groups: Ints
    rows: Tensor


class Window(NamedTuple):
    """Row groups that are shuffled together, ascending, and what shuffles them."""

    groups: Ints
    chance: np.random.SeedSequence


class PictureOrder:
    """Which pictures each step sees: a function of (seed, step) alone.

    Each epoch deals the row groups out anew to windows, all of about as many; the pictures of a
    window are shuffled and cut into batches, of which the last, if short, is left out. So no batch
    holds a picture twice, and no epoch does. A split of up to `WINDOW_BYTES` is one window.
    """

    def __init__(self, layout: Layout, batch_size: int, seed: int) -> None:
        num_pictures = int(layout.sizes.sum())
        check_batch(batch_size, num_pictures)
        self._sizes, self._batch, self._seed = layout.sizes, batch_size, seed
        by_bytes = -(-layout.total_bytes // WINDOW_BYTES)
        by_batches = num_pictures // (WINDOW_BATCHES * batch_size)
        self._number = max(min(by_bytes, by_batches, len(layout.sizes)), 1)
        self._first = 0  # step of the epoch below
        self._begin(0)

    def windows(self, epoch: int) -> list[Window]:
        """The windows of an epoch, in their order."""
        chance, groups = np.random.SeedSequence((self._seed, epoch)), np.arange(len(self._sizes))
        if self._number == 1:
            return [Window(groups, chance)]
        dealt = np.array_split(np.random.default_rng(chance).permutation(groups), self._number)
        return [
            Window(np.sort(part), own)
            for part, own in zip(dealt, chance.spawn(self._number), strict=True)
        ]

    def at(self, step: int) -> Sight:
        """What step `step` sees."""
        if step < self._first:
            self._first = 0
            self._begin(0)
        while step >= self._first + self._ends[-1]:
            self._first += int(self._ends[-1])
            self._begin(self._epoch + 1)
        number = int(np.searchsorted(self._ends, step - self._first, side="right"))
        groups, chance = self._windows[number]
        if number not in self._order:
            order = np.random.default_rng(chance).permutation(int(self._sizes[groups].sum()))
            self._order = {number: torch.from_numpy(order)}
        index = step - self._first - (int(self._ends[number - 1]) if number else 0)
        return Sight(groups, self._order[number][index * self._batch :][: self._batch])

    def _begin(self, epoch: int) -> None:
        self._epoch, self._windows = epoch, self.windows(epoch)
        steps = [int(self._sizes[window.groups].sum()) // self._batch for window in self._windows]
        self._ends = np.cumsum(steps)
        self._order: dict[int, Tensor] = {}  # that of the last window asked for
