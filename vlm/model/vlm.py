"""The networks that hold both sides: picture and text.

Shapes: B batch, C channels, H W pixels, S image tokens, T text tokens, D text width.
"""

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from vlm.marks import PAD_ID
from vlm.model.attention import Norm
from vlm.model.decoder import DecoderConfig, VisionLanguageDecoder
from vlm.model.projector import MLPProjector
from vlm.model.text import TextConfig, TextEncoder, masked_mean
from vlm.model.vit import VisionEncoder, ViTConfig


@dataclass(frozen=True)
class VLMConfig:
    """All sizes and choices of a vision-language model.

    A width that parts share stands once: the projector leads to `text_hidden`, which is also the
    decoder's width and its memory's.

    Attributes:
        vision_norm_eps, pixel_mean, pixel_std: see `ViTConfig`.
        projection_hidden: width inside the projector.
        text_depth: blocks of the text encoder; 0 is the mean of the embeddings.
        max_text_len: learned positions of the text encoder and the decoder.
        lm_weight: weight of the next-token loss beside the contrastive one.
        init_log_tau: log of the contrastive scale before training.
    """

    image_size: int = 32
    patch_size: int = 16
    in_channels: int = 3
    stem: Literal["patch", "conv"] = "patch"
    position: Literal["sinusoidal_2d", "sinusoidal_1d", "learned"] = "sinusoidal_2d"
    pooling: Literal["cls", "mean"] = "cls"
    vision_hidden: int = 128
    vision_depth: int = 2
    vision_heads: int = 4
    vision_mlp_ratio: float = 2.0
    vision_dropout: float = 0.0
    vision_norm: Norm = "pre"
    vision_norm_eps: float = 1e-6
    pixel_mean: tuple[float, ...] = (0.0,)
    pixel_std: tuple[float, ...] = (1.0,)
    projection_hidden: int = 256
    vocab_size: int = 512
    max_text_len: int = 16
    text_hidden: int = 128
    text_depth: int = 0
    text_heads: int = 4
    text_mlp_ratio: float = 2.0
    text_dropout: float = 0.0
    text_norm: Norm = "pre"
    decoder_depth: int = 2
    decoder_heads: int = 4
    decoder_mlp_ratio: float = 2.0
    decoder_dropout: float = 0.0
    decoder_norm: Norm = "pre"
    lm_weight: float = 1.0
    init_log_tau: float = math.log(1 / 0.07)

    @property
    def vision(self) -> ViTConfig:
        """The vision encoder's share."""
        return ViTConfig(
            image_size=self.image_size,
            patch_size=self.patch_size,
            in_channels=self.in_channels,
            hidden=self.vision_hidden,
            depth=self.vision_depth,
            heads=self.vision_heads,
            mlp_ratio=self.vision_mlp_ratio,
            dropout=self.vision_dropout,
            stem=self.stem,
            position=self.position,
            pooling=self.pooling,
            norm=self.vision_norm,
            norm_eps=self.vision_norm_eps,
            pixel_mean=self.pixel_mean,
            pixel_std=self.pixel_std,
        )

    @property
    def text(self) -> TextConfig:
        """The text encoder's share."""
        return TextConfig(
            vocab_size=self.vocab_size,
            hidden=self.text_hidden,
            depth=self.text_depth,
            heads=self.text_heads,
            mlp_ratio=self.text_mlp_ratio,
            dropout=self.text_dropout,
            max_length=self.max_text_len,
            norm=self.text_norm,
        )

    @property
    def decoder(self) -> DecoderConfig:
        """The decoder's share."""
        return DecoderConfig(
            hidden=self.text_hidden,
            heads=self.decoder_heads,
            depth=self.decoder_depth,
            mlp_ratio=self.decoder_mlp_ratio,
            text_vocab=self.vocab_size,
            max_text_len=self.max_text_len,
            vision_dim=self.text_hidden,
            vision_tokens=self.vision.num_tokens,
            dropout=self.decoder_dropout,
            norm=self.decoder_norm,
        )


class ImageFeatures(NamedTuple):
    """Pictures in the text's width: all tokens (B, S, D) and one vector each (B, D)."""

    tokens: Tensor
    pooled: Tensor


class DualEncoder(nn.Module):
    """An encoder for each side and the projector between: what every model here starts from."""

    def __init__(self, config: VLMConfig) -> None:
        super().__init__()
        self.config = config
        self.vision = VisionEncoder(config.vision)
        self.projector = MLPProjector(
            config.vision_hidden, config.projection_hidden, config.text_hidden
        )
        self.text = TextEncoder(config.text)

    def encode_images(self, images: Tensor) -> ImageFeatures:
        """(B, C, H, W) floats -> tokens and pooled vectors in the text's width."""
        tokens, pooled = self.vision(images)
        return ImageFeatures(self.projector(tokens), self.projector(pooled))

    def encode_text(self, text_ids: Tensor) -> Tensor:
        """(B, T) ids -> one vector each, (B, D)."""
        return self.text(text_ids)[1]

    def mean_embedding(self, text_ids: Tensor) -> Tensor:
        """(B, T) ids -> the mean of their embeddings (B, D), the text encoder left out."""
        return masked_mean(self.text.embedding(text_ids), text_ids != PAD_ID)


class ContrastiveCaptioner(DualEncoder):
    """One network that both matches captions and writes them, after CoCa (Yu et al. 2022)."""

    def __init__(self, config: VLMConfig) -> None:
        super().__init__(config)
        self.decoder = VisionLanguageDecoder(config.decoder)
        self.log_tau = nn.Parameter(torch.tensor(config.init_log_tau))
