"""The vision encoder: a Vision Transformer (Dosovitskiy et al. 2021).

Shapes: B batch, C channels, H W pixels, N patches, S = N + 1 tokens (CLS first), D width.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from vlm.errors import UserError
from vlm.model.attention import EncoderBlock, Norm
from vlm.model.patch_embed import ConvStem, PatchEmbed, sinusoidal_1d, sinusoidal_2d
from vlm.rules import (
    check_choices,
    check_conv_stem,
    check_heads,
    check_patches,
    check_pixel_statistics,
    check_sinusoids,
)


@dataclass(frozen=True)
class ViTConfig:
    """Sizes and choices of the vision encoder; the defaults are ViT-B/16's.

    Attributes:
        stem: `patch`, one strided convolution, or `conv`, a stack of 3x3 ones.
        position: how a token knows its place; CLS has none.
        pooling: the picture's one vector: the CLS token, or the mean of the patch tokens.
        norm: LayerNorm before each branch, or after each sum.
        norm_eps: of every LayerNorm.
        pixel_mean, pixel_std: subtracted from and divided into the pixels, one for all channels or
            one for each, as weights from elsewhere expect it; (0,) and (1,) leave pixels alone.
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
    norm: Norm = "pre"
    norm_eps: float = 1e-6
    pixel_mean: tuple[float, ...] = (0.0,)
    pixel_std: tuple[float, ...] = (1.0,)

    def __post_init__(self) -> None:
        check_choices(self)
        check_patches(self.image_size, self.patch_size)
        check_heads(self.hidden, self.heads)
        check_sinusoids(self.position, self.hidden)
        if self.stem == "conv":
            check_conv_stem(self.patch_size)
        for name in ("pixel_mean", "pixel_std"):
            check_pixel_statistics(name, getattr(self, name), self.in_channels)
        if min(self.pixel_std) <= 0:
            raise UserError(f"pixel_std: got {self.pixel_std}, expected more than 0")

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

    tokens, pooled = encoder(img): (B, C, H, W) -> (B, S, D), (B, D).
    """

    positions: Tensor
    pixel_mean: Tensor
    pixel_std: Tensor

    def __init__(self, cfg: ViTConfig) -> None:
        super().__init__()
        self.config = cfg
        self.recomputes = False  # see `checkpoint_activations`
        stem = PatchEmbed if cfg.stem == "patch" else ConvStem
        self.stem = stem(cfg.image_size, cfg.patch_size, cfg.in_channels, cfg.hidden)
        self.cls = nn.Parameter(torch.zeros(1, 1, cfg.hidden))
        if cfg.position == "learned":
            self.positions = nn.Parameter(0.02 * torch.randn(cfg.num_patches, cfg.hidden))
        else:  # a constant: not learned, and not saved
            self.register_buffer("positions", _sinusoids(cfg), persistent=False)
        self.dropout = nn.Dropout(cfg.dropout)
        self.blocks = nn.ModuleList(
            EncoderBlock(
                cfg.hidden,
                cfg.heads,
                cfg.mlp_ratio,
                cfg.dropout,
                cfg.norm_eps,
                cfg.norm,
            )
            for _ in range(cfg.depth)
        )
        # After post-norm blocks a further norm would only repeat the last one.
        self.norm = (
            nn.LayerNorm(cfg.hidden, eps=cfg.norm_eps) if cfg.norm == "pre" else nn.Identity()
        )
        self.scales_pixels = (cfg.pixel_mean, cfg.pixel_std) != ((0.0,), (1.0,))
        for name in ("pixel_mean", "pixel_std"):
            values = torch.tensor(getattr(cfg, name)).reshape(-1, 1, 1)  # (C or 1, 1, 1)
            self.register_buffer(name, values, persistent=False)

    def checkpoint_activations(self, on: bool = True) -> None:
        """Whether training keeps only what goes into each block, and not what lies within.

        The backward pass then computes a block once more (Chen et al. 2016, "Training deep nets
        with sublinear memory cost"): less memory, more time, and the same bits, since dropout
        draws the same again. No part of `ViTConfig`: it changes no value.
        """
        self.recomputes = on

    def forward(self, img: Tensor) -> tuple[Tensor, Tensor]:
        """(B, C, H, W) floats -> all tokens (B, S, D), CLS first, and the pooled (B, D).

        Raises:
            UserError: pictures of another height or width than `image_size`.
        """
        if self.scales_pixels:
            img = (img - self.pixel_mean) / self.pixel_std
        patches = self.stem(img) + self.positions  # (B, N, D)
        x = torch.cat([self.cls.expand(len(img), -1, -1), patches], dim=1)  # (B, S, D)
        x = self.dropout(x)
        recomputes = self.recomputes and self.training and torch.is_grad_enabled()
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if recomputes else block(x)
        tokens = self.norm(x)
        return tokens, tokens[:, 0] if self.config.pooling == "cls" else tokens[:, 1:].mean(dim=1)


def _sinusoids(config: ViTConfig) -> Tensor:
    """(N, D) fixed positions."""
    side = config.image_size // config.patch_size
    if config.position == "sinusoidal_2d":
        return sinusoidal_2d(side, side, config.hidden)
    return sinusoidal_1d(config.num_patches, config.hidden)
