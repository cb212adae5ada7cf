"""Processes that train together, on PyTorch's own engine.

Shapes: b rows of one process, B = size x b rows of all of them.

Every process sees the same global batches and takes its share of each, so how many there are
changes rounding and nothing else.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


@dataclass(frozen=True)
class World:
    """The processes of a run, and which of them this is.

    The default is one alone, for which nothing here communicates. With more, the default process
    group must be up.
    """

    rank: int = 0
    size: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this process is the one that writes files."""
        return self.rank == 0

    def own(self, rows: int) -> slice:
        """Which of a global batch's B rows are this process's."""
        return slice(self.rank * rows // self.size, (self.rank + 1) * rows // self.size)

    def share(self, items: Tensor) -> Tensor:
        """This process's rows of a global batch: (B, ...) -> (b, ...)."""
        return items[self.own(len(items))]

    def gather(self, rows: Tensor) -> Tensor:
        """All rows in order, (b, ...) -> (B, ...); gradients flow back to the rows' owners."""
        return _Gather.apply(rows, self) if self.size > 1 else rows

    def begin(self, rows: int) -> int:
        """How many of the B rows come before this process's own b."""
        return self.rank * rows

    def add(self, tensor: Tensor) -> Tensor:
        """The sum of every process's tensor, in place."""
        if self.size > 1:
            dist.all_reduce(tensor)
        return tensor

    def least(self, tensor: Tensor) -> Tensor:
        """The smallest of every process's values, in place."""
        if self.size > 1:
            dist.all_reduce(tensor, dist.ReduceOp.MIN)
        return tensor

    def sums(self, values: Sequence[float], device: torch.device) -> list[float]:
        """Each value, added up over the processes."""
        if self.size == 1:
            return list(values)
        return self.add(torch.tensor(values, dtype=torch.float64, device=device)).tolist()

    def from_first(self, thing: Any) -> Any:
        """The first process's `thing`, on every process."""
        if self.size == 1:
            return thing
        box = [thing]
        dist.broadcast_object_list(box)
        return box[0]

    def everyones(self, thing: Any) -> list[Any]:
        """Each process's `thing`, in order, on every process."""
        things = [thing] * self.size
        if self.size > 1:
            dist.all_gather_object(things, thing)
        return things


ALONE = World()


class _Gather(torch.autograd.Function):
    """An all-gather whose backward pass adds up what the processes want of each row."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, world: World) -> Tensor:
        ctx.world = world
        parts = [torch.empty_like(rows) for _ in range(world.size)]
        dist.all_gather(parts, rows.contiguous())
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return ctx.world.share(ctx.world.add(grads[0].clone())), None
