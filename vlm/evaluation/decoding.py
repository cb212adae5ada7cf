"""What the KV cache saves: four ways to decode the same tokens, first compared, then timed.

Shapes: B rows, N new tokens, V vocabulary.
"""

import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch

from vlm.errors import StoppedError
from vlm.generation import Generated, decode_greedy
from vlm.marks import BOS_ID
from vlm.model.attention import Memory
from vlm.model.decoder import VisionLanguageDecoder
from vlm.model.kv_cache import KVCache

TOLERANCE = 1e-5  # times the larger of 1 and the largest logit, in fp32


class Arm(NamedTuple):
    """One way to decode: which of the two caches it keeps."""

    keeps_self: bool
    keeps_cross: bool

    def cache(self, decoder: VisionLanguageDecoder, batch: int, length: int) -> KVCache | None:
        """A fresh cache for B rows of `length` new tokens; None where nothing is kept."""
        if not (self.keeps_self or self.keeps_cross):
            return None
        return decoder.new_cache(
            batch, length, keeps_self=self.keeps_self, keeps_cross=self.keeps_cross
        )


ARMS = {
    "uncached": Arm(keeps_self=False, keeps_cross=False),
    "cross_only": Arm(keeps_self=False, keeps_cross=True),
    "self_only": Arm(keeps_self=True, keeps_cross=False),
    "cached": Arm(keeps_self=True, keeps_cross=True),
}


def decode(
    arm: Arm,
    decoder: VisionLanguageDecoder,
    memory: Memory,
    batch: int,
    length: int,
    *,
    keep_logits: bool = False,
) -> Generated:
    """Exactly `length` greedy tokens for each of B rows, the end mark ignored."""
    prompt = torch.full((batch, 1), BOS_ID, device=decoder.head.weight.device)
    return decode_greedy(
        decoder,
        memory,
        prompt,
        length,
        cache=arm.cache(decoder, batch, length),
        stop_at_end=False,
        keep_logits=keep_logits,
    )


@dataclass(frozen=True)
class Equality:
    """How far the cached arms stray from the uncached one.

    Attributes:
        tokens_equal: every arm gave the same tokens.
        max_logit_diff: largest absolute difference of any logit of any arm.
        tolerance: the most that rounding explains: 1e-5 times the larger of 1 and the largest
            logit.
    """

    tokens_equal: bool
    max_logit_diff: float
    tolerance: float

    @property
    def holds(self) -> bool:
        """Whether the arms may be compared at all."""
        return self.tokens_equal and self.max_logit_diff <= self.tolerance


def check_equality(
    decoder: VisionLanguageDecoder, memory: Memory, batch: int, length: int
) -> Equality:
    """Decode with every arm and compare with `uncached`."""
    runs = {
        name: decode(arm, decoder, memory, batch, length, keep_logits=True)
        for name, arm in ARMS.items()
    }
    tokens, logits = runs["uncached"]
    assert logits is not None
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


class Timing(NamedTuple):
    """One cell of the sweep; seconds for the whole batch."""

    batch: int
    length: int
    arm: str
    seconds: float  # median
    seconds_min: float
    seconds_max: float

    @property
    def tokens_per_second(self) -> float:
        """New tokens of all rows a second."""
        return self.batch * self.length / self.seconds


def sweep(
    decoder: VisionLanguageDecoder,
    memory_of: Callable[[int], Memory],
    batch_sizes: Sequence[int],
    lengths: Sequence[int],
    *,
    repeats: int,
    warmup: int,
) -> Iterator[Timing]:
    """Time every arm at every batch size and length.

    The arms take turns (A B C D, A B C D, ...), so that a machine that slows down for a while
    slows all of them.

    Args:
        decoder: with room for the longest length.
        memory_of: batch size to a memory of so many rows.
        batch_sizes, lengths: the grid.
        repeats: timed rounds of a cell.
        warmup: rounds before a batch size's first cell, at the shortest length.
    """
    # Largest first: an allocator that has had room for the largest needs no more for the rest.
    for batch in sorted(batch_sizes, reverse=True):
        memory = memory_of(batch)
        for _ in range(warmup):
            for arm in ARMS.values():
                decode(arm, decoder, memory, batch, min(lengths))
        for length in sorted(lengths, reverse=True):
            seconds: dict[str, list[float]] = {name: [] for name in ARMS}
            for _ in range(repeats):
                for name, arm in ARMS.items():
                    seconds[name].append(_seconds(arm, decoder, memory, batch, length))
            for name, taken in seconds.items():
                yield Timing(batch, length, name, statistics.median(taken), min(taken), max(taken))


def _seconds(
    arm: Arm, decoder: VisionLanguageDecoder, memory: Memory, batch: int, length: int
) -> float:
    device = decoder.head.weight.device
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    started = time.perf_counter()
    decode(arm, decoder, memory, batch, length)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - started
