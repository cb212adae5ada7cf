"""What decoding refuses before it does any work.

Shapes: B rows, T prompt tokens, P pictures or questions that rows point at.
"""

import torch
from torch import Tensor

from vlm.errors import UserError
from vlm.model.decoder import VisionLanguageDecoder
from vlm.model.kv_cache import KVCache
from vlm.model.memory import Memory


def check_sizes(decoder: VisionLanguageDecoder, batch: int, given: int, new: int) -> None:
    """Refuse to decode nothing, or more than there are positions for."""
    if batch < 1 or given < 1 or new < 1:
        raise UserError(f"batch {batch}, prompt {given}, new tokens {new}: expected 1 or more each")
    room = decoder.config.max_text_len
    if given + new - 1 > room:  # the last token is never read
        raise UserError(
            f"prompt of {given} and {new} new tokens need {given + new - 1} positions;"
            f" the decoder has {room}"
        )


def check_cache(
    cache: KVCache | None, decoder: VisionLanguageDecoder, batch: int, positions: int
) -> None:
    """Refuse a cache of another decoder or batch, one too small, or one that isn't empty."""
    if cache is None:
        return
    config, weight = decoder.config, decoder.head.weight
    expected = config.depth, config.heads, config.hidden // config.heads, weight.dtype
    layers, _, _, heads, width = cache.keys.shape
    if (got := (layers, heads, width, cache.keys.dtype)) != expected:
        raise UserError(f"cache of (layers, heads, width, dtype) {got} does not match {expected}")
    if cache.length or any(pairs is not None for pairs in cache.cross_pairs):
        raise UserError(f"cache holds {cache.length} positions and a memory; clear it first")
    cache.check(batch, positions)


def check_memory(memory: Memory, decoder: VisionLanguageDecoder, batch: int) -> None:
    """Refuse a memory of another width, batch or kind of number, and masks that don't fit it."""
    memory.check(batch, decoder.config.vision_dim)
    dtype = decoder.head.weight.dtype
    for part in memory.parts:
        check_rows("memory rows", part.rows, len(part.tokens))
        if part.tokens.ndim != 3 or part.tokens.dtype != dtype:
            got = f"{part.tokens.dtype} of shape {tuple(part.tokens.shape)}"
            raise UserError(f"memory: got {got}, expected {dtype} of shape (items, tokens, width)")
        if part.mask is not None:
            check_mask("memory mask", part.mask, part.tokens.shape[:2])
    expected = (batch, decoder.config.hidden)
    if memory.context is not None and memory.context.shape != expected:
        raise UserError(f"context {tuple(memory.context.shape)} does not match {expected}")


def check_prompt_mask(mask: Tensor | None, prompt: Tensor) -> None:
    """Refuse a mask of another shape, and padding after a prompt: it stands before."""
    if mask is None:
        return
    check_mask("prompt mask", mask, prompt.shape)
    if not bool(mask[:, -1].all()):
        raise UserError("prompt mask: got padding after a prompt, expected it before")


def check_mask(name: str, mask: Tensor, shape: tuple[int, ...]) -> None:
    """Refuse a mask that isn't bool, or of another shape."""
    if mask.dtype != torch.bool or mask.shape != shape:
        got = f"{mask.dtype} of shape {tuple(mask.shape)}"
        raise UserError(f"{name}: got {got}, expected torch.bool of shape {tuple(shape)}")


def check_rows(name: str, rows: Tensor | None, items: int) -> None:
    """Refuse rows (B,) that don't point at one of P items each."""
    if rows is None:
        return
    if rows.ndim != 1 or rows.dtype != torch.int64:
        got = f"{rows.dtype} of shape {tuple(rows.shape)}"
        raise UserError(f"{name}: got {got}, expected torch.int64 of one dimension")
    if len(rows) and not (int(rows.min()) >= 0 and int(rows.max()) < items):
        got = f"{int(rows.min())} to {int(rows.max())}"
        raise UserError(f"{name}: got {got}, expected 0 to {items - 1}")
