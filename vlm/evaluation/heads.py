"""Both heads put to the same questions, be they a split's own, new ones, or altered ones.

Shapes: M questions.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch

from vlm.data.loading import QuestionData
from vlm.data.tables import QuestionTable, SceneTable
from vlm.data.tokenizer import TextTokenizer
from vlm.evaluation.predicting import Answers, Floats, Strings, answer_logits, classify, phrase
from vlm.evaluation.scoring import Bools
from vlm.model.folder import load_classifier, load_generator
from vlm.model.vqa import AnswerClassifier, PhraseGenerator

HEADS = ("classifier", "generator")


def spelled(questions: QuestionTable, tokenizer: TextTokenizer) -> QuestionTable:
    """The same questions, each phrase as decoding it would give it back.

    A reply is held against the truth to the letter, and is in this spelling: lower case, and with
    words as tokens, a space before each punctuation mark. A phrase with an unknown word is never
    the reply, and neither is one that the model's length would cut.
    """
    spelling = tokenizer.spelling(text for text in questions.phrase if text is not None)
    phrases = [spelling.get(text) for text in questions.phrase]
    return replace(questions, phrase=np.array(phrases, object))


@dataclass(frozen=True, eq=False)
class Replies:
    """What both heads say to M questions."""

    answers: Answers  # the classifier's
    spoken: Answers  # the generator's

    @property
    def phrases(self) -> Strings:
        """What the generator says."""
        return self.spoken.answer

    @property
    def confidence(self) -> dict[str, Floats]:
        """How sure each head is, by head."""
        return {"classifier": self.answers.confidence, "generator": self.spoken.confidence}

    def right(self, questions: QuestionTable) -> dict[str, Bools]:
        """Whether each reply is the true one, by head."""
        return self.equal(questions.answer, questions.phrase)

    def changed(self, before: "Replies", spoken: Mapping[str, str]) -> dict[str, Bools]:
        """Whether each answer is another than before, by head.

        Of a phrase, its answer is compared, which `spoken` tells; a phrase that it lacks stands for
        itself.
        """
        now, then = (
            np.array([spoken.get(phrase, phrase) for phrase in said.phrases], object)
            for said in (self, before)
        )
        pairs = (self.answers.answer, before.answers.answer), (now, then)
        return {
            head: np.asarray(one != other, dtype=np.bool_)
            for head, (one, other) in zip(HEADS, pairs, strict=True)
        }

    def equal(self, answers: Strings, phrases: Strings) -> dict[str, Bools]:
        """Whether each reply is this answer or this phrase, by head."""
        said = (self.answers.answer, answers), (self.phrases, phrases)
        return {
            head: np.asarray(one == other, dtype=np.bool_)
            for head, (one, other) in zip(HEADS, said, strict=True)
        }

    def of_rows(self, rows: npt.NDArray[np.int64]) -> "Replies":
        """The replies to some of the questions."""
        parts = (
            Answers(said.answer[rows], said.confidence[rows])
            for said in (self.answers, self.spoken)
        )
        return Replies(*parts)


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
        data = self._data(scenes, questions)
        return Replies(
            classify(self.classifier, data, self.batch_size),
            phrase(self.generator, data, self.tokenizer, self.batch_size),
        )

    def logits(self, scenes: SceneTable, questions: QuestionTable) -> Floats:
        """The classifier's, (M, A)."""
        return answer_logits(self.classifier, self._data(scenes, questions), self.batch_size)

    def _data(self, scenes: SceneTable, questions: QuestionTable) -> QuestionData:
        answers = self.classifier.answers
        return QuestionData(scenes, questions, self.tokenizer, self.max_length, answers)
