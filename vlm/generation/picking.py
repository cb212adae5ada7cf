"""From logits to tokens: the likeliest, or one drawn by chance.

Shapes: B rows, V vocabulary.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from vlm.errors import UserError

Picker = Callable[[Tensor, int], Tensor]  # logits (B, V) and the step, from 0, to tokens (B,)


def greedy(logits: Tensor, step: int = 0) -> Tensor:
    """(B, V) -> (B,): the likeliest token; of equals, the lowest id."""
    del step
    return logits.argmax(dim=-1)


def sampler(
    row_ids: Tensor,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    seed: int = 0,
) -> Picker:
    """A picker that draws from softmax(logits / temperature), cut to the likeliest tokens.

    First the temperature is applied, then `keep_top_k`, then `keep_top_p` to what is left. What a
    row draws hangs on its logits, `seed`, its id and the step, and on nothing else of its batch.

    Args:
        row_ids: (B,) integers that name the rows; equal ids draw by equal chance.
        temperature: 0 is greedy; below 1 sharpens, above 1 flattens.
        top_k: so many tokens at most; 0 for all.
        top_p: the likeliest tokens that together have so much probability; 1 for all.
        seed: any integer.

    Raises:
        UserError: a value out of its range.
    """
    check_sampling(temperature, top_k, top_p)
    if temperature == 0:
        return greedy

    def pick(logits: Tensor, step: int) -> Tensor:
        # The largest first becomes 0, so that no small temperature makes it overflow.
        scaled = logits.double()
        scaled = (scaled - scaled.amax(dim=-1, keepdim=True)) / temperature
        kept = keep_top_p(keep_top_k(scaled, top_k), top_p)
        return (kept + gumbel(seed, row_ids.to(logits.device), step, logits.shape[-1])).argmax(-1)

    return pick


def check_sampling(temperature: float, top_k: int, top_p: float) -> None:
    """Refuse what no distribution can be cut or scaled by."""
    if not (math.isfinite(temperature) and temperature >= 0):
        raise UserError(f"temperature: got {temperature}, expected 0 or more, and finite")
    if top_k < 0:
        raise UserError(f"top_k: got {top_k}, expected 0 or more")
    if not 0 < top_p <= 1:
        raise UserError(f"top_p: got {top_p}, expected more than 0 and at most 1")


def keep_top_k(logits: Tensor, k: int) -> Tensor:
    """(B, V) -> (B, V): -inf for all but the k largest (Fan et al. 2018); 0 keeps all.

    Exactly k are kept: of equals, the lower ids.
    """
    if k == 0 or k >= logits.shape[-1]:
        return logits
    order = logits.argsort(dim=-1, descending=True, stable=True)
    return logits.scatter(-1, order[:, k:], -torch.inf)


def keep_top_p(logits: Tensor, p: float) -> Tensor:
    """(B, V) -> (B, V): -inf outside the nucleus (Holtzman et al. 2020); 1 keeps all.

    The nucleus is the smallest set of likeliest tokens whose probabilities add up to p or more.
    So the token with which the sum reaches p is in it, and one token always is. Of equals, the
    lower ids come first.
    """
    if p == 1:
        return logits
    ranked, order = logits.sort(dim=-1, descending=True, stable=True)
    mass = ranked.softmax(dim=-1).cumsum(dim=-1)
    outside = torch.zeros_like(mass, dtype=torch.bool)
    outside[:, 1:] = mass[:, :-1] >= p  # those before it have reached p without it
    return logits.masked_fill(torch.zeros_like(outside).scatter(-1, order, outside), -torch.inf)


def gumbel(seed: int, row_ids: Tensor, step: int, size: int) -> Tensor:
    """Standard Gumbel noise (B, V), float64: the same for the same seed, row id and step.

    The largest of logits + noise is a draw from their softmax (Gumbel 1954; Maddison et al.
    2014). A generator with a state would tie a row's noise to the rows drawn before it. So each
    number is a hash of its own coordinates instead (Salmon et al. 2011, "Parallel random numbers:
    as easy as 1, 2, 3"), here for all rows and tokens at once.

    Args:
        seed: any integer.
        row_ids: (B,) integers.
        step: of decoding.
        size: V.
    """
    tokens = torch.arange(size, device=row_ids.device)
    state = _mix(torch.tensor(_signed(seed), device=row_ids.device))
    state = _mix(_mix(state + row_ids.long()) + step)
    bits = _mix(state[:, None] + tokens)
    # 52 bits and a half: strictly between 0 and 1, so both logarithms are finite.
    uniform = ((bits >> 12 & 2**52 - 1).double() + 0.5) / 2**52
    return -(-uniform.log()).log()


def _mix(state: Tensor) -> Tensor:
    """SplitMix64's step (Steele et al. 2014) in int64, which wraps as uint64 would.

    It is a bijection that flips about half of the bits when one bit of `state` flips.
    """
    state = state + _signed(0x9E3779B97F4A7C15)
    state = (state ^ (state >> 30 & 2**34 - 1)) * _signed(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> 27 & 2**37 - 1)) * _signed(0x94D049BB133111EB)
    return state ^ (state >> 31 & 2**33 - 1)  # the mask makes the shift a logical one


def _signed(value: int) -> int:
    """The lowest 64 bits, as the int64 that has them."""
    return (value + 2**63) % 2**64 - 2**63
