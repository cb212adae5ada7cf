"""The true answer to a question of this world about any scene, and which objects it names.

A question is found by its text. So the truth can be told anew where a scene was changed, or where a
question meets another picture.

M: questions asked. n: scenes, K: object slots.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from vlm.errors import UserError
from vlm.scenes.programs import Program, execute
from vlm.scenes.questions import Question, question_table, true_answers
from vlm.scenes.scene import Bools, Ints, Scenes

if TYPE_CHECKING:
    from vlm.config.data import DataConfig

Strings = npt.NDArray[np.object_]


class Truth:
    """What is true about scenes of one world.

    Attributes:
        data: the world, and what is asked about it.
        questions: every question, by each of its wordings.
    """

    def __init__(self, data: DataConfig) -> None:
        self.data = data
        self.questions: dict[str, Question] = {
            text: question
            for family in question_table(data).values()
            for question in family
            for text in question.texts
        }

    def tell(
        self, scenes: Scenes, scene_index: Ints, texts: Sequence[str] | Strings
    ) -> tuple[Strings, Strings]:
        """The short answer and the phrase to each question, (M,) each.

        Both are None where the question isn't asked of such a scene: the colour of the circle where
        there are two, or what the world refuses (see `true_answers`).

        Args:
            scenes: what is asked about.
            scene_index: (M,) the scene of each question.
            texts: (M,) its words.

        Raises:
            UserError: a text that is no question of this world.
        """
        answers, phrases = np.empty((2, len(texts)), object)
        for question, rows in self._by_question(texts):
            code = true_answers(question, scenes, self.data)[scene_index[rows]]
            # NO_VALUE counts from the end.
            answers[rows] = np.array((*question.answers, None), object)[code]
            phrases[rows] = np.array((*question.phrases, None), object)[code]
        return answers, phrases

    def named(self, scenes: Scenes, scene_index: Ints, texts: Sequence[str] | Strings) -> Bools:
        """The objects that each question's words single out, (M, K): "a circle", "the top half".

        A question about all objects ("how many shapes") singles out none.
        """
        slots = np.zeros((len(texts), scenes.shape.shape[1]), np.bool_)
        for question, rows in self._by_question(texts):
            for program in _selections(question.program):
                slots[rows] |= execute(program, scenes, self.data.world)[scene_index[rows]]
        return slots

    def spoken(self) -> dict[str, str]:
        """The short answer that each phrase gives."""
        return {
            phrase: answer
            for question in self.questions.values()
            for phrase, answer in zip(question.phrases, question.answers, strict=True)
        }

    def anagrams(self) -> dict[str, str]:
        """Questions that another spells with the same words, the two shapes in the other order."""
        spelled: dict[tuple[str, ...], list[str]] = {}
        for text in self.questions:
            spelled.setdefault(tuple(sorted(text.split())), []).append(text)
        return {
            text: others[(place + 1) % len(others)]
            for others in spelled.values()
            if len(others) > 1
            for place, text in enumerate(others)
        }

    def _by_question(self, texts: Sequence[str] | Strings) -> Iterator[tuple[Question, Ints]]:
        """Each distinct question with the rows that ask it."""
        names, codes = np.unique(np.asarray(texts, dtype=str), return_inverse=True)
        for code, name in enumerate(names.tolist()):
            if name not in self.questions:
                raise UserError(f"question: got {name!r}, expected one of this world's")
            yield self.questions[name], np.flatnonzero(codes == code)


def _selections(program: Program) -> Iterator[Program]:
    """The innermost choices among a scene's objects: filters of the whole scene."""
    if program.kind == "objects" and program.inputs == (Program("scene"),):
        yield program
    for each in program.inputs:
        yield from _selections(each)
