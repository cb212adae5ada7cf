"""Rules of shape that the parameter schema and the architecture classes both hold."""

from collections.abc import Sequence
from typing import Literal, get_args, get_origin, get_type_hints

from vlm.errors import UserError


def check_choice(name: str, got: object, kind: object) -> None:
    """One of the words that a `Literal` allows."""
    if got not in get_args(kind):
        raise UserError(f"{name}: got {got}, expected one of {', '.join(get_args(kind))}")


def check_choices(settings: object) -> None:
    """A dataclass holds one of the words that each `Literal` field allows, and no depth below 0."""
    for name, kind in get_type_hints(type(settings)).items():
        value = getattr(settings, name)
        if get_origin(kind) is Literal:
            check_choice(name, value, kind)
        if name.endswith("depth") and value < 0:
            raise UserError(f"{name}: got {value}, expected at least 0")


def check_heads(hidden: int, heads: int) -> None:
    """Every head takes an equal share of the width."""
    if heads < 1 or hidden % heads:
        raise UserError(f"hidden {hidden} not divisible by heads {heads}")


def check_patches(image_size: int, patch_size: int) -> None:
    """Patches tile the picture."""
    if patch_size < 1 or image_size % patch_size:
        raise UserError(f"patch_size {patch_size} must divide image_size {image_size}")


def check_sinusoids(kind: str, dim: int) -> None:
    """A sine and a cosine per frequency, and in two dimensions a half of them per axis."""
    divisor = {"sinusoidal_1d": 2, "sinusoidal_2d": 4}.get(kind, 1)
    if dim % divisor:
        raise UserError(f"{kind} dim must be divisible by {divisor}, got {dim}")


def check_conv_stem(patch_size: int) -> None:
    """A convolutional stem halves the picture once per layer."""
    if patch_size < 2 or patch_size & (patch_size - 1):
        raise UserError(f"conv stem needs patch_size a power of two, got {patch_size}")


def check_pretrained(stem: str, position: str, norm: str) -> None:
    """Weights of a pretrained ViT are of one build.

    It cuts patches by one convolution, brings its own positions and normalises before each branch.
    """
    for name, got, expected in (
        ("stem", stem, "patch"),
        ("position", position, "learned"),
        ("norm", norm, "pre"),
    ):
        if got != expected:
            raise UserError(f"{name}: got {got}, expected {expected} with pretrained weights")


def check_pixel_statistics(name: str, values: Sequence[float], channels: int) -> None:
    """One value for all channels, or each channel its own."""
    if len(values) not in (1, channels):
        expected = "1" if channels == 1 else f"1 or {channels}, one a channel"
        raise UserError(f"{name}: got {len(values)} values, expected {expected}")


def check_batch(batch_size: int, corpus_size: int) -> None:
    """A batch holds no picture twice."""
    if batch_size > corpus_size:
        raise UserError(f"batch_size ({batch_size}) cannot exceed corpus size ({corpus_size})")


def check_shares(batch_size: int, accumulate: int, processes: int) -> None:
    """Shares of one size let every process's mean count the same, and gather without padding."""
    parts = accumulate * processes
    if processes > 1 and batch_size % parts:
        raise UserError(
            f"batch_size {batch_size} not divisible by {parts}"
            f" (accumulate {accumulate} x {processes} processes)"
        )


def check_vocabulary(tokenizer: str, max_vocab: int | None) -> None:
    """The four marks have a place, and with byte pairs every byte, or some text had no ids."""
    least = 4 + (256 if tokenizer == "bpe" else 1)
    if max_vocab is not None and max_vocab < least:
        raise UserError(
            f"max_vocab {max_vocab} is too small, expected at least {least} with tokenizer"
            f" {tokenizer}"
        )
