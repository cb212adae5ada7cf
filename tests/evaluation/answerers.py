"""Splits drawn in memory, and stand-ins for the two heads whose scores are known beforehand.

Each stand-in answers as both heads do, from what its kind may know and nothing else.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from project import read_preset

from vlm.config.data import DataConfig
from vlm.data.drawn import draw
from vlm.data.tables import QuestionTable, SceneTable
from vlm.evaluation.altering import Split
from vlm.evaluation.floors import AskedColumns, best_guesses
from vlm.evaluation.heads import Replies
from vlm.evaluation.predicting import Answers
from vlm.scenes.scene import from_records
from vlm.scenes.truth import Truth

COLORFUL: dict[str, Any] = {  # where objects may cover one another
    "image_size": 48,
    "channels": 3,
    "shapes": ["plus", "circle", "square", "ring"],
    "colors": ["red", "white", "blue"],
    "min_radius": 3,
    "max_radius": 5,
    "max_objects": 5,
    "spacing": 4,
    "margin": 2,
    "held_out": ["ring@center"],
}


def make_data(**world: Any) -> DataConfig:
    """The tiny preset's data section, with other values of the world."""
    values = read_preset("tiny")["data"]
    values["world"] |= world
    return DataConfig.model_validate(values)


def make_split(number: int, name: str = "test", data: DataConfig | None = None) -> Split:
    """The first scenes of a split."""
    data = data or make_data()
    return Split(data, 0, name, *draw(data, 0, name, number).tables())


def facts_of(scenes: SceneTable) -> list[Hashable]:
    """The shapes and colours of each scene."""
    return [tuple(sorted((o["shape"], o["color"]) for o in scene)) for scene in scenes.objects]


def columns_of(scenes: SceneTable, questions: QuestionTable) -> AskedColumns:
    """What the floors see."""
    facts = facts_of(scenes)
    return AskedColumns(
        list(questions.question),
        list(questions.answer),
        list(questions.family),
        [facts[scene] for scene in questions.scene_index.tolist()],
    )


def replies(answers: Sequence[str], phrases: Sequence[str]) -> Replies:
    """Said by both heads, and surely."""
    sure = np.ones(len(answers))
    return Replies(*(Answers(np.array(texts, object), sure) for texts in (answers, phrases)))


@dataclass(frozen=True)
class Oracle:
    """Knows what is in the picture, and answers nothing wrong."""

    data: DataConfig

    def reply(self, scenes: SceneTable, questions: QuestionTable) -> Replies:
        layout = from_records(scenes.objects, self.data.world)
        told = Truth(self.data).tell(layout, questions.scene_index, questions.question)
        return replies(*(texts.tolist() for texts in told))


@dataclass(frozen=True)
class Blind:
    """Sees no picture: what train answers most often to a question's words."""

    train: QuestionTable

    def reply(self, scenes: SceneTable, questions: QuestionTable) -> Replies:
        seen, asked = list(self.train.question), list(questions.question)
        truths = self.train.answer, self.train.phrase
        return replies(*(best_guesses(seen, list(texts), asked) for texts in truths))


@dataclass(frozen=True)
class ImageOnly:
    """Reads no question: what train answers most often about scenes of the same shapes."""

    train: AskedColumns
    families_alike: bool

    def reply(self, scenes: SceneTable, questions: QuestionTable) -> Replies:
        assert self.train.facts is not None
        names = list(self.train.families)
        weights = [1 / names.count(family) for family in names] if self.families_alike else None
        facts = facts_of(scenes)
        asked = [facts[scene] for scene in questions.scene_index.tolist()]
        said = best_guesses(self.train.facts, self.train.answers, asked, weights)
        return replies(said, said)
