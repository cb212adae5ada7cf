"""What the training stages share around `fit`: order of data, curve and metrics files."""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar

import torch
from torch import Tensor, nn

from vlm.config import OptimizerConfig
from vlm.data.loading import CaptionBatch, PictureOrder, QuestionBatch, chunks
from vlm.errors import UserError
from vlm.files import write_json, write_text
from vlm.training.fit import FitResult, NonFiniteLossError, Objective, Row, fit

Batch = TypeVar("Batch", CaptionBatch, QuestionBatch)
Batch_co = TypeVar("Batch_co", covariant=True)
VALIDATION_BATCH = 250  # pictures


class Pictures(Protocol[Batch_co]):
    """Data that is batched by picture."""

    def __len__(self) -> int: ...

    def batch(self, pictures: Tensor, seed: tuple[int, ...] | None = None) -> Batch_co:
        """These pictures with what belongs to them; `seed` draws where there is a choice."""
        ...


def train(
    model: nn.Module,
    objective: Objective[Batch],
    data: Pictures[Batch],
    validation: Pictures[Batch],
    config: OptimizerConfig,
    *,
    source: Path,
    seed: int,
    device: torch.device,
    metrics_path: Path,
    curve_path: Path,
    report: Callable[[int, Row | None], None] = lambda step, row: None,
) -> FitResult:
    """Fit `model` to `data`, and write the curve and the metrics.

    A non-finite loss leaves a metrics file that says where it stopped, and raises on. `source`
    is the folder that holds the splits, for error messages.

    Raises:
        UserError: a batch larger than the data, or data without anything to learn.
        NonFiniteLossError: from `fit`.
    """
    read = min(config.val_pictures, len(validation))
    held_out = [validation.batch(part) for part in chunks(read, VALIDATION_BATCH)]
    _require_targets(objective, source, data)
    if not any(batch.counts[name] for batch in held_out for name in objective.weights):
        raise UserError(
            f"{source / 'val'}: no supervised item in the first {read} of {len(validation)}"
            " pictures; raise val_pictures"
        )
    order = PictureOrder(len(data), config.batch_size, seed)

    def batches(step: int) -> list[Batch]:
        parts = order.pictures(step).tensor_split(config.accumulate)
        return [data.batch(part, (seed, step, index)) for index, part in enumerate(parts)]

    try:
        result = fit(model, objective, batches, held_out, config, device, report)
    except NonFiniteLossError as error:
        write_json(metrics_path, {"stopped_at_step": error.step, error.term: float("nan")})
        raise
    write_text(curve_path, curve_tsv(result.curve))
    write_json(metrics_path, summary(result, model))
    return result


def summary(result: FitResult, model: nn.Module) -> dict[str, object]:
    """The stage's metrics: losses where the weights were kept, and the sizes behind them.

    For the heads also `steps_to_90`: the first validation at which 90% of the answers were right;
    -1 where none was.
    """
    last = result.curve[-1]
    learns = [p for p in model.parameters() if p.requires_grad]
    reached = {}
    if "val_exact_match" in last:
        right = [int(row["step"]) for row in result.curve if row["val_exact_match"] >= 0.9]
        reached = {"steps_to_90": right[0] if right else -1}
    return {
        **reached,
        "kept_step": result.kept_step,
        "steps": int(last["step"]),
        "val": result.kept,
        "last_train_loss": last["train_loss"],
        "parameters": sum(p.numel() for p in model.parameters()),
        "trained_parameters": sum(p.numel() for p in learns),
        "batches_without_target": result.batches_without_target,
    }


def curve_tsv(curve: list[Row]) -> str:
    """A header and a line per validation, separated by tabs."""
    header = list(curve[0])
    lines = [header, *([f"{row[name]:.6g}" for name in header] for row in curve)]
    return "".join("\t".join(line) + "\n" for line in lines)


def _require_targets(objective: Objective[Batch], source: Path, data: Pictures[Batch]) -> None:
    """An epoch without a single supervised item can teach nothing."""
    for part in chunks(len(data), VALIDATION_BATCH):
        if any(data.batch(part).counts[name] for name in objective.weights):
            return
    raise UserError(f"{source / 'train'}: no supervised item; expected at least one")
