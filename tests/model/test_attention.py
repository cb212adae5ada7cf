"""Attention, its masks and its cross form, against a loop over queries and keys."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vlm import causal_mask
from vlm.errors import UserError
from vlm.model.attention import CrossAttention, SelfAttention, attention
from vlm.model.memory import Memory, MemoryPart


def slow_attention(query, key, value, mask):
    """One query at a time, one key at a time, in Python's own floats."""
    out = torch.zeros(query.shape[0], value.shape[1])
    for t in range(len(query)):
        seen = [s for s in range(len(key)) if mask[t][s]]
        scores = [float(query[t] @ key[s]) / math.sqrt(query.shape[1]) for s in seen]
        total = sum(math.exp(score) for score in scores)
        for s, score in zip(seen, scores, strict=True):
            out[t] += math.exp(score) / total * value[s]
    return out


@settings(max_examples=20, deadline=None)
@given(t=st.integers(1, 5), s=st.integers(1, 6), seed=st.integers(0, 99))
def test_attention_against_the_loop(t, s, seed):
    generator = torch.Generator().manual_seed(seed)
    query = torch.randn(t, 4, generator=generator)
    key, value = torch.randn(2, s, 4, generator=generator)
    mask = torch.rand(t, s, generator=generator) > 0.3
    got = attention(query[None, None], key[None, None], value[None, None], mask)[0, 0]
    torch.testing.assert_close(got, slow_attention(query, key, value, mask), atol=1e-5, rtol=1e-5)


def test_causal_mask_is_the_lower_triangle():
    assert causal_mask(3).tolist() == [
        [True, False, False],
        [True, True, False],
        [True, True, True],
    ]


def test_a_fully_masked_row_gives_zero_and_finite_gradients():
    query = torch.randn(2, 1, 1, 1, requires_grad=True)
    key = torch.randn(2, 1, 2, 1, requires_grad=True)
    value = torch.tensor([1.0, 3.0]).reshape(1, 1, 2, 1).repeat(2, 1, 1, 1).requires_grad_()
    mask = torch.tensor([[False, False], [True, True]]).reshape(2, 1, 1, 2)
    out = attention(query, key, value, mask)
    assert out[0].item() == 0
    out.sum().backward()
    alone = [x[1:].detach().clone().requires_grad_() for x in (query, key, value)]
    attention(*alone, mask[1:]).sum().backward()
    for x, other in zip((query, key, value), alone, strict=True):
        assert x.grad is not None and other.grad is not None
        assert x.grad.isfinite().all()
        torch.testing.assert_close(x.grad[1:], other.grad, atol=1e-6, rtol=1e-5)


def test_self_attention_with_a_causal_mask_or_the_kernels_own():
    layer = SelfAttention(16, 4).eval()
    x = torch.randn(2, 5, 16)
    torch.testing.assert_close(layer(x, causal_mask(5)), layer(x, is_causal=True))


def test_self_attention_refuses_a_mask_of_another_shape():
    with pytest.raises(UserError) as error:
        SelfAttention(16, 4)(torch.randn(1, 5, 16), causal_mask(4))
    assert str(error.value) == "causal mask shape (4, 4) does not match (5, 5)"


def test_heads_must_divide_the_width():
    with pytest.raises(UserError, match="hidden 65 not divisible by heads 4"):
        SelfAttention(65, 4)


def test_shared_parts_equal_a_memory_written_out_row_by_row():
    layer = CrossAttention(16, 4, 12).eval()
    pictures, questions = torch.randn(2, 3, 12), torch.randn(3, 4, 12)
    real = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]], dtype=torch.bool)
    picture_of, question_of = torch.tensor([0, 0, 1, 1]), torch.tensor([2, 0, 1, 2])
    x = torch.randn(4, 2, 16)
    memory = Memory([MemoryPart(pictures, picture_of), MemoryPart(questions, question_of, real)])
    shared = layer(x, memory, memory.mask())
    for row in range(4):
        length = int(real[question_of[row]].sum())
        written_out = torch.cat([pictures[picture_of[row]], questions[question_of[row], :length]])
        alone = layer(x[row : row + 1], Memory.of(written_out[None]))
        torch.testing.assert_close(shared[row : row + 1], alone, atol=1e-6, rtol=1e-5)


def test_padding_of_a_memory_gets_no_gradient():
    layer = CrossAttention(8, 2, 8).eval()
    tokens = torch.randn(1, 3, 8, requires_grad=True)
    memory = Memory([MemoryPart(tokens, mask=torch.tensor([[True, True, False]]))])
    layer(torch.randn(1, 2, 8), memory, memory.mask()).sum().backward()
    assert tokens.grad is not None
    assert (tokens.grad[0, 2] == 0).all() and (tokens.grad[0, :2] != 0).any()
