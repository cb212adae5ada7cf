"""What the training stages share around `fit`: order of data, curve and metrics files."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from vlm.config import AugmentConfig, OptimizerConfig
from vlm.data import augmenting
from vlm.data.loading import EVERY, CaptionBatch, QuestionBatch, chunks
from vlm.data.order import Layout, PictureOrder
from vlm.data.shards import Ints
from vlm.errors import UserError
from vlm.files import write_json, write_text
from vlm.rules import check_shares
from vlm.training.execution import Execution, Row
from vlm.training.fit import FitResult, fit
from vlm.training.parallel import whole
from vlm.training.terms import NonFiniteLossError, Objective

Batch = TypeVar("Batch", CaptionBatch, QuestionBatch)
Batch_co = TypeVar("Batch_co", covariant=True)
VALIDATION_BATCH = 250  # pictures
# They tell the streams of a step's draws from that of an epoch's order, and from one another.
DRAWS, CHANGES = 1, 2


class Pictures(Protocol[Batch_co]):
    """Data that is batched by picture."""

    def __len__(self) -> int: ...

    def batch(self, pictures: Tensor, draws: Tensor | None = None, own: slice = EVERY) -> Batch_co:
        """The `own` of these pictures, and their own; `draws` in [0, 1) stand for chance."""
        ...


class Windowed(Protocol[Batch_co]):
    """Data of which a window is held at a time; what is in memory whole is a single one."""

    @property
    def layout(self) -> Layout:
        """How the pictures lie in row groups."""
        ...

    def window(self, groups: Ints) -> Pictures[Batch_co]:
        """The pictures of these row groups, which stay in memory until others are asked for."""
        ...


def train(
    model: nn.Module,
    objective: Objective[Batch],
    data: Windowed[Batch],
    validation: Pictures[Batch],
    config: OptimizerConfig,
    how: Execution,
    *,
    source: Path,
    seed: int,
    metrics_path: Path,
    curve_path: Path,
    figures: Mapping[str, object] | None = None,
    augment: AugmentConfig | None = None,
) -> dict[str, Tensor]:
    """Fit `model` to `data`, write the curve and the metrics, and return the kept weights.

    Every step's pictures, and what chance decides about them, are a function of (seed, step); with
    several processes each takes its share of them. A non-finite loss leaves a metrics file that
    says where it stopped, and raises on. `source` is the folder that holds the splits, for error
    messages; `augment` is how pictures are changed in training; `figures` of the data stand in the
    metrics beside those of the run.

    Raises:
        UserError: a batch larger than the data or one that can't be shared out evenly, or data
            without anything to learn.
        NonFiniteLossError, InterruptedTrainingError: from `fit`.
    """
    check_shares(config.batch_size, config.accumulate, how.world.size)
    read = min(config.val_pictures, len(validation))
    held_out = [validation.batch(part) for part in chunks(read, VALIDATION_BATCH)]
    order = PictureOrder(data.layout, config.batch_size, seed)
    _require_targets(objective, source, data, order)
    if not any(batch.counts[name] for batch in held_out for name in objective.weights):
        raise UserError(
            f"{source / 'val'}: no supervised item in the first {read} pictures; raise val_pictures"
        )
    batches = _batches(data, order, config, how, seed, augment)
    try:
        result = fit(model, objective, batches, held_out, config, how, seed)
    except NonFiniteLossError as error:
        if how.world.is_first:
            write_json(metrics_path, {"stopped_at_step": error.step, error.term: float("nan")})
        raise
    if how.world.is_first:
        write_text(curve_path, curve_tsv(result.curve))
        write_json(metrics_path, {**summary(result, model), **(figures or {})})
    return {name: whole(tensor) for name, tensor in model.state_dict().items()}


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


def _batches(
    data: Windowed[Batch],
    order: PictureOrder,
    config: OptimizerConfig,
    how: Execution,
    seed: int,
    augment: AugmentConfig | None,
) -> Callable[[int], list[Batch]]:
    """What gives a step's micro-batches, of each this process's share."""

    def batches(step: int) -> list[Batch]:
        groups, pictures = order.at(step)
        window = data.window(groups)
        draws, changes = (
            torch.from_numpy(np.random.default_rng((seed, step, stream)).random(size))
            for stream, size in (
                (DRAWS, len(pictures)),
                (CHANGES, (len(pictures), augmenting.DRAWS)),
            )
        )
        found = []
        for part in torch.arange(len(pictures)).tensor_split(config.accumulate):
            own = how.world.own(len(part))
            batch = window.batch(pictures[part], draws[part], own)
            if augment is not None and not augment.is_off:
                images = augmenting.augment(batch.images, changes[part][own], augment)
                batch = replace(batch, images=images)
            found.append(batch)
        return found

    return batches


def _require_targets(
    objective: Objective[Batch], source: Path, data: Windowed[Batch], order: PictureOrder
) -> None:
    """An epoch without a single supervised item can teach nothing."""
    for groups, _ in order.windows(epoch=0):
        window = data.window(groups)
        for part in chunks(len(window), VALIDATION_BATCH):
            if any(window.batch(part).counts[name] for name in objective.weights):
                return
    raise UserError(f"{source / 'train'}: no supervised item; expected at least one")
