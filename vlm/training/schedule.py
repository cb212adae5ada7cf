"""AdamW, and its rate: a linear warm-up, then half a cosine (Loshchilov and Hutter 2017)."""

import math
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from vlm.config import OptimizerConfig
from vlm.training.parallel import fill


def learning_rate(step: int, config: OptimizerConfig) -> float:
    """The rate of update `step`, counted from 0; rate(steps) is the last the cosine reaches.

    1. step < warmup_steps: peak (step + 1) / warmup_steps.
    2. then a cosine from the peak at warmup_steps to final_rate * peak at `steps`.
    3. beyond `steps`: final_rate * peak.
    """
    peak, final = config.learning_rate, config.final_rate * config.learning_rate
    if step < config.warmup_steps:
        return peak * (step + 1) / config.warmup_steps
    if step >= config.steps:
        return final
    done = (step - config.warmup_steps) / (config.steps - config.warmup_steps)
    return final + (peak - final) * (1 + math.cos(math.pi * done)) / 2


def make_optimizer(model: nn.Module, config: OptimizerConfig) -> torch.optim.AdamW:
    """AdamW over what can learn; matrices decay, the rest (biases, norms, scales) doesn't.

    Numbers have a group of their own, since they aren't sharded where the rest is.
    """
    learns = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in learns if p.ndim >= 2], "weight_decay": config.weight_decay},
        {"params": [p for p in learns if p.ndim == 1], "weight_decay": 0.0},
        {"params": [p for p in learns if p.ndim == 0], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(
        [group for group in groups if group["params"]],
        lr=config.learning_rate,
        betas=(0.9, config.beta2),
        fused=True,
    )


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Give every group this rate."""
    groups: Iterable[dict[str, object]] = optimizer.param_groups
    for group in groups:
        group["lr"] = rate


def optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """What the optimizer remembers, as `PARAMETER/KEY`."""
    return {
        f"{name}/{key}": value
        for name, parameter in model.named_parameters()
        for key, value in optimizer.state.get(parameter, {}).items()
    }


def restore_optimizer(
    model: nn.Module, optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]
) -> None:
    """Give a new optimizer what `optimizer_tensors` told of another."""
    parameters = dict(model.named_parameters())
    for path, value in tensors.items():
        name, key = path.split("/")
        parameter = parameters[name]
        place = torch.empty_like(parameter if value.shape == parameter.shape else value)
        place = place.to(parameter.device)
        fill({path: place}, tensors)
        optimizer.state[parameter][key] = place
