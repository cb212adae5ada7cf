"""How near a cached decode step comes to the least time its products could take.

Shapes: B rows, D width, V vocabulary.

Two rates bound it: that of a large square product, which is all that the processor has, and that
of the step's own products, run back to back with nothing between, which is all that such small
products can have.
"""

import os
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile, record_function

from benchmarks.timing import Times, interleaved
from vlm.model.decoder import DecoderConfig

SQUARE = 2048
PROFILED = 5  # decodes under the profiler

# What each of the engine's operators is for, in place or not. A kind of its own is the time
# outside of all of them.
SCOPE, PYTHON, OTHER = "decode", "between the operators", "other"
KINDS = {
    "matrix products": ("addmm", "mm", "linear", "matmul"),
    "attention's products and sums": (
        "mul",
        "mv",
        "addmv",
        "sum",
        "bmm",
        "baddbmm",
        "einsum",
        "scaled_dot_product_attention",
        "_scaled_dot_product_flash_attention_for_cpu",
    ),
    "softmax": ("softmax", "_softmax"),
    "layer norm": ("layer_norm", "native_layer_norm"),
    "gelu": ("gelu", "erf", "addcmul"),
    "residuals and positions": ("add",),
    "copies": (
        "copy",
        "cat",
        "stack",
        "clone",
        "contiguous",
        "index_select",
        "embedding",
        "_to_copy",
    ),
    "views and new buffers": (
        *("as_strided", "chunk", "detach", "empty", "empty_strided", "expand", "flatten"),
        *("narrow", "permute", "reshape", "resolve_conj", "resolve_neg", "select", "slice"),
        *("split", "squeeze", "t", "transpose", "unbind", "unflatten", "unsqueeze", "view"),
    ),
}


class Product(NamedTuple):
    """A matrix product (m, k) @ (k, n)."""

    m: int
    k: int
    n: int

    @property
    def flops(self) -> int:
        """A multiplication and an addition for each term of each sum."""
        return 2 * self.m * self.k * self.n


def products(config: DecoderConfig, batch: int) -> list[Product]:
    """The linear layers of one step of B rows, in their order; the memory is projected already."""
    hidden, wide = config.hidden, int(config.hidden * config.mlp_ratio)
    layer = [
        Product(batch, hidden, 3 * hidden),  # queries, keys and values
        Product(batch, hidden, hidden),  # out of self-attention
        Product(batch, hidden, hidden),  # the query of cross-attention
        Product(batch, hidden, hidden),  # out of it
        Product(batch, hidden, wide),
        Product(batch, wide, hidden),
    ]
    return [*layer * config.depth, Product(batch, hidden, config.text_vocab)]


def step_flops(config: DecoderConfig, batch: int, tokens: float) -> float:
    """FLOPs of one step of B rows whose attention reads so many `tokens`, text and memory.

    Each of them takes part in two products of width D, a layer: with the query, and weighted.
    """
    attended = 2 * 2 * batch * config.hidden * tokens * config.depth
    return sum(product.flops for product in products(config, batch)) + attended


def report_floor(
    decode: Callable[[], object],
    config: DecoderConfig,
    batch: int,
    length: int,
    memory_tokens: int,
    repeats: int,
) -> None:
    """Print what one step of a decode of B rows reaches, beside both floors.

    The step is a whole decode divided by its length, so it bears its share of what is done once:
    the weights are laid out and the memory is projected. Those FLOPs aren't counted.

    Args:
        decode: decodes `length` tokens for B rows.
        config: the decoder's.
        batch: B.
        length: new tokens.
        memory_tokens: that each row looks at.
        repeats: rounds.
    """
    shapes = products(config, batch)
    arms = {
        "square": back_to_back([Product(SQUARE, SQUARE, SQUARE)]),
        "products": back_to_back(shapes * length),
        "decode": decode,
    }
    times = interleaved(arms, repeats)
    mean_tokens = (length + 1) / 2  # step t reads t + 1
    flops = step_flops(config, batch, mean_tokens + memory_tokens)
    work = {
        "square": float(Product(SQUARE, SQUARE, SQUARE).flops),
        "products": float(sum(product.flops for product in shapes)) * length,
        "decode": flops * length,
    }
    step = times["decode"].median / length
    print(f"\nHow far from the floor: batch {batch}, {length} new tokens, {repeats} rounds")
    print(f"a step: {flops / 1e6:.1f} MFLOP in {1e3 * step:.3f} ms, attention at its mean length")
    print(f"({mean_tokens:g} tokens of text, {memory_tokens} of memory)")
    print(f"{'':<42}GFLOP/s: median (min-max)")
    print(
        _rates(
            f"product {SQUARE} x {SQUARE} @ {SQUARE} x {SQUARE}", work["square"], times["square"]
        )
    )
    print(_rates("a step's linear products, back to back", work["products"], times["products"]))
    print(_rates("a decode step", work["decode"], times["decode"]))
    reached = work["decode"] / times["decode"].median
    for label, name in (("the square product's", "square"), ("its own products'", "products")):
        best = work[name] / times[name].fastest
        print(f"share of {label + ' best rate':<33}{reached / best:.1%}")


def back_to_back(shapes: list[Product]) -> Callable[[], None]:
    """Runs these products one after the other, operands and results laid out beforehand.

    The right operand lies as a linear layer's weight does, transposed; equal shapes share theirs.
    """
    operands = {
        shape: (
            torch.randn(shape.m, shape.k),
            torch.randn(shape.n, shape.k).t(),
            torch.empty(shape.m, shape.n),
        )
        for shape in set(shapes)
    }
    plan: list[tuple[Tensor, Tensor, Tensor]] = [operands[shape] for shape in shapes]

    @torch.inference_mode()
    def run() -> None:
        for left, right, result in plan:
            torch.mm(left, right, out=result)

    return run


def _rates(label: str, flops: float, times: Times) -> str:
    rates = [flops / seconds / 1e9 for seconds in (times.median, times.slowest, times.fastest)]
    return f"{label:<42}{rates[0]:.1f} ({rates[1]:.1f}-{rates[2]:.1f})"


def report_profile(decodes: dict[int, Callable[[], object]], length: int) -> None:
    """Print where the time of a decode goes, by kind of operator, a column per batch size."""
    columns = {batch: shares(decode) for batch, decode in decodes.items()}
    print(f"\nWhere the time goes: self CPU time of {PROFILED} decodes of {length} tokens under")
    print("torch.profiler, whose own cost lies for the most part between the operators")
    print(f"{'':<32}" + "".join(f"{f'batch {batch}':>11}" for batch in columns))
    for kind in (*KINDS, OTHER, PYTHON):
        cells = "".join(f"{column[kind]:>11.1%}" for column in columns.values())
        print(f"{kind:<32}{cells}")


def shares(decode: Callable[[], object]) -> dict[str, float]:
    """The share of self CPU time of each kind of operator; they add up to 1."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "9")  # else the profiler says when it starts
    taken = dict.fromkeys([*KINDS, OTHER, PYTHON], 0.0)
    for decodes in (1, PROFILED):  # the first profile of a process sets up the profiler, too
        with profile(activities=[ProfilerActivity.CPU], acc_events=True) as profiler:
            for _ in range(decodes):
                with record_function(SCOPE):
                    decode()
    for event in profiler.key_averages():
        taken[kind_of(event.key)] += event.self_cpu_time_total
    total = sum(taken.values())
    return {kind: time / total for kind, time in taken.items()}


def kind_of(operator: str) -> str:
    """The kind of an operator by the profiler's name for it, such as `aten::addmm_`."""
    if operator == SCOPE:
        return PYTHON
    name = operator.removeprefix("aten::")
    for kind, names in KINDS.items():
        if name in names or name.removesuffix("_") in names:
            return kind
    return OTHER
