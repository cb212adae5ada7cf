"""The key-value cache of autoregressive decoding.

Shapes: B batch, H heads, L positions the cache has room for, S memory tokens, K head width.

A decoder that has read t tokens needs, for token t + 1, the keys and values of all t. Kept
here, a step costs one position of arithmetic instead of t + 1. The memory's keys and values
never change, so they are projected once.

    cache = decoder.new_cache(batch_size=2, max_length=12)
    logits = decoder(prompt, memory, cache=cache)          # prefill: (2, T, V)
    logits = decoder(next_ids, memory, cache=cache)        # one step: (2, 1, V)
"""

from collections.abc import Callable

import torch
from torch import Tensor

from vlm.errors import UserError
from vlm.model.memory import MemoryPairs


class LayerCache:
    """One decoder layer's share of a `KVCache`."""

    def __init__(self, cache: "KVCache", layer: int) -> None:
        self._cache = cache
        self._layer = layer

    def append(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Add (B, H, T, K) new positions; returns all, (B, H, length + T, K), as views."""
        cache = self._cache
        if not cache.keeps_self:
            return key, value
        end = cache.length + key.shape[2]
        keys, values = cache.keys[self._layer], cache.values[self._layer]
        keys[cache.length : end] = key.permute(2, 0, 1, 3)
        values[cache.length : end] = value.permute(2, 0, 1, 3)
        return keys[:end].permute(1, 2, 0, 3), values[:end].permute(1, 2, 0, 3)

    def cross(self, project: Callable[[], MemoryPairs]) -> MemoryPairs:
        """The memory's keys and values, projected on the first call only."""
        kept = self._cache.cross_pairs[self._layer]
        if kept is None:
            kept = project()
            if self._cache.keeps_cross:
                kept = self._cache.cross_pairs[self._layer] = kept.compact()
        return kept


class KVCache:
    """Preallocated self-attention keys and values, and the memory's, for every layer.

    It is for inference: it is written in place, so no gradient flows through it. It belongs to
    one memory: for other pictures, clear it or make another.

    Args:
        layers, batch_size, heads, head_dim: the decoder's.
        max_length: L, positions of room; 0 keeps no self-attention (each call then brings the
            whole text again).
        keeps_cross: False projects the memory anew at each call.

    Attributes:
        keys, values: (layers, L, B, H, K), so that what is held so far is one piece of memory.
        cross_pairs: per layer the memory's keys and values, None until projected.
        length: positions held so far.
        text_mask: (B, length) bool where a prompt had padding; None where none had.
    """

    def __init__(
        self,
        layers: int,
        batch_size: int,
        heads: int,
        head_dim: int,
        max_length: int,
        *,
        keeps_cross: bool = True,
        device: torch.device | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        if batch_size < 1 or max_length < 0:
            raise UserError(
                f"cache batch_size {batch_size}, max_length {max_length}: expected >= 1 and >= 0"
            )
        shape = (layers, max_length, batch_size, heads, head_dim)
        self.keys = torch.empty(shape, device=device, dtype=dtype)
        self.values = torch.empty(shape, device=device, dtype=dtype)
        self.cross_pairs: list[MemoryPairs | None] = [None] * layers
        self.keeps_self = max_length > 0
        self.keeps_cross = keeps_cross
        self.length = 0
        self.text_mask: Tensor | None = None

    @property
    def batch_size(self) -> int:
        """B, rows."""
        return self.keys.shape[2]

    @property
    def max_length(self) -> int:
        """L, positions of room."""
        return self.keys.shape[1]

    @property
    def num_bytes(self) -> int:
        """Bytes of memory held, self-attention's room and the cross pairs together."""
        cross = sum(pairs.num_bytes for pairs in self.cross_pairs if pairs is not None)
        return cross + 2 * self.keys.numel() * self.keys.element_size()

    def layer(self, index: int) -> LayerCache:
        """The share of layer `index`."""
        return LayerCache(self, index)

    def check(self, batch_size: int, new: int) -> None:
        """Refuse a batch of another size, or more positions than there is room for."""
        if batch_size != self.batch_size:
            raise UserError(f"cache batch size {self.batch_size} does not match {batch_size}")
        if self.keeps_self and self.length + new > self.max_length:
            raise UserError(
                f"cache holds {self.length} of {self.max_length} positions; {new} more do not fit"
            )

    def advance(self, new: int, text_mask: Tensor | None) -> None:
        """Count `new` positions as held, with the mask over all of them."""
        if self.keeps_self:
            self.length += new
            self.text_mask = text_mask

    def reorder(self, rows: Tensor) -> None:
        """Row b becomes what row rows[b] was, as beam search needs. rows: (B,)."""
        if rows.shape != (self.batch_size,):
            raise UserError(f"reorder rows {tuple(rows.shape)} do not match ({self.batch_size},)")
        for held in (self.keys[:, : self.length], self.values[:, : self.length]):
            held.copy_(held.index_select(2, rows))
        self.cross_pairs = [
            None if pairs is None else pairs.reorder(rows) for pairs in self.cross_pairs
        ]
        if self.text_mask is not None:
            self.text_mask = self.text_mask[rows]

    def clear(self) -> None:
        """Forget text and memory, and keep the room: for other pictures."""
        self.truncate(0)
        self.text_mask = None
        self.cross_pairs = [None] * len(self.cross_pairs)

    def truncate(self, length: int) -> None:
        """Forget all but the first `length` positions."""
        if not 0 <= length <= self.length:
            raise UserError(f"cannot truncate to {length}: the cache holds {self.length} positions")
        self.length = length
        if self.text_mask is not None:
            self.text_mask = self.text_mask[:, :length]
