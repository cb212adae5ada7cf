"""What a decoder looks at beside its own text, and how its keys and values lie in memory.

Shapes: B rows, P items (pictures or questions) that rows share, S memory tokens, D width,
H heads, K = D / H width of a head.

One picture serves all its questions, one question all its pictures. So items are projected once
each, and rows point at them. The projected keys and values are copied for each row only where that
is quicker: items of one token, and batches in which one item has most of the rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from vlm.errors import UserError


@dataclass(frozen=True)
class MemoryPart:
    """Tokens that cross-attention reads, which several rows of a batch may share.

    Attributes:
        tokens: (P, S, D).
        rows: (B,) indices into P; None where row b reads item b.
        mask: (P, S) bool, True on real tokens; None where all are real.
    """

    tokens: Tensor
    rows: Tensor | None = None
    mask: Tensor | None = None

    def take(self, items: Tensor) -> Tensor:
        """(P, ...) -> (B, ...): what each row reads."""
        return items if self.rows is None else items.index_select(0, self.rows)

    @property
    def batch_size(self) -> int:
        """B, rows."""
        return len(self.tokens if self.rows is None else self.rows)


@dataclass(frozen=True)
class Memory:
    """All that a decoder knows beside its text.

    Attributes:
        parts: what cross-attention reads, laid end to end.
        context: (B, D) a vector that every text token starts from; None for none.
    """

    parts: Sequence[MemoryPart]
    context: Tensor | None = None

    @classmethod
    def of(cls, memory: "Tensor | Memory") -> "Memory":
        """A plain (B, S, D) tensor is one part, a row each."""
        return cls([MemoryPart(memory)]) if isinstance(memory, Tensor) else memory

    def mask(self) -> Tensor | None:
        """(B, 1, 1, S) bool over the parts; None where every token is real."""
        if all(part.mask is None for part in self.parts):
            return None
        masks = [
            part.take(
                torch.ones(part.tokens.shape[:2], dtype=torch.bool, device=part.tokens.device)
                if part.mask is None
                else part.mask
            )
            for part in self.parts
        ]
        return torch.cat(masks, dim=1)[:, None, None]

    def check(self, batch_size: int, width: int) -> None:
        """Refuse a memory of another batch or width."""
        for part in self.parts:
            if part.tokens.shape[-1] != width:
                raise UserError(f"memory width {part.tokens.shape[-1]} does not match {width}")
            if part.batch_size != batch_size:
                raise UserError(f"memory batch size {part.batch_size} does not match {batch_size}")


@dataclass(frozen=True)
class Sharing:
    """Which item each row reads, and the rows sorted by item, so that one read serves them all.

    Attributes:
        rows: (B,) indices into P.
        items: P.
    """

    rows: Tensor
    items: int

    @cached_property
    def _in_order(self) -> bool:
        """Whether the rows already lie item by item, as many of each."""
        times, rest = divmod(len(self.rows), self.items)
        order = torch.arange(self.items, device=self.rows.device).repeat_interleave(times)
        return rest == 0 and torch.equal(self.rows, order)

    @cached_property
    def _places(self) -> tuple[Tensor, Tensor, int]:
        """Each row's place (B,) among P groups of R slots, the slots' rows (P R,), and R.

        A group with fewer rows than the largest repeats row 0 in what is left.
        """
        counts = self.rows.bincount(minlength=self.items)
        size = int(counts.max())
        order = self.rows.argsort(stable=True)
        rank = torch.arange(len(order), device=order.device)
        rank -= (counts.cumsum(0) - counts)[self.rows[order]]
        places = torch.empty_like(order)
        places[order] = self.rows[order] * size + rank
        slots = torch.zeros(self.items * size, dtype=order.dtype, device=order.device)
        slots[places] = torch.arange(len(order), device=order.device)
        return places, slots, size

    def worthwhile(self) -> bool:
        """Whether groups of equal size leave less than three in four slots empty."""
        return self._in_order or len(self._places[1]) <= 4 * len(self.rows)

    def group(self, x: Tensor) -> Tensor:
        """(B, ...) -> (P, R, ...): the rows of each item side by side."""
        if not self._in_order:
            x = x.index_select(0, self._places[1])
        return x.unflatten(0, (self.items, -1))

    def ungroup(self, x: Tensor) -> Tensor:
        """(P, R, ...) -> (B, ...): the inverse."""
        x = x.flatten(0, 1)
        return x if self._in_order else x.index_select(0, self._places[0])


@dataclass(frozen=True)
class OwnPairs:
    """Keys and values laid out a row each, token by token.

    Attributes:
        key, value: (S, B, H, K).
    """

    key: Tensor
    value: Tensor

    def expand(self) -> tuple[Tensor, Tensor]:
        """(B, H, S, K) each."""
        return self.key.permute(1, 2, 0, 3), self.value.permute(1, 2, 0, 3)

    def compact(self) -> "OwnPairs":
        """The same, contiguous."""
        return OwnPairs(self.key.contiguous(), self.value.contiguous())

    def join(self, other: "OwnPairs") -> "OwnPairs":
        """The tokens of both, laid end to end."""
        return OwnPairs(torch.cat([self.key, other.key]), torch.cat([self.value, other.value]))

    def reorder(self, rows: Tensor) -> "OwnPairs":
        """Row b becomes what row rows[b] was."""
        return OwnPairs(self.key.index_select(1, rows), self.value.index_select(1, rows))


@dataclass(frozen=True)
class SharedPairs:
    """Keys and values of items that several rows read, an item once.

    Attributes:
        key, value: (P, H, S, K).
        sharing: which row reads which.
    """

    key: Tensor
    value: Tensor
    sharing: Sharing

    def expand(self) -> tuple[Tensor, Tensor]:
        """(B, H, S, K) each: copies, for a kernel that wants a row each."""
        rows = self.sharing.rows
        return self.key.index_select(0, rows), self.value.index_select(0, rows)

    def compact(self) -> "SharedPairs":
        """The same, contiguous."""
        return SharedPairs(self.key.contiguous(), self.value.contiguous(), self.sharing)

    def reorder(self, rows: Tensor) -> "SharedPairs":
        """Row b becomes what row rows[b] was; nothing is copied."""
        moved = self.sharing.rows[rows]
        if torch.equal(moved, self.sharing.rows):  # as beams of one text do
            return self
        return SharedPairs(self.key, self.value, Sharing(moved, self.sharing.items))


class MemoryPairs:
    """One layer's keys and values of a memory, its parts in their order."""

    def __init__(self, pairs: Sequence[OwnPairs | SharedPairs]) -> None:
        self.pairs = pairs

    @classmethod
    def of(cls, projected: Sequence[Tensor], memory: Memory, heads: int) -> "MemoryPairs":
        """Lay out what each part's tokens were projected to, keys and values (P, S, 2 D).

        An item of one token is laid out a row each all the same: it is no larger than the query
        that would have to be sorted to it.
        """
        pairs: list[OwnPairs | SharedPairs] = []
        for both, part in zip(projected, memory.parts, strict=True):
            # Cut where the two lie side by side, so that their gradients are joined in place.
            if part.rows is None or both.shape[1] == 1:
                key, value = part.take(both).unflatten(-1, (2, heads, -1)).unbind(2)
                pairs.append(OwnPairs(key.transpose(0, 1), value.transpose(0, 1)))
            else:
                key, value = both.unflatten(-1, (2, heads, -1)).unbind(2)
                sharing = Sharing(part.rows, len(part.tokens))
                pairs.append(SharedPairs(key.transpose(1, 2), value.transpose(1, 2), sharing))
        return cls(pairs)

    def expand(self) -> tuple[Tensor, Tensor]:
        """Keys and values for each row, (B, H, S, K), the parts laid end to end."""
        keys, values = zip(*(pair.expand() for pair in self.pairs), strict=True)
        if len(keys) == 1:
            return keys[0], values[0]
        return torch.cat(keys, dim=2), torch.cat(values, dim=2)

    def compact(self) -> "MemoryPairs":
        """The same, laid out for many reads: contiguous, and side by side what is a row's own."""
        pairs: list[OwnPairs | SharedPairs] = []
        for pair in self.pairs:
            last = pairs[-1] if pairs else None
            if isinstance(pair, OwnPairs) and isinstance(last, OwnPairs):
                pairs[-1] = last.join(pair)
            else:
                pairs.append(pair.compact())
        return MemoryPairs(pairs)

    def reorder(self, rows: Tensor) -> "MemoryPairs":
        """Row b becomes what row rows[b] was."""
        return MemoryPairs([pair.reorder(rows) for pair in self.pairs])

    @property
    def num_bytes(self) -> int:
        """Bytes of the keys and values."""
        tensors = [tensor for pair in self.pairs for tensor in (pair.key, pair.value)]
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
