"""What a training step costs: its time, its FLOPs, and the share of the machine's rate it reaches.

On the CPU in fp32, with random weights on the scenes that a parameter file asks for:

    python -m benchmarks.step pretrain --threads 2
    python -m benchmarks.step generator --params presets/vit_b16.yaml --pictures 2

A step is what `fit` does: a batch, forward, backward, clipping and AdamW. FLOPs are those of the
products that PyTorch's counter knows, forward and backward. The machine's rate is that of a square
product, timed after each step.

Exit status 2 for a mistake, told in one line.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.fitting import Batch, only_steps
from benchmarks.floor import Product, back_to_back
from benchmarks.timing import Times, machine
from stages.train_vqa import make_head
from vlm.config import OptimizerConfig, Params, load_params
from vlm.data.drawn import draw
from vlm.data.loading import CaptionBatch, CaptionData, QuestionBatch, QuestionData
from vlm.data.tokenizer import TextTokenizer
from vlm.errors import UserError
from vlm.model.build import vlm_config
from vlm.model.projector import freeze
from vlm.training.objectives import pretraining
from vlm.training.terms import Objective
from vlm.training.vision_language import VisionLanguageModel

MISTAKE = 2
STAGES = ("pretrain", "classifier", "generator")
SQUARE = Product(1024, 1024, 1024)
PARAMS = Path("presets/default.yaml")


@dataclass(frozen=True, eq=False)
class Task(Generic[Batch]):
    """A model and what it learns from, the same batch in every step."""

    model: nn.Module
    objective: Objective[Batch]
    batch: Callable[[], Batch]
    config: OptimizerConfig
    said: str

    def train(self, steps: int, done: Callable[[int], None]) -> None:
        """So many steps of `fit`."""
        config = self.config.model_copy(update={"steps": steps, "warmup_steps": 0})
        only_steps(self.model, self.objective, lambda step: self.batch(), config, done)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.step",
        description="The time and the FLOPs of a training step.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("stage", choices=STAGES)
    add("--params", type=Path, default=PARAMS, help="parameter file")
    add("--pictures", type=_at_least_one, help="of a step; None: as the file has it")
    add("--threads", type=_at_least_one, default=2, help="of PyTorch")
    add("--repeats", type=_at_least_one, default=15, help="timed steps, after one that isn't")
    given = parser.parse_args(arguments)
    torch.set_num_threads(given.threads)
    try:
        params = load_params(given.params)
        task = make_task(params, given.stage, given.pictures)
    except UserError as error:
        print(f"benchmarks.step: {error}", file=sys.stderr)
        sys.exit(MISTAKE)
    print(machine())
    print(f"{given.stage} of {given.params}: {task.said}")
    flops = count_flops(task)
    print("\n".join(figures(flops, *time_steps(task, given.repeats))))


def _at_least_one(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"got {value}, expected at least 1")
    return value


def make_task(
    params: Params, stage: str, pictures: int | None
) -> Task[CaptionBatch] | Task[QuestionBatch]:
    """A stage's model, with random weights, and one batch of the world's scenes."""
    section = {"pretrain": params.pretrain, **dict(params.train_vqa)}[stage]
    number = pictures or section.batch_size
    scenes, asked = draw(params.data, params.seed, "train", number).tables()
    captions = [text for each in scenes.captions for text in each]
    tokenizer = TextTokenizer.fit([*captions, *asked.question, *asked.phrase])
    world, longest, every = params.data.world, params.model.text.max_length, torch.arange(number)
    config = vlm_config(params.model, world.image_size, world.channels, tokenizer.vocab_size)
    torch.manual_seed(params.seed)
    if stage == "pretrain":
        model = VisionLanguageModel(config)
        objective = pretraining(model, params.pretrain.mask_equivalent)
        pairs = CaptionData(scenes, tokenizer, longest)
        said = f"{number} pictures with a caption each"
        return Task(model, objective, lambda: pairs.batch(every), section, said)
    answers = sorted(set(asked.answer))
    head, objective, _ = make_head(section, config, answers)
    if section.freeze_text:
        freeze(head.text)
    data = QuestionData(scenes, asked, tokenizer, longest, answers)
    said = f"{number} pictures with {len(asked)} questions"
    return Task(head, objective, lambda: data.batch(every), section, said)


def count_flops(task: Task[Batch]) -> int:
    """Of one step, forward and backward."""
    with FlopCounterMode(display=False) as counter:
        task.train(1, lambda step: None)
    return counter.get_total_flops()


def time_steps(task: Task[Batch], repeats: int) -> tuple[Times, Times]:
    """So many steps, and a square product after each.

    The first step sets up the optimizer's state and the last copies the weights; neither counts.
    """
    steps: list[float] = []
    products: list[float] = []
    product = back_to_back([SQUARE])
    started = time.perf_counter()

    def done(step: int) -> None:
        nonlocal started
        ended = time.perf_counter()
        product()
        steps.append(ended - started)
        started = time.perf_counter()
        products.append(started - ended)

    task.train(repeats + 2, done)
    return Times(tuple(steps[1:-1])), Times(tuple(products[1:-1]))


def figures(flops: int, step: Times, product: Times) -> list[str]:
    """Times, rates and the share, each at the median."""
    rate, most = flops / step.median / 1e9, SQUARE.flops / product.median / 1e9
    side = SQUARE.m
    return [
        f"a step: {step.milliseconds()} ms, median (min-max); {flops / 1e9:.2f} GFLOP",
        f"a step reaches {rate:.1f} GFLOP/s, a product {side} x {side} x {side} {most:.1f}:"
        f" {rate / most:.1%} of it",
    ]


if __name__ == "__main__":
    main()
