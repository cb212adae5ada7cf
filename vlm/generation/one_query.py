"""Attention of one query a row, which is all that a step of decoding asks for.

Shapes: B rows, S tokens that are seen, H heads, K width of a head; P items that rows share, R rows
of an item.

It goes by products and sums over all rows and heads at once. A kernel of attention would start for
each row and head, to multiply a handful of numbers. Tokens come first, (S, B, ...), as in the
cache, so that the first S are one piece of memory. A sum is a product with a vector: BLAS is
quicker at it than PyTorch's sum.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from vlm.errors import UserError
from vlm.model.memory import OwnPairs, SharedPairs

Pairs = Sequence[OwnPairs | SharedPairs]


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    hidden: Tensor | None,
    scratch: "Scratch",
    out: Tensor,
) -> None:
    """softmax(query key^T / sqrt(K)) value, for keys and values of each row's own.

    Args:
        query: (B, H, K).
        key, value: (S, B, H, K).
        hidden: (S, B, 1) bool, True on what the row may not see; a row that sees nothing gives 0.
        scratch: made for such queries.
        out: (B H K,), written.
    """
    views = scratch.of(len(key))
    torch.mul(query, key, out=views.products)
    torch.mv(views.by_head, scratch.scale, out=views.flat_scores)
    _normalise(views.scores, hidden)
    torch.mul(views.factors, value, out=views.products)
    torch.mv(views.by_token, views.ones, out=out)


def attend_pairs(
    query: Tensor, pairs: Pairs, hidden: Tensor | None, scratch: "Scratch", out: Tensor
) -> None:
    """As `attend`, to tokens of which rows may share some; the tokens of `pairs` end to end."""
    if len(pairs) == 1 and isinstance(pairs[0], OwnPairs) and len(pairs[0].key):
        return attend(query, pairs[0].key, pairs[0].value, hidden, scratch, out)
    if not sum(pair.key.numel() for pair in pairs):
        out.zero_()  # no token to see
        return None
    query = query * query.shape[-1] ** -0.5
    parts = [_scores(query, pair) for pair in pairs]
    scores = torch.cat(parts)
    _normalise(scores, hidden)
    out.zero_()
    for weights, pair in zip(scores.split([len(part) for part in parts]), pairs, strict=True):
        out.add_(_mix(weights, pair).flatten())
    return None


@cache
def compiled() -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """`attend` without a mask, fused into one pass.

    Returns:
        A function of query (B, H, K), key and value (S, B, H, K) that gives (B, H, K).

    Raises:
        UserError: `torch.compile` finds no C++ compiler, or can't use it.
    """
    from torch._dynamo.exc import TorchDynamoException  # a second to import

    def fused(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        weights = ((query * query.shape[-1] ** -0.5) * key).sum(-1).softmax(0)
        return (weights.unsqueeze(-1) * value).sum(0)

    try:
        function = torch.compile(fused, dynamic=True)
        function(torch.zeros(2, 3, 4), *torch.zeros(2, 5, 2, 3, 4).unbind(0))
    except TorchDynamoException as error:
        reason = str(error).strip().splitlines()[0]
        raise UserError(
            f"compile: got {reason}; expected a C++ compiler for torch.compile"
        ) from error
    return function


class Views(NamedTuple):
    """Where attention to S tokens writes, as each of its products wants to see it.

    Attributes:
        products: (S, B, H, K).
        by_head: (S B H, K) the same.
        by_token: (B H K, S) the same.
        scores: (S, B, H).
        flat_scores: (S B H,) the same.
        factors: (S, B, H, 1) the same.
        ones: (S,).
    """

    products: Tensor
    by_head: Tensor
    by_token: Tensor
    scores: Tensor
    flat_scores: Tensor
    factors: Tensor
    ones: Tensor


class Scratch:
    """Memory for what queries are multiplied with, kept from step to step.

    Args:
        query: (B, H, K), one such.
        room: tokens to begin with.

    Attributes:
        scale: (K,) of 1 / sqrt(K): the product with it sums and scales.
    """

    def __init__(self, query: Tensor, room: int = 1) -> None:
        self._query = query
        self.scale = query.new_full((query.shape[-1],), query.shape[-1] ** -0.5)
        self._allocate(room)

    def of(self, size: int) -> Views:
        """Views for so many tokens, made once: the next layer and batch take them too."""
        views = self._views.get(size)
        if views is None:
            if size > len(self._scores):
                self._allocate(size)
            products, scores = self._products[:size], self._scores[:size]
            views = self._views[size] = Views(
                products,
                products.view(-1, products.shape[-1]),
                products.view(size, -1).t(),
                scores,
                scores.view(-1),
                scores.unsqueeze(-1),
                self._ones[:size],
            )
        return views

    def _allocate(self, size: int) -> None:
        self._products = self._query.new_empty(size, *self._query.shape)
        self._scores = self._products.new_empty(self._products.shape[:3])
        self._ones = self._products.new_ones(size)
        self._views: dict[int, Views] = {}


def _normalise(scores: Tensor, hidden: Tensor | None) -> None:
    """Softmax of (S, B, H) over the tokens that a row may see, in place."""
    if hidden is not None:
        scores.masked_fill_(hidden, -torch.inf)
    torch.softmax(scores, 0, out=scores)
    if hidden is not None:
        scores.nan_to_num_(0.0)


def _scores(query: Tensor, pair: OwnPairs | SharedPairs) -> Tensor:
    """Products of queries (B, H, K) and the keys that each may read: (S, B, H)."""
    if isinstance(pair, OwnPairs):
        return (query * pair.key).sum(-1)
    queries = pair.sharing.group(query).transpose(1, 2)  # (P, H, R, K)
    scores = (queries @ pair.key.transpose(2, 3)).transpose(1, 2)  # (P, R, H, S)
    return pair.sharing.ungroup(scores).permute(2, 0, 1)


def _mix(weights: Tensor, pair: OwnPairs | SharedPairs) -> Tensor:
    """The values, weighted by (S, B, H) and summed: (B, H, K)."""
    if isinstance(pair, OwnPairs):
        return (weights.unsqueeze(-1) * pair.value).sum(0)
    grouped = pair.sharing.group(weights.permute(1, 2, 0)).transpose(1, 2)  # (P, H, R, S)
    return pair.sharing.ungroup((grouped @ pair.value).transpose(1, 2))
