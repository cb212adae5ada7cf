"""Multi-head attention, its cross form, and the transformer's MLP.

Shapes: B batch, T queries, S keys, D width, H heads, K = D / H width of a head.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vlm.errors import UserError
from vlm.model.kv_cache import LayerCache
from vlm.model.memory import Memory, MemoryPairs
from vlm.model.small_attention import is_small, small_attention
from vlm.rules import check_heads


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    *,
    is_causal: bool = False,
    dropout: float = 0.0,
) -> Tensor:
    """softmax(query key^T / sqrt(K)) value (Vaswani et al. 2017, eq. 1).

    Args:
        query: (B, H, T, K).
        key: (B, H, S, K).
        value: (B, H, S, K).
        mask: bool, broadcast to (B, H, T, S); True lets a query see a key. A query that sees
            no key gives 0, and passes no gradient.
        is_causal: query t sees keys 0..t; for T = S only, since PyTorch aligns this mask at
            the top left, which is wrong for new queries over cached keys.
        dropout: share of the weights dropped.

    Returns:
        (B, H, T, K).
    """
    if not dropout and is_small(query, key):
        return small_attention(query, key, value, mask, is_causal)
    return F.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, dropout_p=dropout, is_causal=is_causal
    )


def attention_weights(
    query: Tensor, key: Tensor, mask: Tensor | None = None, *, is_causal: bool = False
) -> Tensor:
    """What `attention` mixes the values by: softmax(query key^T / sqrt(K)), (B, H, T, S).

    A row sums to 1, or to 0 where the query sees no key. The arguments are those of `attention`.
    """
    scores = query @ key.transpose(-2, -1) / query.shape[-1] ** 0.5
    if is_causal:
        mask = causal_mask(query.shape[-2], query.device)
    if mask is None:
        return scores.softmax(dim=-1)
    return scores.masked_fill(~mask, -torch.inf).softmax(dim=-1).nan_to_num(0.0)


def causal_mask(n: int, device: torch.device | None = None) -> Tensor:
    """(n, n) bool, the lower triangle True: position t sees positions 0..t."""
    return torch.ones(n, n, dtype=torch.bool, device=device).tril()


class MultiHeadAttention(nn.Module):
    """What self-attention and cross-attention share: heads, the mixing, and being watched."""

    out: nn.Linear

    def __init__(self, hidden: int, heads: int, dropout: float) -> None:
        super().__init__()
        check_heads(hidden, heads)
        self.heads = heads
        self.dropout = dropout
        self.watcher: Callable[[Tensor], None] | None = None  # see `watch_attention`

    def mix(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None,
        *,
        is_causal: bool = False,
    ) -> Tensor:
        """Attend in every head and join the heads: (B, H, T, K) queries -> (B, T, D)."""
        if self.watcher is not None:
            self.watcher(attention_weights(query, key, mask, is_causal=is_causal).detach())
        dropout = self.dropout if self.training else 0.0
        mixed = attention(query, key, value, mask, is_causal=is_causal, dropout=dropout)
        return self.out(mixed.transpose(1, 2).flatten(2))


@contextmanager
def watch_attention(model: nn.Module) -> Iterator[dict[str, list[Tensor]]]:
    """Let every attention layer of `model` hand out its weights while the `with` block runs.

        with watch_attention(encoder) as seen:
            encoder(images)
        seen["blocks.0.attention"]  # a list with one (B, H, T, S) tensor a call

    Before dropout, and detached. The output is computed by the same kernel as ever; the weights are
    computed beside it, and only here.
    """
    layers = [(n, m) for n, m in model.named_modules() if isinstance(m, MultiHeadAttention)]
    before = [layer.watcher for _, layer in layers]
    seen: dict[str, list[Tensor]] = {name: [] for name, _ in layers}
    for name, layer in layers:
        layer.watcher = seen[name].append
    try:
        yield seen
    finally:
        for (_, layer), watcher in zip(layers, before, strict=True):
            layer.watcher = watcher


class SelfAttention(MultiHeadAttention):
    """Each position of a sequence attends to the others; Q, K and V in one projection."""

    def __init__(self, hidden: int, heads: int, dropout: float = 0.0) -> None:
        super().__init__(hidden, heads, dropout)
        self.qkv = nn.Linear(hidden, 3 * hidden)
        self.out = nn.Linear(hidden, hidden)

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        *,
        is_causal: bool = False,
        cache: LayerCache | None = None,
    ) -> Tensor:
        """(B, T, D) -> (B, T, D).

        Args:
            x: the new positions.
            mask: (T, S) or (B, 1, T, S) bool, where S counts the cached positions too.
            is_causal: as in `attention`.
            cache: keeps this layer's keys and values; the new ones are appended.

        Raises:
            UserError: a mask that isn't bool, or not of such a shape.
        """
        query, key, value = self.qkv(x).unflatten(-1, (3, self.heads, -1)).unbind(2)
        query, key, value = query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)
        if cache is not None:
            key, value = cache.append(key, value)
        if mask is not None:
            expected = (query.shape[2], key.shape[2])
            if mask.ndim not in (2, 4) or mask.shape[-2:] != expected:
                raise UserError(f"causal mask shape {tuple(mask.shape)} does not match {expected}")
            if mask.dtype != torch.bool:  # a number would be added to the scores
                raise UserError(f"mask: got {mask.dtype}, expected torch.bool")
        return self.mix(query, key, value, mask, is_causal=is_causal)


class CrossAttention(MultiHeadAttention):
    """Positions of one sequence attend to a memory, such as the tokens of a picture."""

    def __init__(self, hidden: int, heads: int, memory_dim: int, dropout: float = 0.0) -> None:
        super().__init__(hidden, heads, dropout)
        self.query = nn.Linear(hidden, hidden)
        self.key_value = nn.Linear(memory_dim, 2 * hidden)
        self.out = nn.Linear(hidden, hidden)

    def project(self, memory: Memory) -> MemoryPairs:
        """The memory's keys and values; an item that rows share is projected once."""
        both = [self.key_value(part.tokens) for part in memory.parts]
        return MemoryPairs.of(both, memory, self.heads)

    def forward(
        self,
        x: Tensor,
        memory: Memory,
        mask: Tensor | None = None,
        *,
        cache: LayerCache | None = None,
    ) -> Tensor:
        """(B, T, D) -> (B, T, D).

        Args:
            x: the positions that look.
            memory: what they look at.
            mask: (B, 1, 1, S) bool, as `Memory.mask` makes it.
            cache: keeps the memory's keys and values, so that they are projected only once.
        """
        query = self.query(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        pairs = self.project(memory) if cache is None else cache.cross(lambda: self.project(memory))
        return self.mix(query, *pairs.expand(), mask)


class MLP(nn.Sequential):
    """Linear, GELU, Linear: (..., D) -> (..., D)."""

    def __init__(self, hidden: int, ratio: float, dropout: float = 0.0) -> None:
        wide = int(hidden * ratio)
        super().__init__(
            nn.Linear(hidden, wide), nn.GELU(), nn.Linear(wide, hidden), nn.Dropout(dropout)
        )


Norm = Literal["pre", "post"]


def residual(x: Tensor, branch: Callable[[Tensor], Tensor], norm: nn.Module, place: Norm) -> Tensor:
    """x and what a branch makes of it, the LayerNorm before the branch or after the sum.

    `post` is the order of Vaswani et al. 2017; `pre` learns without a long warm-up (Xiong et al.
    2020, "On layer normalization in the transformer architecture").
    """
    return x + branch(norm(x)) if place == "pre" else norm(x + branch(x))


class EncoderBlock(nn.Module):
    """Self-attention and MLP, each with a LayerNorm and beside a residual."""

    def __init__(
        self,
        hidden: int,
        heads: int,
        mlp_ratio: float,
        dropout: float = 0.0,
        eps: float = 1e-6,
        norm: Norm = "pre",
    ) -> None:
        super().__init__()
        self.norm: Norm = norm
        self.attention_norm = nn.LayerNorm(hidden, eps=eps)
        self.attention = SelfAttention(hidden, heads, dropout)
        self.dropout = nn.Dropout(dropout)
        self.mlp_norm = nn.LayerNorm(hidden, eps=eps)
        self.mlp = MLP(hidden, mlp_ratio, dropout)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """(B, T, D) -> (B, T, D); `mask` as in `SelfAttention`."""
        x = residual(
            x, lambda y: self.dropout(self.attention(y, mask)), self.attention_norm, self.norm
        )
        return residual(x, self.mlp, self.mlp_norm, self.norm)
