"""Two processes beside one at the same global batch: pictures a second, and how far losses part.

On the CPU in fp32, each process with one thread, for the pretraining of a parameter file:

    python -m benchmarks.processes

Jobs take turns (1, 2, 1, 2, ...), each in processes of its own. A job first trains from the seed's
weights, and every step's losses over the whole batch are kept; then steps are timed, without
validation. The scenes are drawn anew, so that no stage need have run.

Exit status 2 for a mistake, told in one line.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from benchmarks.timing import machine, verdict
from vlm.config import Params, load_params
from vlm.data.drawn import draw
from vlm.data.loading import CaptionBatch, CaptionData
from vlm.data.order import PictureOrder
from vlm.data.tokenizer import TextTokenizer
from vlm.errors import UserError
from vlm.files import read_json, write_json
from vlm.model.build import vlm_config
from vlm.training.distributed import World
from vlm.training.execution import Execution, Row
from vlm.training.fit import InterruptedTrainingError, fit
from vlm.training.objectives import pretraining
from vlm.training.parallel import Strategy
from vlm.training.vision_language import VisionLanguageModel

MISTAKE = 2
SIZES = (1, 2)
TARGET = 1.7
COMPARED = {10: 1e-5, 50: 1e-3}  # steps, and how far losses may part in them
WARM = 5  # steps before the timed ones
BATCHES = 10  # distinct ones
PARAMS = Path("presets/default.yaml")


@dataclass(frozen=True)
class Job:
    """What a number of processes does.

    Attributes:
        steps: that are timed.
        parallel: how the processes share the model.
    """

    params: Params
    steps: int
    parallel: Strategy


@dataclass(frozen=True)
class Outcome:
    """What a job leaves: the losses of each step, by name, and the median seconds of a step."""

    losses: list[Row]
    seconds: float


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.processes",
        description="Two training processes beside one.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--params", type=Path, default=PARAMS, help="parameter file")
    parser.add_argument("--parallel", choices=["replicate", "shard"], default="replicate")
    parser.add_argument("--steps", type=int, default=60, help="timed steps of a job")
    parser.add_argument("--rounds", type=int, default=3, help="jobs of each number of processes")
    given = parser.parse_args(arguments)
    try:
        job = Job(load_params(given.params), given.steps, given.parallel)
    except UserError as error:
        print(f"benchmarks.processes: {error}", file=sys.stderr)
        sys.exit(MISTAKE)
    torch.set_num_threads(1)
    print(f"{machine()} a process")
    print(f"pretrain of {given.params}: {job.params.pretrain.batch_size} pictures, {job.parallel}")
    print("\n".join(report(job, given.rounds)))


def report(job: Job, rounds: int) -> list[str]:
    """Run the jobs by turns; a line for each figure."""
    outcomes: dict[int, list[Outcome]] = {size: [] for size in SIZES}
    for _ in range(rounds):
        for size in SIZES:
            outcomes[size].append(run(job, size))
    lines, rates = [], {}
    for size, done in outcomes.items():
        each = [job.params.pretrain.batch_size / outcome.seconds for outcome in done]
        rates[size] = statistics.median(each)
        lines.append(
            f"{size} x 1 thread: {rates[size]:.0f} ({min(each):.0f}-{max(each):.0f}) pictures/s"
        )
    ratio = rates[2] / rates[1]
    lines.append(f"2 processes over 1: {ratio:.2f}, {verdict(ratio, TARGET)}")
    one, two = (outcomes[size][0].losses for size in SIZES)
    lines += [
        f"largest difference of a loss in the first {steps} steps: {apart:.1e},"
        f" at most {most:g} {'met' if apart <= most else 'not met'}"
        for steps, most in COMPARED.items()
        for apart in [parted(one, two, steps)]
    ]
    return lines


def parted(one: Sequence[Row], two: Sequence[Row], steps: int) -> float:
    """The largest difference between two runs' losses in their first `steps` steps."""
    rows = zip(one[:steps], two[:steps], strict=True)
    return max(abs(a[name] - b[name]) for a, b in rows for name in a if name.startswith("train_"))


def run(job: Job, size: int) -> Outcome:
    """A job by so many new processes."""
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(_process, (size, job, Path(folder)), nprocs=size)
        return Outcome(**read_json(Path(folder) / "outcome.json"))


def _process(rank: int, size: int, job: Job, folder: Path) -> None:
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    meeting = f"file://{folder}/meeting"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=size)
    losses, seconds = train(job, World(rank, size))
    if rank == 0:
        outcome = {"losses": losses, "seconds": seconds}
        write_json(folder / "outcome.json", outcome, decimals=None)
    dist.barrier()
    dist.destroy_process_group()


def train(job: Job, world: World) -> tuple[list[Row], float]:
    """This process's share: the losses of each step, then the median seconds of a timed one."""
    params, section = job.params, job.params.pretrain
    number = BATCHES * section.batch_size
    scenes, _ = draw(params.data, params.seed, "train", number).tables()
    tokenizer = TextTokenizer.fit([text for each in scenes.captions for text in each])
    data = CaptionData(scenes, tokenizer, params.model.text.max_length)
    order = PictureOrder(data.layout, section.batch_size, params.seed)
    area = params.data.world
    config = vlm_config(params.model, area.image_size, area.channels, tokenizer.vocab_size)
    torch.manual_seed(params.seed)
    model = VisionLanguageModel(config)
    objective = pretraining(model, section.mask_equivalent, world)

    def batches(step: int) -> list[CaptionBatch]:
        return [data.batch(order.at(step).rows, own=world.own(section.batch_size))]

    rows: list[Row] = []
    moments: list[float] = []

    def report(step: int, row: Row | None) -> None:
        moments.append(time.perf_counter())
        if row is not None:
            rows.append(row)

    how = Execution(
        world=world,
        strategy=job.parallel,
        should_stop=lambda: len(rows) == max(COMPARED),
        report=report,
    )
    seen = [data.batch(torch.arange(2))]  # what validation makes of it is of no interest
    with suppress(InterruptedTrainingError):  # at the schedule's own rates, no further than needed
        fit(model, objective, batches, seen, section.model_copy(update={"eval_every": 1}), how)
    losses, how = list(rows), Execution(world=world, strategy=job.parallel, report=report)
    moments.clear()
    timed = WARM + job.steps
    steps = {"steps": timed + 1, "eval_every": timed + 1, "warmup_steps": timed + 1}
    fit(model, objective, batches, seen, section.model_copy(update=steps), how, params.seed)
    taken = [later - earlier for earlier, later in pairwise(moments[WARM - 1 : timed])]
    return losses, statistics.median(taken)


if __name__ == "__main__":
    main()
