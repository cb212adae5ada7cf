"""A split of the synthetic world, drawn once for all who need it: on disk or in memory."""

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np

from vlm.config.data import DataConfig
from vlm.data.tables import Images, QuestionTable, SceneTable
from vlm.scenes.asking import AskedQuestions, draw_questions
from vlm.scenes.captions import write_captions
from vlm.scenes.render import render_batches
from vlm.scenes.sampler import sample_scenes
from vlm.scenes.scene import ObjectRecord, Scenes


@dataclass(frozen=True, eq=False)
class DrawnSplit:
    """n scenes with their captions and questions; pictures are drawn when they are asked for."""

    data: DataConfig
    seed: int
    split: str
    scenes: Scenes
    objects: list[list[ObjectRecord]]
    captions: list[list[str]]
    caption_keys: list[list[str]]  # one for each caption
    questions: AskedQuestions

    def pictures(self) -> Iterator[Images]:
        """The pictures in order, some at a time: each (b, C, H, W)."""
        return render_batches(self.scenes, self.data.world, self.seed, self.split)

    def tables(self) -> tuple[SceneTable, QuestionTable]:
        """What one reads back after writing this split to disk."""
        asked = self.questions
        scenes = SceneTable(
            np.arange(len(self.scenes)),
            np.concatenate(list(self.pictures())),
            [[dict(item) for item in scene] for scene in self.objects],
            self.captions,
            self.caption_keys,
        )
        questions = QuestionTable(
            np.arange(len(asked.scene_id)),
            asked.scene_id,
            asked.scene_id,  # scenes are numbered from 0, so that a row is its own number
            asked.family,
            asked.question,
            asked.answer,
            asked.phrase,
        )
        return scenes, questions


def draw(data: DataConfig, seed: int, split: str, number: int) -> DrawnSplit:
    """The first `number` scenes of a split, and what is said and asked about them."""
    return tell(data, seed, split, sample_scenes(data.world, seed, split, number))


def tell(data: DataConfig, seed: int, split: str, scenes: Scenes) -> DrawnSplit:
    """These scenes as a split, and what is said and asked about them; at least one."""
    captions = write_captions(data, scenes, seed, split)
    return DrawnSplit(
        data,
        seed,
        split,
        scenes,
        scenes.records(data.world),
        captions.texts.tolist(),
        [[key] * data.captions_per_scene for key in captions.keys],
        draw_questions(data, scenes, seed, split),
    )


def picture_hash(image: Images) -> bytes:
    """A hash of one picture's pixels: equal pictures have equal ones, and in practice only they."""
    return blake2b(image.tobytes(), digest_size=16).digest()
