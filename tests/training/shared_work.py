"""Work that any number of processes do together; each piece gives what all should agree on.

A test does the same alone, and compares. Processes import this file, and so nothing of pytest.
"""

import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from shared_data import (
    CONFIG,
    PICTURES,
    SCENES,
    Seen,
    Watched,
    captions,
    questions,
    section,
    squares,
)
from torch import Tensor, nn

from vlm.losses import info_nce_loss
from vlm.model.projector import freeze
from vlm.model.vlm import DualEncoder
from vlm.model.vqa import AnswerClassifier, PhraseGenerator
from vlm.training import train as training
from vlm.training.checkpoint import Checkpoints
from vlm.training.distributed import ALONE, World
from vlm.training.execution import Execution
from vlm.training.fit import InterruptedTrainingError, fit
from vlm.training.objectives import (
    alignment,
    classification,
    frozen_features,
    generation,
    pretraining,
)
from vlm.training.parallel import Strategy
from vlm.training.terms import NonFiniteLossError, Objective, evaluate_loss
from vlm.training.vision_language import VisionLanguageModel

STOP = 7  # the step after which the last process wants to stop
RUN = "run"  # a checkpoint is taken up by a run of its name alone


def trained(
    model: nn.Module,
    objective: Objective[Any],
    data: Any,
    how: Execution,
    folder: Path,
    **changes: Any,
) -> dict[str, Any]:
    """What `train` leaves: whole weights, and each process's view of the curve."""
    curve: list[dict[str, float]] = []
    how = replace(how, report=lambda step, row: curve.append(row) if row else None)
    weights = training.train(
        model,
        objective,
        data,
        data,
        section(**changes),
        how,
        source=folder / "data",
        seed=0,
        metrics_path=folder / "m.json",
        curve_path=folder / "c.tsv",
    )
    return {"weights": weights, "curve": curve}


def pretrained(
    world: World, folder: Path, how: Execution | None = None, eval_every: int = 5
) -> dict[str, Any]:
    torch.manual_seed(3)
    model = VisionLanguageModel(CONFIG)
    how = replace(how or Execution(), world=world)
    objective = pretraining(model, True, world)
    return trained(model, objective, captions(), how, folder, eval_every=eval_every)


def gather(world: World, folder: Path) -> dict[str, Any]:
    """Every process has a loss of its own of all rows; each row's owner gets the sum's gradient."""
    rows = torch.randn(8, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    own = world.share(rows).clone().requires_grad_()
    everyones = world.gather(own)
    # Four losses, dealt out: a process of two has two of them.
    for loss in torch.arange(4).tensor_split(world.size)[world.rank].tolist():
        (everyones * (rows + loss)).pow(2).sum().backward(retain_graph=True)
    assert own.grad is not None
    return {"rows": everyones.detach(), "gradient": world.gather(own.grad)}


def contrast(world: World, folder: Path) -> dict[str, Any]:
    """InfoNCE of 8 pairs, of which some texts are right for several pictures."""
    generator = torch.Generator().manual_seed(2)
    images, texts = (torch.randn(8, 5, dtype=torch.float64, generator=generator) for _ in "ab")
    keys = torch.tensor([0, 1, 2, 0, 3, 1, 4, 0])
    out: dict[str, Any] = {}
    for name, masked in (("masked", True), ("plain", False)):
        a, b = (world.share(x).clone().requires_grad_() for x in (images, texts))
        log_tau = torch.tensor(1.5, dtype=torch.float64, requires_grad=True)
        loss, similarity = info_nce_loss(
            a,
            b,
            log_tau,
            world.share(keys)[:, None] == keys if masked else None,
            gather=world.gather if world.size > 1 else None,
            begin=world.begin(len(a)),
        )
        (loss / world.size).backward()
        out[name] = {
            "loss": world.add(loss.detach() / world.size),
            "similarity": world.gather(similarity.detach()),
            "images": world.gather(a.grad),
            "texts": world.gather(b.grad),
            "log_tau": world.add(log_tau.grad),
        }
    return out


def replicated(world: World, folder: Path) -> dict[str, Any]:
    return pretrained(world, folder, eval_every=1)


def sharded(world: World, folder: Path) -> dict[str, Any]:
    return pretrained(world, folder, Execution(strategy="shard"), eval_every=1)


def heads(world: World, folder: Path) -> dict[str, Any]:
    """Both heads, from frozen texts; at one picture a process, half the shares hold no target."""
    torch.manual_seed(4)
    answers = AnswerClassifier(CONFIG, ["no", "yes"], "attention")
    phrases = PhraseGenerator(CONFIG, "tokens", "fused", 5.0)
    sharing: Strategy
    out = {}
    for model, objective, data, sharing in (
        (answers, classification(answers), questions(), "replicate"),
        (phrases, generation(phrases), questions(unasked=15), "shard"),
    ):
        freeze(model.text)
        how = Execution(world=world, strategy=sharing)
        out[sharing] = trained(model, objective, data, how, folder, steps=4, eval_every=2)
    return out


def aligned(world: World, folder: Path) -> dict[str, Any]:
    """Frozen encoders: features shared out, then a projector alone that learns."""
    torch.manual_seed(5)
    model, data, how = DualEncoder(CONFIG), captions(), Execution(world=world)
    freeze(model.vision)
    freeze(model.text)
    many = torch.from_numpy(SCENES.images).repeat(6, 1, 1, 1)  # three parts, of which one is short
    features = frozen_features(model.vision, many, how)
    data.features = features[:PICTURES]
    return {
        "features": features,
        **trained(model, alignment(model), data, how, folder, eval_every=5),
    }


def validated(world: World, folder: Path) -> dict[str, Any]:
    """Three batches of unequal size."""
    torch.manual_seed(6)
    model = VisionLanguageModel(CONFIG)
    data = captions()
    batches = [data.batch(part) for part in torch.arange(20).split(8)]
    return evaluate_loss(model, pretraining(model, True, world), batches, Execution(world=world))


def order(world: World, folder: Path) -> dict[str, Any]:
    """The global batches of two epochs, in order, and what chance says of each picture."""
    data, model = Watched(), nn.Linear(1, 1)
    how = Execution(world=world)
    trained(model, squares(model), data, how, folder, steps=6, accumulate=2)
    return {
        "pictures": torch.cat([world.gather(part) for part in data.seen]),
        "draws": torch.cat([world.gather(part) for part in data.draws]),
    }


def bad_loss(world: World, folder: Path) -> str:
    """The last process alone meets a loss of NaN, at the second step of two parts."""
    data, model = Watched(poisoned=world.rank == world.size - 1), nn.Linear(1, 1)
    try:
        trained(model, squares(model), data, Execution(world=world), folder)
    except NonFiniteLossError as error:
        return str(error)
    return "no error"


def chance(world: World, folder: Path) -> dict[str, Any]:
    """What dropout leaves in each process: not the same, and the same again."""
    masks = []
    batch = Seen(torch.ones(1, 1), {"square": 1})

    def drop(batch: Seen) -> dict[str, Tensor]:
        if model.training:
            masks.append(F.dropout(torch.ones(64)))
        return {"square": model(batch.images).square().mean()}

    for _ in range(2):
        model = nn.Linear(1, 1)
        c = section(steps=1, warmup_steps=0, accumulate=1)
        how = Execution(world=world)
        fit(model, Objective(drop, {"square": 1.0}), lambda step: [batch], [batch], c, how)
    first, again = (world.gather(mask[None]) for mask in masks)
    return {"distinct": len(first.unique(dim=0)), "repeats": torch.equal(first, again)}


def interrupted(world: World, folder: Path) -> dict[str, Any]:
    """A run that the last process alone stops; then the one that goes on from there."""
    folder.mkdir(parents=True, exist_ok=True)
    asked, resumed = [], []

    def should_stop() -> bool:
        asked.append(None)
        return len(asked) > STOP and world.rank == world.size - 1

    checkpoints = Checkpoints(folder / RUN, seconds=1e9)
    how = Execution(checkpoints=checkpoints, strategy="shard", should_stop=should_stop)
    said = ""
    try:
        pretrained(world, folder, how)
    except InterruptedTrainingError as error:
        said = str(error)
    how = replace(how, should_stop=lambda: False, resumed=resumed.append)
    if world.is_first:
        shutil.copyfile(checkpoints.path, folder / "stopped.safetensors")
    return {"said": said, "resumed": resumed, **pretrained(world, folder, how)}


def taken_over(world: World, folder: Path) -> dict[str, Any]:
    """Go on from what a run of another number of processes left in `folder`."""
    resumed: list[int] = []
    how = Execution(checkpoints=Checkpoints(folder / RUN, seconds=1e9), resumed=resumed.append)
    return {"resumed": resumed, **pretrained(world, folder, how)}


WORK: list[Callable[[World, Path], Any]] = [
    gather,
    contrast,
    replicated,
    sharded,
    heads,
    aligned,
    validated,
    order,
    bad_loss,
    chance,
    interrupted,
    taken_over,
]


def do(world: World, folder: Path) -> dict[str, Any]:
    """Every piece of work, by name; one process's files lie in its own folder."""
    training.VALIDATION_BATCH = 9  # three batches, of which one is short
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    return {work.__name__: work(world, folder / work.__name__) for work in WORK}


def _process(rank: int, size: int, folder: Path) -> None:
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=size
    )
    torch.save(do(World(rank, size), folder), folder / f"{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


def together(size: int, folder: Path) -> list[dict[str, Any]]:
    """What each of `size` processes got from all the work; alone, in this process."""
    folder.mkdir(exist_ok=True)
    if size == 1:
        return [do(ALONE, folder)]
    with suppress(FileNotFoundError):
        (folder / "meeting").unlink()
    mp.spawn(_process, (size, folder), nprocs=size)
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(size)]
