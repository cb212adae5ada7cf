"""Lesson 1: a picture becomes a row of tokens.

A transformer reads sequences. So a picture is cut into patches, and every patch goes through the
same matrix. Attention has no notion of order, so each token is told its place by a fixed vector.

    python examples/course/lesson1_patches.py
"""

import torch
import torch.nn.functional as F

from vlm import PatchEmbed, sinusoidal_1d, sinusoidal_2d, synthesize_image, unfold_then_linear


@torch.no_grad()
def main(image_size: int = 224, patch_size: int = 16, hidden: int = 768, seed: int = 0) -> None:
    torch.manual_seed(seed)
    image = synthesize_image(seed, image_size)
    embed = PatchEmbed(image_size, patch_size, in_channels=3, hidden=hidden)
    tokens = embed(image)

    side = image_size // patch_size
    print(f"picture {tuple(image.shape)} -> tokens {tuple(tokens.shape)}")
    print(f"{side} x {side} = {embed.num_patches} patches of {3 * patch_size**2} values each")
    print(f"{sum(p.numel() for p in embed.parameters()):,} parameters")

    # The strided convolution is nothing but this: cut the patches out, multiply by one matrix.
    in_the_open = unfold_then_linear(image, embed.proj.weight, embed.proj.bias, patch_size)
    difference = (tokens - in_the_open).abs().max()
    print(f"convolution and unfold-then-linear differ by at most {difference:.1e}")

    # A position is a row of sines and cosines; near places have similar rows. In one dimension the
    # patch below is a whole row away, in two it is as near as the patch to the right.
    positions = {
        "1-D": sinusoidal_1d(side * side, hidden),
        "2-D": sinusoidal_2d(side, side, hidden),
    }
    right, below, opposite = 1, side, side * side - 1
    for kind, rows in positions.items():
        similar = F.cosine_similarity(rows[:1], rows, dim=1)
        print(
            f"{kind} positions {tuple(rows.shape)}, cosine of the first patch with the one"
            f" to its right {similar[right]:.2f}, below it {similar[below]:.2f},"
            f" in the far corner {similar[opposite]:.2f}"
        )


if __name__ == "__main__":
    main()
