"""Both heads put to the same questions, be they a split's own, new ones, or altered ones.

Shapes: M questions.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch

from vlm.data.loading import QuestionData
from vlm.data.tables import QuestionTable, SceneTable
from vlm.data.tokenizer import TextTokenizer
from vlm.evaluation.predicting import Answers, Strings, classify, phrase
from vlm.evaluation.scoring import Bools
from vlm.model.folder import load_classifier, load_generator
from vlm.model.vqa import AnswerClassifier, PhraseGenerator

HEADS = ("classifier", "generator")


@dataclass(frozen=True, eq=False)
class Replies:
    """What both heads say to M questions."""

    answers: Answers
    phrases: Strings

    def right(self, questions: QuestionTable) -> dict[str, Bools]:
        """Whether each reply is the true one, by head."""
        return self.equal(questions.answer, questions.phrase)

    def changed(self, before: "Replies") -> dict[str, Bools]:
        """Whether each reply is another than before, by head."""
        same = self.equal(before.answers.answer, before.phrases)
        return {head: ~equal for head, equal in same.items()}

    def equal(self, answers: Strings, phrases: Strings) -> dict[str, Bools]:
        """Whether each reply is this answer or this phrase, by head."""
        said = (self.answers.answer, answers), (self.phrases, phrases)
        return {
            head: np.asarray(one == other, dtype=np.bool_)
            for head, (one, other) in zip(HEADS, said, strict=True)
        }

    def of_rows(self, rows: npt.NDArray[np.int64]) -> "Replies":
        """The replies to some of the questions."""
        answer, confidence = self.answers
        return Replies(Answers(answer[rows], confidence[rows]), self.phrases[rows])


class Answerer(Protocol):
    """Whatever answers questions about pictures: the two heads, or in tests one that knows all."""

    def reply(self, scenes: SceneTable, questions: QuestionTable) -> Replies:
        """Answer every question."""
        ...


@dataclass(frozen=True, eq=False)
class Heads:
    """The two heads, and how they are run."""

    classifier: AnswerClassifier
    generator: PhraseGenerator
    tokenizer: TextTokenizer
    batch_size: int  # pictures a forward pass

    @classmethod
    def load(cls, folder: Path, batch_size: int, device: torch.device) -> "Heads":
        """The heads as training left them, each in its folder under `folder`."""
        return cls(
            load_classifier(folder / "classifier").to(device),
            load_generator(folder / "generator").to(device),
            TextTokenizer.load(folder / "classifier"),
            batch_size,
        )

    @property
    def max_length(self) -> int:
        """The most tokens of a text, marks included."""
        return self.classifier.config.max_text_len

    def reply(self, scenes: SceneTable, questions: QuestionTable) -> Replies:
        """Answer every question."""
        answers = self.classifier.answers
        data = QuestionData(scenes, questions, self.tokenizer, self.max_length, answers)
        return Replies(
            classify(self.classifier, data, self.batch_size),
            phrase(self.generator, data, self.tokenizer, self.batch_size),
        )
