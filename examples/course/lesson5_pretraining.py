"""Lesson 5: one model learns to match pictures with captions, and to write them.

The contrastive loss asks which caption of the batch is the picture's, the next-token (LM) loss how
the caption goes on. Random vectors do worse than a guess, since their cosines already take sides.

    python examples/course/lesson5_pretraining.py
"""

import math
from statistics import mean, stdev

import torch
from torch import Tensor

from vlm import VisionLanguageModel, VLMConfig, mock_pairs


def pretrain(
    config: VLMConfig,
    images: Tensor,
    text_ids: Tensor,
    steps: int = 50,
    batch_size: int = 16,
    seed: int = 0,
) -> tuple[VisionLanguageModel, list[tuple[float, float]]]:
    """A model trained from random weights, and its contrastive and LM loss at each step."""
    torch.manual_seed(seed)
    model = VisionLanguageModel(config)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-4)
    losses = []
    for _ in range(steps):
        batch = torch.randperm(len(images))[:batch_size]
        contrast, lm, _ = model(images[batch], text_ids[batch])
        optimizer.zero_grad()
        (contrast + config.lm_weight * lm).backward()
        optimizer.step()
        losses.append((contrast.item(), lm.item()))
    return model, losses


def main(num_pairs: int = 200, steps: int = 50, seeds: tuple[int, ...] = (0, 1, 2)) -> None:
    config = VLMConfig()
    images, text_ids = mock_pairs(num_pairs, config.vocab_size, config.max_text_len)
    runs = [pretrain(config, images, text_ids, steps, seed=seed)[1] for seed in seeds]

    guesses = {"contrastive": math.log(16), "LM": math.log(config.vocab_size)}
    for index, (name, guess) in enumerate(guesses.items()):
        print(f"{name} loss; a guess costs {guess:.2f}")
        firsts = [run[0][index] for run in runs]
        lasts = [mean(losses[index] for losses in run[-5:]) for run in runs]
        for seed, run, first, last in zip(seeds, runs, firsts, lasts, strict=True):
            print(f"  seed {seed}: first step {first:.2f}, last {run[-1][index]:.2f}, ", end="")
            print(f"mean of the last five {last:.2f}")
        print(f"  all: {mean(firsts):.2f} (spread {stdev(firsts):.2f}) -> ", end="")
        print(f"{mean(lasts):.2f} (spread {stdev(lasts):.2f}), first step -> last five")


if __name__ == "__main__":
    main()
