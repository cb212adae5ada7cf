"""Attention as batched products, against the weights written out, and against PyTorch's kernel."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

import vlm.model.small_attention as module
from vlm import causal_mask
from vlm.model.attention import attention, attention_weights
from vlm.model.small_attention import MOST_SCORES, is_small, small_attention

KINDS = ["none", "causal", "own", "padding", "repeated", "shared", "blind"]


def make_mask(kind, batch, heads, new, seen):
    """A mask of each shape that callers use, and whether to ask for a causal one instead."""
    shapes = {
        "own": (batch, heads, new, seen),
        "padding": (batch, 1, 1, seen),
        "repeated": (batch, 1, 1, seen),
        "shared": (new, seen),
        "blind": (batch, 1, new, seen),
    }
    if kind not in shapes:
        return None
    mask = torch.rand(shapes[kind]) > 0.4
    if kind == "blind":
        mask[:, :, 0] = False
    else:
        mask[..., 0] = True
    return mask.expand(-1, 1, new, -1) if kind == "repeated" else mask


def make_inputs(batch, heads, new, seen, width, dtype=torch.float32):
    """Queries, keys and values that lie as projections leave them: (B, T, H, K) transposed."""
    sizes = (new, seen, seen)
    made = (torch.randn(batch, size, heads, width, dtype=dtype).transpose(1, 2) for size in sizes)
    return [x.requires_grad_() for x in made]


def values_and_gradients(function, inputs):
    """The result, and the gradients of a sum that weighs each of its numbers differently."""
    out = function(*inputs)
    weights = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view(out.shape)
    return [out, *torch.autograd.grad((out * weights).sum(), inputs)]


@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    batch=st.integers(1, 3),
    heads=st.integers(1, 3),
    new=st.integers(1, 6),
    seen=st.integers(1, 7),
    width=st.integers(1, 5),
    seed=st.integers(0, 99),
)
def test_values_and_gradients_are_those_of_the_weights(kind, batch, heads, new, seen, width, seed):
    torch.manual_seed(seed)
    causal = kind == "causal"
    seen = new if causal else seen
    mask = make_mask(kind, batch, heads, new, seen)
    inputs = make_inputs(batch, heads, new, seen, width, torch.float64)

    def slow(query, key, value):
        return attention_weights(query, key, mask, is_causal=causal) @ value

    def fast(query, key, value):
        return small_attention(query, key, value, mask, causal)

    expected = values_and_gradients(slow, inputs)
    for x, other in zip(values_and_gradients(fast, inputs), expected, strict=True):
        # Through a row without keys the slow one's gradients are NaN: softmax of -inf alone.
        torch.testing.assert_close(x, other.nan_to_num(0.0) if kind == "blind" else other)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_differences(kind):
    mask = make_mask(kind, 2, 2, 3, 3)
    inputs = make_inputs(2, 2, 3, 3, 2, torch.float64)
    assert torch.autograd.gradcheck(lambda *x: small_attention(*x, mask, kind == "causal"), inputs)


@pytest.mark.parametrize("kind", KINDS)
def test_both_paths_agree(kind, monkeypatch):
    inputs = make_inputs(30, 4, 17, 17, 16)
    mask = make_mask(kind, 30, 4, 17, 17)

    def mix(query, key, value):
        return attention(query, key, value, mask, is_causal=kind == "causal")

    assert is_small(*inputs[:2])
    small = values_and_gradients(mix, inputs)
    monkeypatch.setattr(module, "MOST_SCORES", 17 * 17 - 1)
    assert not is_small(*inputs[:2])
    for x, other in zip(small, values_and_gradients(mix, inputs), strict=True):
        torch.testing.assert_close(x, other, atol=2e-6, rtol=1e-5)


def test_a_row_that_sees_no_key_gives_zero_and_passes_no_gradient():
    query, key, value = make_inputs(1, 1, 2, 3, 4)
    mask = torch.tensor([[False, False, False], [True, True, False]])
    out, *grads = values_and_gradients(lambda *x: small_attention(*x, mask), [query, key, value])
    assert (out[0, 0, 0] == 0).all() and (out[0, 0, 1] != 0).all()
    assert (grads[0][0, 0, 0] == 0).all() and (grads[0][0, 0, 1] != 0).any()
    for grad in grads[1:]:
        assert (grad[0, 0, 2] == 0).all()  # the key that nobody sees
        assert (grad[0, 0, :2] != 0).any()


def test_a_nan_is_not_hidden():
    query, key, value = make_inputs(1, 1, 2, 2, 4)
    with torch.no_grad():
        value[0, 0, 1, 2] = torch.nan
    assert small_attention(query, key, value, causal_mask(2))[0, 0, 1, 2].isnan()


def test_no_rows_at_all():
    inputs = make_inputs(0, 2, 3, 4, 5)
    mask = torch.ones(0, 1, 1, 4, dtype=torch.bool)
    out, *grads = values_and_gradients(lambda *x: small_attention(*x, mask), inputs)
    assert out.shape == (0, 2, 3, 5)
    assert [grad.shape for grad in grads] == [x.shape for x in inputs]


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_without_gradients_before_and_with_them_after(mode):
    inputs = make_inputs(2, 2, 13, 13, 8)  # a length whose causal bias nobody made yet
    with mode():
        first = small_attention(*inputs, is_causal=True)
    assert not first.requires_grad
    out, *grads = values_and_gradients(lambda *x: small_attention(*x, is_causal=True), inputs)
    assert torch.equal(first, out)
    again = values_and_gradients(lambda *x: small_attention(*x, is_causal=True), inputs)
    assert all(map(torch.equal, [out, *grads], again))


def test_what_is_left_to_the_kernel():
    def small(*sizes, **kinds):
        query, key, _ = make_inputs(*sizes, **kinds)
        return is_small(query, key)

    side = int(MOST_SCORES**0.5)
    assert small(64, 4, 17, 25, 16) and small(64, 4, side, side, 2)
    assert not small(64, 4, side + 1, side + 1, 2)
    assert not small(1, 4, 17, 25, 16)
    assert not small(4096, 4, 1, 25, 2)
    assert not small(64, 4, 17, 25, 16, dtype=torch.float64)
    with torch.autocast("cpu"):
        assert not small(64, 4, 17, 25, 16)


def test_dropout_is_left_to_the_kernel(monkeypatch):
    def noted(*args, **kwargs):
        raise AssertionError("small")

    monkeypatch.setattr("vlm.model.attention.small_attention", noted)
    inputs = make_inputs(64, 4, 17, 17, 16)
    assert attention(*inputs, dropout=0.5).shape == inputs[0].shape
    with pytest.raises(AssertionError, match="small"):
        attention(*inputs)


@pytest.mark.parametrize("length", [5, 9])
def test_the_causal_bias_is_made_once_a_length(length):
    made = module._causal_bias(length, torch.float32)
    assert module._causal_bias(length, torch.float32) is made
    assert torch.equal(made == 0, causal_mask(length))
    query, key, value = make_inputs(2, 2, length, length, 4)
    expected = F.scaled_dot_product_attention(query, key, value, is_causal=True)
    got = small_attention(query, key, value, is_causal=True)
    torch.testing.assert_close(got, expected, atol=2e-6, rtol=1e-5)
