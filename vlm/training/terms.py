"""What is minimised: weighted terms of a loss, and their means over validation batches."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn

from vlm.data.loading import CaptionBatch, QuestionBatch, to_device
from vlm.errors import StoppedError
from vlm.training.execution import Execution, Row
from vlm.training.means import Means

Batch = TypeVar("Batch", CaptionBatch, QuestionBatch)


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

    def with_total(self, terms: Mapping[str, float]) -> Row:
        """The terms, and their weighted sum as `loss`."""
        total = sum(weight * terms[name] for name, weight in self.weights.items())
        return {"loss": total, **terms}


@torch.no_grad()
def evaluate_loss(
    model: nn.Module,
    objective: Objective[Batch],
    batches: Sequence[Batch],
    how: Execution | None = None,
    step: int = 0,
) -> Row:
    """Mean loss per supervised item over `batches`, by term and weighted as `loss`; the scores.

    The processes share the batches out, each to one of them. All make the same number of passes,
    since sharded weights are gathered in each; a pass too many counts nothing.

    Raises:
        NonFiniteLossError: a loss isn't finite; it is said to be of `step`.
    """
    how = how or Execution()
    was_training, world = model.training, how.world
    model.eval()
    means = Means([*objective.weights, *objective.scores], how.device)
    for first in range(0, len(batches), world.size):
        index = first + world.rank
        batch = to_device(batches[min(index, len(batches) - 1)], how.device)
        with how.autocast():
            terms = objective.losses(batch)
        if index < len(batches):
            means.add(terms, batch.counts, step)
    model.train(was_training)
    bad = means.first_bad(world)
    if bad is not None:
        raise NonFiniteLossError(*bad)
    return objective.with_total(means.means(world))
