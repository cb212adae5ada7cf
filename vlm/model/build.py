"""From the `model` section of the parameters to the architecture's configuration."""

from vlm.config.schema import ModelConfig
from vlm.model.vlm import VLMConfig


def vlm_config(model: ModelConfig, image_size: int, channels: int, vocab_size: int) -> VLMConfig:
    """What the parameters say, with what the data decides: pictures and vocabulary."""
    vision, text, decoder = model.vision, model.text, model.decoder
    return VLMConfig(
        image_size=image_size,
        patch_size=vision.patch_size,
        in_channels=channels,
        stem=vision.stem,
        position=vision.position,
        pooling=vision.pooling,
        vision_hidden=vision.hidden,
        vision_depth=vision.depth,
        vision_heads=vision.heads,
        vision_mlp_ratio=vision.mlp_ratio,
        vision_dropout=vision.dropout,
        vision_norm=vision.norm,
        vision_norm_eps=vision.norm_eps,
        pixel_mean=tuple(vision.pixel_mean),
        pixel_std=tuple(vision.pixel_std),
        projection_hidden=model.projector.hidden,
        vocab_size=vocab_size,
        max_text_len=text.max_length,
        text_hidden=text.hidden,
        text_depth=text.depth,
        text_heads=text.heads,
        text_mlp_ratio=text.mlp_ratio,
        text_dropout=text.dropout,
        text_norm=text.norm,
        decoder_depth=decoder.depth,
        decoder_heads=decoder.heads,
        decoder_mlp_ratio=decoder.mlp_ratio,
        decoder_dropout=decoder.dropout,
        decoder_norm=decoder.norm,
    )
