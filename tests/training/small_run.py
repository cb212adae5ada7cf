"""A training small enough for a test: a regression on random points."""

from dataclasses import dataclass

import torch
from torch import nn

from vlm.config import OptimizerConfig
from vlm.training.terms import Objective


def config(**changes) -> OptimizerConfig:
    values = {
        "steps": 20,
        "batch_size": 4,
        "learning_rate": 0.05,
        "final_rate": 0.0,
        "warmup_steps": 2,
        "weight_decay": 0.0,
        "beta2": 0.99,
        "clip_norm": 1.0,
        "accumulate": 1,
        "eval_every": 5,
        "val_pictures": 8,
        "keep": "best",
    }
    return OptimizerConfig(**{**values, **changes})


@dataclass(frozen=True)
class Numbers:
    """A batch of points; `counts` as in the real batches."""

    images: torch.Tensor
    counts: dict[str, int]


def regression(model: nn.Module) -> Objective:
    """Mean squared distance of the model's output from 3."""
    return Objective(lambda b: {"square": (model(b.images) - 3).square().mean()}, {"square": 1.0})


def points(n: int, seed: int) -> Numbers:
    x = torch.randn(n, 2, generator=torch.Generator().manual_seed(seed))
    return Numbers(x, {"square": n})
