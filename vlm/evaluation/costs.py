"""What a decode costs before any clock is read: arithmetic, bytes of cache, bytes that it reads.

Shapes: B rows, N new tokens, S memory tokens, D width.

It needs no torch: the report imports it too, by way of `timings`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple


class Arm(NamedTuple):
    """One way to decode: which of the two caches it keeps."""

    keeps_self: bool
    keeps_cross: bool


ARMS = {
    "uncached": Arm(keeps_self=False, keeps_cross=False),
    "cross_only": Arm(keeps_self=False, keeps_cross=True),
    "self_only": Arm(keeps_self=True, keeps_cross=False),
    "cached": Arm(keeps_self=True, keeps_cross=True),
}


@dataclass(frozen=True)
class DecoderShape:
    """The sizes that a decode's cost hangs on. The number of heads isn't one: they share D.

    Attributes:
        layers: blocks.
        width: D.
        mlp_width: of the MLP's inner layer.
        vocabulary: tokens that the head tells apart.
        memory_width: of the memory's tokens.
        memory_tokens: S, what each row looks at.
        value_bytes: bytes of one number.
    """

    layers: int
    width: int
    mlp_width: int
    vocabulary: int
    memory_width: int
    memory_tokens: int
    value_bytes: int = 4

    @property
    def pair_bytes(self) -> int:
        """Bytes of one position's keys and values in all layers."""
        return self.layers * 2 * self.width * self.value_bytes


class Step(NamedTuple):
    """What one step of decoding does for each row.

    Attributes:
        new: positions that it computes.
        seen: positions of text that the last of them attends to.
        projects: whether the memory's keys and values are computed in it.
    """

    new: int
    seen: int
    projects: bool


def steps(arm: Arm, length: int) -> Iterator[Step]:
    """The N steps of a decode from one begin mark."""
    for number in range(length):
        seen = number + 1
        first = number == 0
        yield Step(1 if arm.keeps_self else seen, seen, first or not arm.keeps_cross)


def flops(shape: DecoderShape, arm: Arm, batch: int, length: int) -> int:
    """Floating-point operations of the matrix products and of attention, two a multiply-add.

    Causal attention counts as the full square, though a kernel may skip most of its masked half.
    """
    return batch * sum(_step_flops(shape, step) for step in steps(arm, length))


def _step_flops(shape: DecoderShape, step: Step) -> int:
    """Of one row: its blocks, and the head on its last position."""
    width = shape.width
    # Queries, keys and values of the text, three; one each for attention's output, the query
    # into the memory and its output; then the MLP, up and down.
    position = 2 * width * (6 * width + 2 * shape.mlp_width)
    # A product with each key, and each value weighted.
    attention = 4 * width * step.new * (step.seen + shape.memory_tokens)
    projection = 4 * width * shape.memory_width * shape.memory_tokens if step.projects else 0
    head = 2 * width * shape.vocabulary
    return shape.layers * (step.new * position + attention + projection) + head


def cache_bytes(shape: DecoderShape, arm: Arm, batch: int, length: int) -> int:
    """Bytes of keys and values that an arm keeps, where no two rows share a memory."""
    positions = length * arm.keeps_self + shape.memory_tokens * arm.keeps_cross
    return batch * positions * shape.pair_bytes


def bytes_read(shape: DecoderShape, batch: int, length: int) -> int:
    """Bytes of keys and values that attention reads in all N steps.

    Kept or computed anew, a step reads them all; what the queries of one step share counts once.
    """
    positions = sum(seen + shape.memory_tokens for seen in range(1, length + 1))
    return batch * positions * shape.pair_bytes
