"""Attention of short sequences on a CPU, as a few batched products.

PyTorch's kernel for the CPU cuts sequences into blocks that pay from some hundred tokens on. Of
fewer, all heads' scores fit into a fast memory at once, and plain products of all of them are
quicker, forward and backward.

Shapes: B batch, T queries, S keys, H heads, K width of a head, N = B H.
"""

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

# T S, above which PyTorch's kernel is left to work. Measured forward and backward, one thread with
# AVX-512, batch 64 to 128: this file is 1.3 times as quick at 17 and at 25 tokens, 1.2 times at 48,
# and takes 1.3 times as long at 96. At 65 it wins alone, but in a training step, where the kept
# scores push other things out of the caches, it cost 10% of the step's processor time.
MOST_SCORES = 2_500
# B H T S, below which calls cost more than arithmetic. The two tie at 16 rows of 4 heads and 17
# tokens (18,496 scores); at 32 rows this file is 1.2 times as quick.
FEWEST_IN_ALL = 2**15
HIDDEN = -1e30  # added to a score; unlike -inf it leaves a row that sees no key without NaN


def is_small(query: Tensor, key: Tensor) -> bool:
    """Whether `small_attention` is the quicker one: fp32 on a CPU, and few scores a head."""
    scores = query.shape[-2] * key.shape[-2]  # of a head
    return (
        query.device.type == "cpu"
        and query.dtype == key.dtype == torch.float32
        and scores <= MOST_SCORES
        and scores * query.shape[0] * query.shape[1] >= FEWEST_IN_ALL
        and query.shape[-2] > 1
        and not torch.is_autocast_enabled("cpu")
        and not torch.compiler.is_compiling()
    )


def small_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, is_causal: bool = False
) -> Tensor:
    """`attention` without dropout; the arguments and the result are the same.

    Gradients can't be differentiated again.
    """
    bias, sees = None, None
    if is_causal:
        bias = _causal_bias(query.shape[-2], query.dtype)
    elif mask is not None:
        bias, sees = _bias(mask, query.dtype)
    return _SmallAttention.apply(query, key, value, bias, sees)


@lru_cache(maxsize=256)
def _causal_bias(length: int, dtype: torch.dtype) -> Tensor:
    """(T, T): 0 where position t sees position s, HIDDEN elsewhere."""
    return torch.full((length, length), HIDDEN, dtype=dtype).triu(diagonal=1)


def _bias(mask: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor | None]:
    """What is added to the scores, and which rows see a key; None if all do.

    Both broadcast to (B, H, T, S); what the mask repeats is computed once.
    """
    for dim, stride in enumerate(mask.stride()):
        if stride == 0 and mask.shape[dim] > 1:
            mask = mask.narrow(dim, 0, 1)
    bias = torch.zeros(mask.shape, dtype=dtype).masked_fill_(~mask, HIDDEN)
    sees = mask.any(dim=-1, keepdim=True)
    return bias, None if sees.all() else sees


class _SmallAttention(torch.autograd.Function):
    """softmax(query key^T / sqrt(K) + bias) value; its gradients from the kept softmax."""

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        bias: Tensor | None,
        sees: Tensor | None,
    ) -> Tensor:
        heads = query.shape[:2]
        ctx.scale = query.shape[-1] ** -0.5
        query, key, value = (x.flatten(0, 1).contiguous() for x in (query, key, value))
        weights = _scaled(query, key.transpose(1, 2), ctx.scale)  # (N, T, S)
        if bias is not None:
            weights.unflatten(0, heads).add_(bias)
        weights = weights.softmax(dim=-1)
        if sees is not None:
            weights.unflatten(0, heads).mul_(sees)
        ctx.save_for_backward(query, key, value, weights)
        return torch.bmm(weights, value).unflatten(0, heads)

    @staticmethod
    @once_differentiable
    def backward(  # type: ignore[override]  # the decorator hides the names
        ctx: Any, grad: Tensor
    ) -> tuple[Tensor | None, ...]:
        query, key, value, weights = ctx.saved_tensors
        heads = grad.shape[:2]
        grad = grad.flatten(0, 1)
        grad_value = torch.bmm(weights.transpose(1, 2), grad)
        scores = torch.bmm(grad, value.transpose(1, 2)).mul_(weights)
        scores.addcmul_(weights, scores.sum(dim=-1, keepdim=True), value=-1)
        grad_query = _scaled(scores, key, ctx.scale)
        grad_key = _scaled(scores.transpose(1, 2), query, ctx.scale)
        grads = (x.unflatten(0, heads) for x in (grad_query, grad_key, grad_value))
        return *grads, None, None


def _scaled(left: Tensor, right: Tensor, scale: float) -> Tensor:
    """scale (left @ right), (N, ., .), the factor inside the product."""
    nothing = left.new_zeros(())
    return torch.baddbmm(nothing, left, right, beta=0, alpha=scale)
