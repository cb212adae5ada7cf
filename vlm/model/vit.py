"""The vision encoder: a pre-LN Vision Transformer (Dosovitskiy et al. 2021).

Shapes: B batch, C channels, H W pixels, N patches, S = N + 1 tokens (CLS first), D width.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from vlm.model.attention import EncoderBlock
from vlm.model.patch_embed import ConvStem, PatchEmbed, sinusoidal_1d, sinusoidal_2d
from vlm.rules import check_conv_stem, check_heads, check_patches, check_sinusoids


@dataclass(frozen=True)
class ViTConfig:
    """Sizes and choices of the vision encoder; the defaults are ViT-B/16's.

    Attributes:
        stem: `patch`, one strided convolution, or `conv`, a stack of 3x3 ones.
        position: how a token knows its place; CLS has none.
        pooling: the picture's one vector: the CLS token, or the mean of the patch tokens.
    """

    image_size: int = 224
    patch_size: int = 16
    in_channels: int = 3
    hidden: int = 768
    depth: int = 12
    heads: int = 12
    mlp_ratio: float = 4.0
    dropout: float = 0.0
    stem: Literal["patch", "conv"] = "patch"
    position: Literal["sinusoidal_2d", "sinusoidal_1d", "learned"] = "sinusoidal_2d"
    pooling: Literal["cls", "mean"] = "cls"
    norm_eps: float = 1e-6

    def __post_init__(self) -> None:
        check_patches(self.image_size, self.patch_size)
        check_heads(self.hidden, self.heads)
        check_sinusoids(self.position, self.hidden)
        if self.stem == "conv":
            check_conv_stem(self.patch_size)

    @property
    def head_dim(self) -> int:
        """Width of one attention head."""
        return self.hidden // self.heads

    @property
    def num_patches(self) -> int:
        """N."""
        return (self.image_size // self.patch_size) ** 2

    @property
    def num_tokens(self) -> int:
        """S: the patches and CLS."""
        return self.num_patches + 1


class VisionEncoder(nn.Module):
    """Pictures to tokens and one pooled vector.

    tokens, pooled = encoder(images): (B, C, H, W) -> (B, S, D), (B, D).
    """

    positions: Tensor

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        self.config = config
        stem = PatchEmbed if config.stem == "patch" else ConvStem
        self.stem = stem(config.image_size, config.patch_size, config.in_channels, config.hidden)
        self.cls = nn.Parameter(torch.zeros(1, 1, config.hidden))
        if config.position == "learned":
            self.positions = nn.Parameter(0.02 * torch.randn(config.num_patches, config.hidden))
        else:  # a constant: not learned, and not saved
            self.register_buffer("positions", _sinusoids(config), persistent=False)
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(
            EncoderBlock(
                config.hidden, config.heads, config.mlp_ratio, config.dropout, config.norm_eps
            )
            for _ in range(config.depth)
        )
        self.norm = nn.LayerNorm(config.hidden, eps=config.norm_eps)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """(B, C, H, W) floats -> all tokens (B, S, D), CLS first, and the pooled (B, D).

        Raises:
            UserError: pictures of another height or width than `image_size`.
        """
        patches = self.stem(images) + self.positions  # (B, N, D)
        x = torch.cat([self.cls.expand(len(images), -1, -1), patches], dim=1)  # (B, S, D)
        x = self.dropout(x)
        for block in self.blocks:
            x = block(x)
        tokens = self.norm(x)
        return tokens, tokens[:, 0] if self.config.pooling == "cls" else tokens[:, 1:].mean(dim=1)


def _sinusoids(config: ViTConfig) -> Tensor:
    """(N, D) fixed positions."""
    side = config.image_size // config.patch_size
    if config.position == "sinusoidal_2d":
        return sinusoidal_2d(side, side, config.hidden)
    return sinusoidal_1d(config.num_patches, config.hidden)
