"""What the KV cache saves: four ways to decode the same tokens, first compared, then timed.

Shapes: B rows, N new tokens, V vocabulary.
"""

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import NamedTuple

import torch
from torch import Tensor

from vlm.errors import StoppedError
from vlm.evaluation.costs import ARMS, Arm, DecoderShape, bytes_read, cache_bytes, flops
from vlm.evaluation.timings import Timing
from vlm.generation import decode_greedy
from vlm.marks import BOS_ID
from vlm.model.decoder import VisionLanguageDecoder
from vlm.model.memory import Memory

TOLERANCE = 1e-5  # times the larger of 1 and the largest logit, in fp32


class Decoded(NamedTuple):
    """Tokens (B, N), their logits (B, N, V) if asked for, and the bytes of the arm's cache."""

    tokens: Tensor
    logits: Tensor | None
    cache_bytes: int


def decode(
    arm: Arm,
    decoder: VisionLanguageDecoder,
    memory: Memory | Tensor,
    batch: int,
    length: int,
    *,
    keep_logits: bool = False,
) -> Decoded:
    """Exactly `length` greedy tokens for each of B rows, the end mark ignored."""
    keeps_self, keeps_cross = arm
    cache = None
    if keeps_self or keeps_cross:
        cache = decoder.new_cache(batch, length, keeps_self=keeps_self, keeps_cross=keeps_cross)
    prompt = torch.full((batch, 1), BOS_ID, device=decoder.head.weight.device)
    tokens, logits = decode_greedy(
        decoder,
        memory,
        prompt,
        length,
        cache=cache,
        stop_at_end=False,
        keep_logits=keep_logits,
    )
    return Decoded(tokens, logits, 0 if cache is None else cache.num_bytes)


@dataclass(frozen=True)
class Equality:
    """How far the arms stray from one another, and from the decoder's modules.

    Attributes:
        tokens_equal: every arm gave the same tokens.
        max_logit_diff: largest absolute difference of any logit of any arm.
        tolerance: the most that rounding explains: 1e-5 times the larger of 1 and the largest
            logit.
    """

    tokens_equal: bool
    max_logit_diff: float
    tolerance: float

    def worse(self, other: "Equality") -> "Equality":
        """Of both what is worse, by its share of the tolerance."""
        worst = max(self, other, key=lambda one: one.max_logit_diff / one.tolerance)
        return replace(worst, tokens_equal=self.tokens_equal and other.tokens_equal)

    @property
    def holds(self) -> bool:
        """Whether the arms may be compared at all."""
        return self.tokens_equal and self.max_logit_diff <= self.tolerance


@torch.inference_mode()
def check_equality(
    decoder: VisionLanguageDecoder, memory: Memory | Tensor, batch: int, length: int
) -> Equality:
    """Decode with every arm, and compare them with `uncached` and with the decoder's modules.

    All arms run the engine; so the logits are also held to those that the modules give to the
    whole text at once.
    """
    runs = {
        name: decode(arm, decoder, memory, batch, length, keep_logits=True)
        for name, arm in ARMS.items()
    }
    tokens = runs["uncached"].tokens
    begin = torch.full((batch, 1), BOS_ID, device=tokens.device)
    logits = decoder(torch.cat([begin, tokens[:, :-1]], dim=1), memory)
    if not bool(logits.isfinite().all()):
        raise StoppedError("the decoder's logits aren't finite; there is nothing to compare")
    equal, diff = True, 0.0
    for other in runs.values():
        assert other.logits is not None
        equal = equal and torch.equal(tokens, other.tokens)
        gap = float((logits - other.logits).abs().max())
        diff = max(diff, gap if math.isfinite(gap) else math.inf)
    return Equality(equal, diff, TOLERANCE * max(1.0, float(logits.abs().max())))


def lengthened(decoder: VisionLanguageDecoder, length: int) -> VisionLanguageDecoder:
    """A decoder of the same shape and weights with room for `length` tokens.

    The positions it adds are untrained: it is for timing, which no value changes.
    """
    if length <= decoder.config.max_text_len:
        return decoder
    longer = VisionLanguageDecoder(replace(decoder.config, max_text_len=length))
    state = decoder.state_dict()
    trained = state.pop("positions.weight")
    longer.load_state_dict(state, strict=False)
    with torch.no_grad():
        longer.positions.weight[: len(trained)] = trained
    return longer.to(trained.device).eval()


def shape_of(decoder: VisionLanguageDecoder, memory: Memory | Tensor) -> DecoderShape:
    """The sizes that a decode's cost hangs on."""
    config = decoder.config
    return DecoderShape(
        layers=config.depth,
        width=config.hidden,
        mlp_width=int(config.hidden * config.mlp_ratio),
        vocabulary=config.text_vocab,
        memory_width=config.vision_dim,
        memory_tokens=sum(part.tokens.shape[1] for part in Memory.of(memory).parts),
        value_bytes=decoder.head.weight.element_size(),
    )


def sweep(
    decoder: VisionLanguageDecoder,
    memory_of: Callable[[int], Memory | Tensor],
    batch_sizes: Sequence[int],
    lengths: Sequence[int],
    *,
    repeats: int,
    warmup: int,
    max_seconds: float,
) -> Iterator[Timing]:
    """Time every arm at every batch size and length.

    The arms take turns (A B C D, A B C D, ...), so that a machine that slows down for a while
    slows all of them.

    Args:
        decoder: with room for the longest length.
        memory_of: batch size to a memory of so many rows, none of them shared.
        batch_sizes, lengths: the grid.
        repeats: timed rounds of an arm in a cell, at most.
        warmup: rounds before a batch size's first cell, at the shortest length.
        max_seconds: an arm whose rounds in a cell have taken so long gets no further one.
    """
    # Largest first: an allocator that has had room for the largest needs no more for the rest.
    for batch in sorted(batch_sizes, reverse=True):
        memory = memory_of(batch)
        for _ in range(warmup):
            for arm in ARMS.values():
                decode(arm, decoder, memory, batch, min(lengths))
        for length in sorted(lengths, reverse=True):
            rounds: dict[str, list[_Round]] = {name: [] for name in ARMS}
            for _ in range(repeats):
                for name, arm in ARMS.items():
                    if sum(taken.seconds for taken in rounds[name]) < max_seconds:
                        rounds[name].append(_timed(arm, decoder, memory, batch, length))
            shape = shape_of(decoder, memory)
            for name, taken in rounds.items():
                yield _timing(shape, name, batch, length, taken)


class _Round(NamedTuple):
    seconds: float
    cache_bytes: int


def _timed(
    arm: Arm, decoder: VisionLanguageDecoder, memory: Memory | Tensor, batch: int, length: int
) -> _Round:
    device = decoder.head.weight.device
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    started = perf_counter()
    held = decode(arm, decoder, memory, batch, length).cache_bytes
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return _Round(perf_counter() - started, held)


def _timing(
    shape: DecoderShape, name: str, batch: int, length: int, rounds: Sequence[_Round]
) -> Timing:
    """The rounds of one cell, beside what it should cost."""
    seconds = [taken.seconds for taken in rounds]
    return Timing(
        batch=batch,
        length=length,
        arm=name,
        rounds=len(rounds),
        seconds=statistics.median(seconds),
        seconds_min=min(seconds),
        seconds_max=max(seconds),
        cache_bytes=rounds[-1].cache_bytes,
        cache_bytes_predicted=cache_bytes(shape, ARMS[name], batch, length),
        flops=flops(shape, ARMS[name], batch, length),
        bytes_read=bytes_read(shape, batch, length),
    )
