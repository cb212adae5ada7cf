"""Splits of the synthetic world, drawn once for all who need them: block by block, or in memory.

n: scenes of a block, m: their questions.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from vlm.config.data import DataConfig, WorldConfig
from vlm.data import png
from vlm.data.schema import OBJECT, QUESTIONS
from vlm.data.tables import Images, QuestionTable, SceneTable
from vlm.data.writing import Part, image_column
from vlm.scenes.asking import AskedQuestions, draw_questions
from vlm.scenes.captions import Captions, write_captions
from vlm.scenes.out_of_distribution import SPLIT as UNLIKE
from vlm.scenes.out_of_distribution import sample_unlike
from vlm.scenes.render import render_batches
from vlm.scenes.sampler import BLOCK, sample_scenes
from vlm.scenes.scene import ObjectRecord, Scenes

Ints = npt.NDArray[np.int64]
Strings = npt.NDArray[np.object_]
DIGEST = 16  # bytes of a hash
TOLD = ("question", "answer", "family")


class Block(NamedTuple):
    """A block of a split, and what is to be counted of it; Arrow tables, so that it can travel.

    Attributes:
        part: its rows, ready to be written.
        hashes: `picture` and `layout` of each scene: equal where, and in practice only where, the
            pixels are, or the objects in whatever order.
        asked: each distinct `question`, `answer`, `family` and `facts` (the shapes and colours of
            the scene), and the `number` of times that it is asked so.
    """

    part: Part
    hashes: pa.Table
    asked: pa.Table

    def packed(self) -> bytes:
        """All of it as bytes."""
        sink = pa.BufferOutputStream()
        for table in (*self.part, self.hashes, self.asked):
            with pa.ipc.new_stream(sink, table.schema) as stream:
                stream.write_table(table)
        return sink.getvalue().to_pybytes()


def unpack(packed: bytes) -> Block:
    """The inverse of `Block.packed`."""
    source = pa.BufferReader(packed)
    scenes, questions, hashes, asked = (pa.ipc.open_stream(source).read_all() for _ in range(4))
    return Block(Part(scenes, questions), hashes, asked)


def draw_block(data: DataConfig, seed: int, split: str, block: int, number: int) -> Block:
    """Block `block` of a split of so many scenes; nothing but these arguments decides on a byte."""
    if split == UNLIKE:
        scenes = unlike_scenes(data, seed, number)[block * BLOCK : (block + 1) * BLOCK]
    else:
        scenes = sample_scenes(data.world, seed, split, min(BLOCK, number - block * BLOCK), block)
    asked = draw_questions(data, scenes, seed, split, block)
    captions = write_captions(data, scenes, seed, split, block)
    pngs, hashes = [], []
    for batch in render_batches(scenes, data.world, seed, split, block):
        pngs += [png.encode(image) for image in batch]
        hashes += [picture_hash(image) for image in batch]
    questions = _question_table(asked)
    return Block(
        Part(_scene_table(scenes, captions, pngs, data.world), questions),
        pa.table({"picture": hashes, "layout": layouts(scenes, data.world)}),
        _counted(questions, _facts(scenes, data.world)),
    )


def unlike_scenes(data: DataConfig, seed: int, number: int) -> Scenes:
    """The scenes of `test_ood`; fewer than `number` where the world hasn't the room for more."""
    return _unlike(data.world, seed, number)  # pyright: ignore[reportArgumentType]


_unlike = lru_cache(maxsize=1)(sample_unlike)  # kept, since its blocks are cut from the whole


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
    return blake2b(image.tobytes(), digest_size=DIGEST).digest()


def layouts(scenes: Scenes, world: WorldConfig) -> list[bytes]:
    """A hash of what each scene holds, whatever the order of its objects."""
    columns = (scenes.shape, scenes.color, scenes.row, scenes.col, scenes.radius)
    side = world.image_size
    sizes = (len(world.shapes), len(world.colors), side, side, world.max_radius + 1)
    codes = np.ravel_multi_index([np.where(scenes.present, c, 0) for c in columns], sizes)
    codes = np.sort(np.where(scenes.present, codes, -1), axis=1)[:, ::-1]
    return [blake2b(row.tobytes(), digest_size=DIGEST).digest() for row in codes.astype("<i8")]


def _scene_table(
    scenes: Scenes, captions: Captions, pngs: list[bytes], world: WorldConfig
) -> pa.Table:
    """The columns of `SCENES` but `scene_id`, (n rows)."""
    there = scenes.present
    fields = [
        pa.array(world.shapes).take(pa.array(scenes.shape[there])),
        pa.array(world.colors).take(pa.array(scenes.color[there])),
        *(pa.array(each[there]) for each in (scenes.row, scenes.col, scenes.radius)),
    ]
    objects = pa.StructArray.from_arrays(fields, fields=list(OBJECT))
    number, told = captions.texts.shape
    each = np.arange(number + 1) * told
    return pa.table(
        {
            "image": image_column(pngs),
            "objects": _lists(np.concatenate([[0], np.cumsum(scenes.count)]), objects),
            "captions": _lists(each, pa.array(captions.texts.ravel(), pa.string())),
            "caption_keys": _lists(each, pa.array(captions.keys.repeat(told), pa.string())),
        }
    )


def _question_table(asked: AskedQuestions) -> pa.Table:
    """The columns of `QUESTIONS` but `question_id`, (m rows)."""
    texts = (asked.family, asked.question, asked.answer, asked.phrase)
    number = len(asked.scene_id)
    no_answers = _lists(np.zeros(number + 1, np.int64), pa.array([], pa.string()))
    columns = [pa.array(asked.scene_id), *(pa.array(text, pa.string()) for text in texts)]
    return pa.table([*columns, no_answers], names=QUESTIONS.names[1:])


def _lists(offsets: Ints, values: pa.Array) -> pa.ListArray:
    """Lists that begin and end at the offsets."""
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values)


def _facts(scenes: Scenes, world: WorldConfig) -> Strings:
    """The shapes and colours of each scene, whatever the order and place of its objects, (n,)."""
    codes = np.where(scenes.present, scenes.shape * len(world.colors) + scenes.color, -1)
    distinct, which = np.unique(np.sort(codes, axis=1), axis=0, return_inverse=True)
    names = [" ".join(str(code) for code in row if code >= 0) for row in distinct.tolist()]
    return np.array(names, object)[which.reshape(-1)]


def _counted(questions: pa.Table, facts: Strings) -> pa.Table:
    """Each distinct thing that is asked, and how often: see `Block.asked`."""
    of_scene = pa.array(facts[questions["scene_id"].to_numpy()], pa.string())
    columns = [*(questions[name].combine_chunks() for name in TOLD), of_scene]
    coded = [pc.call_function("dictionary_encode", [column]) for column in columns]
    indices = [each.indices.to_numpy() for each in coded]
    sizes = tuple(len(each.dictionary) for each in coded)
    codes, counts = np.unique(np.ravel_multi_index(indices, sizes), return_counts=True)
    rows = np.unravel_index(codes, sizes)
    distinct = [each.dictionary.take(pa.array(row)) for each, row in zip(coded, rows, strict=True)]
    return pa.table([*distinct, pa.array(counts)], names=[*TOLD, "facts", "number"])
