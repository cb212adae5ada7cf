"""Captions: several wordings of all the facts of a scene, and the way back.

A fact is (grid cell, shape, colour) of one object; cells form a 3x3 grid. A scene's facts are
always told in reading order. The *fact key* spells them in one canonical string, so two
captions say the same exactly when their keys are equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from vlm.scenes.grammar import NUMBERS, counted, with_article
from vlm.scenes.scene import CELLS, Ints, Scenes, cell_name, cell_of
from vlm.scenes.streams import BLOCK, blocks, stream

if TYPE_CHECKING:
    from vlm.config.data import DataConfig, WorldConfig

Strings = npt.NDArray[np.object_]

EMPTY_KEY = "empty"
FACT_JOINT = ";"


class Template(NamedTuple):
    """A wording. `opening` may hold {count}; `item` holds {noun} or {a_noun}, and {cell}.

    `joint` stands nowhere else in a caption, so that captions can be parsed.
    """

    opening: str
    item: str
    joint: str
    empty: str


TEMPLATES = (
    Template("", "{a_noun} at the {cell}", " and ", "an empty image"),
    Template("there is ", "{a_noun} at the {cell}", " and ", "there are no shapes"),
    Template("{count} : ", "{a_noun} at the {cell}", " , ", "no shapes"),
    Template("the image shows ", "{a_noun} at the {cell}", " and ", "the image shows nothing"),
    Template("", "at the {cell} there is {a_noun}", " , ", "there is no shape anywhere"),
    Template("an image of ", "{a_noun} in the {cell}", " with ", "an image of nothing"),
    Template(
        "{count} in the image : ", "one {noun} at the {cell}", " , ", "no shapes in the image"
    ),
    Template("in the image : ", "{noun} {cell}", " ; ", "in the image : nothing"),
)


@dataclass(frozen=True, eq=False)
class Captions:
    """The captions of n scenes and their fact keys."""

    texts: Strings  # (n, captions_per_scene)
    keys: Strings  # (n,), the key that all captions of a scene share


def write_captions(
    data: DataConfig, scenes: Scenes, seed: int, split: str, first: int = 0
) -> Captions:
    """Captions of a split's scenes from block `first` on.

    A scene is told once in each of the first `captions_per_scene` templates, in an order drawn
    for each scene, so the i-th captions of a split mix all wordings.
    """
    facts, scene_of = np.unique(_fact_ids(scenes, data.world), axis=0, return_inverse=True)
    told = [[fact for fact in row if fact >= 0] for row in facts.tolist()]
    wording = _wording(tuple(data.world.shapes), tuple(data.world.colors))
    templates = range(data.captions_per_scene)
    texts = np.array([[wording.tell(t, row) for t in templates] for row in told], object)
    keys = np.array([wording.key(row) for row in told], object)
    order = [
        stream(seed, split, block, "captions").random((BLOCK, len(templates))).argsort(axis=1)
        for block, _ in blocks(len(scenes), first)
    ]
    template_of = np.concatenate(order)[: len(scenes)]
    return Captions(texts[scene_of[:, None], template_of], keys[scene_of])


def fact_keys(scenes: Scenes, world: WorldConfig) -> list[str]:
    """The canonical string of each scene's facts, as `circle@top-left;plus@bottom-right`."""
    wording = _wording(tuple(world.shapes), tuple(world.colors))
    rows = _fact_ids(scenes, world).tolist()
    return [wording.key([fact for fact in row if fact >= 0]) for row in rows]


def key_facts(key: str) -> list[str]:
    """The facts of a fact key, one string an object, such as `circle@top-left`."""
    return [] if key == EMPTY_KEY else key.split(FACT_JOINT)


def parse_caption(text: str, world: WorldConfig) -> str | None:
    """The fact key that a caption states, or None where it follows no template to the letter.

    The objects may come in any order; a stated count must be that of the objects.
    """
    return _wording(tuple(world.shapes), tuple(world.colors)).parse(text)


def told_facts(text: str, world: WorldConfig) -> list[str]:
    """Every fact that a caption tells, as in a fact key, whatever else it says.

    It is read by the template in which it tells most; a fact told twice counts twice.

    Example: "a circle at the top left and a plus" tells `circle@top-left` alone.
    """
    return _wording(tuple(world.shapes), tuple(world.colors)).told(text)


def longest_caption(data: DataConfig) -> int:
    """The most words of a caption in this world, were there room for any objects anywhere."""
    wording = _wording(tuple(data.world.shapes), tuple(data.world.colors))
    captions: list[str] = []
    for template, items in enumerate(wording.items[: data.captions_per_scene]):
        words = [len(item.split()) for item in items]
        longest = words.index(max(words))
        captions += (wording.tell(template, [longest] * n) for n in (0, data.world.max_objects))
    return max(len(caption.split()) for caption in captions)


class _Wording:
    """Every fact of a world in every wording; a fact's id is its place in reading order."""

    def __init__(self, shapes: tuple[str, ...], colors: tuple[str, ...]) -> None:
        nouns = [f"{c} {s}" if len(colors) > 1 else s for s in shapes for c in colors]
        facts = [(noun, cell) for cell in CELLS for noun in nouns]
        self.keys = [f"{noun}@{cell_name(cell)}" for noun, cell in facts]
        self.items = [
            [t.item.format(noun=noun, a_noun=with_article(noun), cell=cell) for noun, cell in facts]
            for t in TEMPLATES
        ]
        self.ids = [{item: fact for fact, item in enumerate(items)} for items in self.items]

    def key(self, facts: list[int]) -> str:
        return FACT_JOINT.join(self.keys[fact] for fact in sorted(facts)) or EMPTY_KEY

    def tell(self, template: int, facts: list[int]) -> str:
        opening, _, joint, empty = TEMPLATES[template]
        if not facts:
            return empty
        items = joint.join(self.items[template][fact] for fact in facts)
        return opening.format(count=counted(len(facts), "shape")) + items

    def parse(self, text: str) -> str | None:
        for template, ids in zip(TEMPLATES, self.ids, strict=True):
            if text == template.empty:
                return EMPTY_KEY
            number = text.count(template.joint) + 1
            if number >= len(NUMBERS):
                continue  # no scene has so many objects, and no template a word for it
            opening = template.opening.format(count=counted(number, "shape"))
            items = text.removeprefix(opening).split(template.joint)
            if text.startswith(opening) and all(item in ids for item in items):
                return self.key([ids[item] for item in items])
        return None

    def told(self, text: str) -> list[str]:
        readings = (
            [
                self.keys[fact]
                for segment in text.split(template.joint)
                for fact in _last(segment, ids)
            ]
            for template, ids in zip(TEMPLATES, self.ids, strict=True)
        )
        return max(readings, key=len)


def _last(segment: str, ids: dict[str, int]) -> list[int]:
    """The fact that the longest possible ending of these words tells, if any does."""
    words = segment.split()
    endings = (" ".join(words[start:]) for start in range(len(words)))
    return next(([ids[ending]] for ending in endings if ending in ids), [])


@cache
def _wording(shapes: tuple[str, ...], colors: tuple[str, ...]) -> _Wording:
    return _Wording(shapes, colors)


def _fact_ids(scenes: Scenes, world: WorldConfig) -> Ints:
    """The ids of each scene's facts in ascending order, (n, K); -1 for an empty slot."""
    cell = cell_of(scenes.row, scenes.col, world.image_size)
    fact = (cell * len(world.shapes) + scenes.shape) * len(world.colors) + scenes.color
    return np.sort(np.where(scenes.present, fact, -1), axis=1)
