"""Picture to tokens: a strided convolution, or a small stack of them.

Shapes: B batch, C channels, H W pixels, P patch size, N = (H / P)(W / P) patches, D width.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vlm.errors import UserError
from vlm.rules import check_conv_stem, check_patches, check_sinusoids


def unfold_then_linear(img: Tensor, weight: Tensor, bias: Tensor, patch_size: int) -> Tensor:
    """What a patch embedding does, in the open: cut patches out, multiply by one matrix.

    Args:
        img: (B, C, H, W).
        weight: (D, C, P, P), a Conv2d's.
        bias: (D,).
        patch_size: P.

    Returns:
        (B, N, D), patches in reading order.
    """
    patches = F.unfold(img, kernel_size=patch_size, stride=patch_size)  # (B, C P P, N)
    return F.linear(patches.transpose(1, 2), weight.flatten(1), bias)


class Stem(nn.Module):
    """Base of the stems: refuses pictures of another size, lays the grid out as tokens."""

    def __init__(self, image_size: int, patch_size: int, in_channels: int) -> None:
        super().__init__()
        check_patches(image_size, patch_size)
        self.image_size = image_size
        self.in_channels = in_channels
        self.num_patches = (image_size // patch_size) ** 2

    def grid(self, images: Tensor) -> Tensor:
        """(B, C, H, W) -> (B, D, H / P, W / P)."""
        raise RuntimeError("a Stem is used through its subclasses")

    def forward(self, images: Tensor) -> Tensor:
        """(B, C, H, W) -> (B, N, D), patches in reading order.

        Raises:
            UserError: pictures of another size, or with other channels.
        """
        got, expected = tuple(images.shape[-2:]), (self.image_size, self.image_size)
        if got != expected:
            raise UserError(f"spatial mismatch: got {got}, expected {expected}")
        if images.ndim != 4 or images.shape[1] != self.in_channels:
            wanted = f"(B, {self.in_channels}, {self.image_size}, {self.image_size})"
            raise UserError(f"pictures: got shape {tuple(images.shape)}, expected {wanted}")
        return self.grid(images).flatten(2).transpose(1, 2)


class PatchEmbed(Stem):
    """One strided convolution: every patch through the same matrix (Dosovitskiy et al. 2021)."""

    def __init__(
        self, image_size: int = 224, patch_size: int = 16, in_channels: int = 3, hidden: int = 768
    ) -> None:
        super().__init__(image_size, patch_size, in_channels)
        self.proj = nn.Conv2d(in_channels, hidden, kernel_size=patch_size, stride=patch_size)

    def grid(self, images: Tensor) -> Tensor:
        """(B, C, H, W) -> (B, D, H / P, W / P)."""
        return self.proj(images)


class ConvStem(Stem):
    """3x3 convolutions of stride 2, one per halving (Xiao et al. 2021, "Early convolutions").

    Widths double towards D. Neighbouring tokens see overlapping pixels, so an object that lies
    across a border of patches is seen whole.
    """

    def __init__(self, image_size: int, patch_size: int, in_channels: int, hidden: int) -> None:
        super().__init__(image_size, patch_size, in_channels)
        check_conv_stem(patch_size)
        halvings = patch_size.bit_length() - 1
        widths = [max(8, hidden >> (halvings - 1 - layer)) for layer in range(halvings - 1)]
        layers: list[nn.Module] = []
        for before, after in zip([in_channels, *widths], [*widths, hidden], strict=True):
            layers += [nn.Conv2d(before, after, kernel_size=3, stride=2, padding=1), nn.GELU()]
        self.convs = nn.Sequential(*layers)
        self.proj = nn.Conv2d(hidden, hidden, kernel_size=1)

    def grid(self, images: Tensor) -> Tensor:
        """(B, C, H, W) -> (B, D, H / P, W / P)."""
        # Channels last, a CPU's convolutions are quicker, and their result lies as tokens do.
        return self.proj(self.convs(images.contiguous(memory_format=torch.channels_last)))


def sinusoidal_1d(length: int, dim: int) -> Tensor:
    """(length, dim): sines, then cosines, of position / 10000^(2i / dim).

    Raises:
        UserError: dim is odd.
    """
    check_sinusoids("sinusoidal_1d", dim)
    frequencies = 10_000.0 ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    angles = torch.arange(length, dtype=torch.float64)[:, None] * frequencies
    return torch.cat([angles.sin(), angles.cos()], dim=1).float()


def sinusoidal_2d(grid_h: int, grid_w: int, dim: int) -> Tensor:
    """(grid_h * grid_w, dim): the first half of a row tells the row, the second the column.

    Raises:
        UserError: dim is not divisible by 4 (sine and cosine, row and column).
    """
    check_sinusoids("sinusoidal_2d", dim)
    rows = sinusoidal_1d(grid_h, dim // 2)[:, None].expand(grid_h, grid_w, -1)
    columns = sinusoidal_1d(grid_w, dim // 2)[None].expand(grid_h, grid_w, -1)
    return torch.cat([rows, columns], dim=2).flatten(0, 1)
