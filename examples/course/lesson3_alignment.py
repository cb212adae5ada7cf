"""Lesson 3: two spaces are brought together by training only the bridge between them.

The encoder and the text table are random and frozen. A small MLP learns to carry the vector of a
picture to the vector of its caption: 32 pairs, one a step in turn.

    python examples/course/lesson3_alignment.py
"""

import torch
from torch import nn

from vlm import (
    PAD_ID,
    MLPProjector,
    VisionEncoder,
    ViTConfig,
    cosine_alignment_loss,
    freeze,
    synthesize_image,
)


def main(steps: int = 200, image_size: int = 224, depth: int = 4, seed: int = 0) -> None:
    torch.manual_seed(seed)
    config = ViTConfig(image_size=image_size, depth=depth, heads=8, mlp_ratio=2)
    encoder = freeze(VisionEncoder(config))
    table = freeze(nn.EmbeddingBag(4096, 512, mode="mean", padding_idx=PAD_ID))
    table.weight /= 512**0.5
    projector = MLPProjector(768, 1024, 512)
    for name, module in {"encoder": encoder, "text table": table, "projector": projector}.items():
        learning = sum(p.numel() for p in module.parameters() if p.requires_grad)
        print(f"{name}: {learning:,} parameters learn")

    captions = torch.randint(1, 4096, (32, 16))
    captions[torch.arange(16) >= torch.randint(4, 17, (32, 1))] = PAD_ID
    texts = table(captions)
    # What is frozen gives the same vectors at every step, so the pictures are encoded only once.
    images = torch.cat([encoder(synthesize_image(pair, image_size))[1] for pair in range(32)])

    def show(step: int) -> None:
        loss = cosine_alignment_loss(projector(images), texts)
        print(f"step {step}: mean loss over all pairs {loss:.3f}")

    show(0)
    optimizer = torch.optim.Adam(projector.parameters(), lr=3e-4)
    for step in range(1, steps + 1):
        pair = [step % 32]
        optimizer.zero_grad()
        cosine_alignment_loss(projector(images[pair]), texts[pair]).backward()
        optimizer.step()
        if step % 50 == 0 or step == steps:
            show(step)
    # Less loss isn't yet a match: one answer to all pictures, the mean caption, does as well.
    mean_text = nn.functional.normalize(texts).mean(dim=0).expand_as(texts)
    print(f"the mean caption for every picture: {cosine_alignment_loss(mean_text, texts):.3f}")


if __name__ == "__main__":
    main()
