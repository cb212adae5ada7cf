"""Pictures made from a seed alone, for tests, lessons and measurements."""

import torch
from torch import Tensor


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
