"""One small training, run again and again in one folder, with all that a checkpoint must hold."""

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
import torch
from small_run import Numbers, config, points, regression
from torch import nn

from vlm.config import OptimizerConfig
from vlm.training.checkpoint import Checkpoints
from vlm.training.execution import Execution
from vlm.training.fit import FitResult, InterruptedTrainingError, fit
from vlm.training.terms import Objective

NEVER = 1e9  # seconds
STEPS = 7
EMPTY = Numbers(torch.zeros(1, 2), {"square": 0})


class Net(nn.Module):
    """Dropout, a part that doesn't learn, a number that does, a constant."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.inner = nn.Sequential(nn.Linear(2, 8), nn.Dropout(0.5), nn.Linear(8, 1))
        self.frozen = nn.Linear(2, 2).requires_grad_(False)
        self.scale = nn.Parameter(torch.tensor(1.0))
        self.unused = nn.Parameter(torch.ones(3))
        self.register_buffer("shift", torch.randn(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(self.frozen(x)) * self.scale + self.shift


class CrashError(Exception):
    """What a test throws into a run."""


def short(**changes) -> OptimizerConfig:
    return config(**{"steps": STEPS, "eval_every": 3, "weight_decay": 0.1, **changes})


def micro_batches(step: int, section: OptimizerConfig) -> list[Numbers]:
    """A function of the step; step 2 has nothing to learn from."""
    return [
        EMPTY if step == 2 else points(2 + part, 10 * step + part)
        for part in range(section.accumulate)
    ]


class Run:
    """Runs of one training in one folder, each in a model of other random weights."""

    def __init__(self, folder: Path, section: OptimizerConfig, seconds: float = NEVER) -> None:
        self.checkpoints, self.section = Checkpoints(folder / "fingerprint", seconds), section
        self.starts, self.told, self.asked = count(1), [], []
        self.model, self.result = Net(0), FitResult()

    def go(
        self,
        how: Execution | None = None,
        batches: Callable[[int], list[Numbers]] | None = None,
        objective: Callable[[nn.Module], Objective] = regression,
    ) -> "Run":
        first = next(self.starts) == 1
        self.model = Net(5 if first else 6)  # the second time, weights must come from the file
        how = replace(how or Execution(), checkpoints=self.checkpoints, resumed=self.told.append)

        def asked(step: int) -> list[Numbers]:
            self.asked.append(step)
            return (batches or (lambda s: micro_batches(s, self.section)))(step)

        self.result = fit(
            self.model,
            objective(self.model),
            asked,
            [points(5, -1), points(3, -2)],
            self.section,
            how,
            seed=3,
        )
        return self

    def stop_at(self, step: int, objective: Callable[[nn.Module], Objective] = regression) -> None:
        """Run until so many steps are done in all."""
        how = Execution(should_stop=lambda: self.asked[-1] == step)
        with pytest.raises(InterruptedTrainingError, match=f"after step {step} of {STEPS}: saved"):
            self.go(how, objective=objective)


def same(one: Run, other: Run) -> bool:
    """Whether results, weights, and what is saved of optimizer and figures are equal."""
    weights, others = one.model.state_dict(), other.model.state_dict()
    (tensors, numbers), (more, figures) = one.checkpoints.read(), other.checkpoints.read()
    assert weights.keys() == others.keys() and tensors.keys() == more.keys()
    return (
        all(torch.equal(weights[name], others[name]) for name in weights)
        and all(torch.equal(tensors[name], more[name]) for name in tensors)
        and one.result == other.result
        and numbers == figures
    )


def crashing_at(micro_batch: int) -> Callable[[nn.Module], Objective]:
    """The objective, but for what comes at this micro-batch of training, counted over steps."""
    calls = count()

    def crashing(model: nn.Module) -> Objective:
        objective = regression(model)

        def losses(batch: Numbers):
            if model.training and next(calls) == micro_batch:
                raise CrashError
            return objective.losses(batch)

        return replace(objective, losses=losses)

    return crashing
