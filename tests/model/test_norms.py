"""LayerNorm before each branch or after each sum, against PyTorch's own layers."""

import pytest
import torch
from torch import nn

from vlm import DecoderConfig, VisionEncoder, VisionLanguageDecoder, ViTConfig
from vlm.model.attention import EncoderBlock
from vlm.model.decoder import DecoderBlock
from vlm.model.memory import Memory
from vlm.model.text import TextConfig, TextEncoder


def randomise(module: nn.Module) -> None:
    """No zero bias and no unit scale, behind which a mistake could hide."""
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.3)


def copy_attention(ours: nn.Module, theirs: nn.MultiheadAttention, weight, bias) -> None:
    theirs.load_state_dict(
        {
            "in_proj_weight": weight,
            "in_proj_bias": bias,
            "out_proj.weight": ours.out.weight,
            "out_proj.bias": ours.out.bias,
        }
    )


def copy(pairs: list[tuple[nn.Module, nn.Module]]) -> None:
    for ours, theirs in pairs:
        theirs.load_state_dict(ours.state_dict())


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_an_encoder_block_is_torchs(norm):
    ours = EncoderBlock(16, 4, 2.0, eps=1e-5, norm=norm).eval()
    randomise(ours)
    theirs = nn.TransformerEncoderLayer(
        16, 4, 32, 0.0, "gelu", batch_first=True, norm_first=norm == "pre"
    ).eval()
    copy_attention(
        ours.attention, theirs.self_attn, ours.attention.qkv.weight, ours.attention.qkv.bias
    )
    copy(
        [
            (ours.attention_norm, theirs.norm1),
            (ours.mlp_norm, theirs.norm2),
            (ours.mlp[0], theirs.linear1),
            (ours.mlp[2], theirs.linear2),
        ]
    )
    x = torch.randn(3, 5, 16, requires_grad=True)  # with gradients: their plain path
    torch.testing.assert_close(ours(x), theirs(x), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_decoder_block_is_torchs(norm):
    config = DecoderConfig(hidden=16, heads=4, mlp_ratio=2.0, vision_dim=16, norm=norm)
    ours = DecoderBlock(config).eval()
    randomise(ours)
    theirs = nn.TransformerDecoderLayer(
        16, 4, 32, 0.0, "gelu", batch_first=True, norm_first=norm == "pre"
    ).eval()
    own, cross = ours.self_attention, ours.cross_attention
    copy_attention(own, theirs.self_attn, own.qkv.weight, own.qkv.bias)
    copy_attention(
        cross,
        theirs.multihead_attn,
        torch.cat([cross.query.weight, cross.key_value.weight]),
        torch.cat([cross.query.bias, cross.key_value.bias]),
    )
    copy(
        [
            (ours.self_norm, theirs.norm1),
            (ours.cross_norm, theirs.norm2),
            (ours.mlp_norm, theirs.norm3),
            (ours.mlp[0], theirs.linear1),
            (ours.mlp[2], theirs.linear2),
        ]
    )
    x, memory = torch.randn(2, 5, 16), torch.randn(2, 3, 16)
    got = ours(x, Memory.of(memory), None, None, is_causal=True, cache=None)
    unseen = nn.Transformer.generate_square_subsequent_mask(5)
    expected = theirs(x, memory, tgt_mask=unseen)
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-5)


def test_post_norm_models_end_in_their_last_blocks_norm():
    sizes = {"hidden": 16, "heads": 2, "depth": 1, "norm": "post"}
    models = [
        VisionEncoder(ViTConfig(image_size=16, patch_size=8, **sizes)),
        TextEncoder(TextConfig(vocab_size=9, **sizes)),
        VisionLanguageDecoder(DecoderConfig(text_vocab=9, vision_dim=16, **sizes)),
    ]
    for model in models:
        assert isinstance(model.norm, nn.Identity)
        assert "norm.weight" not in model.state_dict()


def test_pixels_are_scaled_as_pretrained_weights_expect():
    sizes = {"image_size": 16, "patch_size": 8, "hidden": 16, "heads": 2, "depth": 1}
    plain = VisionEncoder(ViTConfig(**sizes)).eval()
    mean, std = (0.4, 0.5, 0.6), (0.2, 0.25, 0.3)
    scaling = VisionEncoder(ViTConfig(**sizes, pixel_mean=mean, pixel_std=std)).eval()
    scaling.load_state_dict(plain.state_dict())
    images = torch.rand(2, 3, 16, 16)
    by_hand = torch.stack([(images[:, c] - mean[c]) / std[c] for c in range(3)], dim=1)
    torch.testing.assert_close(scaling(images)[0], plain(by_hand)[0])
