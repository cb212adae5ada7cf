"""The project's own training loop, with nothing in it but its steps."""

from collections.abc import Callable
from typing import TypeVar

from torch import nn

from vlm.config import OptimizerConfig
from vlm.data.loading import CaptionBatch, QuestionBatch
from vlm.training.execution import Execution, Row
from vlm.training.fit import fit
from vlm.training.terms import Objective

Batch = TypeVar("Batch", CaptionBatch, QuestionBatch)


def only_steps(
    model: nn.Module,
    objective: Objective[Batch],
    batch: Callable[[int], Batch],
    config: OptimizerConfig,
    done: Callable[[int], None],
) -> None:
    """`fit` on the CPU without validation; `done` is told after each step how many there were."""

    def report(step: int, row: Row | None) -> None:
        done(step)

    config = config.model_copy(update={"eval_every": config.steps, "keep": "last"})
    how = Execution(report=report)
    fit(model, objective, lambda step: [batch(step)], [], config, how)
