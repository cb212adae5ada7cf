"""A split changed in one thing, with what is then true: interventions that a made world allows.

A picture that is drawn anew keeps its noise and its clutter, so that nothing differs but what was
changed. A question that the world doesn't ask of the altered picture is left out: once the only
circle is erased, there is no colour of the circle.

M: questions of the split, A: those asked after the change.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from vlm.config.data import DataConfig
from vlm.data.tables import QuestionTable, SceneTable
from vlm.scenes.interventions import NO_OBJECT, erase, move, object_pixels, pick_objects
from vlm.scenes.render import render
from vlm.scenes.scene import Scenes, from_records
from vlm.scenes.truth import Truth

Ints = npt.NDArray[np.int64]
Strings = npt.NDArray[np.object_]
PLACED = ("position", "relation")  # the families whose answers hang on where objects are


@dataclass(frozen=True, eq=False)
class Altered:
    """What is shown and asked after a change.

    Attributes:
        scenes: as they are then.
        questions: A of them, with the answers that are true then.
        rows: (A,) which question of the split each one was.
    """

    scenes: SceneTable
    questions: QuestionTable
    rows: Ints


@dataclass(frozen=True, eq=False)
class Split:
    """A split of the made world, with all that is needed to draw it again.

    Attributes:
        data: its parameters.
        seed: that it was drawn with.
        name: of the split, which its random streams are named by.
        scenes, questions: its tables.
    """

    data: DataConfig
    seed: int
    name: str
    scenes: SceneTable
    questions: QuestionTable

    @cached_property
    def layout(self) -> Scenes:
        """The scenes as arrays."""
        return from_records(self.scenes.objects, self.data.world)

    @cached_property
    def truth(self) -> Truth:
        """What is true in this world."""
        return Truth(self.data)

    def redrawn(self, layout: Scenes, rows: Ints) -> Altered:
        """Other objects under the same noise, and these questions about them."""
        images = render(layout, self.data.world, self.seed, self.name)
        objects = [[dict(item) for item in scene] for scene in layout.records(self.data.world)]
        scenes = replace(self.scenes, images=images, objects=objects)
        return self._altered(scenes, layout, _take(self.questions, rows), rows)

    def asked(self, questions: QuestionTable, rows: Ints) -> Altered:
        """Other questions about the pictures as they are."""
        return self._altered(self.scenes, self.layout, questions, rows)

    def _altered(
        self, scenes: SceneTable, layout: Scenes, asked: QuestionTable, rows: Ints
    ) -> Altered:
        """Those of the questions that are asked of such scenes, with what is true."""
        answer, phrase = self.truth.tell(layout, asked.scene_index, asked.question)
        kept = np.flatnonzero([told is not None for told in answer])
        asked = _take(replace(asked, answer=answer, phrase=phrase), kept)
        return Altered(scenes, asked, rows[kept])


def shuffle_pictures(split: Split) -> Altered:
    """Each picture's questions asked about another picture, each picture shown once at most."""
    partner = another(len(split.scenes), split.seed)
    index = partner[split.questions.scene_index]
    scene_id = np.asarray(split.scenes.scene_id)[index]
    moved = replace(split.questions, scene_index=index, scene_id=scene_id)
    return split.asked(moved, np.arange(len(moved)))


def shuffle_questions(split: Split) -> Altered:
    """Each picture asked questions that were drawn for any picture, each of them once at most.

    Chance leaves a few with their own picture, where they may change the truth as much as anywhere.
    """
    order = another(len(split.questions), split.seed)
    own = split.questions
    dealt = replace(own, question=own.question[order], family=own.family[order])
    return split.asked(dealt, np.arange(len(dealt)))


def swap_words(split: Split) -> Altered:
    """The questions whose words, in another order, are another question; asked so."""
    anagrams = split.truth.anagrams()
    rows = np.flatnonzero([text in anagrams for text in split.questions.question])
    asked = _take(split.questions, rows)
    other = np.array([anagrams[text] for text in asked.question], object)
    return split.asked(replace(asked, question=other), rows)


def erase_object(split: Split) -> Altered:
    """One object of each picture that has any is gone."""
    slots = pick_objects(split.layout, split.seed)
    rows = np.flatnonzero(slots[split.questions.scene_index] != NO_OBJECT)
    return split.redrawn(erase(split.layout, slots), rows)


def move_object(split: Split) -> Altered:
    """One object of each picture is elsewhere; asked is where things are."""
    slots = pick_objects(split.layout, split.seed)
    layout, moved = move(split.layout, slots, split.data.world, split.seed)
    placed = np.isin(split.questions.family.astype(str), PLACED)
    rows = np.flatnonzero(placed & (moved[split.questions.scene_index] != NO_OBJECT))
    return split.redrawn(layout, rows)


def erase_background(split: Split) -> Altered:
    """Every pixel that belongs to no object is black: noise and clutter around them are gone."""
    keep = object_pixels(split.layout, split.data.world)[:, None]
    scenes = replace(split.scenes, images=split.scenes.images * keep)
    return Altered(scenes, split.questions, np.arange(len(split.questions)))


ALTERATIONS: dict[str, Callable[[Split], Altered]] = {
    "shuffled_pictures": shuffle_pictures,
    "shuffled_questions": shuffle_questions,
    "swapped_words": swap_words,
    "erased_object": erase_object,
    "moved_object": move_object,
    "erased_background": erase_background,
}


def _take(questions: QuestionTable, rows: Ints) -> QuestionTable:
    columns = ("question_id", "scene_id", "scene_index", "family", "question", "answer", "phrase")
    return replace(questions, **{name: getattr(questions, name)[rows] for name in columns})


def another(number: int, seed: int) -> Ints:
    """(number,) a permutation that leaves none in its place, but for a single one."""
    order = np.random.default_rng(seed).permutation(number)
    partner = np.empty_like(order)
    partner[order] = np.roll(order, 1)
    return partner
