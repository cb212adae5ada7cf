import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from published import (
    VQA_ANNOTATIONS,
    VQA_QUESTIONS,
    annotation,
    halves,
    number_of_rows,
    write_json,
    write_picture,
    write_vqa,
)

from vlm.data.importers.rows import Asked, Bad, Found
from vlm.data.importers.vqa_v2 import read
from vlm.errors import UserError

QUESTIONS = "v2_OpenEnded_mscoco_train2014_questions.json"
ANNOTATIONS = "v2_mscoco_train2014_annotations.json"
FIRST = VQA_QUESTIONS["train2014"][0]


def rewrite(path: Path, change: Callable[[Any], Any]) -> None:
    content = json.loads(path.read_text())
    change(content)
    write_json(path, content)


def asked(found: list[Found]) -> dict[str, Asked]:
    return {each.question: each for one in found for each in one.asked}


@pytest.mark.parametrize("version", ["v2_", ""])
@pytest.mark.parametrize("folder", ["", "images/"])
def test_questions_are_joined_with_their_annotations(tmp_path: Path, folder: str, version: str):
    rows = write_vqa(tmp_path, folder, version)
    found, bad = halves(read(tmp_path))
    assert bad == [] and number_of_rows(found) == rows
    assert [(each.split, Path(str(each.picture)).name) for each in found] == [
        ("test", "COCO_test2015_000000000007.jpg"),
        ("train", "COCO_train2014_000000000009.jpg"),
        ("train", "COCO_train2014_000000000025.jpg"),
        ("train", "COCO_train2014_000000000030.jpg"),
        ("val", "COCO_val2014_000000000042.jpg"),
        ("val", "COCO_val2014_000000000043.jpg"),
    ]
    assert [len(each.asked) for each in found] == [2, 2, 1, 2, 2, 1]
    said = asked(found)
    assert said["Is it raining?"] == Asked(
        "Is it raining?", "yes", "yes", "yes/no", ("no", *["yes"] * 9)
    )
    assert said["What is on the hill?"].answers == ("house", *["barn"] * 9)
    assert said["How many dogs?"].family == "number"
    assert said["Why?"] == Asked("Why?", None, None)


def test_the_commonest_answer_is_taken_where_none_is_chosen(tmp_path: Path):
    write_vqa(tmp_path)
    who = asked(halves(read(tmp_path))[0])["Who won?"]
    assert (who.answer, who.family) == ("blue", "six")  # as often as red, and before it
    assert len(who.answers) == 10 and "" in who.answers


def test_the_order_of_annotations_is_of_no_account(tmp_path: Path):
    write_vqa(tmp_path)
    before = list(read(tmp_path))
    rewrite(tmp_path / ANNOTATIONS, lambda file: file["annotations"].reverse())
    assert list(read(tmp_path)) == before


def test_files_are_found_by_what_they_hold(tmp_path: Path):
    write_vqa(tmp_path)
    before = list(read(tmp_path))
    (tmp_path / "told").mkdir()
    (tmp_path / ANNOTATIONS).rename(tmp_path / "told/My Annotations.json")
    write_json(tmp_path / "v2_mscoco_train2014_complementary_pairs.json", [[1, 2]])
    assert list(read(tmp_path)) == before
    rewrite(tmp_path / QUESTIONS, lambda file: file.pop("data_subtype"))  # its name says it too
    assert list(read(tmp_path)) == before


def test_the_subset_of_the_test_split_is_left_alone(tmp_path: Path):
    rows = write_vqa(tmp_path)
    part = {"data_subtype": "test-dev2015", "questions": VQA_QUESTIONS["test2015"][:1]}
    write_json(tmp_path / "v2_OpenEnded_mscoco_test-dev2015_questions.json", part)
    assert number_of_rows(halves(read(tmp_path))[0]) == rows
    (tmp_path / "v2_OpenEnded_mscoco_test2015_questions.json").unlink()
    found, bad = halves(read(tmp_path))
    assert bad == [] and found[0].split == "test" and len(found[0].asked) == 1


BROKEN = {
    "question: got ''": lambda row: row.update(question=""),
    "image_id: got '9'": lambda row: row.update(image_id="9"),
    "image_id: got -1": lambda row: row.update(image_id=-1),
    "image_id: got True": lambda row: row.update(image_id=True),
    "image_id: got 25, but 9 in " + ANNOTATIONS: lambda row: row.update(image_id=25),
    "got no such file": lambda row: row.update(image_id=10),
}


@pytest.mark.parametrize(("reason", "change"), BROKEN.items(), ids=BROKEN)
def test_a_broken_question_is_listed(tmp_path: Path, reason: str, change: Any):
    rows = write_vqa(tmp_path)
    rewrite(tmp_path / QUESTIONS, lambda file: change(file["questions"][0]))
    found, bad = halves(read(tmp_path))
    assert [each.row for each in bad] == [f"{QUESTIONS} row 1"] and reason in bad[0].reason
    assert number_of_rows(found) == rows - 1


BROKEN_ANNOTATIONS = {
    "answers: got 3": lambda row: row.update(answers=3),
    "answers: got [3]": lambda row: row.update(answers=[3]),
    "answers: got None": lambda row: row["answers"][0].pop("answer"),
    "answer: got 3": lambda row: row.update(multiple_choice_answer=3),
    "answer_type: got 3": lambda row: row.update(answer_type=3),
    "answer: got None": lambda row: row.update(multiple_choice_answer=None, answers=[]),
}


@pytest.mark.parametrize(("reason", "change"), BROKEN_ANNOTATIONS.items(), ids=BROKEN_ANNOTATIONS)
def test_a_broken_annotation_is_told_by_its_question(tmp_path: Path, reason: str, change: Any):
    rows = write_vqa(tmp_path)
    rewrite(tmp_path / ANNOTATIONS, lambda file: change(file["annotations"][1]))
    found, bad = halves(read(tmp_path))
    assert [each.row for each in bad] == [f"{QUESTIONS} row 1"]
    assert bad[0].reason.startswith(f"{ANNOTATIONS} row 2: {reason}")
    assert number_of_rows(found) == rows - 1


def bad_rows(root: Path, name: str, key: str, *more: Any) -> list[Bad]:
    """What is bad once a file has more rows."""
    write_vqa(root)
    rewrite(root / name, lambda file: file[key].extend(more))
    return halves(read(root))[1]


def test_rows_that_join_nothing_are_listed(tmp_path: Path):
    ghost = annotation(999, 9, "a")
    assert bad_rows(tmp_path, ANNOTATIONS, "annotations", ghost, 3, {}, {"question_id": 1.5}) == [
        Bad(f"{ANNOTATIONS} row 7", "got 3, expected an object"),
        Bad(f"{ANNOTATIONS} row 8", "question_id: got None, expected a number"),
        Bad(f"{ANNOTATIONS} row 9", "question_id: got 1.5, expected a number"),
        Bad(f"{ANNOTATIONS} row 6", f"question_id: got 999, expected one of {QUESTIONS}"),
    ]
    extra = {"image_id": 9, "question": "When?", "question_id": 92}
    assert bad_rows(tmp_path, QUESTIONS, "questions", extra) == [
        Bad(f"{QUESTIONS} row 6", "question_id: got 92 without an annotation")
    ]


def test_the_second_of_a_question_id_is_listed(tmp_path: Path):
    again = VQA_ANNOTATIONS["train2014"][0]
    assert bad_rows(tmp_path, ANNOTATIONS, "annotations", again) == [
        Bad(f"{ANNOTATIONS} row 6", f"question_id: got 91 again, as in {ANNOTATIONS} row 1")
    ]
    assert bad_rows(tmp_path, QUESTIONS, "questions", FIRST) == [
        Bad(f"{QUESTIONS} row 6", f"question_id: got 90 again, as in {QUESTIONS} row 1")
    ]


def test_pictures_may_lie_together_and_be_named_by_number(tmp_path: Path):
    for place in ("images/COCO_train2014_000000000009.jpg", "images/000000000025.jpg"):
        write_picture(tmp_path / place, 3)
    rows = {"data_subtype": "train2014", "questions": VQA_QUESTIONS["train2014"][:3]}
    write_json(tmp_path / QUESTIONS, rows)
    found, bad = halves(read(tmp_path))
    assert bad == [] and [Path(str(one.picture)).name[:4] for one in found] == ["COCO", "0000"]
    assert {each.answer for each in asked(found).values()} == {None}  # no file of annotations


def test_files_that_do_not_fit_together_are_named(tmp_path: Path):
    for root in (tmp_path, tmp_path / "none"):
        with pytest.raises(UserError, match="got no such files, expected"):
            list(read(root))
    write_vqa(tmp_path)
    (tmp_path / QUESTIONS).rename(tmp_path / "held.json")
    with pytest.raises(UserError, match=f"{ANNOTATIONS}: got annotations without their questions"):
        list(read(tmp_path))
    (tmp_path / "held.json").rename(tmp_path / QUESTIONS)
    write_json(tmp_path / "more/questions.json", json.loads((tmp_path / QUESTIONS).read_text()))
    with pytest.raises(UserError, match=f"got questions of the same split as {QUESTIONS}"):
        list(read(tmp_path))
    write_json(tmp_path / "more/questions.json", {"questions": {}})
    with pytest.raises(UserError, match=r"more/questions\.json: got no list of questions or"):
        list(read(tmp_path))
