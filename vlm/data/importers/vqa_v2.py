"""VQA v2 and OK-VQA: question files, annotation files, and pictures of COCO.

    v2_OpenEnded_mscoco_train2014_questions.json  v2_mscoco_train2014_annotations.json
    train2014/COCO_train2014_000000000009.jpg     (or in images/train2014/, images/, or beside)

Of the JSON files whose name speaks of questions or annotations, each is taken for what it holds.
Two belong together by `data_subtype`, such as "train2014".
"""

import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from vlm.data.importers.finding import check_found, first_file, json_files, read_lists, split_of
from vlm.data.importers.gathering import Gathering
from vlm.data.importers.rows import (
    Asked,
    Bad,
    BadRowError,
    Found,
    shown,
    text,
    told_by_annotator,
)
from vlm.errors import UserError

Id = int | str


class _Answers(NamedTuple):
    """What an annotation says."""

    image: object
    answer: str
    answers: tuple[str, ...]
    family: str


class _Annotation(NamedTuple):
    """The question it is for, None where it names none; and what it says, or what is wrong."""

    key: Id | None
    said: _Answers | str


class _File(NamedTuple):
    """The rows of a file, whose name is relative to the user's folder."""

    name: str
    rows: list[Any]


def read(root: Path) -> Iterator[Found | Bad]:
    """Pictures with their questions, and bad rows; a row is a question, joined by its annotation.

    An annotation that joins none is a bad row of its own. Where a split has no annotation file
    its questions have no answers, as in VQA's test split.

    Raises:
        UserError: no question file, one that can't be read as one, or two of one split.
    """
    questions, annotations = _files(root)
    check_found(root, (file.name for file in questions.values()), "*questions*.json")
    for subtype, file in annotations.items():
        if subtype not in questions:
            raise UserError(
                f"{root / file.name}: got annotations without their questions, expected both files"
            )
    pictures = Gathering()
    for subtype in sorted(questions):
        yield from _read_split(
            root, subtype, questions[subtype], annotations.get(subtype), pictures
        )
    yield from pictures


def _files(root: Path) -> tuple[dict[str, _File], dict[str, _File]]:
    """Question files and annotation files by `data_subtype`."""
    folders = ["", *sorted(each.name for each in root.glob("*/"))]
    found: dict[str, dict[str, _File]] = {"questions": {}, "annotations": {}}
    for name in json_files(root, folders):
        if not re.search("question|annotation", Path(name).name.lower()):
            continue
        file, kinds = read_lists(root, name, *found)
        subtype = file.get("data_subtype")
        if not isinstance(subtype, str):
            said = re.search(r"(train|val|test(-dev)?)\d{4}", name)
            subtype = said[0] if said else ""
        for kind in kinds:
            if subtype in found[kind]:
                raise UserError(
                    f"{root / name}: got {kind} of the same split as"
                    f" {found[kind][subtype].name}, expected one file of them"
                )
            # Annotations are boiled down at once: as JSON they are most of what a data set holds.
            rows = file[kind] if kind == "questions" else [_annotation(row) for row in file[kind]]
            found[kind][subtype] = _File(name, rows)
    questions = found["questions"]
    for subtype in [each for each in questions if each.startswith("test-dev")]:
        if subtype.replace("-dev", "") in questions:
            del questions[subtype]  # the whole test split holds its questions too
    return questions, found["annotations"]


def _read_split(
    root: Path, subtype: str, asked: _File, told: _File | None, pictures: Gathering
) -> Iterator[Bad]:
    answers: dict[Id, tuple[str, _Answers | str]] = {}
    if told is not None:
        yield from _join(told, answers)
    seen: dict[Id, str] = {}
    for number, row in enumerate(asked.rows, 1):
        named = f"{asked.name} row {number}"
        try:
            key = _id(row)
            if key in seen:
                raise BadRowError(f"question_id: got {shown(key)} again, as in {seen[key]}")
            seen[key] = named
            question = text(row.get("question"), "question")
            picture = _picture(root, subtype, row.get("image_id"))
            if told is None:
                one = Asked(question, None, None)
            else:
                said = _said(answers, key, row["image_id"])
                one = Asked(question, said.answer, said.answer, said.family, said.answers)
            pictures.add(split_of(subtype), picture, named, one)
        except BadRowError as error:
            yield Bad(named, str(error))
    for key, (named, _) in answers.items():
        if key not in seen:
            yield Bad(named, f"question_id: got {shown(key)}, expected one of {asked.name}")


def _join(told: _File, by_question: dict[Id, tuple[str, _Answers | str]]) -> Iterator[Bad]:
    """Fill `by_question` with the annotation's row, and what it says or what is wrong with it."""
    for number, (key, said) in enumerate(told.rows, 1):
        named = f"{told.name} row {number}"
        if key is None:
            yield Bad(named, str(said))
        elif key in by_question:
            yield Bad(named, f"question_id: got {shown(key)} again, as in {by_question[key][0]}")
        else:
            by_question[key] = named, said


def _annotation(row: Any) -> _Annotation:
    key = None
    try:
        key = _id(row)
        return _Annotation(key, _answers(row))
    except BadRowError as error:
        return _Annotation(key, str(error))


def _said(answers: dict[Id, tuple[str, _Answers | str]], key: Id, image: object) -> _Answers:
    """The annotation of a question about a picture.

    Raises:
        BadRowError: there is none, it is broken, or it is of another picture.
    """
    if key not in answers:
        raise BadRowError(f"question_id: got {shown(key)} without an annotation")
    named, said = answers[key]
    if isinstance(said, str):
        raise BadRowError(f"{named}: {said}")
    if said.image != image:
        raise BadRowError(f"image_id: got {shown(image)}, but {shown(said.image)} in {named}")
    return said


def _answers(row: dict[str, Any]) -> _Answers:
    """What an annotation says: the answer that most annotators gave, and all of theirs.

    Raises:
        BadRowError: no answer, or the annotators' are of another form.
    """
    listed = row.get("answers", [])
    if not isinstance(listed, list) or not all(isinstance(each, dict) for each in listed):
        raise BadRowError(f"answers: got {shown(listed)}, expected a list of objects")
    every = tuple(sys.intern(told_by_annotator(each.get("answer"))) for each in listed)
    best = row.get("multiple_choice_answer")
    if best in (None, ""):
        counts = Counter(each for each in every if each)
        best = min(counts, key=lambda each: (-counts[each], each), default=None)
    kinds = (row.get(key) for key in ("answer_type", "question_type"))
    family = next((text(kind, "answer_type") for kind in kinds if kind is not None), "question")
    best, family = sys.intern(text(best, "answer")), sys.intern(family)
    return _Answers(row.get("image_id"), best, every, family)


def _id(row: object) -> Id:
    """The question's number.

    Raises:
        BadRowError: it has none.
    """
    if not isinstance(row, dict):
        raise BadRowError(f"got {shown(row)}, expected an object")
    key = row.get("question_id")
    if not isinstance(key, int | str) or isinstance(key, bool):
        raise BadRowError(f"question_id: got {shown(key)}, expected a number")
    return key


def _picture(root: Path, subtype: str, image: object) -> Path:
    """The file of COCO's picture `image`.

    Raises:
        BadRowError: no such number, or no such file.
    """
    if type(image) is not int or not 0 <= image < 10**12:
        raise BadRowError(f"image_id: got {shown(image)}, expected a number")
    folder = subtype.replace("-dev", "")
    names = [f"{image:012}.jpg"]
    if folder:
        names.insert(0, f"COCO_{folder}_{names[0]}")
    places = [f"{folder}/", f"images/{folder}/"] if folder else []
    places += ["images/", ""]
    return first_file(root, [place + name for place in places for name in names])
