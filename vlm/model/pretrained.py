"""Reading the weights of Vision Transformers that other libraries trained.

A layout says what another library calls our tensors; all layouts are read by the same few lines.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from vlm.errors import UserError
from vlm.model.folder import read_tensors
from vlm.model.vit import VisionEncoder
from vlm.rules import check_pretrained

NAMED = 5  # how many of a file's tensors a message names


@dataclass(frozen=True)
class Layout:
    """What another library calls the tensors of a Vision Transformer.

    Attributes:
        owner: whose layout it is.
        names: our name -> theirs, where `.N.` is the number of a block and `*` stands for weight
            and for bias. Several names of theirs are one tensor of ours, laid end to end.
        heads: how the names begin of what comes after the tokens, and isn't read.
    """

    owner: str
    names: Mapping[str, Sequence[str]]
    heads: tuple[str, ...]

    def of_depth(self, depth: int) -> dict[str, list[str]]:
        """Our name -> theirs, tensor by tensor, for so many blocks."""
        found = {}
        for ours, theirs in self.names.items():
            numbers = range(depth) if ".N." in ours else range(1)
            kinds = ("weight", "bias") if ours.endswith("*") else ("",)
            for n, kind in product(numbers, kinds):
                found[_fill(ours, n, kind)] = [_fill(name, n, kind) for name in theirs]
        return found

    def within_a_classifier(self) -> "Layout":
        """The same beside a `classifier`, which is how Transformers saves the two."""
        names = {ours: [f"vit.{name}" for name in theirs] for ours, theirs in self.names.items()}
        heads = (*(f"vit.{name}" for name in self.heads), "classifier.")
        return replace(self, names=names, heads=heads)


TIMM: Final = Layout(
    "timm",
    {
        "cls": ["cls_token"],
        "positions": ["pos_embed"],
        "stem.proj.*": ["patch_embed.proj.*"],
        "blocks.N.attention_norm.*": ["blocks.N.norm1.*"],
        "blocks.N.attention.qkv.*": ["blocks.N.attn.qkv.*"],
        "blocks.N.attention.out.*": ["blocks.N.attn.proj.*"],
        "blocks.N.mlp_norm.*": ["blocks.N.norm2.*"],
        "blocks.N.mlp.0.*": ["blocks.N.mlp.fc1.*"],
        "blocks.N.mlp.2.*": ["blocks.N.mlp.fc2.*"],
        "norm.*": ["norm.*"],
    },
    heads=("head.",),
)
# What is published for Transformers, and what `save_pretrained` writes, in version 5 too.
TRANSFORMERS: Final = Layout(
    "Transformers",
    {
        "cls": ["embeddings.cls_token"],
        "positions": ["embeddings.position_embeddings"],
        "stem.proj.*": ["embeddings.patch_embeddings.projection.*"],
        "blocks.N.attention_norm.*": ["encoder.layer.N.layernorm_before.*"],
        "blocks.N.attention.qkv.*": [
            "encoder.layer.N.attention.attention.query.*",
            "encoder.layer.N.attention.attention.key.*",
            "encoder.layer.N.attention.attention.value.*",
        ],
        "blocks.N.attention.out.*": ["encoder.layer.N.attention.output.dense.*"],
        "blocks.N.mlp_norm.*": ["encoder.layer.N.layernorm_after.*"],
        "blocks.N.mlp.0.*": ["encoder.layer.N.intermediate.dense.*"],
        "blocks.N.mlp.2.*": ["encoder.layer.N.output.dense.*"],
        "norm.*": ["layernorm.*"],
    },
    heads=("pooler.dense.",),
)
# What version 5 of Transformers calls the same in memory, and so in a saved `state_dict()`.
TRANSFORMERS_5: Final = Layout(
    "Transformers 5 in memory",
    {
        "cls": ["embeddings.cls_token"],
        "positions": ["embeddings.position_embeddings"],
        "stem.proj.*": ["embeddings.patch_embeddings.projection.*"],
        "blocks.N.attention_norm.*": ["layers.N.layernorm_before.*"],
        "blocks.N.attention.qkv.*": [
            "layers.N.attention.q_proj.*",
            "layers.N.attention.k_proj.*",
            "layers.N.attention.v_proj.*",
        ],
        "blocks.N.attention.out.*": ["layers.N.attention.o_proj.*"],
        "blocks.N.mlp_norm.*": ["layers.N.layernorm_after.*"],
        "blocks.N.mlp.0.*": ["layers.N.mlp.fc1.*"],
        "blocks.N.mlp.2.*": ["layers.N.mlp.fc2.*"],
        "norm.*": ["layernorm.*"],
    },
    heads=("pooler.dense.",),
)
LAYOUTS: Final = (
    TIMM,
    TRANSFORMERS,
    TRANSFORMERS_5,
    TRANSFORMERS.within_a_classifier(),
    TRANSFORMERS_5.within_a_classifier(),
)


def load_vit(encoder: VisionEncoder, path: str | Path) -> None:
    """Give `encoder` the weights of a ViT of timm's or Transformers', from a safetensors file.

    Half precision is read as single. A head or pooler in the file is left out.

    The file doesn't say all: `heads`, `norm_eps` (timm's ViT has 1e-6, Transformers' 1e-12) and
    `pixel_mean`, `pixel_std` must be those that the weights were trained with, and nothing here
    can tell if they aren't.

    Raises:
        UserError: the encoder is of another build (stem, position, norm), the file can't be read,
            or its tensors don't fit; then the encoder is as it was.
    """
    check_pretrained(encoder.config.stem, encoder.config.position, encoder.config.norm)
    path = Path(path)
    tensors = read_tensors(path, "a ViT's weights as safetensors")
    layout = _layout_of(tensors, encoder.config.depth, path)
    names = layout.of_depth(encoder.config.depth)
    misfits = _misfits(tensors, _shapes(encoder, names), layout.heads)
    if misfits:
        raise UserError(f"{path}: in the layout of {layout.owner}: {'; '.join(misfits)}")
    encoder.load_state_dict(_translated(tensors, names))


def _fill(pattern: str, number: int, kind: str) -> str:
    return pattern.replace(".N.", f".{number}.").replace("*", kind)


def _layout_of(tensors: Mapping[str, Tensor], depth: int, path: Path) -> Layout:
    """The layout that explains most of a file's names."""

    def explained(layout: Layout) -> int:
        return sum(name in tensors for part in layout.of_depth(depth).values() for name in part)

    best = max(LAYOUTS, key=explained)
    if not explained(best):
        got = ", ".join(sorted(tensors)[:NAMED]) or "none"
        raise UserError(
            f"{path}: got tensors {got}, expected those of a ViT as timm or Transformers names them"
        )
    return best


def _shapes(encoder: VisionEncoder, names: Mapping[str, Sequence[str]]) -> dict[str, list[int]]:
    """Their name -> the shape that it must have."""
    shapes = {}
    for ours, tensor in encoder.state_dict().items():
        first, *rest = tensor.shape
        for name in names[ours]:
            shapes[name] = [first // len(names[ours]), *rest]
    [positions] = names["positions"]
    shapes[positions] = [1, encoder.config.num_tokens, encoder.config.hidden]  # CLS has one too
    return shapes


def _misfits(
    tensors: Mapping[str, Tensor], shapes: Mapping[str, list[int]], heads: tuple[str, ...]
) -> list[str]:
    """What is wrong, a phrase a tensor."""
    found = []
    for name, shape in shapes.items():
        if name not in tensors:
            found.append(f"tensor {name} is missing")
        elif list(tensors[name].shape) != shape:
            got, expected = tuple(tensors[name].shape), tuple(shape)
            found.append(f"tensor {name}: got shape {got}, expected {expected}")
        elif not tensors[name].is_floating_point():
            found.append(f"tensor {name}: got {tensors[name].dtype}, expected floating point")
    found += [
        f"tensor {name} is unknown to this architecture"
        for name in tensors
        if name not in shapes and not name.startswith(heads)
    ]
    return found


def _translated(
    tensors: Mapping[str, Tensor], names: Mapping[str, Sequence[str]]
) -> dict[str, Tensor]:
    """Their tensors as a state of our encoder."""
    state = {
        ours: torch.cat([tensors[name].float() for name in theirs])
        for ours, theirs in names.items()
    }
    # Our CLS has no position. Theirs is added before anything else happens, so it may as well
    # be a part of the token.
    [positions] = state["positions"]
    state["cls"] = state["cls"] + positions[0]
    state["positions"] = positions[1:]
    return state
