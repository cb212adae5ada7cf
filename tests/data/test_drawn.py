"""Splits of the synthetic world in memory: the same as on disk, and apart from one another."""

from collections import Counter
from dataclasses import fields
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from project import read_preset

from stages import generate
from vlm.config import parse_params
from vlm.config.data import DataConfig
from vlm.config.schema import Params
from vlm.data import writing
from vlm.data.drawn import Block, draw, draw_block, picture_hash, unpack
from vlm.data.tables import QuestionTable, SceneTable, read_questions, read_scenes
from vlm.data.writing import Part, SplitWriter
from vlm.scenes.sampler import BLOCK

RUNTIME = parse_params(read_preset("tiny")).runtime


def make_data() -> DataConfig:
    values = read_preset("tiny")
    values["data"] |= {"train_scenes": 40, "val_scenes": 30, "test_scenes": 25}
    return parse_params(values).data


def same(one: SceneTable | QuestionTable, other: SceneTable | QuestionTable) -> None:
    for name in {field.name for field in fields(one)} - {"source"}:
        np.testing.assert_equal(getattr(one, name), getattr(other, name))


def test_in_memory_as_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    data = make_data()
    generate.main(Params.model_construct(seed=3, data=data, runtime=RUNTIME))
    for split, number in (("train", 40), ("val", 30), ("test", 25)):
        scenes, questions = draw(data, 3, split, number).tables()
        same(scenes, read_scenes(f"data/{split}"))
        same(questions, read_questions(f"data/{split}"))


def test_fresh_scenes_are_in_no_split():
    """Neither a picture nor, but by chance, the scenes in their order."""
    data = make_data()
    drawn = {split: draw(data, 0, split, 400) for split in ("train", "val", "test", "fresh")}
    hashes = {
        split: {picture_hash(image) for batch in one.pictures() for image in batch}
        for split, one in drawn.items()
    }
    assert all(len(pictures) == 400 for pictures in hashes.values())
    assert len(set().union(*hashes.values())) == 4 * 400
    fresh = drawn.pop("fresh").objects
    for one in drawn.values():
        assert sum(a == b for a, b in zip(fresh, one.objects, strict=True)) < 60  # empty scenes


def test_the_first_fresh_scenes_do_not_depend_on_how_many_follow():
    data = make_data()
    few, many = draw(data, 0, "fresh", 10).tables(), draw(data, 0, "fresh", 50).tables()
    assert (few[0].images == many[0].images[:10]).all()
    assert (few[1].question == many[1].question[:80]).all()


def test_equal_pictures_alone_have_equal_hashes():
    image = np.random.default_rng(0).integers(0, 256, (1, 8, 8), np.uint8)
    other = image.copy()
    assert picture_hash(image) == picture_hash(other)
    other[0, 7, 7] += 1
    assert picture_hash(image) != picture_hash(other)


@pytest.fixture(scope="module")
def blocks() -> list[Block]:
    """A split of a block and a part of one."""
    return [draw_block(make_data(), 3, "val", block, BLOCK + 30) for block in range(2)]


def write(folder: Path, parts: list[Part]) -> dict[str, bytes]:
    with SplitWriter(folder) as writer:
        for part in parts:
            writer.add(part)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def cut(part: Part, start: int, stop: int) -> Part:
    """Some of a part's scenes, with their questions."""
    of_scene = part.questions["scene_id"].to_numpy()
    first, last = np.searchsorted(of_scene, [start, stop])
    mine = part.questions.slice(first, last - first)
    return Part(
        part.scenes.slice(start, stop - start),
        mine.set_column(0, "scene_id", [of_scene[first:last] - start]),
    )


def test_blocks_are_the_split_in_memory(tmp_path: Path, blocks: list[Block]):
    write(tmp_path, [block.part for block in blocks])
    scenes, questions = draw(make_data(), 3, "val", BLOCK + 30).tables()
    same(scenes, read_scenes(tmp_path))
    same(questions, read_questions(tmp_path))


def test_a_block_hangs_on_no_other_and_a_partial_one_is_cut(blocks: list[Block]):
    whole = draw_block(make_data(), 3, "val", 1, 2 * BLOCK)
    assert cut(whole.part, 0, 30) == blocks[1].part
    assert whole.hashes.slice(0, 30) == blocks[1].hashes
    assert len(whole.part.scenes) == BLOCK


def test_how_rows_are_parted_changes_no_byte(
    tmp_path: Path, blocks: list[Block], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(writing, "GROUP_BYTES", 100_000)
    monkeypatch.setattr(writing, "SHARD_BYTES", 300_000)
    whole = write(tmp_path / "whole", [block.part for block in blocks])
    assert len(whole) > 2
    ends = [0, 1, 2, 300, 301, 900, BLOCK]
    pieces = [cut(blocks[0].part, *pair) for pair in pairwise(ends)]
    assert write(tmp_path / "pieces", [*pieces, blocks[1].part]) == whole
    travelled = [unpack(block.packed()).part for block in blocks]
    assert write(tmp_path / "travelled", travelled) == whole


def test_the_writer_holds_no_more_than_a_group_and_a_part(
    tmp_path: Path, blocks: list[Block], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(writing, "GROUP_BYTES", 50_000)
    part = cut(blocks[0].part, 0, 64)
    size = int(writing.row_bytes(part.scenes).sum())
    with SplitWriter(tmp_path) as writer:
        for _ in range(40):
            writer.add(part)
            held = int(writing.row_bytes(writer._scenes._waiting).sum())
            assert held < 50_000 + size
        assert writer.num_scenes == 40 * 64


def test_hashes_and_counts_are_those_of_the_rows(blocks: list[Block]):
    scenes, questions = draw(make_data(), 3, "val", BLOCK + 30).tables()
    pictures = [each for block in blocks for each in block.hashes["picture"].to_pylist()]
    assert pictures == [picture_hash(image) for image in scenes.images]
    layouts = [each for block in blocks for each in block.hashes["layout"].to_pylist()]
    told = [tuple(sorted(tuple(item.values()) for item in scene)) for scene in scenes.objects]
    assert len(set(layouts)) == len(set(told)) == len(set(zip(layouts, told, strict=True)))
    counts: Counter[tuple[str, ...]] = Counter()
    facts: set[str] = set()
    for row in blocks[0].asked.to_pylist():
        counts[row["question"], row["answer"], row["family"]] += row["number"]
        facts.add(row["facts"])
    first = slice(0, BLOCK * make_data().questions_per_scene)
    texts = (questions.question[first], questions.answer[first], questions.family[first])
    assert counts == Counter(zip(*texts, strict=True))
    shown = {tuple(sorted((o["shape"], o["color"]) for o in s)) for s in scenes.objects[:BLOCK]}
    assert len(facts) == len(shown)
