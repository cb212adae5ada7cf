"""Pictures changed by chance as training sees them.

Shapes: P pictures, C channels, H W pixels.
"""

import torch
from torch import Tensor

from vlm.config.data import AugmentConfig

DRAWS = 5  # floats in [0, 1) that decide a picture's changes: flip, turn, two shifts, brightness


def augment(images: Tensor, draws: Tensor, config: AugmentConfig) -> Tensor:
    """Each picture changed in its own way.

    Args:
        images: (P, C, H, W) uint8, H = W where pictures are turned.
        draws: (P, DRAWS), the chance behind it.
        config: which changes there are.

    Returns:
        (P, C, H, W) uint8; the given ones are left as they are.
    """
    flip, turn, down, right, bright = draws.unbind(dim=1)
    if config.flip:
        images = torch.where((flip < 0.5)[:, None, None, None], images.flip(3), images)
    if config.turn:
        quarters = (4 * turn).long()
        turned = images.clone()
        for number in (1, 2, 3):
            mine = quarters == number
            turned[mine] = images[mine].rot90(number, (2, 3))
        images = turned
    if config.shift:
        images = _shifted(images, _steps(down, config.shift), _steps(right, config.shift))
    if config.brightness:
        factor = 1 + config.brightness * (2 * bright.float() - 1)
        bright_images = images.float() * factor[:, None, None, None]
        images = bright_images.round_().clamp_(0, 255).to(torch.uint8)
    return images


def _steps(draws: Tensor, most: int) -> Tensor:
    """(P,) whole numbers from -most to most, all as likely."""
    return ((2 * most + 1) * draws).long() - most


def _shifted(images: Tensor, down: Tensor, right: Tensor) -> Tensor:
    """Moved by (P,) pixels each way; what comes in repeats the border."""
    number, _, height, width = images.shape
    rows = (torch.arange(height) - down[:, None]).clamp_(0, height - 1)
    cols = (torch.arange(width) - right[:, None]).clamp_(0, width - 1)
    picture = torch.arange(number)[:, None, None]
    return images.permute(0, 2, 3, 1)[picture, rows[:, :, None], cols[:, None, :]].permute(
        0, 3, 1, 2
    )
