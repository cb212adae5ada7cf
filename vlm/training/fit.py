"""The one training loop."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from vlm.config import OptimizerConfig
from vlm.data.loading import CaptionBatch, QuestionBatch, to_device
from vlm.errors import InterruptedRunError
from vlm.training.execution import Execution, Row
from vlm.training.means import Means
from vlm.training.parallel import Parallel, fill, whole
from vlm.training.schedule import (
    learning_rate,
    make_optimizer,
    optimizer_tensors,
    restore_optimizer,
    set_rate,
)
from vlm.training.terms import NonFiniteLossError, Objective, evaluate_loss

Batch = TypeVar("Batch", CaptionBatch, QuestionBatch)
CHECK_EVERY = 20  # steps between looks at whether all losses were finite: a look waits for a GPU


class InterruptedTrainingError(InterruptedRunError):
    """Training was asked to stop and did so, between two steps."""

    def __init__(self, step: int, steps: int, saved: bool) -> None:
        kept = "saved; run it again to go on from there" if saved else "nothing was kept"
        super().__init__(f"interrupted after step {step} of {steps}: {kept}")


@dataclass
class FitResult:
    """What a run leaves beside the weights.

    Attributes:
        kept_step: updates done when the weights were kept that the model now holds.
        kept: the validation losses there, by term and as `loss`, and the scores.
        curve: a row per validation: step, train and validation losses, rate.
        batches_without_target: training batches in which nothing was supervised.
    """

    kept_step: int = 0
    kept: Row = field(default_factory=dict)
    curve: list[Row] = field(default_factory=list)
    batches_without_target: int = 0


def fit(
    model: nn.Module,
    objective: Objective[Batch],
    batches: Callable[[int], Sequence[Batch]],
    validation: Sequence[Batch],
    config: OptimizerConfig,
    how: Execution | None = None,
    seed: int = 0,
) -> FitResult:
    """Train `model` in place and leave it with the weights that `config.keep` names.

    Args:
        model: in eval mode only where it is frozen; what requires no gradient doesn't learn.
        objective: the losses.
        batches: step to the micro-batches of that step, this process's share of each. They are
            weighed by their supervised items, so that a step is the same however it is cut; only
            contrast sees fewer negatives in a smaller cut.
        validation: batches whose loss decides which weights are kept; all of them, everywhere.
        config: steps, rate and the like.
        how: the device, the processes, and where the run is saved.
        seed: of chance in the forward pass, which is a function of (seed, step, process).

    Raises:
        NonFiniteLossError: a loss of training or validation isn't finite.
        InterruptedTrainingError: `how.should_stop` said so; the run is saved.
    """
    run = _Run(model, objective, validation, config, how or Execution(), seed)
    run.resume()
    while run.done < config.steps:
        run.update(batches(run.done))
        run.how.report(run.done, run.validate() if run.is_validation_due() else None)
    run.save()
    fill(model.state_dict(), run.best)
    model.eval()
    return run.result


class _Losses(nn.Module):
    """The losses as a module's forward pass, which is what the engine of many processes wraps."""

    def __init__(self, model: nn.Module, objective: Objective[Any]) -> None:
        super().__init__()
        self.model = model
        self._losses = objective.losses

    def forward(self, batch: Any) -> Mapping[str, Tensor]:
        return self._losses(batch)


class _Run(Generic[Batch]):
    """A training under way: `done` steps, and all that the next one depends on."""

    def __init__(
        self,
        model: nn.Module,
        objective: Objective[Batch],
        validation: Sequence[Batch],
        config: OptimizerConfig,
        how: Execution,
        seed: int,
    ) -> None:
        self.model, self.validation = model, validation
        self.config, self.how, self.seed = config, how, seed
        losses = _Losses(model, objective)
        if how.compiled:
            losses.compile()
        self.parallel = Parallel(losses, how.world, how.strategy)
        self.objective = replace(objective, losses=self.parallel.run)
        self.optimizer = make_optimizer(model, config)  # now that the weights are where they stay
        self.learns = [p for p in model.parameters() if p.requires_grad]
        self.done = 0
        self.result = FitResult()
        self.best: dict[str, Tensor] = {}
        self.window = Means(objective.weights, how.device)
        model.train()

    def update(self, micro_batches: Sequence[Batch]) -> None:
        """One step of the optimizer."""
        counts = self._meet(micro_batches)
        rank, size = self.how.world.rank, self.how.world.size
        chance = np.random.SeedSequence((self.seed, self.done, rank)).generate_state(1)
        torch.manual_seed(int(chance[0]))
        set_rate(self.optimizer, learning_rate(self.done, self.config))
        for index, batch in enumerate(micro_batches):
            with self.parallel.accumulating(last=index == len(micro_batches) - 1):
                with self.how.autocast():
                    terms = self.objective.losses(to_device(batch, self.how.device))
                loss = torch.zeros((), device=self.how.device)
                for name, weight in self.objective.weights.items():
                    # The engine averages gradients over processes, where the sum is wanted.
                    share = size * batch.counts[name] / max(counts[name], 1)
                    loss = loss + weight * share * terms[name]
                loss.backward()
            self.window.add(terms, batch.counts, self.done + 1)
        if any(counts.values()):
            self.parallel.clip(self.learns, self.config.clip_norm)
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.done += 1
        if self.done % CHECK_EVERY == 0:
            self._check_finite(self.window)

    def _meet(self, micro_batches: Sequence[Batch]) -> dict[str, int]:
        """Agree with the other processes whether to save or to stop, and on the step's items."""
        how, names = self.how, list(self.objective.weights)
        due = how.world.is_first and how.checkpoints is not None and how.checkpoints.is_due()
        items = [[batch.counts[name] for name in names] for batch in micro_batches]
        mine = [how.should_stop(), due, *map(sum, items), *map(sum, zip(*items, strict=True))]
        stop, due, *sums = how.world.sums(mine, how.device)
        if stop or due:
            self.save()
        if stop:
            raise InterruptedTrainingError(
                self.done, self.config.steps, how.checkpoints is not None
            )
        self.result.batches_without_target += sums[: len(items)].count(0)
        return {name: int(sums[len(items) + i]) for i, name in enumerate(names)}

    def is_validation_due(self) -> bool:
        """Whether the curve has a row at this step."""
        return self.done % self.config.eval_every == 0 or self.done == self.config.steps

    def validate(self) -> Row:
        """Close the curve's next row, and keep the weights if they are to be kept."""
        self._check_finite(self.window)
        train = self.objective.with_total(self.window.means(self.how.world))
        losses = evaluate_loss(self.model, self.objective, self.validation, self.how, self.done)
        row = {
            "step": float(self.done),
            **{f"train_{name}": value for name, value in train.items()},
            **{f"val_{name}": value for name, value in losses.items()},
            "rate": learning_rate(self.done - 1, self.config),
        }
        self.result.curve.append(row)
        self.window = Means(self.objective.weights, self.how.device)
        if self.config.keep == "last" or losses["loss"] < self.result.kept.get("loss", math.inf):
            self.result.kept_step, self.result.kept = self.done, losses
            self.best = {name: value.clone() for name, value in self.model.state_dict().items()}
        return row

    def _check_finite(self, means: Means) -> None:
        bad = means.first_bad(self.how.world)
        if bad is not None:
            raise NonFiniteLossError(*bad)

    def save(self) -> None:
        """Write the checkpoint."""
        if self.how.checkpoints is None:
            return
        self._check_finite(self.window)
        groups = {
            "model": self.model.state_dict(),
            "best": self.best,
            "optimizer": optimizer_tensors(self.model, self.optimizer),
        }
        tensors = {
            f"{group}.{name}": whole(tensor)
            for group, named in groups.items()
            for name, tensor in named.items()
        }
        numbers = {
            "done": self.done,
            "result": asdict(self.result),
            "window": self.window.totals(self.how.world),
        }
        if self.how.world.is_first:
            self.how.checkpoints.write(tensors, numbers)

    def resume(self) -> None:
        """Go on from the checkpoint, if there is one."""
        checkpoints, world = self.how.checkpoints, self.how.world
        found = checkpoints.read() if checkpoints is not None and world.is_first else None
        found = world.from_first(found)
        if found is None:
            return
        tensors, numbers = found
        self.done, self.result = numbers["done"], FitResult(**numbers["result"])
        if world.is_first:
            self.window.start_from(numbers["window"])
        weights = self.model.state_dict()
        fill(weights, _group(tensors, "model"))
        if best := _group(tensors, "best"):
            self.best = {name: value.clone() for name, value in weights.items()}
            fill(self.best, best)
        restore_optimizer(self.model, self.optimizer, _group(tensors, "optimizer"))
        self.how.resumed(self.done)


def _group(tensors: Mapping[str, Tensor], name: str) -> dict[str, Tensor]:
    """The tensors saved under `name`."""
    return {
        key.removeprefix(f"{name}."): tensor
        for key, tensor in tensors.items()
        if key.startswith(f"{name}.")
    }
