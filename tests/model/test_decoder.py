"""The decoder and its cache: sizes, causality, and that no way of calling it changes a value."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vlm import DecoderConfig, KVCache, VisionLanguageDecoder
from vlm.errors import UserError
from vlm.model.attention import CrossAttention
from vlm.model.memory import Memory, MemoryPart

SMALL = DecoderConfig(
    hidden=32, heads=4, depth=2, text_vocab=50, max_text_len=24, vision_dim=16, vision_tokens=9
)


@pytest.fixture
def decoder() -> VisionLanguageDecoder:
    return VisionLanguageDecoder(SMALL).eval()


def close(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal to 1e-5 times the larger of 1 and the largest value."""
    return float((a - b).abs().max()) <= 1e-5 * max(1.0, float(b.abs().max()))


def test_size_at_the_defaults():
    with torch.device("meta"):
        decoder = VisionLanguageDecoder(DecoderConfig())
    assert sum(p.numel() for p in decoder.parameters()) == 4_746_752
    assert decoder.head.bias is None and decoder.head.weight is not decoder.embedding.weight


def test_shape_of_logits(decoder):
    logits = decoder(torch.randint(0, 50, (3, 7)), torch.randn(3, 9, 16))
    assert logits.shape == (3, 7, 50)


@settings(max_examples=10, deadline=None)
@given(changed=st.integers(0, 9), seed=st.integers(0, 99))
def test_no_token_sees_a_later_one(changed, seed):
    torch.manual_seed(seed)
    decoder = VisionLanguageDecoder(SMALL).eval()
    ids, memory = torch.randint(4, 50, (1, 10)), torch.randn(1, 9, 16)
    other = ids.clone()
    other[0, changed] = (ids[0, changed] + 1) % 50
    before, after = decoder(ids, memory), decoder(other, memory)
    assert torch.equal(before[:, :changed], after[:, :changed])
    assert not torch.equal(before[:, changed:], after[:, changed:])


def test_use_cache_changes_no_value_and_projects_the_memory_once(decoder, monkeypatch):
    calls = []
    project = CrossAttention.project
    monkeypatch.setattr(
        CrossAttention, "project", lambda *a, **k: calls.append(1) or project(*a, **k)
    )
    ids, memory = torch.randint(0, 50, (2, 6)), torch.randn(2, 9, 16)
    assert torch.equal(decoder(ids, memory, use_cache=True), decoder(ids, memory))
    assert len(calls) == 2 * SMALL.depth


@torch.inference_mode()
@pytest.mark.parametrize("chunks", [[4] + [1] * 16, [2, 2] + [1] * 16, [4, 4, 4, 4, 4], [20]])
def test_chunks_over_a_cache_equal_one_call(decoder, chunks, monkeypatch):
    """Prompt of 4 then 16 steps, prefill as 2 + 2, and larger chunks."""
    calls = []
    project = CrossAttention.project
    monkeypatch.setattr(
        CrossAttention, "project", lambda *a, **k: calls.append(1) or project(*a, **k)
    )
    ids, memory = torch.randint(0, 50, (3, 20)), torch.randn(3, 9, 16)
    cache = decoder.new_cache(3, 20)
    parts, begin = [], 0
    for size in chunks:
        parts.append(decoder(ids[:, begin : begin + size], memory, cache=cache))
        begin += size
    assert len(calls) == SMALL.depth  # once per layer, however many calls
    assert all(pairs is not None and pairs.expand()[0].shape[2] == 9 for pairs in cache.cross_pairs)
    assert cache.length == 20
    assert close(torch.cat(parts, dim=1), decoder(ids, memory))


@torch.inference_mode()
def test_keys_and_values_are_not_swapped(decoder):
    decoder(torch.randint(0, 50, (1, 3)), torch.randn(1, 9, 16), cache=(c := decoder.new_cache(1)))
    first = decoder.blocks[0].self_attention
    x = decoder.blocks[0].self_norm(decoder.embedding.weight[:1] + decoder.positions.weight[:1])
    decoder(
        torch.zeros(1, 1, dtype=torch.int64),
        torch.randn(1, 9, 16),
        cache=(d := decoder.new_cache(1)),
    )
    _, key, value = first.qkv(x).unflatten(-1, (3, 4, 8)).unbind(1)
    torch.testing.assert_close(d.keys[0, 0, 0], key[0])
    torch.testing.assert_close(d.values[0, 0, 0], value[0])
    assert not torch.allclose(c.keys[0, :3], c.values[0, :3])


@torch.inference_mode()
def test_prompts_of_mixed_length_equal_each_alone(decoder):
    """Padding stands before a short prompt; positions count from its first real token."""
    lengths, memory = [3, 5, 8], torch.randn(3, 9, 16)
    ids = torch.randint(4, 50, (3, 12))
    mask = torch.ones(3, 8, dtype=torch.bool)
    for row, length in enumerate(lengths):
        ids[row, : 8 - length] = 0
        mask[row, : 8 - length] = False
    cache = decoder.new_cache(3, 12)
    prefill = decoder(ids[:, :8], memory, cache=cache, text_mask=mask)
    steps = [decoder(ids[:, t : t + 1], memory, cache=cache) for t in range(8, 12)]
    together = torch.cat([prefill, *steps], dim=1)
    for row, length in enumerate(lengths):
        alone = decoder(ids[row : row + 1, 8 - length :], memory[row : row + 1])
        assert close(together[row : row + 1, 8 - length :], alone)


@torch.inference_mode()
def test_reorder_and_truncate(decoder):
    ids, memory = torch.randint(0, 50, (2, 6)), torch.randn(2, 9, 16)
    cache = decoder.new_cache(2, 10)
    decoder(ids, memory, cache=cache)
    cache.truncate(4)
    assert close(decoder(ids[:, 4:], memory, cache=cache), decoder(ids, memory)[:, 4:])
    cache.truncate(4)
    swap = torch.tensor([1, 0])
    cache.reorder(swap)
    got = decoder(ids[swap, 4:], memory[swap], cache=cache)
    assert close(got, decoder(ids[swap], memory[swap])[:, 4:])
    with pytest.raises(UserError, match="cannot truncate to 7: the cache holds 6 positions"):
        cache.truncate(7)


@torch.inference_mode()
@pytest.mark.parametrize(("keeps_self", "keeps_cross"), [(True, False), (False, True)])
def test_half_a_cache_is_a_cache_too(decoder, keeps_self, keeps_cross):
    ids, memory = torch.randint(0, 50, (2, 6)), torch.randn(2, 9, 16)
    cache = decoder.new_cache(2, 6, keeps_self=keeps_self, keeps_cross=keeps_cross)
    expected = decoder(ids, memory)
    if keeps_self:
        got = torch.cat([decoder(ids[:, t : t + 1], memory, cache=cache) for t in range(6)], dim=1)
    else:
        got = decoder(ids, memory, cache=cache)
        assert close(decoder(ids, memory, cache=cache), expected)
    assert close(got, expected)
    assert (cache.cross_pairs[0] is not None) == keeps_cross


def test_cache_counts_its_bytes():
    cache = KVCache(layers=2, batch_size=3, heads=4, head_dim=8, max_length=5)
    assert cache.num_bytes == 2 * (2 * 3 * 4 * 5 * 8) * 4


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda d: d(torch.zeros(1, 25, dtype=int), torch.zeros(1, 9, 16)),
            "text length 25 exceeds max_text_len 24",
        ),
        (
            lambda d: d(torch.zeros(1, 3, dtype=int), torch.zeros(1, 9, 17)),
            "memory width 17 does not match 16",
        ),
        (
            lambda d: d(torch.zeros(2, 3, dtype=int), torch.zeros(1, 9, 16)),
            "memory batch size 1 does not match 2",
        ),
        (
            lambda d: d(torch.zeros(2, 3, dtype=int), torch.zeros(2, 9, 16), cache=d.new_cache(3)),
            "cache batch size 3 does not match 2",
        ),
        (
            lambda d: d(
                torch.zeros(2, 3, dtype=int), torch.zeros(2, 9, 16), cache=d.new_cache(2, 2)
            ),
            "cache holds 0 of 2 positions; 3 more do not fit",
        ),
        (
            lambda d: d(
                torch.zeros(3, 2, dtype=int),
                Memory([MemoryPart(torch.zeros(1, 9, 16), torch.zeros(2, dtype=int))]),
            ),
            "memory batch size 2 does not match 3",
        ),
    ],
)
def test_errors_say_what_is_wrong(decoder, call, message):
    with pytest.raises(UserError) as error:
        call(decoder)
    assert str(error.value) == message


def test_reorder_wants_a_row_for_each_row(decoder):
    with pytest.raises(UserError, match=r"reorder rows \(1,\) do not match \(3,\)"):
        decoder.new_cache(3).reorder(torch.tensor([2]))
