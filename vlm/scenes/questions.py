"""Questions about scenes: a program, its wordings, and a sentence for each answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import permutations
from typing import TYPE_CHECKING

import numpy as np

from vlm.errors import UserError
from vlm.scenes.captions import longest_caption
from vlm.scenes.grammar import NUMBERS, plural, there_are, with_article
from vlm.scenes.programs import (
    DIRECTIONS,
    HALVES,
    NO_VALUE,
    Program,
    answers,
    execute,
    is_degenerate,
)
from vlm.scenes.scene import Ints, Scenes

if TYPE_CHECKING:
    from vlm.config.data import DataConfig, Family, WorldConfig

SCENE = Program("scene")


@dataclass(frozen=True)
class Question:
    """One thing to ask: `answers` and `phrases` are indexed by the program's value."""

    family: Family
    texts: tuple[str, ...]  # paraphrases
    program: Program
    answers: tuple[str, ...]
    phrases: tuple[str, ...]


def question_table(data: DataConfig) -> dict[Family, list[Question]]:
    """Every question of the families in use, in the order of the families' table.

    Raises:
        UserError: A family that has no question in this world.
    """
    table: dict[Family, list[Question]] = {
        family: list(write(data)) for family, write in FAMILIES.items() if data.families.get(family)
    }
    for family, questions in table.items():
        if not questions:
            what = "colors" if family == "color" else "shapes"
            raise UserError(
                f"data.families.{family} has no question to ask with"
                f" data.world.{what} {getattr(data.world, what)}, expected at least two {what}"
            )
    return table


def true_answers(question: Question, scenes: Scenes, data: DataConfig) -> Ints:
    """The place in `answers` of the true one for each scene, (n,); NO_VALUE where it isn't asked.

    It isn't asked about a scene where it has no answer, nor, in a world that refuses degenerate
    questions, where a step of its program changes nothing.
    """
    values = execute(question.program, scenes, data.world)
    if data.degenerate == "refuse":
        refused = is_degenerate(question.program, scenes, data.world)
        values = np.where(refused, NO_VALUE, values)
    return values


def longest_text(data: DataConfig) -> int:
    """The most words of any question, phrase or caption of this world."""
    sentences = (
        sentence
        for questions in question_table(data).values()
        for question in questions
        for sentence in (*question.texts, *question.phrases)
    )
    return max(longest_caption(data), *(len(sentence.split()) for sentence in sentences))


def _what_shape(data: DataConfig) -> Iterator[Question]:
    program = Program("query_shape", (SCENE,))
    yield Question(
        "what_shape",
        ("what shape is in the image", "which shape does the image show"),
        program,
        answers(program, data.world),
        (
            *(f"it is {with_article(shape)}" for shape in data.world.shapes),
            "there is no shape",
            *(there_are(count, "shape") for count in range(1, len(NUMBERS))),
        ),
    )


def _count(data: DataConfig) -> Iterator[Question]:
    program = Program("count", (SCENE,))
    yield Question(
        "count",
        ("how many shapes are there in the image", "how many shapes does the image show"),
        program,
        answers(program, data.world),
        tuple(there_are(count, "shape") for count in range(len(NUMBERS))),
    )


def _exists(data: DataConfig) -> Iterator[Question]:
    for shape in data.world.shapes:
        yield _yes_no("exists", data.world, _only(shape), shape, "", " in the image")


def _position(data: DataConfig) -> Iterator[Question]:
    for half in HALVES:
        objects = Program("filter_half", (SCENE,), (half,))
        place = f" in the {half} half"
        yield _yes_no("position", data.world, objects, "shape", place, " of the image")


def _relation(data: DataConfig) -> Iterator[Question]:
    for first, second in permutations(data.world.shapes, 2):
        for direction in DIRECTIONS:
            inputs = (_only(first), _only(second))
            objects = Program("relate", inputs, (direction, data.relation_margin))
            place = f" {direction} {with_article(second)}"
            yield _yes_no("relation", data.world, objects, first, place, " in the image")


def _compare(data: DataConfig) -> Iterator[Question]:
    for first, second in permutations(data.world.shapes, 2):
        program = Program("more", tuple(Program("count", (_only(s),)) for s in (first, second)))
        more = f"more {plural(first)} than {plural(second)}"
        yield Question(
            "compare",
            (f"are there {more} in the image",),
            program,
            answers(program, data.world),
            (f"no there are not {more}", f"yes there are {more}"),
        )


def _color(data: DataConfig) -> Iterator[Question]:
    if len(data.world.colors) < 2:
        return
    for shape in data.world.shapes:
        program = Program("query_color", (Program("unique", (_only(shape),)),))
        words = answers(program, data.world)
        phrases = tuple(f"the {shape} is {color}" for color in words)
        yield Question("color", (f"what color is the {shape}",), program, words, phrases)


def _only(shape: str) -> Program:
    return Program("filter_shape", (SCENE,), (shape,))


def _yes_no(
    family: Family, world: WorldConfig, objects: Program, noun: str, place: str, ending: str
) -> Question:
    """Is there a `noun` `place`? `ending` is said in the question only."""
    program = Program("exist", (objects,))
    return Question(
        family,
        (f"is there {with_article(noun)}{place}{ending}",),
        program,
        answers(program, world),
        (f"no there is no {noun}{place}", f"yes there is {with_article(noun)}{place}"),
    )


FAMILIES: dict[Family, Callable[[DataConfig], Iterator[Question]]] = {
    "what_shape": _what_shape,
    "count": _count,
    "exists": _exists,
    "position": _position,
    "relation": _relation,
    "compare": _compare,
    "color": _color,
}
