"""The batches that training takes by index, from tables in memory or a window of those on disk.

Shapes: N pictures, P pictures of a batch, B rows (questions) of a batch, U distinct questions,
T tokens, C channels, H W pixels.

Pictures stay uint8, or as the table holds them, and texts stay ids in one contiguous tensor, every
distinct text once; a batch is a handful of `index_select`s.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Self, TypeVar

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from vlm.data.order import Layout
from vlm.data.shards import Ints
from vlm.data.tables import QuestionTable, SceneTable
from vlm.data.tokenizer import LongTextError, TextTokenizer
from vlm.data.windows import Rows, SceneWindow
from vlm.errors import UserError
from vlm.marks import PAD_ID

Batch = TypeVar("Batch", "CaptionBatch", "QuestionBatch")
UNKNOWN_ANSWER = -1
EVERY = slice(None)
MARKS = 2  # begin and end: the tokens of the shortest text


def to_floats(images: Tensor) -> Tensor:
    """uint8 (P, C, H, W) -> floats in [0, 1]."""
    return images.float().div_(255)


def to_device(batch: Batch, device: torch.device) -> Batch:
    """The batch with every tensor on `device`."""
    values = {f.name: getattr(batch, f.name) for f in fields(batch)}
    tensors = {name: value for name, value in values.items() if isinstance(value, Tensor)}
    moved = {name: tensor.to(device, non_blocking=True) for name, tensor in tensors.items()}
    return replace(batch, **moved)


class TextTable:
    """Texts as ids, each distinct text once.

    Raises:
        LongTextError: the longest of `texts`, if it is too long and `tokenizer` cuts none.

    Attributes:
        ids: (U, T), padded.
        lengths: (U,) tokens, marks included.
        rows: which of the U each given text is.
    """

    def __init__(self, texts: Sequence[str], tokenizer: TextTokenizer, max_length: int) -> None:
        distinct = {text: index for index, text in enumerate(dict.fromkeys(texts))}
        nothing = torch.empty((0, MARKS), dtype=torch.int64)
        try:
            self.ids = tokenizer.encode(list(distinct), max_length) if distinct else nothing
        except LongTextError as error:
            error.index = list(texts).index(list(distinct)[error.index])
            raise
        self.lengths = (self.ids != PAD_ID).sum(dim=1)
        self.rows = torch.tensor([distinct[text] for text in texts], dtype=torch.int64)

    def take(self, items: Tensor, length: int = 0) -> Tensor:
        """(n, T) ids of distinct texts `items`: T is the longest of them, and at least `length`."""
        longest = int(self.lengths[items].max()) if len(items) else MARKS
        ids = self.ids[items, :longest]
        return F.pad(ids, (0, max(length - ids.shape[1], 0)), value=PAD_ID)


@dataclass(frozen=True)
class CaptionBatch:
    """Pictures with a caption each.

    Attributes:
        images: (P, C, H, W) uint8.
        text_ids: (P, T).
        keys: (G,) of all pictures of which these are a share: the same number where two pictures'
            captions state the same facts.
        features: (P, D) of a frozen encoder, where they were computed before.
        counts: supervised items by loss term.
    """

    images: Tensor
    text_ids: Tensor
    keys: Tensor
    features: Tensor | None
    counts: dict[str, int]


class _OfPictures:
    """Data by picture, all in one window.

    Attributes:
        images: (N, C, H, W) uint8.
        features: (N, D), what a frozen encoder makes of them, where it was computed before.
    """

    def __init__(self, scenes: SceneTable | SceneWindow) -> None:
        self.images: Rows
        self.features: Rows | None
        if isinstance(scenes, SceneTable):
            self.images, self.features = torch.from_numpy(scenes.images), None
        else:
            self.images, self.features = scenes.images, scenes.features

    def __len__(self) -> int:
        return len(self.images)

    @property
    def layout(self) -> Layout:
        """A single group of pictures."""
        return Layout.whole(len(self))

    def window(self, groups: Ints) -> Self:
        """All there is: the one group is every window."""
        return self


class CaptionData(_OfPictures):
    """Pictures and their captions."""

    def __init__(
        self, scenes: SceneTable | SceneWindow, tokenizer: TextTokenizer, max_length: int
    ) -> None:
        super().__init__(scenes)
        per_scene = [len(captions) for captions in scenes.captions]
        self._begin = torch.from_numpy(np.concatenate([[0], np.cumsum(per_scene)]))
        if min(per_scene, default=0) < 1:
            bare = scenes.scene_id[int(np.argmin(per_scene))]
            raise UserError(f"{scenes.source}: scene {bare}: no caption; expected 1 or more")
        texts = [caption for captions in scenes.captions for caption in captions]
        with _named(scenes.source, "scene", np.repeat(scenes.scene_id, per_scene)):
            self.texts = TextTable(texts, tokenizer, max_length)
        keys = [key for keys in scenes.caption_keys for key in keys]
        self.keys = torch.from_numpy(np.unique(keys, return_inverse=True)[1].reshape(-1))

    def first_captions(self, num: int) -> Tensor:
        """(num,) rows in `texts` of the first caption of each of the first `num` pictures."""
        return self.texts.rows[self._begin[:num]]

    def batch(
        self, pictures: Tensor, draws: Tensor | None = None, own: slice = EVERY
    ) -> CaptionBatch:
        """Of some pictures the `own`, with their first caption each, or the one that `draws` picks.

        Args:
            pictures: (G,) indices.
            draws: (G,) floats in [0, 1): the share of a picture's captions that lie before its one.
            own: the P of them that are wanted; keys are of all.
        """
        begin, end = self._begin[pictures], self._begin[pictures + 1]
        chosen = begin if draws is None else begin + (draws * (end - begin)).long()
        pictures, items = pictures[own], self.texts.rows[chosen[own]]
        tokens = int(self.texts.lengths[items].sum()) - len(items)  # no one predicts the begin mark
        return CaptionBatch(
            images=self.images[pictures],
            text_ids=self.texts.take(items),
            keys=self.keys[chosen],
            features=None if self.features is None else self.features[pictures],
            counts={"cosine": len(items), "contrast": len(items), "lm": tokens},
        )


@dataclass(frozen=True)
class QuestionBatch:
    """Pictures with all their questions, no picture and no question twice.

    Attributes:
        images: (P, C, H, W) uint8.
        question_ids: (U, T).
        image_rows: (B,) the picture of each row.
        question_rows: (B,) the question of each row.
        answers: (B,) index in the closed vocabulary, -1 where it isn't in it.
        phrase_ids: (B, T).
        rows: (B,) indices in the question table.
        counts: supervised items by loss term.
    """

    images: Tensor
    question_ids: Tensor
    image_rows: Tensor
    question_rows: Tensor
    answers: Tensor
    phrase_ids: Tensor
    rows: Tensor
    counts: dict[str, int]


class QuestionData(_OfPictures):
    """Pictures, their questions, and what is to be answered.

    Phrases are padded to the longest of their batch, and at least to `pad_phrases` tokens; that
    costs time and changes no value.
    """

    def __init__(
        self,
        scenes: SceneTable | SceneWindow,
        questions: QuestionTable,
        tokenizer: TextTokenizer,
        max_length: int,
        answers: Sequence[str],
        pad_phrases: int = 0,
    ) -> None:
        super().__init__(scenes)
        with _named(questions.source, "question", questions.question_id):
            self.questions = TextTable(list(questions.question), tokenizer, max_length)
            self.phrases = TextTable(list(questions.phrase), tokenizer, max_length)
        self.pad_phrases = pad_phrases
        index = {answer: i for i, answer in enumerate(answers)}
        self.answers = torch.tensor(
            [index.get(a, UNKNOWN_ANSWER) for a in questions.answer], dtype=torch.int64
        )
        picture = torch.from_numpy(questions.scene_index)
        # Rows grouped by picture: those of picture p are _order[_begin[p] : _begin[p + 1]].
        self._order = torch.argsort(picture, stable=True)
        self.num_questions = len(questions)
        counts = torch.bincount(picture, minlength=len(self.images))
        self._begin = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])

    def asked(self, size: int) -> Iterator[Tensor]:
        """The pictures that have questions, `size` at a time: a batch must hold one at least."""
        pictures = torch.nonzero(self._begin.diff())[:, 0]
        for part in chunks(len(pictures), size):
            yield pictures[part]

    def batch(
        self, pictures: Tensor, draws: Tensor | None = None, own: slice = EVERY
    ) -> QuestionBatch:
        """Of some pictures the `own` with all their questions, picture by picture; no chance."""
        pictures = pictures[own]
        begin, end = self._begin[pictures], self._begin[pictures + 1]
        image_rows = torch.repeat_interleave(torch.arange(len(pictures)), end - begin)
        offset = torch.arange(len(image_rows)) - (end - begin).cumsum(0)[image_rows]
        rows = self._order[end[image_rows] + offset]
        items, question_rows = torch.unique(self.questions.rows[rows], return_inverse=True)
        phrases = self.phrases.rows[rows]
        answers = self.answers[rows]
        return QuestionBatch(
            images=self.images[pictures],
            question_ids=self.questions.take(items),
            image_rows=image_rows,
            question_rows=question_rows,
            answers=answers,
            phrase_ids=self.phrases.take(phrases, self.pad_phrases),
            rows=rows,
            counts={
                "answer": int((answers != UNKNOWN_ANSWER).sum()),
                "exact_match": len(rows),
                "phrase": int(self.phrases.lengths[phrases].sum()) - len(rows),
            },
        )


def chunks(num: int, size: int) -> Iterator[Tensor]:
    """0..num-1 in order, `size` at a time."""
    for begin in range(0, num, size):
        yield torch.arange(begin, min(begin + size, num))


@contextmanager
def _named(source: str, kind: str, ids: Sequence[int] | npt.NDArray[np.int64]) -> Iterator[None]:
    """Names the row whose text is too long: the table, what a row is, and which this one."""
    try:
        yield
    except LongTextError as error:
        raise UserError(f"{source}: {kind} {ids[error.index]}: {error}") from None
