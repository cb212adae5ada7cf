import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from published import (
    CLEVR,
    RED,
    halves,
    nodes,
    number_of_rows,
    write_clevr,
    write_json,
    write_picture,
)

from vlm.data.importers.clevr import read
from vlm.errors import UserError

TRAIN, SCENES = "questions/CLEVR_train_questions.json", "scenes/CLEVR_train_scenes.json"


def rewrite(path: Path, change: Callable[[Any], Any]) -> None:
    content = json.loads(path.read_text())
    change(content)
    write_json(path, content)


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("generator", [False, True])
def test_each_picture_has_its_questions_in_both_spellings(
    tmp_path: Path, generator: bool, flat: bool
):
    rows = write_clevr(tmp_path, generator, flat)
    found, bad = halves(read(tmp_path))
    assert bad == [] and number_of_rows(found) == rows
    by_name = {Path(each.picture).stem: each for each in found if isinstance(each.picture, Path)}
    order = ["test_000000", "train_000000", "train_000001", "val_000000"]
    assert list(by_name) == [f"CLEVR_{name}" for name in order]
    for name in order[1:]:
        one = by_name[f"CLEVR_{name}"]
        said = [(a.question, a.answer, a.phrase, a.family) for a in one.asked]
        assert said == [(q, a, a, f) for picture, q, a, f, _ in CLEVR if picture == name]
        assert one.split == name.partition("_")[0] and one.captions == ()
    (test,) = by_name["CLEVR_test_000000"].asked
    assert (test.question, test.answer, test.family) == ("Is it red?", None, "question")


def test_rows_are_named_by_file_and_number(tmp_path: Path):
    write_clevr(tmp_path)
    found, _ = halves(read(tmp_path))
    rows = {Path(each.picture).stem: each.rows for each in found if isinstance(each.picture, Path)}
    assert rows["CLEVR_train_000001"] == (f"{TRAIN} row 2", f"{TRAIN} row 8")
    numbers = (1, 3, 4, 5, 6, 7)
    assert rows["CLEVR_train_000000"] == tuple(f"{TRAIN} row {number}" for number in numbers)


def test_generality_splits_belong_to_theirs(tmp_path: Path):
    write_picture(tmp_path / "images/valB/CLEVR_valB_000000.png", 0)
    row = {"image_filename": "CLEVR_valB_000000.png", "question": "Red?", "answer": "no"}
    write_json(tmp_path / "questions/CLEVR_valB_questions.json", {"questions": [row]})
    found, bad = halves(read(tmp_path))
    assert bad == [] and [each.split for each in found] == ["val"]
    write_json(tmp_path / "questions/all.json", {"info": {"split": "new"}, "questions": [row]})
    found, _ = halves(read(tmp_path))
    assert [each.split for each in found] == ["val", None]


CHANGES = {
    "question: got None": lambda row: row.pop("question"),
    "question: got ' '": lambda row: row.update(question=" "),
    "answer: got None": lambda row: row.pop("answer"),
    "answer: got 3, but the program gives 2": lambda row: row.update(answer="3"),
    "image_filename: got 7": lambda row: row.update(image_filename=7),
    "got no such file": lambda row: row.update(image_filename="CLEVR_train_000077.png"),
    "got a path through '..'": lambda row: row.update(image_filename="../a.png"),
    "program: got {'a': 1}": lambda row: row.update(program={"a": 1}),
    "program: got []": lambda row: row.update(program=[]),
    "program node 1: got 'a', expected an object": lambda row: row["program"].insert(1, "a"),
    "function None": lambda row: row["program"][2].pop("function"),
    "function 'counts'": lambda row: row["program"][2].update(function="counts"),
    "function ['count']": lambda row: row["program"][2].update(function=["count"]),
    "program node 2: got inputs [2]": lambda row: row["program"][2].update(inputs=[2]),
    "got inputs [-1]": lambda row: row["program"][2].update(inputs=[-1]),
    "got inputs [True]": lambda row: row["program"][2].update(inputs=[True]),
    "got inputs ['1']": lambda row: row["program"][2].update(inputs=["1"]),
    "got inputs 1": lambda row: row["program"][2].update(inputs=1),
    "(count): got inputs that give none": lambda row: row["program"][2].update(inputs=[]),
    "give objects, expected object": lambda row: row["program"][2].update(function="query_size"),
    "got values [], expected one text": lambda row: row["program"][1].update(value_inputs=[]),
    "got values [1], expected one text": lambda row: row["program"][1].update(value_inputs=[1]),
    "got values ['a'], expected none": lambda row: row["program"][2].update(value_inputs=["a"]),
    "got filter_color at its end": lambda row: row["program"].pop(),
    "node 2 (unique): got 2 objects, expected one": lambda row: row.update(
        program=nodes([*RED, ("unique", [1]), ("query_size", [2])])
    ),
    "node 2 (relate): got None as what is under of object 0": lambda row: row.update(
        program=nodes([("scene",), ("unique", [0]), ("relate", [1], "under"), ("count", [2])]),
        image_filename="CLEVR_train_000001.png",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("reason", "change"), CHANGES.items(), ids=CHANGES)
def test_a_broken_row_is_listed_and_no_other_suffers(tmp_path: Path, reason: str, change: Any):
    rows = write_clevr(tmp_path)
    rewrite(tmp_path / TRAIN, lambda file: change(file["questions"][0]))
    found, bad = halves(read(tmp_path))
    assert [each.row for each in bad] == [f"{TRAIN} row 1"] and reason in bad[0].reason
    assert number_of_rows(found) == rows - 1


BROKEN_SCENES = {
    "objects: got None": lambda scene: scene.pop("objects"),
    "relationships: got 3": lambda scene: scene.update(relationships=3),
    "got None as the color of object 0": lambda scene: scene["objects"][0].pop("color"),
    "got 4 as the color of object 1": lambda scene: scene["objects"][1].update(color=4),
    "color of object 2": lambda scene: scene["objects"].__setitem__(2, "cylinder"),
    "got 3, but the program gives 2": lambda scene: None,
}


@pytest.mark.parametrize(("reason", "change"), BROKEN_SCENES.items(), ids=BROKEN_SCENES)
def test_a_broken_scene_is_told_by_the_rows_that_ask_about_it(
    tmp_path: Path, reason: str, change: Any
):
    rows = write_clevr(tmp_path)
    rewrite(tmp_path / SCENES, lambda file: change(file["scenes"][0]))
    if reason.startswith("got 3"):
        rewrite(tmp_path / TRAIN, lambda file: file["questions"][0].update(answer="3"))
    found, bad = halves(read(tmp_path))
    assert bad[0].row == f"{TRAIN} row 1" and reason in bad[0].reason
    assert number_of_rows([*found, *bad]) == rows


def test_without_a_scene_an_answer_is_taken_at_its_word(tmp_path: Path):
    rows = write_clevr(tmp_path)
    rewrite(tmp_path / TRAIN, lambda file: file["questions"][0].update(answer="3"))
    rewrite(tmp_path / SCENES, lambda file: file["scenes"].pop(0))
    assert number_of_rows(halves(read(tmp_path))[0]) == rows
    (tmp_path / SCENES).unlink()
    assert number_of_rows(halves(read(tmp_path))[0]) == rows


def test_a_scene_of_no_picture_is_a_row_that_is_listed(tmp_path: Path):
    rows = write_clevr(tmp_path)
    rewrite(tmp_path / SCENES, lambda file: file["scenes"].extend([3, {}, dict(file["scenes"][0])]))
    found, bad = halves(read(tmp_path))
    assert [each.row for each in bad] == [f"{SCENES} row {number}" for number in (3, 4, 5)]
    assert number_of_rows(found) == rows


@pytest.mark.parametrize("name", [TRAIN, SCENES])
@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"questions": 1, "scenes": {}}', b"\xff"])
def test_a_file_of_another_kind_is_named(tmp_path: Path, name: str, content: bytes):
    write_clevr(tmp_path)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=name):
        list(read(tmp_path))


def test_a_folder_without_questions_is_named(tmp_path: Path):
    for root in (tmp_path, tmp_path / "none"):
        with pytest.raises(UserError, match="got no such files, expected questions/"):
            list(read(root))
