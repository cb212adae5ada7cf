"""Attention seen from outside: the weights of every layer, only when someone asks."""

import pytest
import torch

import vlm.model.attention as module
from vlm import DecoderConfig, VisionEncoder, VisionLanguageDecoder, ViTConfig, watch_attention
from vlm.model.attention import CrossAttention, attention, attention_weights
from vlm.model.memory import Memory, MemoryPart

ENCODER = ViTConfig(image_size=16, patch_size=8, in_channels=1, hidden=16, depth=2, heads=2)
DECODER = DecoderConfig(hidden=16, heads=2, depth=2, text_vocab=9, max_text_len=6, vision_dim=16)


@pytest.mark.parametrize("kind", ["none", "mask", "causal"])
def test_the_weights_are_what_the_kernel_mixes_by(kind):
    query, key, value = torch.randn(3, 2, 4, 5, 8).unbind(0)
    mask = torch.rand(2, 1, 5, 5) > 0.3 if kind == "mask" else None
    causal = kind == "causal"
    weights = attention_weights(query, key, mask, is_causal=causal)
    mixed = attention(query, key, value, mask, is_causal=causal)
    torch.testing.assert_close(weights @ value, mixed, atol=1e-5, rtol=1e-5)


def test_a_row_that_sees_nothing_has_no_weight():
    mask = torch.tensor([[False, False], [True, False]])
    weights = attention_weights(torch.randn(1, 1, 2, 4), torch.randn(1, 1, 2, 4), mask)
    assert weights[0, 0].tolist() == [[0, 0], [1, 0]]


def test_every_layer_of_an_encoder_is_seen_and_its_rows_sum_to_one():
    encoder = VisionEncoder(ENCODER).eval()
    images = torch.randn(3, 1, 16, 16)
    before = encoder(images)[0]
    with watch_attention(encoder) as seen:
        watched = encoder(images)[0]
        encoder(images[:1])
    assert torch.equal(before, watched)
    assert list(seen) == ["blocks.0.attention", "blocks.1.attention"]
    for first, second in seen.values():
        assert first.shape == (3, 2, 5, 5) and second.shape == (1, 2, 5, 5)
        torch.testing.assert_close(first.sum(dim=-1), torch.ones(3, 2, 5))
        assert not first.requires_grad


def test_a_decoder_shows_where_each_word_looks_with_and_without_a_cache():
    decoder = VisionLanguageDecoder(DECODER).eval()
    real = torch.tensor([[True, True, False]])
    memory = Memory([MemoryPart(torch.randn(1, 3, 16), mask=real)])
    ids = torch.randint(9, (1, 4))
    with torch.no_grad(), watch_attention(decoder) as whole:
        decoder(ids, memory)
    cache = decoder.new_cache(1)
    with torch.no_grad(), watch_attention(decoder) as steps:
        for t in range(4):
            decoder(ids[:, t : t + 1], memory, cache=cache)
    for name, (weights,) in whole.items():
        torch.testing.assert_close(weights.sum(dim=-1), torch.ones(1, 2, 4))
        if "self" in name:
            assert (weights.triu(diagonal=1) == 0).all()
        else:
            assert (weights[..., 2] == 0).all()
        for t, step in enumerate(steps[name]):
            now = weights[:, :, t : t + 1, : step.shape[-1]]
            torch.testing.assert_close(step, now, atol=1e-5, rtol=1e-5)


def test_nobody_pays_who_does_not_ask(monkeypatch):
    layer = CrossAttention(16, 2, 16)

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("weights were computed unasked")

    with watch_attention(layer):
        pass
    monkeypatch.setattr(module, "attention_weights", refuse)
    layer(torch.randn(1, 2, 16), Memory.of(torch.randn(1, 3, 16)))
    with watch_attention(layer), pytest.raises(AssertionError, match="unasked"):
        layer(torch.randn(1, 2, 16), Memory.of(torch.randn(1, 3, 16)))


def test_a_watcher_inside_another_gives_back_to_it():
    encoder = VisionEncoder(ENCODER).eval()
    with watch_attention(encoder) as outer:
        with watch_attention(encoder.blocks[0]) as inner:
            encoder(torch.randn(1, 1, 16, 16))
        encoder(torch.randn(1, 1, 16, 16))
    assert len(inner["attention"]) == 1
    assert [len(calls) for calls in outer.values()] == [1, 2]
