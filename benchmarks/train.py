"""Our training beside the script that one writes first: the time until 94% is right.

On the CPU in fp32, from random weights, in one process:

    python -m benchmarks.train --threads 2

The world and its questions are those of `presets/notebook.yaml`, and so are the plain script's
sizes, rates and steps (`benchmarks/plain_recipe.py`). It learns from that preset's 850 scenes with
a question each, and in a second arm from as many scenes and questions as ours. Ours is `fit` with
the heads of `vlm.model`; what differs from `presets/default.yaml` stands in
`benchmarks/train.yaml`.

All are judged by exact match (phrases decoded greedily) on scenes that none has seen, a question
each, and by turns: ours trains up to its next judgement, then the others to theirs. Drawing data
and judging are in no arm's time. A plain script that hasn't reached the target trains on past its
steps, up to `--patience` times as many; then the table says that it never did.

Exit status 1 if a loss of ours isn't finite, 2 for a mistake, told in one line.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from ruamel.yaml import YAML

from benchmarks.fitting import only_steps
from benchmarks.plain_recipe import (
    PlainClassifier,
    PlainGenerator,
    count_right,
    examples,
    train_plainly,
)
from benchmarks.race import Arm, Paced, Pause, Training, race, ratio_to, table
from benchmarks.timing import machine, verdict
from stages.train_vqa import make_head
from vlm.config import DataConfig, Params, load_params, parse_params
from vlm.data.drawn import draw
from vlm.data.loading import QuestionBatch, QuestionData
from vlm.data.order import PictureOrder
from vlm.data.tables import QuestionTable, SceneTable
from vlm.data.tokenizer import TextTokenizer
from vlm.errors import StoppedError, UserError
from vlm.evaluation.predicting import classify, phrase
from vlm.model.build import vlm_config
from vlm.model.projector import freeze
from vlm.model.vqa import AnswerClassifier

FAILED, MISTAKE = 1, 2
PRESETS = Path(__file__).parents[1] / "presets"
CHANGES = Path(__file__).with_suffix(".yaml")
HEADS = ("classifier", "generator")
TARGETS = {"classifier": 3.0, "generator": 8.0}
PLAIN_EVERY = {"classifier": 25, "generator": 20}  # steps of the plain script between judgements
JUDGED_AT_ONCE = 500

Split = tuple[SceneTable, QuestionTable]


@dataclass(frozen=True)
class Options:
    """What the command line says."""

    threads: int
    target: float
    heads: list[str]
    seed: int
    fresh: int
    every: int
    patience: int


@dataclass(frozen=True, eq=False)
class Task:
    """What both sides learn from, and are judged by.

    Attributes:
        recipe: the plain script's parameters.
        params: ours.
        few: the plain script's own: the first of `many`, asked less.
        many: ours.
        fresh: scenes that neither has, a question each.
        tokenizer: of all words of `many`.
        answers: of `many`.
    """

    recipe: Params
    params: Params
    few: Split
    many: Split
    fresh: Split
    tokenizer: TextTokenizer
    answers: list[str]


def main(arguments: Sequence[str] | None = None) -> None:
    options = read_options(arguments)
    torch.set_num_threads(options.threads)
    try:
        recipe = load_params(PRESETS / "notebook.yaml")
        task = draw_task(recipe, our_params(recipe.data), options)
        print(machine())
        print(judged_by(task, options))
        for head in options.heads:
            report(head, task, options)
    except (UserError, StoppedError) as error:
        print(f"benchmarks.train: {error}", file=sys.stderr)
        sys.exit(MISTAKE if isinstance(error, UserError) else FAILED)


def read_options(arguments: Sequence[str] | None) -> Options:
    """The command line, which `argparse` refuses with exit status 2 where it is wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.train",
        description="How much sooner our training reaches an accuracy than a plain script.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--threads", type=_at_least_one, default=2, help="of PyTorch")
    add("--target", type=_share, default=0.94, help="share of the fresh questions to get right")
    add("--head", choices=[*HEADS, "both"], default="both", help="what to train")
    add("--seed", type=int, default=0, help="of scenes, weights and batches")
    add("--fresh", type=_at_least_one, default=4000, help="scenes to judge by")
    add("--every", type=_at_least_one, default=20, help="steps of ours between judgements")
    add("--patience", type=_at_least_one, default=4, help="times its steps for a plain script")
    given = vars(parser.parse_args(arguments))
    head = given.pop("head")
    return Options(**given, heads=list(HEADS) if head == "both" else [head])


def _at_least_one(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"got {value}, expected at least 1")
    return value


def _share(text: str) -> float:
    value = float(text)
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"got {value:g}, expected more than 0 and at most 1")
    return value


def our_params(data: DataConfig) -> Params:
    """The default preset in the world of `data`, with the changes of `benchmarks/train.yaml`."""
    changes: Mapping[str, Any] = YAML(typ="safe", pure=True).load(CHANGES.read_text("utf-8"))
    values = load_params(PRESETS / "default.yaml").model_dump()
    return parse_params(merged(values | {"data": data.model_dump()}, changes))


def merged(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """`values` with each change in its place, section by section."""
    result = dict(values)
    for key, change in changes.items():
        inner = isinstance(change, Mapping)
        result[key] = merged(result.get(key, {}), change) if inner else change
    return result


def draw_task(recipe: Params, params: Params, options: Options) -> Task:
    """All scenes and questions."""
    one, seed = recipe.data, options.seed
    many = draw(params.data, seed, "train", params.data.train_scenes).tables()
    asked = many[1]
    return Task(
        recipe,
        params,
        draw(one, seed, "train", one.train_scenes).tables(),
        many,
        draw(one, seed, "fresh", options.fresh).tables(),
        TextTokenizer.fit([*asked.question, *asked.phrase]),
        sorted(set(asked.answer)),
    )


def judged_by(task: Task, options: Options) -> str:
    """A sentence on the data."""
    ours = f"{len(task.many[0]):,} scenes with {len(task.many[1]):,} questions"
    fresh = f"{len(task.fresh[1]):,} questions, one to each of as many fresh scenes"
    return (
        f"its scenes: {len(task.few[0]):,} with {len(task.few[1]):,} questions; our scenes: {ours};"
        f"\njudged by exact match on {fresh}; seed {options.seed}"
    )


def report(head: str, task: Task, options: Options) -> None:
    """Train one head in all arms, and print what it took."""
    ours, train = our_arm(head, task, options)
    its = plain_arm("plain, its scenes", head, task, task.few, options)
    on_ours = plain_arm("plain, our scenes", head, task, task.many, options)
    race(train, ours, [its, on_ours], options.target)
    print(f"\n{head}: {'short answers' if head == 'classifier' else 'whole phrases'}")
    print("\n".join(table(ours, [its, on_ours], options.target)))
    print("\n".join(verdicts(head, ours, its, options.target)), flush=True)


def verdicts(head: str, ours: Arm, its: Arm, target: float) -> list[str]:
    """What was aimed at, and whether it was met; a bound counts as the ratio that it bounds."""
    ratio = ratio_to(its, ours, target)
    sooner = float(ratio.removeprefix(">")) if ratio != "-" else 0.0
    end = ours.judgements[-1].right / ours.questions
    return [
        f"plain on its scenes / ours: {verdict(sooner, TARGETS[head])}",
        f"ours at the end: above 99.9% {'met' if end > 0.999 else 'not met'}",
    ]


def our_arm(head: str, task: Task, options: Options) -> tuple[Arm, Training]:
    """Ours, and its whole training, which calls what it is given whenever judging is due.

    Judging stands in for validation.
    """
    params, tokenizer = task.params, task.tokenizer
    section = params.train_vqa.classifier if head == "classifier" else params.train_vqa.generator
    longest = params.model.text.max_length
    data, fresh = (
        QuestionData(*split, tokenizer, longest, task.answers) for split in (task.many, task.fresh)
    )
    world = params.data.world
    config = vlm_config(params.model, world.image_size, world.channels, tokenizer.vocab_size)
    torch.manual_seed(options.seed)
    model, objective, _ = make_head(section, config, task.answers)
    if section.freeze_text:
        freeze(model.text)
    order = PictureOrder(data.layout, section.batch_size, options.seed)

    def batch(step: int) -> QuestionBatch:
        return data.batch(order.at(step).rows)

    def train(pause: Pause) -> None:
        def done(step: int) -> None:
            if step % options.every == 0 or step == section.steps:
                pause(step)

        only_steps(model, objective, batch, section, done)

    def judge() -> int:
        model.eval()
        if isinstance(model, AnswerClassifier):
            right = classify(model, fresh, JUDGED_AT_ONCE).answer == task.fresh[1].answer
        else:
            right = phrase(model, fresh, tokenizer, JUDGED_AT_ONCE).answer == task.fresh[1].phrase
        model.train()
        return int(right.sum())

    return Arm("ours", judge, fresh.num_questions), train


def plain_arm(name: str, head: str, task: Task, split: Split, options: Options) -> Paced:
    """The plain script on these scenes."""
    recipe, vocabulary = task.recipe, task.tokenizer.vocab_size
    padded = recipe.train_vqa.generator.pad_phrases
    torch.manual_seed(options.seed)
    if head == "classifier":
        model = PlainClassifier(recipe, vocabulary, len(task.answers))
        section = recipe.train_vqa.classifier
    else:
        model, section = PlainGenerator(recipe, vocabulary), recipe.train_vqa.generator
    data, fresh = (
        examples(*tables, task.tokenizer, task.answers, padded) for tables in (split, task.fresh)
    )
    most = options.patience * section.steps
    return Paced(
        name,
        judge=lambda: count_right(model, fresh, JUDGED_AT_ONCE),
        questions=len(fresh.answers),
        training=train_plainly(model, data, section, options.seed, PLAIN_EVERY[head], most),
        least=section.steps,
    )


if __name__ == "__main__":
    main()
