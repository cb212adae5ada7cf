"""Which questions each scene is asked.

Letters: n scenes, Q questions a scene, V variants (programs) of a family.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from vlm.errors import UserError
from vlm.scenes.programs import NO_VALUE
from vlm.scenes.questions import Question, question_table, true_answers
from vlm.scenes.sampler import sample_scenes
from vlm.scenes.scene import Ints, Scenes
from vlm.scenes.streams import BLOCK, blocks, stream

if TYPE_CHECKING:
    from vlm.config.data import DataConfig

Floats = npt.NDArray[np.float64]
Strings = npt.NDArray[np.object_]
YES_NO = ("no", "yes")
CALIBRATION_SCENES = 8 * BLOCK  # a yes rate is then good to about 0.01


@dataclass(frozen=True, eq=False)
class AskedQuestions:
    """m questions with their answers, scene by scene."""

    scene_id: Ints  # (m,)
    family: Strings  # (m,)
    question: Strings  # (m,)
    answer: Strings  # (m,)
    phrase: Strings  # (m,)


@dataclass(frozen=True, eq=False)
class _Family:
    """A family's variants, and how they are picked."""

    questions: list[Question]
    first: int  # place of its first variant in the list of all
    yes_rate: float | None  # how often a yes is wished for; None: whatever the variant says


def draw_questions(
    data: DataConfig, scenes: Scenes, seed: int, split: str, first: int = 0
) -> AskedQuestions:
    """`questions_per_scene` questions for each of a split's scenes from block `first` on.

    Families are drawn by systematic sampling on their shares: shares that sum to the number
    of questions are met exactly in each scene, any others on average. Within a family a
    scene is asked each variant before any is asked twice, and a repeat is worded anew
    where the family has another wording.

    Only variants are asked that have an answer about the scene and aren't refused (see
    `true_answers`). Where a family has none such, its questions are left out, and the scene has
    fewer.

    `answer_balance` concerns the families of yes and no. Of the others, `what_shape` and `count`
    have a single variant and so leave no choice, and the colours that `color` asks for are even
    as they are: the world draws them so.

    Raises:
        UserError: A family of which no scene of this world is asked anything.
    """
    families = _families(data, seed)  # pyright: ignore[reportArgumentType]
    every = [question for family in families for question in family.questions]
    edges = np.cumsum([data.families[family.questions[0].family] for family in families])
    # Rounded, so that shares like 0.1 + 0.2 end exactly on a question's border.
    edges = np.round(edges * data.questions_per_scene / edges[-1], 9)
    picks, wordings, codes = [], [], []
    for block, part in blocks(len(scenes), first):
        rng, members = stream(seed, split, block, "questions"), scenes[part]
        values = np.stack([true_answers(q, members, data) for q in every], axis=1)
        pick, wording = _draw_block(rng, families, edges, values, data.questions_per_scene)
        picks.append(pick)
        wordings.append(wording)
        codes.append(np.take_along_axis(values, pick, axis=1))
    code = np.concatenate(codes)
    asked = code != NO_VALUE
    pick, wording, code = (np.concatenate(each)[asked] for each in (picks, wordings, codes))
    return AskedQuestions(
        np.nonzero(asked)[0],
        np.array([question.family for question in every], object)[pick],
        _table([question.texts for question in every])[pick, wording],
        _table([question.answers for question in every])[pick, code],
        _table([question.phrases for question in every])[pick, code],
    )


@lru_cache(maxsize=8)  # every block asks for them
def _families(data: DataConfig, seed: int) -> list[_Family]:
    table, balanced = question_table(data), data.answer_balance == "balanced"
    calibration = sample_scenes(data.world, seed, "calibration", CALIBRATION_SCENES)
    families, first = [], 0
    for family, questions in table.items():
        if all((true_answers(q, calibration[:BLOCK], data) == NO_VALUE).all() for q in questions):
            raise UserError(
                f"data.families.{family}: got no question that fits any of {BLOCK} scenes of this"
                " world, expected at least one"
            )
        yes_rate = None
        if balanced and questions[0].answers == YES_NO:
            values = [true_answers(q, calibration, data) for q in questions]
            yes_rate = _yes_rate(np.stack(values, axis=1))
        families.append(_Family(questions, first, yes_rate))
        first += len(questions)
    return families


def _yes_rate(values: Ints) -> float:
    """How often to wish for a yes, so that half the answers are yes where the world allows it.

    Only scenes that have variants of both answers, (n, V) values, leave a choice. Those without any
    variant to ask don't count.
    """
    values = values[(values != NO_VALUE).any(axis=1)]
    if not len(values):
        return 0.5
    always = (values != 0).all(axis=1).mean()
    choice = (values == 1).any(axis=1).mean() - always
    return float(np.clip((0.5 - always) / choice, 0, 1)) if choice > 0 else 0.5


def _draw_block(
    rng: np.random.Generator, families: list[_Family], edges: Floats, values: Ints, asked: int
) -> tuple[Ints, Ints]:
    """Picks among all variants and their wordings, each (n, Q), for one block's n scenes.

    A question that `values` knows no answer to is picked only where its family has no other.
    Everything is drawn for a whole block, then cut to the n scenes that `values` has.
    """
    n = len(values)
    points = rng.random((BLOCK, 1))[:n] + np.arange(asked)
    family_of = np.minimum(np.searchsorted(edges, points, side="right"), len(families) - 1)
    picks, wordings = np.zeros((2, n, asked), np.int64)
    for index, family in enumerate(families):
        size, texts = len(family.questions), len(family.questions[0].texts)
        chance = rng.random((BLOCK, size))[:n]
        wish = rng.random((BLOCK, asked))[:n]
        wording = rng.integers(texts, size=(BLOCK, size))[:n]
        says = values[:, family.first : family.first + size]
        mine = family_of == index  # a run of neighbouring slots in each scene
        number, start = mine.sum(axis=1), mine.argmax(axis=1)
        uses = np.zeros((n, size), np.int64)
        for turn in range(number.max(initial=0)):
            scene = np.flatnonzero(number > turn)
            # What can be asked first, then fewest uses, then the wished answer, then chance.
            rank = 2 * uses[scene] + chance[scene]
            rank[says[scene] == NO_VALUE] += 2 * asked
            if family.yes_rate is not None:
                rank += says[scene] != (wish[scene, turn, None] < family.yes_rate)
            pick = rank.argmin(axis=1)
            picks[scene, start[scene] + turn] = family.first + pick
            worded = (wording[scene, pick] + uses[scene, pick]) % texts
            wordings[scene, start[scene] + turn] = worded
            uses[scene, pick] += 1
    return picks, wordings


def _table(rows: list[tuple[str, ...]]) -> Strings:
    """Rows of unequal length as one array, filled up with empty strings."""
    table = np.full((len(rows), max(map(len, rows))), "", object)
    for filled, row in zip(table, rows, strict=True):
        filled[: len(row)] = row
    return table
