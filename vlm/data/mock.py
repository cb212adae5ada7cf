"""Pictures and captions made from a seed alone, for tests, lessons and measurements."""

from typing import NamedTuple

import torch
from torch import Tensor

from vlm.errors import UserError
from vlm.marks import PAD_ID

SEED_STRIDE = 1000  # pairs between the beginnings of two seeds, more than any corpus here holds


class MockPairs(NamedTuple):
    """Pictures (n, C, H, W), float32 in [-1, 1], and a caption each (n, T), padded ids."""

    images: Tensor
    text_ids: Tensor


def synthesize_image(seed: int, image_size: int = 224, channels: int = 3) -> Tensor:
    """A test picture (1, channels, image_size, image_size), float32 in [0, 1].

    Per channel a plane wave of one to three periods in a direction of its own, Gaussian noise of
    sigma 0.1, all lifted by 0.5 and clipped. The same seed gives the same picture.
    """
    generator = torch.Generator().manual_seed(seed)
    axis = torch.linspace(0, 1, image_size)
    angle, phase = 2 * torch.pi * torch.rand(2, channels, 1, 1, generator=generator)
    periods = 1 + 2 * torch.rand(channels, 1, 1, generator=generator)
    along = axis[:, None] * angle.sin() + axis[None, :] * angle.cos()  # (C, H, W)
    waves = 0.4 * torch.sin(2 * torch.pi * periods * along + phase)
    noise = 0.1 * torch.randn(channels, image_size, image_size, generator=generator)
    return (waves + noise + 0.5).clamp(0, 1).unsqueeze(0)


def mock_pairs(
    num: int,
    vocab_size: int = 512,
    max_len: int = 16,
    seed: int = 0,
    image_size: int = 32,
    channels: int = 3,
) -> MockPairs:
    """A small corpus of pictures and captions, a stretch of one endless list.

    Picture i of the list is Gaussian noise of sigma 0.2 on the flat brightness (i mod 7) / 7,
    clipped to [-1, 1]. Its caption has min(6 + i mod 8, max_len) ids: the first is
    1 + 17 i + i mod 5, each further one is 3 more, and all wrap inside 1..vocab_size - 1, since 0
    is padding.

    Args:
        num: n, pairs to make.
        vocab_size: ids lie below it.
        max_len: T, to which captions are cut and padded.
        seed: draws the noise, and begins the list at pair 1,000 seed: up to there, two seeds share
            no pair.
        image_size: H and W.
        channels: C.

    Raises:
        UserError: no pairs, no token of room, or a vocabulary without an id beside padding.
    """
    if num < 1 or max_len < 1 or vocab_size < 2:
        raise UserError(
            f"mock pairs {num}, max_len {max_len}, vocab_size {vocab_size}:"
            " expected at least 1, 1 and 2"
        )
    generator = torch.Generator().manual_seed(seed)
    index = seed * SEED_STRIDE + torch.arange(num)
    brightness = (index % 7 / 7).view(num, 1, 1, 1)
    noise = 0.2 * torch.randn(num, channels, image_size, image_size, generator=generator)
    place = torch.arange(max_len)
    text_ids = 1 + ((17 * index + index % 5)[:, None] + 3 * place) % (vocab_size - 1)
    is_padding = place >= (6 + index % 8)[:, None]
    return MockPairs((brightness + noise).clamp(-1, 1), text_ids.masked_fill(is_padding, PAD_ID))
