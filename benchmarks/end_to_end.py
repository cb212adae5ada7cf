"""Pictures and questions in, answer texts out: ours beside a plain script.

Shapes: P pictures, M questions, T tokens.
"""

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor

from benchmarks.plain_decoding import answer_plainly
from benchmarks.timing import Times, interleaved, verdict
from vlm.data.loading import QuestionData
from vlm.data.tables import QuestionTable, SceneTable, read_questions, read_scenes
from vlm.data.tokenizer import TextTokenizer
from vlm.errors import StoppedError
from vlm.evaluation.predicting import phrase
from vlm.model.folder import load_generator
from vlm.model.vqa import PhraseGenerator

TARGET = 8.0

Table = TypeVar("Table", SceneTable, QuestionTable)


@dataclass(frozen=True, eq=False)
class Task:
    """Questions about pictures, as each arm takes them.

    Attributes:
        data: pictures with all their questions, for ours.
        image_of: (M,) the picture of each question, for the plain script.
        question_ids: (M, T), padded, for the plain script.
        pictures: that ours takes at a time.
        rows: questions that the plain script takes at a time: as many as ours.
    """

    model: PhraseGenerator
    tokenizer: TextTokenizer
    data: QuestionData
    image_of: Tensor
    question_ids: Tensor
    pictures: int
    rows: int

    def ours(self) -> list[str]:
        """As the evaluation does it: each picture and each question encoded once a batch."""
        return phrase(self.model, self.data, self.tokenizer, self.pictures).answer.tolist()

    def plain(self) -> list[str]:
        """As a plain script does it: see `answer_plainly`."""
        images, ids = self.data.images, self.question_ids
        return answer_plainly(self.model, images, self.image_of, ids, self.tokenizer, self.rows)


def load_task(model: Path, data: Path, number: int, pictures: int) -> Task:
    """The first `number` questions of a split, or all where it has fewer.

    Texts become ids here, outside all timing, since both arms need that alike.
    """
    generator, tokenizer = load_generator(model), TextTokenizer.load(model)
    questions = _first(read_questions(data), number)
    scenes = _first(read_scenes(data), int(questions.scene_index.max()) + 1)
    longest = generator.config.max_text_len
    batches = -(-len(scenes) // pictures)
    return Task(
        generator,
        tokenizer,
        QuestionData(scenes, questions, tokenizer, longest, answers=[]),
        torch.from_numpy(questions.scene_index),
        tokenizer.encode(list(questions.question), longest),
        pictures,
        rows=-(-len(questions) // batches),
    )


def report(task: Task, repeats: int) -> None:
    """Compare the texts, then time both arms and print it.

    Raises:
        StoppedError: the texts differ; then nothing is timed.
    """
    ours, plain = task.ours(), task.plain()
    differing = sum(one != other for one, other in zip(ours, plain, strict=True))
    if differing:
        raise StoppedError(f"{differing} of {len(ours):,} texts differ; nothing was timed")
    times = interleaved({"ours": task.ours, "plain": task.plain}, repeats)
    number, shown = len(ours), len(task.data)
    print(
        f"\nEnd to end: {number:,} questions about {shown:,} pictures, {repeats} rounds; at a time"
    )
    print(f"ours takes {min(task.pictures, shown):,} pictures, (a) {task.rows:,} questions")
    print(f"{'':<18}{'questions/s':>12}  milliseconds: median (min-max)")
    print(_row("ours", number, times["ours"]))
    print(_row("(a) plain script", number, times["plain"]))
    ratio = times["plain"].median / times["ours"].median
    print(f"{'a / ours':<18}{ratio:>12.2f}  target {verdict(ratio, TARGET)}")
    print(f"texts: all {number:,} the same")


def _row(label: str, number: int, times: Times) -> str:
    return f"{label:<18}{number / times.median:>12,.0f}  {times.milliseconds()}"


def _first(table: Table, number: int) -> Table:
    """The first rows of a table."""
    columns = (f.name for f in fields(table) if f.name != "source")
    return replace(table, **{name: getattr(table, name)[:number] for name in columns})
