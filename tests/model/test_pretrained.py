"""Weights of timm's and Transformers' ViT: their features come out, and every misfit is named."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import ViTForImageClassification, ViTModel

from vlm.errors import UserError
from vlm.model.pretrained import load_vit
from vlm.model.vit import VisionEncoder, ViTConfig

TIMM = Path(__file__).parent / "fixtures/timm_vit.safetensors"
TIMM_FEATURES = TIMM.with_name("timm_vit_features.safetensors")
SMALL = ViTConfig(
    image_size=32, patch_size=8, hidden=32, depth=2, heads=4, mlp_ratio=2, position="learned"
)


def random_vit(kind: type[ViTModel] | type[ViTForImageClassification]):
    """A small ViT of Transformers without a zero or a one among its weights."""
    config = transformers.ViTConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        image_size=32,
        patch_size=8,
    )
    model = kind(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.2 * torch.randn_like(parameter)
    return model


def published(model: transformers.PreTrainedModel, folder: Path) -> Path:
    model.save_pretrained(folder)
    return folder / "model.safetensors"


def in_memory(model: transformers.PreTrainedModel, folder: Path) -> Path:
    save_file(model.state_dict(), folder / "state.safetensors")
    return folder / "state.safetensors"


def loaded(path: Path, config: ViTConfig = SMALL) -> VisionEncoder:
    encoder = VisionEncoder(config).eval()
    load_vit(encoder, path)
    return encoder


def assert_close(got: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=0)


@torch.no_grad()
@pytest.mark.parametrize("kind", [ViTModel, ViTForImageClassification])
@pytest.mark.parametrize(
    ("save", "a_name"),
    [
        (published, "encoder.layer.1.attention.attention.key.bias"),
        (in_memory, "layers.1.attention.k_proj.bias"),
    ],
)
def test_features_are_those_of_transformers(tmp_path, kind, save, a_name):
    model = random_vit(kind)
    path = save(model, tmp_path)
    prefix = "vit." if kind is ViTForImageClassification else ""
    assert prefix + a_name in load_file(path)  # the layout that is meant to be tried
    images = torch.rand(2, 3, 32, 32)
    expected = model.base_model(images).last_hidden_state
    tokens, cls = loaded(path, replace(SMALL, norm_eps=1e-12))(images)
    assert_close(tokens, expected)
    assert_close(cls, expected[:, 0])
    assert expected.std() > 0.5  # so that 1e-5 is little


@torch.no_grad()
def test_features_are_those_of_timm():
    theirs = load_file(TIMM_FEATURES)
    tokens, cls = loaded(TIMM)(theirs["images"])
    assert_close(tokens, theirs["features"])
    assert_close(cls, theirs["features"][:, 0])
    assert theirs["features"].std() > 0.5


@torch.no_grad()
@pytest.mark.parametrize(
    "pair",
    [
        ("attention.attention.query", "attention.attention.key"),
        ("attention.attention.key", "attention.attention.value"),
        ("attention.attention.value", "attention.output.dense"),
        ("layernorm_before", "layernorm_after"),
    ],
)
@pytest.mark.parametrize("part", ["weight", "bias"])
def test_a_swap_would_show(tmp_path, pair, part):
    """The weights are random enough for the features above to tell one part from another."""
    path = published(random_vit(ViTModel), tmp_path)
    images = torch.rand(2, 3, 32, 32)
    right = loaded(path)(images)[0]
    tensors = load_file(path)
    one, other = (f"encoder.layer.0.{name}.{part}" for name in pair)
    save_file(tensors | {one: tensors[other], other: tensors[one]}, path)
    assert (loaded(path)(images)[0] - right).abs().max() > 1e-2


def test_the_bias_of_the_keys_is_read_too(tmp_path):
    """It moves all scores of a query alike, so that no feature can tell what it is."""
    model = random_vit(ViTModel)
    ours = loaded(published(model, tmp_path)).state_dict()["blocks.1.attention.qkv.bias"]
    assert torch.equal(ours.chunk(3)[1], model.state_dict()["layers.1.attention.k_proj.bias"])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_read_as_single(tmp_path, dtype):
    half = {name: tensor.to(dtype) for name, tensor in load_file(TIMM).items()}
    save_file(half, tmp_path / "half.safetensors")
    encoder = loaded(tmp_path / "half.safetensors")
    assert {tensor.dtype for tensor in encoder.state_dict().values()} == {torch.float32}
    assert torch.equal(encoder.stem.proj.weight, half["patch_embed.proj.weight"].float())
    # The sum, too, is made in single precision.
    cls = half["cls_token"].float() + half["pos_embed"][:, :1].float()
    assert torch.equal(encoder.cls, cls)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"position": "sinusoidal_2d"},
            "position: got sinusoidal_2d, expected learned with pretrained weights",
        ),
        (
            {"stem": "conv"},
            "stem: got conv, expected patch with pretrained weights",
        ),
        (
            {"norm": "post"},
            "norm: got post, expected pre with pretrained weights",
        ),
    ],
)
def test_an_encoder_of_another_build_is_refused(change, message):
    with pytest.raises(UserError) as error:
        load_vit(VisionEncoder(replace(SMALL, **change)), TIMM)
    assert str(error.value) == message


Tensors = dict[str, Tensor]


def without(*names: str) -> Callable[[Tensors], Tensors]:
    return lambda tensors: {name: t for name, t in tensors.items() if name not in names}


def extra(*names: str) -> Callable[[Tensors], Tensors]:
    return lambda tensors: tensors | {name: torch.zeros(1) for name in names}


def refusal(path: Path, config: ViTConfig = SMALL) -> str:
    """The message, less the file that it begins with; the encoder must be untouched."""
    encoder = VisionEncoder(config)
    before = {name: tensor.clone() for name, tensor in encoder.state_dict().items()}
    with pytest.raises(UserError) as error:
        load_vit(encoder, path)
    assert all(torch.equal(before[name], t) for name, t in encoder.state_dict().items())
    message = str(error.value)
    assert message.startswith(f"{path}: ") and "\n" not in message
    return message.removeprefix(f"{path}: ")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without("norm.bias"), "tensor norm.bias is missing"),
        (without("cls_token"), "tensor cls_token is missing"),
        (
            lambda tensors: tensors | {"pos_embed": torch.zeros(1, 26, 32)},
            "tensor pos_embed: got shape (1, 26, 32), expected (1, 17, 32)",
        ),
        (
            lambda tensors: tensors | {"blocks.1.attn.qkv.weight": torch.zeros(64, 32)},
            "tensor blocks.1.attn.qkv.weight: got shape (64, 32), expected (96, 32)",
        ),
        (
            lambda tensors: tensors | {"norm.bias": tensors["norm.bias"].to(torch.int8)},
            "tensor norm.bias: got torch.int8, expected floating point",
        ),
        (extra("norm_pre.bias"), "tensor norm_pre.bias is unknown to this architecture"),
        (extra("header"), "tensor header is unknown to this architecture"),  # no head.*
        (
            lambda tensors: extra("blocks.0.ls1.gamma")(without("norm.bias")(tensors)),
            "tensor norm.bias is missing;"
            " tensor blocks.0.ls1.gamma is unknown to this architecture",
        ),
    ],
)
def test_a_misfit_is_named_as_in_the_file(tmp_path, change, message):
    path = tmp_path / "odd.safetensors"
    save_file(change(load_file(TIMM)), path)
    assert refusal(path) == f"in the layout of timm: {message}"


def test_a_part_of_a_tensor_is_named_by_its_own_name(tmp_path):
    path = published(random_vit(ViTForImageClassification), tmp_path)
    key = "vit.encoder.layer.1.attention.attention.key.weight"
    save_file(extra(key)(load_file(path)), path)
    message = f"tensor {key}: got shape (1,), expected (32, 32)"
    assert refusal(path) == f"in the layout of Transformers: {message}"


@pytest.mark.parametrize(
    ("depth", "block", "verdict"), [(1, 1, "is unknown to this architecture"), (3, 2, "is missing")]
)
def test_a_file_of_another_depth(depth, block, verdict):
    named = refusal(TIMM, replace(SMALL, depth=depth)).split("; ")
    assert named[0].startswith("in the layout of timm: ")
    assert all(f"tensor blocks.{block}." in one and one.endswith(verdict) for one in named)
    assert len(named) == 12  # all of the block's tensors


def test_a_file_of_no_known_layout(tmp_path):
    path = tmp_path / "other.safetensors"
    save_file({"b": torch.zeros(1), "a": torch.zeros(1)}, path)
    expected = "expected those of a ViT as timm or Transformers names them"
    assert refusal(path) == f"got tensors a, b, {expected}"
    save_file({}, path)
    assert refusal(path) == f"got tensors none, {expected}"


def test_a_file_that_is_missing_or_holds_something_else(tmp_path):
    path = tmp_path / "weights.safetensors"
    assert refusal(path) == "no such file; expected a ViT's weights as safetensors"
    path.write_bytes(b"not weights at all")
    assert refusal(path).startswith("not readable as safetensors: ")
