"""Lesson 2: the vision encoder, a Vision Transformer of the size of ViT-B/16.

A CLS token joins the patches. In every block each token looks at all others (attention), then
thinks by itself (MLP). What CLS has gathered at the end stands for the whole picture.

    python examples/course/lesson2_encoder.py
"""

import torch

from vlm import VisionEncoder, ViTConfig, synthesize_image


def num_parameters(module: torch.nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


@torch.no_grad()
def main(image_size: int = 224, depth: int = 12, seed: int = 0) -> None:
    torch.manual_seed(seed)
    config = ViTConfig(image_size=image_size, depth=depth)
    encoder = VisionEncoder(config).eval()
    image = synthesize_image(seed, image_size)
    tokens, cls = encoder(image)

    print(f"picture {tuple(image.shape)} -> tokens {tuple(tokens.shape)}, CLS {tuple(cls.shape)}")
    print(f"{num_parameters(encoder):,} parameters")
    print(f"{num_parameters(encoder.blocks[0]):,} of them in each of {depth} blocks")
    print(f"{config.heads} heads of width {config.head_dim} in each block")

    # Every token weighs every token: the cost of attention grows with the square of their number.
    patches, everything = config.num_patches, config.num_tokens
    print(f"scores of one head: {patches} x {patches} = {patches**2:,} between patches")
    print(f"with CLS: {everything} x {everything} = {everything**2:,}")

    # Nothing is random in a pass, and the features do depend on the picture.
    _, again = encoder(image)
    _, other = encoder(synthesize_image(seed + 1, image_size))
    print(f"the same picture again: CLS differs by {(cls - again).abs().max():.1e}")
    print(f"another picture: CLS differs by {(cls - other).abs().max():.1e}")


if __name__ == "__main__":
    main()
