"""What a decode should cost, against what the modules do."""

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from vlm.evaluation.costs import ARMS, Arm, bytes_read, cache_bytes, flops
from vlm.evaluation.decoding import decode, shape_of
from vlm.model import attention as attention_module
from vlm.model.decoder import DecoderConfig, VisionLanguageDecoder

DECODERS = {
    "square": DecoderConfig(16, 2, 1, 1.0, text_vocab=16, max_text_len=12, vision_dim=16),
    "odd": DecoderConfig(12, 3, 3, 2.5, text_vocab=37, max_text_len=12, vision_dim=20, norm="post"),
}
SIZES = [(1, 1, 1), (2, 5, 3), (3, 12, 1)]  # rows, new tokens, memory tokens


def step_by_step(
    decoder: VisionLanguageDecoder, arm: Arm, batch: int, length: int, tokens: int
) -> None:
    """The modules' own decode of an arm; what it says doesn't matter here."""
    memory = torch.randn(batch, tokens, decoder.config.vision_dim)
    ids = torch.randint(decoder.config.text_vocab, (batch, length))
    cache = None
    if arm.keeps_self or arm.keeps_cross:
        cache = decoder.new_cache(
            batch, length, keeps_self=arm.keeps_self, keeps_cross=arm.keeps_cross
        )
    with torch.no_grad():
        for end in range(1, length + 1):
            begin = end - 1 if arm.keeps_self else 0
            decoder(ids[:, begin:end], memory, cache=cache, last_only=True)


@pytest.mark.parametrize("config", DECODERS.values(), ids=DECODERS)
@pytest.mark.parametrize("arm", ARMS.values(), ids=ARMS)
@pytest.mark.parametrize(("batch", "length", "tokens"), SIZES)
def test_arithmetic_is_what_pytorch_counts(config, arm, batch, length, tokens):
    decoder = VisionLanguageDecoder(config).eval()
    # Only of this kernel does PyTorch count the products.
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        step_by_step(decoder, arm, batch, length, tokens)
    shape = shape_of(decoder, torch.empty(batch, tokens, config.vision_dim))
    assert flops(shape, arm, batch, length) == counter.get_total_flops()


@pytest.mark.parametrize("config", DECODERS.values(), ids=DECODERS)
@pytest.mark.parametrize("arm", ARMS.values(), ids=ARMS)
def test_bytes_read_are_those_that_attention_gets(config, arm, monkeypatch):
    read = []
    attention = attention_module.attention

    def noted(query, key, value, *args, **kwargs):
        read.append(key.nbytes + value.nbytes)
        return attention(query, key, value, *args, **kwargs)

    monkeypatch.setattr(attention_module, "attention", noted)
    decoder = VisionLanguageDecoder(config).eval()
    step_by_step(decoder, arm, 2, 7, 3)
    shape = shape_of(decoder, torch.empty(2, 3, config.vision_dim))
    assert bytes_read(shape, 2, 7) == sum(read)


@pytest.mark.parametrize("config", DECODERS.values(), ids=DECODERS)
@pytest.mark.parametrize("arm", ARMS.values(), ids=ARMS)
@pytest.mark.parametrize(("batch", "length", "tokens"), SIZES)
def test_a_cache_holds_the_bytes_that_were_predicted(config, arm, batch, length, tokens):
    decoder = VisionLanguageDecoder(config).eval()
    memory = torch.randn(batch, tokens, config.vision_dim)
    held = decode(arm, decoder, memory, batch, length).cache_bytes
    assert cache_bytes(shape_of(decoder, memory), arm, batch, length) == held
