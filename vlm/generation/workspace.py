"""What a step of the engine writes to, and attention over it.

Shapes: B rows, T new tokens, S tokens that are seen, D width, M width of the MLP, H heads,
K = D / H width of a head. Tokens come first, (T, B, ...), as they do in the cache.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from vlm.generation.one_query import Pairs, Scratch, attend, attend_pairs, compiled
from vlm.model.attention import attention
from vlm.model.memory import MemoryPairs, OwnPairs


class Sizes(NamedTuple):
    """What a workspace hangs on: T, B, D, M, H, and the kind of number."""

    new: int
    batch: int
    hidden: int
    wide: int
    heads: int
    dtype: torch.dtype
    device: torch.device


class Workspace:
    """What a step writes to, of all layers in turn, and the views of it that attention takes.

    Heads are (T, B, H, K).

    Args:
        sizes: of a step.
        held: tokens of text that its attention has room for to begin with.

    Attributes:
        qkv: (T B, 3 D); `query`, `key` and `value` are its heads.
        asked: (T B, D) queries of cross-attention; `asked_heads`.
        mixed: (T B, D) what attention gives; `mixed_heads`.
        wide, bent: (T B, M) before and after the MLP's bend.
    """

    def __init__(self, sizes: Sizes, held: int) -> None:
        self.new, self.sizes = sizes.new, sizes
        rows, hidden = sizes.new * sizes.batch, sizes.hidden
        heads = sizes.new, sizes.batch, sizes.heads, hidden // sizes.heads

        def empty(width: int) -> Tensor:
            return torch.empty(rows, width, dtype=sizes.dtype, device=sizes.device)

        self.qkv = empty(3 * hidden)
        self.query, self.key, self.value = self.qkv.view(*heads[:2], 3, *heads[2:]).unbind(2)
        self.asked, self.mixed = empty(hidden), empty(hidden)
        self.asked_heads, self.mixed_heads = self.asked.view(heads), self.mixed.view(heads)
        self.wide, self.bent = empty(sizes.wide), empty(sizes.wide)
        self._one = self.query[0], self.asked_heads[0], self.mixed.view(-1)
        self._scratch = Scratch(self._one[0], held if self.new == 1 else 1), Scratch(self._one[0])

    def mask(self, mask: Tensor | None) -> Tensor | None:
        """A mask (B, 1, T, S) as attention wants it: for one query a row, (S, B, 1) inverted."""
        return mask if mask is None or self.new > 1 else ~mask[:, 0, 0].t().unsqueeze(-1)

    def read(
        self,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None,
        *,
        is_causal: bool,
        compile: bool = False,
    ) -> Tensor:
        """The text's attention to keys and values (S, B, H, K), the heads joined: (T B, D)."""
        if self.new > 1:
            return self._attend(self.query, [OwnPairs(key, value)], mask, is_causal=is_causal)
        query, _, out = self._one
        if compile and mask is None:
            out.copy_(compiled()(query, key, value).view(-1))
        else:
            attend(query, key, value, mask, self._scratch[0], out)
        return self.mixed

    def look(self, pairs: Pairs, seen: Tensor | None) -> Tensor:
        """The text's attention to a memory, the heads joined: (T B, D)."""
        if self.new > 1:
            return self._attend(self.asked_heads, pairs, seen)
        _, query, out = self._one
        attend_pairs(query, pairs, seen, self._scratch[1], out)
        return self.mixed

    def _attend(
        self, query: Tensor, pairs: Pairs, mask: Tensor | None, *, is_causal: bool = False
    ) -> Tensor:
        """Several queries a row, by PyTorch's kernel."""
        key, value = MemoryPairs(pairs).expand()
        mixed = attention(query.permute(1, 2, 0, 3), key, value, mask, is_causal=is_causal)
        self.mixed_heads.copy_(mixed.permute(2, 0, 1, 3))
        return self.mixed
