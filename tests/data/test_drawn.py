"""Splits of the synthetic world in memory: the same as on disk, and apart from one another."""

from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from project import read_preset

from stages import generate
from vlm.config import parse_params
from vlm.config.data import DataConfig
from vlm.config.schema import Params
from vlm.data.drawn import draw, picture_hash
from vlm.data.tables import QuestionTable, SceneTable, read_questions, read_scenes

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
