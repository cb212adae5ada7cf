"""The vision encoder's parts, by the figures of the ViT paper and of arithmetic."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vlm import (
    MLPProjector,
    PatchEmbed,
    VisionEncoder,
    ViTConfig,
    freeze,
    sinusoidal_2d,
    synthesize_image,
    unfold_then_linear,
)
from vlm.errors import UserError
from vlm.model.patch_embed import ConvStem, sinusoidal_1d


def num_parameters(module: torch.nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


SMALL = ViTConfig(image_size=32, patch_size=8, in_channels=1, hidden=32, depth=2, heads=4)


def test_vit_b16_has_its_published_size():
    config = ViTConfig()
    assert (config.head_dim, config.num_patches, config.num_tokens) == (64, 196, 197)
    assert num_parameters(PatchEmbed()) == 590_592
    assert num_parameters(MLPProjector(768, 1024, 512)) == 1_312_256
    with torch.device("meta"):
        encoder = VisionEncoder(config)
    assert num_parameters(encoder) == 85_647_360


def test_shapes_of_tokens_and_pooled():
    config = ViTConfig(depth=1)
    tokens, pooled = VisionEncoder(config)(torch.rand(1, 3, 224, 224))
    assert tokens.shape == (1, 197, 768) and pooled.shape == (1, 768)


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_pooled_is_cls_or_the_mean_of_the_patches(pooling):
    config = ViTConfig(image_size=32, patch_size=8, hidden=32, depth=1, heads=4, pooling=pooling)
    tokens, pooled = VisionEncoder(config)(torch.rand(2, 3, 32, 32))
    expected = tokens[:, 0] if pooling == "cls" else tokens[:, 1:].mean(dim=1)
    torch.testing.assert_close(pooled, expected)


@settings(max_examples=10, deadline=None)
@given(patch=st.sampled_from([2, 4, 8]), grid=st.integers(1, 4), channels=st.integers(1, 3))
def test_patch_embedding_is_unfold_and_a_matrix(patch, grid, channels):
    embed = PatchEmbed(patch * grid, patch, channels, hidden=12)
    images = torch.randn(2, channels, patch * grid, patch * grid)
    bias = embed.proj.bias
    assert bias is not None
    expected = unfold_then_linear(images, embed.proj.weight, bias, patch)
    torch.testing.assert_close(embed(images), expected, atol=1e-4, rtol=0)


def test_patch_embedding_against_unfold_at_full_size():
    embed = PatchEmbed()
    images = synthesize_image(3)
    bias = embed.proj.bias
    assert bias is not None
    expected = unfold_then_linear(images, embed.proj.weight, bias, 16)
    assert expected.shape == (1, 196, 768)
    torch.testing.assert_close(embed(images), expected, atol=1e-4, rtol=0)


def test_conv_stem_gives_what_its_layers_give_one_by_one():
    stem = ConvStem(16, 4, 3, 8)
    x = images = torch.randn(2, 3, 16, 16)
    for layer in [*stem.convs, stem.proj]:
        x = layer(x)
    expected = torch.stack([x[:, :, row, col] for row in range(4) for col in range(4)], dim=1)
    torch.testing.assert_close(stem(images), expected, atol=1e-6, rtol=1e-5)
    assert stem(images).is_contiguous()  # tokens, as the blocks read them


def test_conv_stem_has_one_token_a_patch():
    assert ConvStem(32, 8, 3, 64)(torch.rand(2, 3, 32, 32)).shape == (2, 16, 64)


def test_sinusoids_tell_row_in_the_first_half_and_column_in_the_second():
    table = sinusoidal_2d(3, 5, 16).reshape(3, 5, 16)
    assert (table[:, 0, :8] == table[:, 4, :8]).all()  # same row, any column
    assert (table[0, :, 8:] == table[2, :, 8:]).all()  # same column, any row
    assert len({tuple(v) for v in table.reshape(15, 16).tolist()}) == 15


def test_sinusoids_by_the_formula():
    table = sinusoidal_1d(7, 6)
    for position in range(7):
        for i in range(3):
            angle = position / 10_000 ** (2 * i / 6)
            assert table[position, i] == pytest.approx(math.sin(angle), abs=1e-6)
            assert table[position, 3 + i] == pytest.approx(math.cos(angle), abs=1e-6)


@pytest.mark.parametrize("position", ["sinusoidal_1d", "sinusoidal_2d", "learned"])
@pytest.mark.parametrize("stem", ["patch", "conv"])
def test_every_choice_runs_forward_and_back(position, stem):
    config = ViTConfig(
        image_size=16, patch_size=4, hidden=16, depth=1, heads=2, position=position, stem=stem
    )
    encoder = VisionEncoder(config)
    encoder(torch.rand(2, 3, 16, 16))[1].sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in encoder.parameters())


def test_a_picture_is_encoded_alike_in_any_batch():
    encoder = VisionEncoder(SMALL).eval()
    images = torch.rand(5, 1, 32, 32)
    together = encoder(images)[0]
    alone = torch.cat([encoder(image[None])[0] for image in images])
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=0)


def test_frozen_stays_in_eval_and_gets_no_gradient():
    encoder = freeze(VisionEncoder(ViTConfig(32, 8, hidden=32, depth=2, heads=4, dropout=0.5)))
    parent = torch.nn.ModuleList([encoder]).train()
    assert not any(part.training for part in encoder.modules())
    assert parent.training
    images = torch.rand(2, 3, 32, 32)
    assert torch.equal(encoder(images)[0], encoder(images)[0])
    assert not any(p.requires_grad for p in encoder.parameters())


def test_test_pictures_are_deterministic_and_in_range():
    image = synthesize_image(5, image_size=48, channels=2)
    assert image.shape == (1, 2, 48, 48) and image.dtype == torch.float32
    assert float(image.min()) >= 0 and float(image.max()) <= 1
    assert torch.equal(image, synthesize_image(5, image_size=48, channels=2))
    assert not torch.equal(image, synthesize_image(6, image_size=48, channels=2))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ViTConfig(patch_size=15), "patch_size 15 must divide image_size 224"),
        (lambda: ViTConfig(hidden=65, heads=4), "hidden 65 not divisible by heads 4"),
        (lambda: sinusoidal_2d(2, 2, 30), "sinusoidal_2d dim must be divisible by 4, got 30"),
        (
            lambda: VisionEncoder(SMALL)(torch.rand(1, 1, 48, 48)),
            "spatial mismatch: got (48, 48), expected (32, 32)",
        ),
        (
            lambda: ViTConfig(image_size=30, patch_size=6, stem="conv"),
            "conv stem needs patch_size a power of two, got 6",
        ),
    ],
)
def test_errors_say_what_is_wrong(make, message):
    with pytest.raises(UserError) as error:
        make()
    assert str(error.value) == message


def test_a_frozen_module_stays_in_eval_part_by_part():
    encoder = freeze(VisionEncoder(SMALL))
    encoder.blocks.train()
    encoder.blocks[0].train()
    assert not any(module.training for module in encoder.modules())


def test_one_dimensional_sinusoids_need_pairs():
    with pytest.raises(UserError, match="sinusoidal_1d dim must be divisible by 2, got 31"):
        sinusoidal_1d(4, 31)


@pytest.mark.parametrize("shape", [(3, 32, 32), (2, 1, 32, 32), (1, 2, 3, 32, 32)])
def test_pictures_of_another_shape_are_refused(shape):
    with pytest.raises(UserError, match=r"pictures: got shape .* expected \(B, 3, 32, 32\)"):
        PatchEmbed(32, 16, 3, 8)(torch.zeros(shape))


def gradients(encoder: VisionEncoder, images: torch.Tensor) -> tuple[list[torch.Tensor], list[int]]:
    """Outputs and all gradients of a step, and how often each block has run by its end."""
    runs = [0] * len(encoder.blocks)

    def count(block: int) -> None:
        runs[block] += 1

    hooks = [
        block.register_forward_pre_hook(lambda *_, n=n: count(n))
        for n, block in enumerate(encoder.blocks)
    ]
    torch.manual_seed(1)
    encoder.zero_grad()
    tokens, pooled = encoder(images)
    (tokens.square().mean() + pooled.sum()).backward()
    after = torch.rand(3)  # chance goes on from the same place
    for hook in hooks:
        hook.remove()
    grads = [parameter.grad.clone() for parameter in encoder.parameters()]
    return [tokens.detach(), pooled.detach(), after, *grads], runs


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_checkpointed_activations_change_no_bit(norm, dropout):
    config = replace(SMALL, norm=norm, dropout=dropout, position="learned")
    encoder = VisionEncoder(config).train()
    images = torch.rand(3, 1, 32, 32)
    kept, runs = gradients(encoder, images)
    assert runs == [1, 1]
    encoder.checkpoint_activations()
    recomputed, runs = gradients(encoder, images)
    assert runs == [2, 2]
    assert all(torch.equal(a, b) for a, b in zip(kept, recomputed, strict=True))
    encoder.checkpoint_activations(False)
    assert gradients(encoder, images)[1] == [1, 1]


def test_nothing_is_checkpointed_where_nothing_learns():
    """What is saved for the backward pass is what autograd saves; there is none here."""
    encoder = VisionEncoder(SMALL)
    encoder.checkpoint_activations()
    images = torch.rand(2, 1, 32, 32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vlm.model.vit.checkpoint", None)  # a call would fail
        encoder.eval()(images)
        with torch.no_grad():
            encoder.train()(images)
        freeze(encoder)
        torch.nn.ModuleList([encoder]).train()
        encoder(images)


def test_checkpointing_keeps_less_for_the_backward_pass():
    def kept(on: bool) -> int:
        encoder = VisionEncoder(SMALL).train()
        encoder.checkpoint_activations(on)
        sizes = []

        def pack(tensor: torch.Tensor) -> torch.Tensor:
            sizes.append(tensor.numel())
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            encoder(torch.rand(4, 1, 32, 32))
        return sum(sizes)

    assert kept(True) < kept(False) / 3
