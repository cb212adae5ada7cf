"""The decoding loop: from a memory and a prompt to tokens, with or without a cache.

Shapes: B rows, T prompt tokens, N new tokens, V vocabulary.
"""

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from vlm.generation.checks import check_cache, check_memory, check_prompt_mask, check_sizes
from vlm.generation.engine import Engine
from vlm.generation.picking import Picker, greedy
from vlm.marks import EOS_ID, PAD_ID
from vlm.model.decoder import VisionLanguageDecoder
from vlm.model.kv_cache import KVCache
from vlm.model.memory import Memory


class Generated(NamedTuple):
    """New tokens (B, N), padded after each row's end mark, and their logits (B, N, V) if asked."""

    tokens: Tensor
    logits: Tensor | None


class Choice(NamedTuple):
    """What a strategy makes of one step's logits.

    Attributes:
        tokens: (B,) the token that each row goes on with.
        parents: (B,) the row that each row continues; None for itself.
        finished: no row has a further token.
    """

    tokens: Tensor
    parents: Tensor | None
    finished: bool


class Strategy(Protocol):
    """How tokens are chosen."""

    def choose(self, logits: Tensor, step: int) -> Choice:
        """From the logits (B, V) of step 0, 1, ..."""
        ...


class Rows:
    """Each row for itself: the token that `pick` gives, and padding after the row's end mark."""

    def __init__(self, pick: Picker, *, stop_at_end: bool = True) -> None:
        self.pick = pick
        self.stop_at_end = stop_at_end
        self.ended: Tensor | None = None  # (B,) bool

    def choose(self, logits: Tensor, step: int) -> Choice:
        """See `Strategy`."""
        tokens = self.pick(logits, step)
        if not self.stop_at_end:
            return Choice(tokens, None, finished=False)
        if self.ended is not None:
            tokens = tokens.masked_fill(self.ended, PAD_ID)
        now = tokens == EOS_ID
        self.ended = now if self.ended is None else self.ended | now
        return Choice(tokens, None, finished=bool(self.ended.all()))


def steps(
    decoder: VisionLanguageDecoder,
    memory: Tensor | Memory,
    prompt: Tensor,
    max_new_tokens: int,
    strategy: Strategy,
    *,
    cache: KVCache | None = None,
    prompt_mask: Tensor | None = None,
    compile: bool = False,
) -> Iterator[tuple[Tensor, Tensor]]:
    """The loop: read what is new, choose, go on; the arguments as in `decode`.

    To be run under `torch.inference_mode`, which a generator had better not enter at each step.

    Yields:
        The tokens (B,) of each step, and the logits (B, V) that they were chosen from.
    """
    batch, given = prompt.shape
    engine, memory = Engine(decoder, compile=compile), Memory.of(memory)
    # Written in place; a token of all rows is one piece of memory, as in the cache.
    ids = torch.full((given + max_new_tokens, batch), PAD_ID, device=prompt.device)
    ids[:given] = prompt.t()
    real = None
    if prompt_mask is not None:
        real = torch.ones(batch, len(ids), dtype=torch.bool, device=prompt.device)
        real[:, :given] = prompt_mask
    for step in range(max_new_tokens):
        begin, end = 0 if cache is None else cache.length, given + step
        text_mask = None if real is None else real[:, begin:end]
        logits = engine(ids.narrow(0, begin, end - begin).t(), memory, cache, text_mask)
        choice = strategy.choose(logits, step)
        if choice.parents is not None:
            ids = ids[:, choice.parents]
            if cache is not None:
                cache.reorder(choice.parents)
        ids.select(0, end).copy_(choice.tokens)
        yield choice.tokens, logits
        if choice.finished:
            break


@torch.inference_mode()
def decode(
    decoder: VisionLanguageDecoder,
    memory: Tensor | Memory,
    prompt: Tensor,
    max_new_tokens: int,
    pick: Picker,
    *,
    cache: KVCache | None = None,
    prompt_mask: Tensor | None = None,
    stop_at_end: bool = True,
    keep_logits: bool = False,
    compile: bool = False,
) -> Generated:
    """Token after token, each as `pick` picks it.

    Args:
        decoder: in eval mode; in training mode dropout makes every call another.
        memory: what it looks at.
        prompt: (B, T) ids.
        max_new_tokens: N at most; decoding ends sooner once every row has ended.
        pick: `greedy`, or what `sampler` makes.
        cache: empty, with room for T + N - 1 positions, or for none (then every step reads the
            whole text again); None decodes without any.
        prompt_mask: (B, T) bool, False on padding before a shorter prompt.
        stop_at_end: False ignores the end mark and decodes all N tokens.
        keep_logits: return the logits too.
        compile: see `generate`.

    Raises:
        UserError: an empty batch, more tokens than the decoder has positions, a memory of another
            width or batch, masks that don't fit, or a cache that isn't empty, is too small, or is
            another decoder's.
    """
    batch, given = prompt.shape
    check_sizes(decoder, batch, given, max_new_tokens)
    memory = Memory.of(memory)
    check_memory(memory, decoder, batch)
    check_cache(cache, decoder, batch, given + max_new_tokens - 1)
    check_prompt_mask(prompt_mask, prompt)
    strategy = Rows(pick, stop_at_end=stop_at_end)
    tokens: list[Tensor] = []
    kept: list[Tensor] = []
    for token, logits in steps(
        decoder,
        memory,
        prompt,
        max_new_tokens,
        strategy,
        cache=cache,
        prompt_mask=prompt_mask,
        compile=compile,
    ):
        tokens.append(token)
        if keep_logits:
            kept.append(logits)
    return Generated(torch.stack(tokens, dim=1), torch.stack(kept, dim=1) if keep_logits else None)


def decode_greedy(
    decoder: VisionLanguageDecoder,
    memory: Tensor | Memory,
    prompt: Tensor,
    max_new_tokens: int,
    *,
    cache: KVCache | None = None,
    prompt_mask: Tensor | None = None,
    stop_at_end: bool = True,
    keep_logits: bool = False,
    compile: bool = False,
) -> Generated:
    """The most likely token, again and again; the arguments as in `decode`."""
    return decode(
        decoder,
        memory,
        prompt,
        max_new_tokens,
        greedy,
        cache=cache,
        prompt_mask=prompt_mask,
        stop_at_end=stop_at_end,
        keep_logits=keep_logits,
        compile=compile,
    )
