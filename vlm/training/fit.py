"""The one training loop."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn

from vlm.config import OptimizerConfig
from vlm.data.loading import CaptionBatch, QuestionBatch, to_device
from vlm.errors import StoppedError
from vlm.training.schedule import learning_rate, make_optimizer, set_rate

Batch = TypeVar("Batch", CaptionBatch, QuestionBatch)
Row = dict[str, float]


class NonFiniteLossError(StoppedError):
    """A loss that is NaN or infinite; training can't go on from it."""

    def __init__(self, step: int, term: str) -> None:
        super().__init__(
            f"step {step}: loss {term!r} is not finite; no weights were written."
            " A lower learning_rate or clip_norm may help"
        )
        self.step = step
        self.term = term


@dataclass(frozen=True)
class Objective(Generic[Batch]):
    """What is minimised: the sum over terms of weight x mean loss per supervised item.

    Attributes:
        losses: a batch on the model's device to the mean loss of each term; in eval mode, to the
            mean of each score too.
        weights: of each term. A batch's `counts` say how many items stand behind each mean.
        scores: what validation shows beside the losses; nothing is decided by them.
    """

    losses: Callable[[Batch], Mapping[str, Tensor]]
    weights: Mapping[str, float]
    scores: Sequence[str] = ()

    def total(self, terms: Mapping[str, float]) -> float:
        """The weighted sum of the terms."""
        return sum(weight * terms[name] for name, weight in self.weights.items())


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
    device: torch.device,
    report: Callable[[int, Row | None], None] = lambda step, row: None,
) -> FitResult:
    """Train `model` in place and leave it with the weights that `config.keep` names.

    Args:
        model: in eval mode only where it is frozen; what requires no gradient doesn't learn.
        objective: the losses.
        batches: step to the micro-batches of that step. They are weighed by their supervised
            items, so that a step is the same however it is cut; only contrast sees fewer
            negatives in a smaller cut.
        validation: batches whose loss decides which weights are kept.
        config: steps, rate and the like.
        device: where the batches go.
        report: told each step, with its row of the curve where there was a validation.

    Raises:
        NonFiniteLossError: a loss of training or validation isn't finite.
    """
    optimizer = make_optimizer(model, config)
    result = FitResult()
    weights: dict[str, Tensor] = {}
    window = _Means(objective.weights)
    model.train()
    for step in range(config.steps):
        rate = learning_rate(step, config)
        set_rate(optimizer, rate)
        micro_batches = [to_device(batch, device) for batch in batches(step)]
        result.batches_without_target += _update(
            model, objective, micro_batches, optimizer, config, window, step + 1
        )
        done = step + 1
        if done % config.eval_every and done != config.steps:
            report(done, None)
            continue
        losses = evaluate_loss(model, objective, validation, device, done)
        row = {
            "step": float(done),
            **_prefixed("train", window.with_total(objective)),
            **_prefixed("val", losses),
            "rate": rate,
        }
        result.curve.append(row)
        window = _Means(objective.weights)
        if config.keep == "last" or losses["loss"] < result.kept.get("loss", math.inf):
            result.kept_step, result.kept = done, losses
            weights = {name: value.clone() for name, value in model.state_dict().items()}
        report(done, row)
    model.load_state_dict(weights)
    model.eval()
    return result


def _update(
    model: nn.Module,
    objective: Objective[Batch],
    micro_batches: Sequence[Batch],
    optimizer: torch.optim.Optimizer,
    config: OptimizerConfig,
    window: "_Means",
    step: int,
) -> int:
    """One update from one step's micro-batches; returns how many had nothing to learn from."""
    totals = {name: sum(b.counts[name] for b in micro_batches) for name in objective.weights}
    for batch in micro_batches:
        with autocast(batch.images.device):
            terms = objective.losses(batch)
        loss = torch.zeros((), device=batch.images.device)
        for name, weight in objective.weights.items():
            _check_finite(terms[name], step, name)
            share = batch.counts[name] / max(totals[name], 1)
            loss = loss + weight * share * terms[name]
            window.add(name, float(terms[name].detach()), batch.counts[name])
        loss.backward()
    if any(totals.values()):
        if config.clip_norm:
            learns = [p for p in model.parameters() if p.requires_grad]
            nn.utils.clip_grad_norm_(learns, config.clip_norm)
        optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return sum(not any(b.counts[name] for name in objective.weights) for b in micro_batches)


@torch.no_grad()
def evaluate_loss(
    model: nn.Module,
    objective: Objective[Batch],
    batches: Sequence[Batch],
    device: torch.device,
    step: int,
) -> Row:
    """Mean loss per supervised item over `batches`, by term and weighted as `loss`; the scores."""
    was_training = model.training
    model.eval()
    means = _Means([*objective.weights, *objective.scores])
    for batch in batches:
        with autocast(device):
            terms = objective.losses(to_device(batch, device))
        for name in objective.weights:
            _check_finite(terms[name], step, name)
        for name in means.names:
            means.add(name, float(terms[name]), batch.counts[name])
    model.train(was_training)
    return means.with_total(objective)


def autocast(device: torch.device) -> torch.autocast:
    """bf16 arithmetic where the device is a GPU; fp32 on a CPU."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type == "cuda")


class _Means:
    """Running means of each name, weighed by items."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = list(names)
        self._sums = dict.fromkeys(self.names, 0.0)
        self._counts = dict.fromkeys(self.names, 0)

    def add(self, name: str, mean: float, count: int) -> None:
        self._sums[name] += mean * count
        self._counts[name] += count

    def with_total(self, objective: Objective[Batch]) -> Row:
        means = {name: self._sums[name] / max(self._counts[name], 1) for name in self.names}
        return {"loss": objective.total(means), **means}


def _prefixed(prefix: str, row: Row) -> Row:
    return {f"{prefix}_{name}": value for name, value in row.items()}


def _check_finite(loss: Tensor, step: int, term: str) -> None:
    if not math.isfinite(float(loss.detach())):
        raise NonFiniteLossError(step, term)
