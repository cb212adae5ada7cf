"""The sheet of a split: what `generate` would write, read or drawn, and its answers counted."""

from collections import Counter
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import Result
from project import ROOT, read_preset
from ruamel.yaml import YAML
from typer.testing import CliRunner

from stages import generate
from vlm.app import data_show
from vlm.app.cli import app
from vlm.app.data_show import Seen, drawn, from_disk, shares
from vlm.config import parse_params
from vlm.config.schema import Params
from vlm.data import png
from vlm.data.schema import QUESTIONS, SCENES
from vlm.data.tables import read_questions, read_scenes
from vlm.data.writing import Part, SplitWriter, write_scenes
from vlm.errors import UserError
from vlm.reporting.contact_sheet import Asked, Card

SIZES = {"train_scenes": 60, "val_scenes": 30, "test_scenes": 25, "test_ood_scenes": 40}
RUNTIME = parse_params(read_preset("tiny")).runtime
SPLITS = [name.removesuffix("_scenes") for name in SIZES]


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def values(**changes: Any) -> dict[str, Any]:
    read = read_preset("tiny")
    read["data"] |= SIZES | changes
    return read


def show(*arguments: object, **changes: Any) -> Result:
    with Path("own.yaml").open("w") as file:
        YAML(typ="safe").dump(values(**changes), file)
    result = CliRunner().invoke(app, ["data", "show", "own.yaml", *map(str, arguments)])
    if isinstance(result.exception, UserError):
        raise result.exception
    return result


def same(one: Seen, other: Seen) -> None:
    assert (one.scenes, one.answers) == (other.scenes, other.answers)
    for a, b in zip(one.cards, other.cards, strict=True):
        assert (a.scene_id, a.captions, a.questions) == (b.scene_id, b.captions, b.questions)
        np.testing.assert_array_equal(a.picture, b.picture)


def slow(split: str, count: int) -> list[Card]:
    """The cards of a split by a scan of its whole tables."""
    scenes, questions = read_scenes(f"data/{split}"), read_questions(f"data/{split}")
    columns = (questions.family, questions.question, questions.answer)
    rows = list(zip(questions.scene_id, *columns, strict=True))
    return [
        Card(
            number,
            scenes.images[number],
            scenes.captions[number],
            [Asked(*row[1:]) for row in rows if row[0] == number],
        )
        for number in range(count)
    ]


@pytest.mark.parametrize("world", ["held out", "color"])
def test_drawn_is_what_generate_writes(world: str):
    changes: dict[str, Any] = {"world": values()["data"]["world"] | {"held_out": ["plus@top-left"]}}
    if world == "color":
        changes["world"] |= {"channels": 3, "colors": ["red", "blue"]}
        changes["families"] = {"color": 1, "count": 3}
    data = parse_params(values(**changes)).data
    generate.main(Params.model_construct(seed=5, data=data, runtime=RUNTIME))
    for split in SPLITS:
        for count in (2, 35):
            seen = drawn(data, 5, split, count)
            same(seen, from_disk(Path("data", split), count))
            expected = slow(split, min(count, SIZES[f"{split}_scenes"]))
            same(seen, seen._replace(cards=expected))


def test_only_the_first_scenes_are_counted(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(data_show, "COUNTED", 20)
    data = parse_params(values()).data
    generate.main(Params.model_construct(seed=5, data=data, runtime=RUNTIME))
    questions = read_questions("data/train")
    for count, scenes in ((12, 20), (30, 30)):
        seen = drawn(data, 5, "train", count)
        same(seen, from_disk(Path("data/train"), count))
        first = questions.scene_id < scenes
        assert seen.scenes == scenes
        assert seen.answers == Counter(
            zip(questions.family[first], questions.answer[first], strict=True)
        )


def test_the_command_writes_the_same_sheet_each_time():
    for name in ("a", "b"):
        result = show("--out", f"sheets/{name}.png", "--count", 4)
        assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert lines[0] == "sheets/b.png: train, drawn with seed 0: 4 scenes with 32 questions"
    assert lines[1] == "the answers in the first 60 scenes:"
    assert {line.split()[0] for line in lines[3:]} == set(values()["data"]["families"])
    first = Path("sheets/a.png").read_bytes()
    assert first == Path("sheets/b.png").read_bytes()
    for other in (("--seed", 1), ("--split", "val"), ("--count", 5)):
        show("--out", "sheets/b.png", "--count", 4, *other)
        assert first != Path("sheets/b.png").read_bytes()


def write_own(folder: str, answer: str | None) -> None:
    """Two scenes, the first with one question and without a caption, the second the other way."""
    image = {"bytes": png.encode(np.zeros((3, 16, 16), np.uint8)), "path": None}
    captions = [[], ["a $ cat\n猫"]]
    scenes = [
        {"image": image, "objects": [], "captions": mine, "caption_keys": mine} for mine in captions
    ]
    question = {"scene_id": 0, "family": "open", "question": "why?", "answer": answer}
    tables = (
        pa.Table.from_pylist(scenes, SCENES.remove(0)),
        pa.Table.from_pylist([question], QUESTIONS.remove(0)),
    )
    with SplitWriter(folder) as writer:
        writer.add(Part(*tables))


@pytest.mark.parametrize("answer", [None, "because of\nthe cat, which is very long and says so"])
def test_own_data_are_read_from_disk(answer: str | None):
    write_own("data/val", answer)
    result = show("--split", "val", source="imagefolder")
    assert result.exit_code == 0, result.output
    first, *_, last = result.output.splitlines()
    assert first == "data_sheet.png: data/val: 2 scenes with 1 questions"
    told = "no answer given" if answer is None else "because of the cat, whi…"
    assert last.split(maxsplit=2) == ["open", "1", f"{told} 100%"]
    cards = from_disk(Path("data/val"), 12).cards
    assert [list(card.questions) for card in cards] == [[Asked("open", "why?", answer)], []]


def test_scenes_without_any_question_are_shown():
    write_scenes(
        "data/train", [np.zeros((3, 1, 16, 16), np.uint8)], [[]] * 3, [["a"]] * 3, [["a"]] * 3
    )
    assert show("--from-disk").output.splitlines()[-1] == "no questions"


def test_shares_of_answers_are_those_of_a_slow_count():
    rng = np.random.default_rng(0)
    pairs = [(str(rng.integers(3)), str(rng.integers(9))) for _ in range(500)]
    _, *lines = shares(Counter(pairs))
    for line, (family, rows) in zip(
        lines, groupby(sorted(pairs), lambda pair: pair[0]), strict=True
    ):
        mine = [answer for _, answer in rows]
        name, number, told = line.split(maxsplit=2)
        assert (name, number) == (family, str(len(mine)))
        *common, others = told.split(", ")
        assert len(common) == 5 and others.split()[:2] == ["4", "others"]
        percents = [int(part.split()[-1].rstrip("%")) for part in common]
        assert percents == sorted(percents, reverse=True)
        for part in common:
            answer, percent = part.split()
            assert percent == f"{mine.count(answer) / len(mine):.0%}"


def test_mistakes_are_named():
    def refuses(text: str, *arguments: object, **changes: Any) -> None:
        with pytest.raises(UserError) as caught:
            show(*arguments, **changes)
        assert str(caught.value) == text

    refuses("--split: got oak, expected one of train, val, test, test_ood", "--split", "oak")
    refuses(
        "--split: got test_ood, which has no scenes, expected one that has some",
        *("--split", "test_ood"),
        test_ood_scenes=0,
    )
    missing = (
        "got no such folder, expected scenes-00000.parquet in it; run the stage generate first"
    )
    refuses(f"data/val: {missing}", "--split", "val", "--from-disk")
    refuses(f"data/train: {missing}", source="imagefolder")
    seed = "--seed: got 1, expected none where scenes are read from data"
    refuses(seed, "--seed", 1, "--from-disk")
    refuses(seed, "--seed", 1, source="imagefolder")
    refuses(
        "own.yaml/a.png: got a file above it, expected a path that can be written",
        "--out",
        "own.yaml/a.png",
    )
    write_own("data/train", "yes")
    rows = pq.read_table("data/train/scenes-00000.parquet").to_pylist()
    rows[1]["image"] = None
    pq.write_table(pa.Table.from_pylist(rows, SCENES), "data/train/scenes-00000.parquet")
    broken = "row 1: picture: got bytes that are no PNG, expected a gray or RGB PNG"
    refuses(f"data/train/scenes-00000.parquet {broken}", "--from-disk")
    assert not Path("data_sheet.png").exists()


def test_the_default_world_is_shown_without_data():
    result = CliRunner().invoke(
        app, ["data", "show", str(ROOT / "params.yaml"), "--split", "test_ood"]
    )
    assert result.exit_code == 0 and not Path("data").exists()
    assert "the answers in the first 2,000 scenes:" in result.output
