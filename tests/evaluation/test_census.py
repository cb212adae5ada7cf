"""Counts over blocks against the same counts over whole splits, by plain loops."""

from collections import Counter

import numpy as np
import pytest
from project import read_preset

from vlm.config import parse_params
from vlm.config.data import DataConfig
from vlm.data.drawn import draw, draw_block
from vlm.data.tables import QuestionTable, SceneTable
from vlm.evaluation.census import Census
from vlm.evaluation.floors import AskedColumns, floor_correct, floor_correct_within_families
from vlm.scenes.sampler import BLOCK

SIZES = {"val": 60, "test": 90, "fresh": 40, "train": BLOCK + 200}


def make_data(noise: float) -> DataConfig:
    values = read_preset("tiny")
    values["data"]["world"]["noise"] = noise
    return parse_params(values).data


def counted(data: DataConfig) -> Census:
    census = Census(SIZES)
    for split, number in SIZES.items():
        for block in range(-(-number // BLOCK)):
            census.add(split, draw_block(data, 1, split, block, number))
    return census


def columns(scenes: SceneTable, asked: QuestionTable) -> AskedColumns:
    facts = [tuple(sorted((o["shape"], o["color"]) for o in scene)) for scene in scenes.objects]
    shown = [facts[scene] for scene in asked.scene_index]
    return AskedColumns(list(asked.question), list(asked.answer), list(asked.family), shown)


def layouts(scenes: SceneTable) -> list[tuple[object, ...]]:
    return [tuple(sorted(tuple(item.values()) for item in scene)) for scene in scenes.objects]


def test_figures_are_those_of_plain_loops():
    data = make_data(noise=0.0)
    census = counted(data)
    figures = census.figures()
    tables = {split: draw(data, 1, split, number).tables() for split, number in SIZES.items()}
    pictures = {
        split: [i.tobytes() for i in scenes.images] for split, (scenes, _) in tables.items()
    }
    earlier = set(pictures["train"])
    duplicates = 0
    for split in ("val", "test", "fresh"):
        in_train = sum(picture in set(pictures["train"]) for picture in pictures[split])
        assert figures[split]["pictures_also_in_train"] == in_train > 0
        repeated = sum(picture in earlier for picture in pictures[split])
        assert census.repeated(split) == repeated
        duplicates += repeated
        earlier |= set(pictures[split])
    assert figures["duplicate_pictures_across_splits"] == duplicates
    known = set(layouts(tables["train"][0]))
    share = np.mean([layout in known for layout in layouts(tables["test"][0])])
    assert figures["test_layouts_in_train"] == pytest.approx(share)
    for split, (scenes, asked) in tables.items():
        assert (figures[split]["scenes"], figures[split]["questions"]) == (len(scenes), len(asked))
        for family, shares in figures[split]["answers"].items():
            answers = Counter(asked.answer[asked.family == family])
            assert shares == {a: n / answers.total() for a, n in answers.items()}


def test_floors_are_those_of_whole_tables():
    data = make_data(noise=0.05)
    figures = counted(data).figures()
    train, test = (
        columns(*draw(data, 1, name, SIZES[name]).tables()) for name in ("train", "test")
    )
    assert figures["duplicate_pictures_across_splits"] == 0
    floors = figures["floors"]
    by_family = floors.pop("by_family")
    for name, correct in floor_correct(train, test, families_alike=False).items():
        assert floors.pop(name) == pytest.approx(correct.mean())
    assert not floors
    families = np.array(test.families)
    for name, correct in floor_correct_within_families(train, test).items():
        assert by_family[name].keys() == set(test.families)
        for family, share in by_family[name].items():
            assert share == pytest.approx(correct[families == family].mean())
    assert figures["test_answers_not_in_train"] == 0


def test_answers_that_train_never_gives_are_counted():
    """Where train is a few scenes, test gives some that they don't."""
    data = make_data(noise=0.05)
    census = Census(("test", "train"))
    census.add("test", draw_block(data, 1, "test", 0, 200))
    census.add("train", draw_block(data, 1, "train", 0, 1))
    asked = draw(data, 1, "test", 200).questions.answer
    given = set(draw(data, 1, "train", 1).questions.answer)
    share = np.mean([answer not in given for answer in asked])
    assert census.figures()["test_answers_not_in_train"] == pytest.approx(share)
    assert share > 0


def test_nothing_kept_grows_with_train():
    data = make_data(noise=0.05)
    census = Census(("test", "train"))
    census.add("test", draw_block(data, 1, "test", 0, 20))
    sizes = []
    for block in range(3):
        census.add("train", draw_block(data, 1, "train", block, 3 * BLOCK))
        sizes.append(len(census._held_out) + len(census._layouts) + len(census._known))
        assert len(census._asked["train"]) < 600
    assert max(sizes) <= 3 * 20
